package cluster

import (
	"slices"

	"penstock/limiter"
	"penstock/ring"
)

// mayGiveLocked reports whether partition i is held here and should be held by the peer that it is
// copied to. A leaving node is given nothing: it would refuse, and meanwhile no one decides.
func (cp *copier) mayGiveLocked(r *route, i int) bool {
	pt := &cp.parts.list[i]
	if pt.state != partHeld || pt.to == nil || r.Ring == nil {
		return false
	}
	if on := cp.right.roll.Load(); !on.joined() || pt.to.claimed != (claimed{on.epoch(), true}) {
		return false
	}
	return cp.parting[uint16(i)] == 0 && r.owner(i) != r.Self &&
		r.copyTarget(i, cp.right.heirs()) == pt.to && !pt.to.leaving() && pt.copied >= copyWhole
}

// sealLocked stops deciding for partitions that p should hold and has a whole copy of, as many as
// travel well at once. It reports whether there are some that p has refused a moment ago.
func (cp *copier) sealLocked(now limiter.Instant, r *route, p *peer) (rests bool) {
	o := p.out
	var memories [ring.Partitions]int32
	counted := false
	total := int32(0)
	cp.keepers.dropSealedLocked() // of an earlier gift of the same partitions
	for i := range cp.parts.list {
		if cp.parts.list[i].to != p || !cp.mayGiveLocked(r, i) {
			continue
		}
		if now < o.refused[uint16(i)] {
			rests = true
			continue
		}
		delete(o.refused, uint16(i))
		if !counted {
			cp.holder.recent.Each(now, func(p uint16) bool { memories[p]++; return false }, nil)
			counted = true
		}
		if total += memories[i]; len(o.gift) > 0 && total > takenAtOnce {
			break
		}
		cp.parts.enterLocked(i, partGiving)
		cp.parts.list[i].hint, cp.parts.list[i].ended = p.id, false
		o.gift = append(o.gift, uint16(i))
		if len(o.gift) == giftsAtOnce {
			break
		}
	}
	if len(o.gift) > 0 {
		o.term, o.fences = cp.parts.nextTermLocked(), cp.parts.fences
		o.epoch = cp.right.roll.Load().epoch()
		cp.collectLocked(now) // passes through the locks: from here on nothing of it is decided
		o.taken = nil
		cp.holder.recent.Each(now, memberOf(o.gift),
			func(x Memory) { o.taken = append(o.taken, waitingMemory{x, now}) })
	}
	return rests
}

// memberOf reports membership in a short list of partitions.
func memberOf(list []uint16) func(uint16) bool {
	var set [ring.Partitions]bool
	for _, p := range list {
		set[p] = true
	}
	return func(p uint16) bool { return set[p] }
}

// takenLocked notes that p has taken m in.
func (cp *copier) takenLocked(now limiter.Instant, p *peer, m *Move, a *MoveAnswer) {
	cp.parts.heardLocked(a.Term)
	r := cp.view.Load()
	cp.keepers.toldWholeLocked(p, m.Begin, a.Whole)
	cp.endFormerLocked(p, m.Lent)
	cp.wholeTakenLocked(p, m.Whole)
	if len(m.Gift) == 0 {
		return
	}
	refused, kept := memberOf(a.Refused), memberOf(a.Whole)
	for _, i := range m.Gift {
		pt := &cp.parts.list[i]
		if pt.state != partGiving || pt.hint != p.id {
			continue // it was given up meanwhile
		}
		switch {
		case !refused(i):
			cp.stats.Given.Add(1)
			pt.term, pt.to = max(pt.term, m.Term), nil
			cp.keepers.endOthersLocked(int(i), p)
			// a taker of an earlier release says nothing, and copies all to its heir
			mine := r.Me().State == StateActive && r.keeps(int(i), cp.right.heirs())
			if !pt.ended && (kept(i) || mine) {
				pt.copyOf, pt.pure, pt.whole, pt.gave = p.boot, true, true, true
				cp.parts.enterLocked(int(i), partCopied)
			} else {
				cp.parts.forgetLocked(int(i))
			}
		case p.out.fences == cp.parts.fences:
			// no other node can hold it, so this one goes on
			cp.parts.holdLocked(int(i), cp.parts.nextTermLocked())
			cp.keepers.goOnLocked(int(i))
			// for another one, if the View has changed meanwhile
			cp.keepers.retargetPartLocked(r, int(i))
			p.out.rest(i, now.Add(refusedRests))
		default:
			pt.hint, pt.copyOf = "", cp.boot
			cp.parts.enterLocked(int(i), partCopied)
			cp.parts.unsettled = true
		}
	}
}

// copiedBackLocked notes that a gift was taken, for its taker begins with m to copy p to this node,
// or a member does to which the taker has given p since: that may come before the answer. From here
// on what the taker says replaces what this node had. Another member was given more than that, and
// this node has no whole copy of it; but if it went on as a giver, it would forget that copy with
// the taker's, and that member would believe that it is here (world 7000003000).
func (cp *copier) copiedBackLocked(p int, m *Move) {
	pt := &cp.parts.list[p]
	gift, taken := pt.to.out.last, pt.to.boot == m.From
	if !taken && (gift == nil || !slices.Contains(gift.Gift, uint16(p)) || m.Term <= gift.Term) {
		return // it was not sent yet, so m is of one that has held p before
	}
	cp.keepers.endOthersLocked(p, pt.to)
	cp.parts.enterLocked(p, partCopied)
	cp.stats.Given.Add(1)
	if gift != nil {
		pt.term = max(pt.term, gift.Term)
	}
	pt.copyOf, pt.whole, pt.gave = pt.to.boot, taken, taken
	pt.to = nil
}

// ungiveLocked gives up a gift with an unknown fate: the members that should hold its partitions
// have to claim them.
func (cp *copier) ungiveLocked(p *peer, m *Move) {
	for _, i := range m.Gift {
		if pt := &cp.parts.list[i]; pt.state == partGiving && pt.hint == p.id {
			cp.parts.enterLocked(int(i), partCopied)
			pt.hint, pt.copyOf, pt.to = "", cp.boot, nil
		}
	}
	cp.claims.tendLocked()
}

// endFormerLocked tells the members that got copies of partitions, while this node held them, that
// it does not hold them any more, once p has got all of it: else they would keep what is out of
// date. If another one has got them since, that is p.
func (cp *copier) endFormerLocked(p *peer, lent []uint16) {
	for _, i := range lent {
		pt := &cp.parts.list[i]
		if pt.copyOf != cp.boot || pt.state >= partHeld {
			continue
		}
		cp.keepers.endSecondLocked(int(i), p)
		switch {
		case pt.former == p:
		case pt.lentTo != 0 && pt.lentTo != p.boot:
			cp.keepers.endLocked(p, i)
		default:
			cp.keepers.endLocked(pt.former, i)
			pt.former = p
		}
	}
}
