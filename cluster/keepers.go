package cluster

import (
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"penstock/limiter"
)

// Which members keep copies of a partition. The configuration says how many heirs do (--copies):
//
//   - of what this node owns, they are the members that own it next, in their order: the owner of
//     the partition in the ring without this node, and the owner in the ring without these two;
//   - a member that does not answer is passed over, and so is one of the same zone, as long as
//     there are others. Then the member that owns the partition next has no copy, and fetches it
//     when it claims the partition;
//   - of what another member owns, that one comes first: it is to be given the partition.

// keepers knows which members keep copies, and has the outbox of each. Guarded by partitions.mu.
type keepers struct {
	*self
	right *right
	parts *partitions

	outboxes []*peer // of the View: those that something was ever to be said to, by id
}

// targets are the members that get copies of p, which this node holds. The first one is given the
// partition if it is another one's.
func (kp *keepers) targets(r *route, p int) (first, second *peer) {
	heirs := kp.right.heirs()
	first = r.copyTarget(p, heirs)
	if first == nil || heirs < 2 {
		return first, nil
	}
	return first, r.keeper(p, first)
}

// copyTarget is the first member that gets copies of p, which this node holds; nil if there is
// none. A leaving node has no time to wait until the View says, too, that an owner is gone, or
// leaves as well.
func (r *route) copyTarget(p, heirs int) *peer {
	if r.Ring == nil {
		return nil
	}
	if to := r.owner(p); to != r.Self {
		if r.Me().State != StateLeaving || !r.peers[to].away && !r.peers[to].quits {
			return r.peers[to]
		}
		if to = r.heir(p); to < 0 || to == r.Self {
			return nil
		}
		return r.peers[to]
	}
	if heirs == 0 {
		return nil
	}
	return r.keeper(p, nil)
}

// keeper is the member that should keep a copy of p, beside another one if that is not nil; nil if
// there is none. Of those that answer, another zone comes first, and then the member that owns p
// next.
func (r *route) keeper(p int, beside *peer) *peer {
	next := [2]int{r.heir(p), -1}
	if beside != nil {
		next[1] = r.secondHeir(p)
	}
	suits := func(i int) bool { return i >= 0 && i != r.Self && r.peers[i] != beside }
	for _, i := range next {
		if suits(i) && !r.peers[i].silent && !r.near(i, beside) {
			return r.peers[i]
		}
	}
	best, least := -1, uint64(0)
	for i := range r.Members {
		if m := &r.Members[i]; !suits(i) || m.Role != RoleMember || m.State != StateActive {
			continue
		}
		if cost := r.costOf(p, i, next, beside); best < 0 || cost < least {
			best, least = i, cost
		}
	}
	if best < 0 {
		return nil
	}
	return r.peers[best]
}

// costOf is the less, the better member i would keep a copy of p.
func (r *route) costOf(p, i int, next [2]int, beside *peer) (cost uint64) {
	switch me := r.Me().Zone; {
	case i == next[0]:
	case i == next[1]:
		cost = 1
	case me == "": // the members after the heir, in the order of their names
		cost = 2 + uint64((i-next[0]+len(r.Members))%len(r.Members))
	default: // another order for each partition, so that all members of a zone get as many
		var b [2]byte
		b[0], b[1] = byte(p), byte(p>>8)
		cost = 2 + (xxhash.Sum64(append(b[:], r.Members[i].ID...)) >> 3)
	}
	if r.near(i, beside) {
		cost |= 1 << 62
	}
	if r.peers[i].silent {
		cost |= 1 << 63
	}
	return cost
}

// near reports whether what happens to the zone of this node, or of the one beside, may happen to
// member i as well. A node that names no zone does not mind.
func (r *route) near(i int, beside *peer) bool {
	me, zone := r.Me().Zone, r.Members[i].Zone
	return me != "" &&
		(zone == "" || zone == me || beside != nil && zone == beside.member.Load().Zone)
}

// keeps reports whether this node is one of the members that keep a copy of p for its owner.
func (r *route) keeps(p, heirs int) bool {
	return heirs > 0 && r.heir(p) == r.Self || heirs > 1 && r.secondHeir(p) == r.Self
}

// aimLocked has two members get the copies of p from now on, or one, or none. One that has got them
// before goes on. If no other has a whole copy, one that had keeps it, and gets what changes, until
// another has.
func (kp *keepers) aimLocked(p int, first, second *peer) {
	pt := &kp.parts.list[p]
	before := [2]slot{pt.slot, pt.second}
	pt.slot, pt.second = slot{to: first}, slot{to: second}
	for _, s := range before {
		if now := pt.slotOf(s.to, true); s.to != nil && now != nil {
			now.copied = s.copied
		}
	}
	whole := first != nil && pt.copied >= copyWhole ||
		second != nil && pt.second.copied >= copyWhole
	for _, s := range before {
		kp.replacedLocked(p, s, first != nil && !whole)
	}
	switch {
	case pt.former == nil:
	case pt.slotOf(pt.former, true) != nil:
		pt.former = nil
	case first == nil: // no member is left to keep a copy
		kp.endLocked(pt.former, uint16(p))
		pt.former = nil
	}
}

// replacedLocked has the copies of p in s end, unless its member goes on in another slot, or is
// needed as the former one, until another has a whole copy.
func (kp *keepers) replacedLocked(p int, s slot, needed bool) {
	pt := &kp.parts.list[p]
	switch {
	case s.to == nil || pt.slotOf(s.to, true) != nil:
	case s.copied >= copyWhole && needed && pt.former == nil:
		pt.former = s.to
	default:
		kp.endLocked(s.to, uint16(p))
	}
}

// beginCopiesLocked has copies of p be made, which this node has just begun to hold.
func (kp *keepers) beginCopiesLocked(r *route, p int) {
	pt := &kp.parts.list[p]
	// pt.to has one if this node has held p before, and could not say since that it does not
	before := [3]*peer{pt.to, pt.second.to, pt.former}
	first, second := kp.targets(r, p)
	pt.slot, pt.second, pt.former = slot{to: first}, slot{to: second}, nil
	for _, old := range before { // what they have is out of date
		if old != nil && pt.slotOf(old, true) == nil {
			kp.endLocked(old, uint16(p))
		}
	}
	kp.dueLocked(pt)
}

// keepGiverLocked has the boot that has given p keep it as its copy, and reports whether it asks
// for that. same says that what was just taken over is what that boot has. If copies of p go there,
// it is asked whether it has all of it, gets what changes from now on, and all if it says no. If
// another member is to keep a copy instead, since the giver leaves, is silent or is of another
// zone, the giver gets what changes until that one has a whole copy, and then an end: else p would
// be lost if this node died before that, or the giver would take its own copy for whole for ever.
func (kp *keepers) keepGiverLocked(r *route, p int, giver uint64, same bool) bool {
	pt := &kp.parts.list[p]
	for _, s := range [...]*slot{&pt.slot, &pt.second} {
		if s.to != nil && s.to.boot == giver {
			if same {
				s.copied = copyAsked
				s.to.out.begin([]uint16{uint16(p)})
			}
			return same
		}
	}
	i := slices.IndexFunc(r.Members, func(m Member) bool { return m.Boot == giver })
	if i < 0 || i == r.Self {
		return false
	}
	if same && pt.to != nil {
		pt.former = r.peers[i]
		kp.outboxLocked(pt.former)
		return true
	}
	if i == r.heir(p) || kp.right.heirs() > 1 && i == r.secondHeir(p) {
		kp.endLocked(r.peers[i], uint16(p)) // it keeps what it gave, unasked
	}
	return false
}

// toldWholeLocked follows what p says of the partitions of which copies have begun.
func (kp *keepers) toldWholeLocked(p *peer, begun, whole []uint16) {
	if len(begun) == 0 {
		return
	}
	has := memberOf(whole)
	for _, i := range begun {
		pt := &kp.parts.list[i]
		s := pt.slotOf(p, pt.state == partHeld)
		switch {
		case s == nil || s.copied != copyAsked:
		case has(i):
			s.copied = copyTaken
		default:
			s.copied = copyWanted
			kp.dueLocked(pt)
		}
	}
}

// endOthersLocked has all other copies of p end, which this node has given to keeper.
func (kp *keepers) endOthersLocked(p int, keeper *peer) {
	kp.endSecondLocked(p, keeper)
	if pt := &kp.parts.list[p]; pt.former != nil {
		if pt.former != keeper {
			kp.endLocked(pt.former, uint16(p))
		}
		pt.former = nil
	}
}

// endBeforeLocked has the copy of p end that was kept until keeper has a whole one.
func (kp *keepers) endBeforeLocked(p int, keeper *peer) {
	pt := &kp.parts.list[p]
	if pt.former != keeper {
		kp.endLocked(pt.former, uint16(p))
	}
	pt.former = nil
}

// endSecondLocked has the second copy of p end, which this node holds no longer, but for keeper.
func (kp *keepers) endSecondLocked(p int, keeper *peer) {
	pt := &kp.parts.list[p]
	if pt.second.to != nil && pt.second.to != keeper {
		kp.endLocked(pt.second.to, uint16(p))
	}
	pt.second = slot{}
}

// copyAgainLocked has all of p be copied once more to where s says.
func (kp *keepers) copyAgainLocked(p uint16, s *slot) {
	s.copied = copyAgain
	kp.outboxLocked(s.to).begin([]uint16{p})
	s.to.out.due = true
}

// retargetLocked decides anew which members get copies of what this node holds: the member that
// should hold the partition, or, of what it should hold itself, the heir.
func (kp *keepers) retargetLocked(now limiter.Instant, r *route) {
	on := kp.right.roll.Load()
	for p := range kp.parts.list {
		pt := &kp.parts.list[p]
		if pt.second.to != nil && !r.has(pt.second.to) {
			pt.second = slot{}
		}
		if pt.former != nil && !r.has(pt.former) {
			pt.former = nil
		}
		if giving := pt.state == partGiving; pt.to != nil &&
			(!r.has(pt.to) || giving && on.joined() && !on.has(pt.to.id, pt.to.boot)) {
			pt.to = nil
			if giving { // it may have arrived or not: claim it again
				kp.parts.enterLocked(p, partCopied)
				pt.copyOf = kp.boot
				kp.parts.unsettled = true
			}
		}
		if pt.hint != "" && r.Find(pt.hint) < 0 {
			pt.before, pt.hint = pt.hint, ""
		}
		pt.lost = kp.parts.lostSince(now, r, pt)
		if kp.parts.list[p].state != partHeld {
			continue
		}
		kp.retargetPartLocked(r, p)
	}
}

// retargetPartLocked is retargetLocked for one partition, which is held here.
func (kp *keepers) retargetPartLocked(r *route, p int) {
	first, second := kp.targets(r, p)
	kp.aimLocked(p, first, second)
	kp.dueLocked(&kp.parts.list[p]) // it may be time to give what has been copied for long
}

// dueLocked has the next pushes to those that get copies of pt look for what is to be done about
// it.
func (kp *keepers) dueLocked(pt *part) {
	if pt.to != nil {
		kp.outboxLocked(pt.to).due = true
	}
	if pt.second.to != nil {
		kp.outboxLocked(pt.second.to).due = true
	}
}

// endsAreHeard reports whether all members that answer know which copies of what this node held
// they need not keep. One that does not know would take its copy for whole if the next holder died
// as well, whatever that one has counted.
func (kp *keepers) endsAreHeard() bool {
	kp.parts.mu.Lock()
	defer kp.parts.mu.Unlock()
	r := kp.view.Load()
	return !slices.ContainsFunc(kp.outboxes, func(p *peer) bool {
		o := p.out
		return (len(o.ended) > 0 || o.last != nil && len(o.last.End) > 0) && r != nil && r.has(p) &&
			!p.silent && !p.gone()
	})
}

// copyLentLocked has what is held here of lent partitions copied once more: a member that gets
// copies of them, or is about to be given them, may have got those before what was lent came, and
// what is merged does not count as changed. Until a look has found that, which may wait for another
// look, the member gets what changes, and is told that its copy is not whole.
func (kp *keepers) copyLentLocked(lent []uint16) {
	for _, p := range lent {
		if int(p) >= len(kp.parts.list) || kp.parts.list[p].state != partHeld {
			continue
		}
		pt := &kp.parts.list[p]
		for _, s := range [...]*slot{&pt.slot, &pt.second} {
			if s.to != nil && s.copied > copyAgain {
				kp.copyAgainLocked(p, s)
			}
		}
	}
}

// endLocked has p told that partition i is not copied to it any more. p may be nil.
func (kp *keepers) endLocked(p *peer, i uint16) {
	if p != nil {
		o := kp.outboxLocked(p)
		// what has begun, and was not said yet, would be ended as if it were another holder's
		o.begun = slices.DeleteFunc(o.begun, func(begun uint16) bool { return begun == i })
		o.ended = append(o.ended, i)
	}
}

// outboxLocked is what is to be said to p, from now on looked at in each tick.
func (kp *keepers) outboxLocked(p *peer) *outbox {
	if p.out == nil {
		p.out = new(outbox)
		i, _ := slices.BinarySearchFunc(
			kp.outboxes,
			p.id,
			func(o *peer, id string) int { return strings.Compare(o.id, id) },
		)
		kp.outboxes = slices.Insert(kp.outboxes, i, p)
	}
	return p.out
}
