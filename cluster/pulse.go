package cluster

import (
	"sync/atomic"
	"time"

	"penstock/limiter"
)

// A node that gets no requests does less, for each time that it wakes costs its machine some tens
// of microseconds. While it is calm it asks for signs of life half as often. A node without other
// members, and without holds that may run out, is idle: it ticks once a second, until a request
// comes.
const (
	calmTicks      = 10 // in a row in which nothing was asked or changed
	calmProbeEvery = 2 * probeEvery
	idleEvery      = time.Second
)

// pulse is when a node ticks. Guarded by partitions.mu.
type pulse struct {
	*self
	parts *partitions
	beat  func() // a tick

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
func (n *Node) mayIdleLocked(r *route) bool {
	if r == nil || !n.pulse.calmLocked() || n.right.on || n.holder.book.Len() > 0 ||
		n.local.leases.Len() > 0 {
		return false
	}
	return n.debts.ledger.Len() == 0
}

// nextTickLocked sets the timer of the next tick.
func (pl *pulse) nextTickLocked(mayIdle bool) {
	if pl.stopped.Load() {
		return
	}
	every := tickEvery
	if mayIdle {
		every = idleEvery
		pl.idle.Store(true)
	}
	pl.tickInLocked(every)
}

// tickInLocked has the next tick come after d, instead of the one that was to come next.
func (pl *pulse) tickInLocked(d time.Duration) {
	if pl.stopTick != nil {
		pl.stopTick()
	}
	pl.stopTick = pl.clock.AfterFunc(d, pl.beat)
}

// wake ends an idle time: a request has come.
func (pl *pulse) wake() {
	pl.parts.mu.Lock()
	defer pl.parts.mu.Unlock()
	pl.wakeLocked()
}

func (pl *pulse) wakeLocked() {
	if pl.idle.Swap(false) && !pl.stopped.Load() {
		pl.calm = 0
		pl.tickInLocked(tickEvery)
	}
}

// tick is the node's pulse.
func (n *Node) tick() {
	now := n.clock.Now()
	n.parts.mu.Lock()
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
	n.pulse.nextTickLocked(n.mayIdleLocked(r))
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
