package cluster

import (
	"time"

	"penstock/limiter"
)

// Copies says how well other nodes know the partitions that this node holds.
type Copies struct {
	Held   int // partitions that this node decides for
	Giving int // partitions that are on their way to another node
	// partitions that this node has a whole copy of, for the node that holds them
	Kept  int
	Heirs int // how many members should keep a copy of each partition (--copies)
	// of Held: no other node that answers has a whole copy, so a crash forgets their counters
	Unreplicated int
	// of Held: fewer have one than there should be, or could be with the members that there are
	Short int
	// age of the oldest change that a copy does not have yet; 0: none waits
	Lag time.Duration
}

// Copies is Node.Copies.
func (cp *copier) Copies() Copies {
	cp.parts.mu.Lock()
	defer cp.parts.mu.Unlock()
	now := cp.clock.Now()
	c := Copies{
		Held: int(cp.parts.n.Load()), Giving: int(cp.parts.given.Load()), Heirs: cp.right.heirs(),
	}
	want := c.Heirs
	if r := cp.view.Load(); r != nil {
		want = min(want, max(0, r.Active()-1))
	}
	for p := range cp.parts.list {
		pt := &cp.parts.list[p]
		if pt.state != partHeld {
			if pt.whole && pt.copyOf != 0 && pt.copyOf != cp.boot {
				c.Kept++
			}
			continue
		}
		copies := 0
		for _, s := range []*slot{&pt.slot, &pt.second} {
			if s.wholeAt() {
				copies++
			}
		}
		if copies == 0 {
			c.Unreplicated++
		}
		if copies < want {
			c.Short++
		}
	}
	for _, p := range cp.keepers.outboxes {
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
