package cluster

import (
	"time"

	"penstock/limiter"
)

// Copies says how well other nodes know the partitions that this node holds.
type Copies struct {
	Held         int           // partitions that this node decides for
	Giving       int           // partitions that are on their way to another node
	Unreplicated int           // of Held: no other node has a whole copy, so a crash forgets their counters
	Lag          time.Duration // age of the oldest change that a copy does not have yet; 0: none waits
}

// Copies counts the partitions of this node. A node that is alone has no copies: all its partitions
// are unreplicated.
func (n *Node) Copies() Copies {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.clock.Now()
	c := Copies{Held: int(n.holdings.n.Load()), Giving: int(n.holdings.given.Load())}
	for p := range n.parts {
		if pt := &n.parts[p]; n.holdings.held[p].Load() && (pt.to == nil || pt.copied != copyWhole) {
			c.Unreplicated++
		}
	}
	for _, p := range n.outboxes {
		if at, waits := p.out.oldest(); waits {
			c.Lag = max(c.Lag, time.Duration(now-at))
		}
	}
	return c
}

// oldest is when the oldest change was made of those that the peer is not known to have, if there
// is one.
func (o *outbox) oldest() (at limiter.Instant, waits bool) {
	switch {
	case o.last != nil && len(o.last.Entries) > 0:
		return o.at.Add(-o.last.Entries[0].Age), true
	case o.last != nil && len(o.last.Holds) > 0:
		return o.at, true
	case len(o.pending) > 0:
		return o.pending[0].at, true
	}
	return 0, false
}
