package cluster

import (
	"sync/atomic"
	"time"

	"penstock/limiter"
)

// A node of which nobody asks anything does less, for each time that it wakes costs its machine
// some tens of microseconds. While it is calm it asks for signs of life half as often. Who agrees
// with nobody, and has no holds whose deadlines it would have to look at, dozes: it ticks once a
// second, until somebody asks.
const (
	calmTicks      = 10 // in a row in which nothing was asked or changed
	calmProbeEvery = 2 * probeEvery
	dozeEvery      = time.Second
)

// pulse is when a node ticks. Guarded by partitions.mu.
type pulse struct {
	*self
	parts  *partitions
	holder *holder
	beat   func() // a tick

	sweepEvery time.Duration
	dozing     atomic.Bool
	ticks      uint64
	changes    uint64          // Stats.Changes at the last tick
	calm       int             // ticks in a row in which nothing has changed
	swept      limiter.Instant // when the table was last looked at
	stopTick   func()
}

// lookBusyLocked counts the ticks in which nothing has happened.
func (pl *pulse) lookBusyLocked() {
	changes := pl.stats.Changes()
	if pl.calm++; changes != pl.changes {
		pl.calm, pl.changes = 0, changes
	}
}

func (pl *pulse) calmLocked() bool { return pl.calm >= calmTicks }

// mayDozeLocked reports whether nothing waits for the next tick.
func (n *Node) mayDozeLocked(r *route) bool {
	if r == nil || !n.pulse.calmLocked() || n.right.on || n.holder.book.Len() > 0 ||
		n.local.leases.Len() > 0 {
		return false
	}
	return n.debts.ledger.Len() == 0
}

// nextTickLocked sets the timer of the next tick.
func (pl *pulse) nextTickLocked(mayDoze bool) {
	if pl.stopped.Load() {
		return
	}
	every := tickEvery
	if mayDoze {
		every = dozeEvery
		pl.dozing.Store(true)
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

// rouse ends a doze: somebody has come.
func (pl *pulse) rouse() {
	pl.parts.mu.Lock()
	defer pl.parts.mu.Unlock()
	pl.rouseLocked()
}

func (pl *pulse) rouseLocked() {
	if pl.dozing.Swap(false) && !pl.stopped.Load() {
		pl.calm = 0
		pl.tickInLocked(tickEvery)
	}
}
