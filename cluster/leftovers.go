package cluster

import (
	"slices"

	"penstock/limiter"
)

// A node that has lost its right keeps what it counted. When it goes on, another member may have
// held its partitions for long, and hands them back: merged with that, what is here would undo what
// was given back and reset meanwhile. But what the node had charged just before its heirs have not
// heard of. So a node that loses its right notes which members had whole copies, and which keys
// have changed since their last message. If one of those members begins a copy here, and says
// nothing of forgotten counters, it has gone on with its copy: then those keys are merged with what
// it says, and all others are discarded.

// leftover is what a node has of a partition that it held until it lost its right.
type leftover struct {
	heirs  [2]uint64       // boots of the members that had whole copies; 0: none
	unsaid []limiter.Entry // keys that may have changed since, without their states
}

// leaveLocked notes what is left of the partitions held here, which this node has just stopped
// deciding for; held says which those are. Where a copy was not whole, or is ending, nothing is
// noted.
func (cp *copier) leaveLocked(now limiter.Instant, held []uint16) {
	left := make(map[uint16]*leftover, len(held))
	for _, p := range held {
		pt := &cp.parts.list[p]
		if pt.former != nil || pt.to == nil || pt.copied != copyTaken ||
			pt.second.to != nil && pt.second.copied != copyTaken {
			continue
		}
		l := &leftover{heirs: [2]uint64{pt.to.boot}}
		if pt.second.to != nil {
			l.heirs[1] = pt.second.to.boot
		}
		left[p] = l
	}
	cp.collectLocked(now) // what was decided until now
	of := func(e *limiter.Entry) {
		if l := left[uint16(cp.partition(limiter.Hash(e.Key)))]; l != nil && !e.IsCell() {
			l.unsaid = append(l.unsaid, limiter.Entry{Limit: e.Limit, Key: e.Key})
		}
	}
	for _, p := range cp.keepers.outboxes {
		ending := p.out.ended
		for i := range p.out.pending {
			of(&p.out.pending[i].Entry)
		}
		if last := p.out.last; last != nil {
			ending = slices.Concat(ending, last.End)
			for i := range last.Entries {
				of(&last.Entries[i])
			}
		}
		for _, i := range ending {
			delete(left, i)
		}
	}
	cp.parts.leftovers = left
}

// unsaidLocked are the entries of partition p that m, which begins to copy it, may not know of.
// known: it knows all others that are here.
func (ik *intake) unsaidLocked(
	now limiter.Instant, m *Move, p uint16,
) (unsaid []limiter.Entry, known bool) {
	pt, l := &ik.parts.list[p], ik.parts.leftovers[p]
	if l == nil || m.From == 0 || !slices.Contains(l.heirs[:], m.From) ||
		pt.state != partCopied || pt.copyOf != ik.boot || pt.restored ||
		slices.Contains(m.Lack.Of, p) {
		return nil, false
	}
	for _, e := range l.unsaid {
		unsaid = append(unsaid, ik.holder.table.Entry(now, e.Limit, e.Key, limiter.Hash(e.Key)))
	}
	return unsaid, true
}
