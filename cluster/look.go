package cluster

import (
	"slices"

	"penstock/limiter"
)

// lookLocked goes on looking through the table for what is to be copied to p, until a message is
// full.
func (cp *copier) lookLocked(now limiter.Instant, p *peer) {
	o := p.out
	if !o.looking {
		needed := false
		var begun, looked []uint16
		for i := range cp.parts.list {
			pt := &cp.parts.list[i]
			held := pt.state == partHeld
			if s := pt.slotOf(p, held); s != nil && s.copied <= copyAgain {
				s.copied, o.looking, o.part = copyBegun, true, 0
				needed = needed || !pt.wholeBeside(s)
				looked = append(looked, uint16(i))
				if held {
					begun = append(begun, uint16(i))
				}
			}
		}
		o.begin(begun)
		if o.looking {
			o.needed = needed
			// of what is lent as well: said now, an end would have the peer forget it
			o.ended = slices.DeleteFunc(o.ended, memberOf(looked))
			cp.holder.recent.GivenBack(now, memberOf(looked),
				func(x Memory) { o.back = append(o.back, waitingMemory{x, now}) })
		}
		cp.beginEmptiedLocked(p)
	}
	if !o.looking {
		return
	}
	defer cp.collectBackLocked(now)
	wanted := func(hash uint64) bool {
		i := cp.partition(hash)
		pt := &cp.parts.list[i]
		s := pt.slotOf(p, pt.state == partHeld)
		return s != nil && s.copied == copyBegun
	}
	if !cp.readLocked(now, o, wanted) {
		return
	}
	o.looking = false
	cp.holder.book.Told(wanted, func(_ uint64, h limiter.Hold) { o.addHold(h) })
	for i := range cp.parts.list {
		cp.lookedLocked(i, p)
	}
}

// readLocked reads the next parts of the table, until a message is full, and with them the ends of
// holds of which it has read the charges. It reports whether there are no further parts.
func (cp *copier) readLocked(
	now limiter.Instant, o *outbox, wanted func(hash uint64) bool,
) (all bool) {
	table, parts, keys := cp.holder.table, 0, 0
	var ended []limiter.Hold
	goesOn := func() bool {
		return len(o.pending) < copiesAtOnce && parts < partsAtOnce && keys < keysAtOnce
	}
	seen := func(hash uint64) bool {
		keys++
		return wanted(hash)
	}
	before := len(o.pending)
	cp.holder.book.UntoldEnds(func() {
		for ; o.part < table.Parts() && goesOn(); parts++ {
			table.Scan(now, o.part, seen, func(_ uint64, e limiter.Entry) {
				o.pending = append(o.pending, waitingEntry{e, now})
			})
			o.part++
		}
	}, wanted, func(_ uint64, h limiter.Hold) { ended = append(ended, h) })
	o.addEndsOf(o.pending[before:], ended)
	return goesOn()
}

// emptiedLocked keeps e, a key of partition p that was reset, or to which all was given back, for
// members where a copy of p is still to begin: a look through the table does not find it, and what
// is there from an earlier copy would count again.
func (cp *copier) emptiedLocked(p int, e waitingEntry) {
	pt := &cp.parts.list[p]
	for _, s := range [...]*slot{&pt.slot, &pt.second} {
		if s.to != nil && s.copied == copyWanted && pt.state >= partHeld {
			cp.keepers.outboxLocked(s.to).keepEmptied(e)
		}
	}
}

// beginEmptiedLocked has what was kept so go to p before what a look finds: some of it may have
// been charged since.
func (cp *copier) beginEmptiedLocked(p *peer) {
	for _, e := range p.out.emptied {
		pt := &cp.parts.list[cp.partition(limiter.Hash(e.Key))]
		if s := pt.slotOf(p, true); pt.state == partHeld && s != nil && s.copied == copyBegun {
			p.out.pending = append(p.out.pending, e)
		}
	}
	p.out.emptied = nil
}

// lookedLocked notes that all of partition i that was to be copied to p waits for it, or is there.
func (cp *copier) lookedLocked(i int, p *peer) {
	pt := &cp.parts.list[i]
	held := pt.state == partHeld
	s := pt.slotOf(p, held)
	if s == nil || s.copied != copyBegun {
		return
	}
	s.copied = copyWhole
	switch {
	case !held: // said when it is lent
	case pt.whole:
		p.out.whole = append(p.out.whole, uint16(i))
	default: // no other has a whole copy either
		cp.keepers.endBeforeLocked(i, p)
	}
}

// wantsLocked reports whether p has not got all yet of some partition.
func (cp *copier) wantsLocked(p *peer) bool {
	for i := range cp.parts.list {
		pt := &cp.parts.list[i]
		if s := pt.slotOf(p, pt.state == partHeld); s != nil &&
			s.copied < copyWhole {
			return true
		}
	}
	return false
}

// wholeTakenLocked notes that p has whole copies of partitions.
func (cp *copier) wholeTakenLocked(p *peer, list []uint16) {
	for _, i := range list {
		pt := &cp.parts.list[i]
		held := pt.state == partHeld
		if s := pt.slotOf(p, held); s != nil && s.copied == copyWhole {
			s.copied = copyTaken
			if held {
				cp.keepers.endBeforeLocked(int(i), p)
			}
		}
	}
}

// lentLocked has p be told that it has got all of the copies that have lost their holders.
func (cp *copier) lentLocked(p *peer) {
	told := memberOf(p.out.lent)
	for i := range cp.parts.list {
		if pt := &cp.parts.list[i]; pt.to == p && pt.copied >= copyWhole &&
			pt.state < partHeld && !told(uint16(i)) {
			p.out.lent = append(p.out.lent, uint16(i))
			if pt.whole { // said before, it would be of a partition that p has nothing of
				p.out.whole = append(p.out.whole, uint16(i))
			}
		}
	}
}

// lentTaken notes that p has taken in what this node said to it last, if that is what p has heard.
// From then on p may begin to hold the partitions that are lent with it: before, it would begin
// without their entries.
func (ps *partitions) lentTaken(p *peer, heard uint64) {
	if p == nil || p.out == nil || p.out.last == nil || heard < p.out.last.Sequence {
		return
	}
	for _, i := range p.out.last.Lent {
		if pt := &ps.list[i]; pt.to == p && pt.copied >= copyWhole && pt.state < partHeld {
			pt.lentTo, pt.to = p.boot, nil
		}
	}
}

// lendAgainLocked notes that a boot has said more of partition i than was lent, or is being lent.
func (cp *copier) lendAgainLocked(i int, by uint64) {
	pt := &cp.parts.list[i]
	pt.lentTo = 0
	if pt.to == nil || pt.to.boot == by || pt.state >= partHeld || pt.copied <= copyAgain {
		return
	}
	pt.copied = copyAgain
	o, again := cp.keepers.outboxLocked(pt.to), func(p uint16) bool { return int(p) == i }
	o.due = true
	o.lent, o.whole = slices.DeleteFunc(o.lent, again), slices.DeleteFunc(o.whole, again)
}
