package cluster

import "time"

// A node of which nobody asks anything does less, for each time that it wakes costs its machine
// some tens of microseconds. While it is calm it asks for signs of life half as often. Who agrees with nobody,
// and has no holds whose deadlines it would have to look at, dozes: it ticks once a second, until
// somebody asks.
const (
	calmTicks      = 10 // in a row in which nothing was asked or changed
	calmProbeEvery = 2 * probeEvery
	dozeEvery      = time.Second
)

// lookBusyLocked counts the ticks in which nothing has happened.
func (n *Node) lookBusyLocked() {
	changes := n.stats.Changes()
	if n.calm++; changes != n.changes {
		n.calm, n.changes = 0, changes
	}
}

func (n *Node) calmLocked() bool { return n.calm >= calmTicks }

// mayDozeLocked reports whether nothing waits for the next tick.
func (n *Node) mayDozeLocked(r *route) bool {
	if r == nil || !n.calmLocked() || n.agreed.on || n.book.Len() > 0 || n.leases.Len() > 0 {
		return false
	}
	return n.debts.Len() == 0
}

// nextTickLocked sets the timer of the next tick.
func (n *Node) nextTickLocked(r *route) {
	if n.stopped {
		return
	}
	every := tickEvery
	if n.mayDozeLocked(r) {
		every = dozeEvery
		n.dozing.Store(true)
	}
	n.tickInLocked(every)
}

// tickInLocked has the next tick come after d, instead of the one that was to come next.
func (n *Node) tickInLocked(d time.Duration) {
	if n.stopTick != nil {
		n.stopTick()
	}
	n.stopTick = n.clock.AfterFunc(d, n.tick)
}

// rouse ends a doze: somebody has come.
func (n *Node) rouse() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rouseLocked()
}

func (n *Node) rouseLocked() {
	if n.dozing.Swap(false) && !n.stopped {
		n.calm = 0
		n.tickInLocked(tickEvery)
	}
}
