package cluster

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// A node that gets no requests does less, for each time that it wakes costs its machine some tens
// of microseconds. While it is calm it asks for signs of life half as often. While besides nothing
// waits for the next tick it is idle: it ticks once a second, and polls the agreement only when
// that is due by time alone (ownership.State.Due). An idle time ends with a request, with anything
// that another node says but renewals and signs of life, with a call that fails, and with an event
// of the agreement after which something is to be done.
const (
	calmTicks      = 10 // in a row in which nothing was asked or changed
	calmProbeEvery = 2 * probeEvery
	idleEvery      = time.Second
)

// pulse is when a node ticks. Guarded by partitions.mu.
type pulse struct {
	*self
	agreed *agreement
	parts  *partitions
	beat   func() // a tick

	telling sync.Mutex      // held while onIdle is told
	onIdle  func(idle bool) // may be nil

	idle     atomic.Bool
	ticks    uint64
	changes  uint64 // Stats.Changes at the last tick
	calm     int    // ticks in a row in which nothing has changed
	stopTick func()
}

// lookBusyLocked counts the ticks in which nothing has happened.
func (pl *pulse) lookBusyLocked() {
	changes := pl.stats.Changes()
	if pl.calm++; changes != pl.changes {
		pl.calm, pl.changes = 0, changes
	}
}

func (pl *pulse) calmLocked() bool { return pl.calm >= calmTicks }

// mayIdleLocked reports whether nothing waits for the next tick.
func (n *Node) mayIdleLocked(now limiter.Instant, r *route) bool {
	if r == nil || !n.pulse.calmLocked() || n.holder.book.Len() > 0 || n.local.leases.Len() > 0 ||
		n.debts.ledger.Len() > 0 {
		return false
	}
	if !n.right.on {
		return true
	}
	_, calm := n.agreed.dueIn(now)
	return calm && !n.parts.unsettled && !n.claims.tending && !n.restorer.restored &&
		len(n.awaits.awaited) == 0 && n.copier.settledLocked() && r.answered()
}

// settledLocked reports whether no other member waits for something to be said to it.
func (cp *copier) settledLocked() bool {
	return len(cp.parting) == 0 && !slices.ContainsFunc(cp.keepers.outboxes,
		func(p *peer) bool { return p.out.busy || p.out.waits() })
}

// answered reports whether all other members answer, and none leaves.
func (r *route) answered() bool {
	return !slices.ContainsFunc(r.members, func(p *peer) bool {
		return p.missed.Load() != 0 || p.gone() || p.leaving()
	})
}

// nextTickLocked sets the timer of the next tick.
func (pl *pulse) nextTickLocked(mayIdle bool) {
	if pl.stopped.Load() {
		return
	}
	switch {
	case mayIdle:
		if !pl.idle.Swap(true) {
			pl.tellIdle()
		}
		pl.tickInLocked(idleEvery)
	case pl.idle.Load():
		pl.wakeLocked()
	default:
		pl.tickInLocked(tickEvery)
	}
}

// tellIdle has onIdle told how it is by then: what is told last is true.
func (pl *pulse) tellIdle() {
	if pl.onIdle == nil {
		return
	}
	pl.clock.AfterFunc(0, func() {
		pl.telling.Lock()
		defer pl.telling.Unlock()
		pl.onIdle(pl.idle.Load())
	})
}

// tickInLocked has the next tick come after d, instead of the one that was to come next.
func (pl *pulse) tickInLocked(d time.Duration) {
	if pl.stopTick != nil {
		pl.stopTick()
	}
	pl.stopTick = pl.clock.AfterFunc(d, pl.beat)
}

// wake ends an idle time: a request has come, or something else that ticks have to follow.
func (pl *pulse) wake() {
	pl.parts.mu.Lock()
	defer pl.parts.mu.Unlock()
	pl.wakeLocked()
}

func (pl *pulse) wakeLocked() {
	if pl.idle.Swap(false) && !pl.stopped.Load() {
		pl.tellIdle()
		pl.calm = 0
		pl.tickInLocked(tickEvery)
		pl.agreed.pollInLocked(agreeEvery)
	}
}

// wakeIdle is wake, and costs nothing where there is no idle time.
func (pl *pulse) wakeIdle() {
	if pl.idle.Load() {
		pl.wake()
	}
}

// wakeFor ends an idle time for a request that is to be decided. The machine may have been
// suspended meanwhile, without a poll that has looked: so that is looked at first, and by another
// request as well that comes before the idle time has ended.
func (pl *pulse) wakeFor() {
	pl.agreed.agree(0, ownership.Poll{})
	pl.wake()
}

// tick is the node's pulse.
func (n *Node) tick() {
	if !n.agreed.on { // an agent, say, which polls nothing: was it suspended?
		n.agreed.agree(0)
	}
	now := n.clock.Now()
	n.parts.mu.Lock()
	if !n.stopped.Load() {
		n.still.runs(now)
	}
	n.tickLocked(now)
	sweep := n.holder.sweepLocked(now)
	n.parts.mu.Unlock()
	if sweep > 0 {
		n.holder.table.Sweep(now, sweep)
	}
}

func (n *Node) tickLocked(now limiter.Instant) {
	r := n.view.Load()
	if r != nil {
		n.awaits.awaitLocked(now, r)
		n.copier.spreadLocked(r)
		n.debts.chargeDebtsLocked()
		n.contacts.probeMissingLocked(now, r)
		if n.right.on {
			n.keepCopiesLocked(now, r)
		}
		n.copier.collectLocked(now)
		n.copier.startPushesLocked()
	}
	n.pulse.ticks++
	n.holder.tendHoldsLocked(now, n.pulse.ticks)
	n.local.tendLeases(now)
	n.local.denials.Sweep(now)
	n.notices.watches.Sweep(now, n.pulse.ticks)
	n.pulse.lookBusyLocked()
	n.pulse.nextTickLocked(n.mayIdleLocked(now, r))
}

// keepCopiesLocked looks which members answer, and what is to be copied, claimed, given back or
// forgotten.
func (n *Node) keepCopiesLocked(now limiter.Instant, r *route) {
	n.contacts.countSilentLocked(now, r)
	n.contacts.probeLocked(now, r)
	n.restorer.returnLocked(now)
	if n.parts.unsettled {
		n.claims.tendLocked()
	}
	if n.pulse.ticks%64 == 0 {
		n.intake.forgetFormerLocked(now)
		n.parts.tidyLocked(now)
	}
}

// sweepLocked is how many places of the table are to be looked at now: in half a minute every key
// is looked at once, and none waits long for it. It follows what was collected, so what a refund or
// a reset made as good as new is told before it is removed.
func (hd *holder) sweepLocked(now limiter.Instant) int {
	elapsed := time.Duration(now - hd.swept)
	if elapsed < hd.sweepEvery {
		return 0
	}
	hd.swept = now
	slots, of := int64(hd.table.Stats().Slots), min(elapsed, idleEvery).Milliseconds()
	return max(256, int(slots*of/sweepRound.Milliseconds()))
}

// sweepRound is how long it takes to look at every key.
const sweepRound = 30 * time.Second
