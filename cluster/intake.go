package cluster

import (
	"slices"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// intake takes in what other members say about partitions. Guarded by partitions.mu.
type intake struct {
	*self
	right  *right
	parts  *partitions
	copier *copier
	claims *claimer
	holder *holder

	inbox  map[uint64]*inbox
	former map[uint64]formerPeer // by boot: those that were in a View and are no more
}

// hear answers what a peer says about partitions, or nil if it is for another boot, or says what no
// member can say. A sender is known by id and boot: the configuration has it, a View has named it,
// or did so once. Of others nothing is believed.
func (ik *intake) hear(now limiter.Instant, r *route, m *Move) *MoveAnswer {
	if m.To != ik.boot {
		return nil
	}
	ik.parts.mu.Lock()
	defer ik.parts.mu.Unlock()
	sender, believed := ik.believeLocked(now, r, m)
	if !believed {
		return nil
	}
	a := &MoveAnswer{}
	if len(m.Claim) > 0 {
		ik.claimedLocked(now, r, sender, m, a)
	}
	// A node that has stopped has written its file: what comes now would be lost with it.
	takes := sender != nil && !ik.stopped.Load() && m.placedBy(r.Secret) && ik.mayBegin(m) &&
		!ik.refusesLocked(r, m)
	switch {
	case m.Sequence != 0:
		if !takes || ik.parts.list == nil && len(m.Charges) == 0 {
			return nil
		}
		ik.applyLocked(r, now, m, a)
	case takes && ik.parts.list != nil && len(m.Entries)+len(m.Holds)+len(m.Lent) > 0:
		ik.mergeLocked(now, m, a)
	}
	a.Term, a.Up = ik.parts.term, ik.parts.up(now)
	a.Blank = !ik.claims.restorer.resumed
	return a
}

// believeLocked reports whether m comes from a known node and says what a node may say. sender is
// that node, if it takes part by now: nil if only the configuration has it, or if it has gone.
func (ik *intake) believeLocked(
	now limiter.Instant, r *route, m *Move,
) (sender *peer, believed bool) {
	sender, former := ik.senderLocked(r, m)
	switch {
	case sender == nil && former == nil && !ik.right.roll.Load().has(m.ID, m.From):
		ik.stats.Strangers.Add(1)
		return nil, false
	case !m.plausible() || !ik.parts.heardLocked(m.Term):
		ik.stats.Implausible.Add(1)
		return nil, false
	}
	if sender != nil {
		sender.met(now)
	} else if former != nil && former.leaving() {
		// it goes on handing over what it held, also when others say already that it has left
		sender = former
	}
	return sender, true
}

// claimedLocked answers the claim of m. A partition that the claimer has refused before may
// be given to it now.
func (ik *intake) claimedLocked(
	now limiter.Instant, r *route, sender *peer, m *Move, a *MoveAnswer,
) {
	a.Epoch = ik.right.roll.Load().epoch()
	ik.parts.lentTaken(sender, m.Heard)
	a.Standings = ik.claims.standLocked(now, r, sender, m)
	if sender != nil {
		sender.claimed.note(m.Epoch)
		if sender.away { // what this node has to give away it can be given
			sender.away = false
			ik.copier.keepers.retargetLocked(now, r)
		}
	}
	if sender != nil && sender.out != nil {
		sender.out.due = true
		for _, p := range m.Claim {
			delete(sender.out.refused, p)
		}
	}
	if r != nil && ik.parts.list != nil {
		ik.copier.startPushesLocked()
	}
}

// senderLocked is the peer that m comes from, as the View names it now, and as one that it named
// before. Both are nil if this node knows no one of that id and boot, or if the sender is an agent
// and says what only members may say.
func (ik *intake) senderLocked(r *route, m *Move) (sender, former *peer) {
	if r != nil {
		if i := r.Find(m.ID); i >= 0 && r.Members[i].Boot == m.From &&
			(r.Members[i].Role == RoleMember || !m.ForMembers()) {
			sender = r.peers[i]
		}
	}
	if f, known := ik.former[m.From]; known && f.id == m.ID {
		former = f.peer
	}
	return sender, former
}

// mostAge bounds how long a message may have waited at its sender. Entries wait for seconds.
const mostAge = time.Hour

// plausible reports whether a member of this protocol can have said m.
func (m *Move) plausible() bool {
	noPartition := func(x Memory) bool { return x.Partition >= ring.Partitions }
	return m.Age >= 0 && m.Age <= mostAge && m.Stored >= 0 && m.Up >= 0 && m.Sequence < 1<<63 &&
		len(m.Claim) <= ring.Partitions && !slices.ContainsFunc(m.Taken, noPartition)
}

// placedBy reports whether the partitions that m names have the keys that they have under s. A node
// that joins, or leaves its cluster for another one, hears of copies before it knows where keys
// lie: it would forget them when it learns that, and their sender would not know. Copies that it
// has not taken in are sent again.
func (m *Move) placedBy(s Secret) bool { return m.Secret == s || !m.ForMembers() }

// mayBegin reports whether the sender of m can hold the partitions that it begins to copy: one that
// was evicted may not have heard so yet, and another member has held them since.
func (ik *intake) mayBegin(m *Move) bool {
	on := ik.right.roll.Load()
	return len(m.Begin) == 0 || !on.joined() || on.has(m.ID, m.From)
}

// ForMembers reports whether m has anything that only an owner of keys may say: agents send signs
// of life and charges.
func (m *Move) ForMembers() bool {
	return len(m.Claim)+len(m.Begin)+len(m.Entries)+len(m.End)+len(m.Lent)+len(m.Whole)+
		len(m.Gift)+len(m.Taken)+len(m.Holds) > 0
}

// applyLocked takes the copies and the gift of m in, unless it has done so before.
func (ik *intake) applyLocked(r *route, now limiter.Instant, m *Move, a *MoveAnswer) {
	in := ik.inbox[m.From]
	if in == nil {
		in = new(inbox)
		ik.inbox[m.From] = in
	}
	a.Applied = true
	switch {
	case m.Sequence == in.sequence:
		a.Refused, a.Whole = in.refused, in.whole
		return
	case m.Sequence < in.sequence: // an old one: its sender does not wait for it any more
		return
	}
	in.heard, in.sequence, in.refused, in.whole = now, m.Sequence, nil, nil
	ik.stats.Copied.Add(uint64(len(m.Entries) + len(m.Charges)))
	ik.holder.chargedElsewhere(now, m)
	if ik.parts.list == nil {
		return
	}
	m = ik.freshLocked(r, m)
	unsaid := ik.outdatedLocked(now, r, m)
	ik.beginLocked(in, m)
	ik.mergeUnsaidLocked(now, unsaid)
	ik.parts.hearLacking(now, m)
	ik.endLocked(in, m)
	ik.holder.recent.Learn(now, m.Taken)
	ik.keepHoldsLocked(m)
	ik.importHolds(now, m, true)
	for i := range m.Entries {
		// An old copy, lent to the holder before this node, makes nothing better that is held here
		// already.
		if p := uint16(ik.partition(limiter.Hash(m.Entries[i].Key))); in.begun[p] ||
			!ik.parts.held[p].Load() {
			ik.importLocked(now, m, &m.Entries[i], in)
		}
	}
	ik.importHolds(now, m, false)
	ik.holdsPassed(m)
	ik.parts.complete(r, ik.parts.list, m)
	if m.Complete {
		in.pass = m.Pass
	}
	if len(m.Lent) > 0 {
		ik.copier.keepers.copyLentLocked(m.Lent)
		ik.claims.tendLocked()
	}
	if len(m.Gift) > 0 {
		ik.takeGiftLocked(r, in, m)
		a.Refused = in.refused
		ik.copier.startPushesLocked()
	}
	a.Whole = in.whole
}

// beginLocked notes that the sender of m holds partitions, and keeps the copies here of them.
func (ik *intake) beginLocked(in *inbox, m *Move) {
	ik.discardLocked(m.Begin)
	for _, p := range m.Begin {
		if in.begun == nil {
			in.begun = make(map[uint16]bool)
		}
		in.begun[p] = true
		if int(p) >= len(ik.parts.list) {
			continue
		}
		pt := &ik.parts.list[p]
		if pt.state == partGiving && pt.to != nil {
			ik.copier.copiedBackLocked(int(p), m)
		}
		if pt.state < partHeld {
			pt.whole, pt.gave = pt.gave && pt.copyOf == m.From, false
			pt.pure = pt.copyOf == 0 || pt.copyOf == m.From ||
				pt.lentTo == m.From // the last has got all that there was
			if pt.whole {
				in.whole = append(in.whole, p)
			}
			pt.copyOf, pt.pass, pt.lost, pt.hint = m.From, m.Pass, 0, m.ID
			// what was lent was another copy, and this one may have no entry that says so
			pt.lentTo, pt.lentOf = 0, 0
			pt.mixed = false
			pt.held = heldLast{boot: m.From, term: m.Term}
			ik.parts.enterLocked(int(p), partCopied)
		}
	}
}

// discardLocked has the table remove what it still has of some partitions from before they were
// forgotten. A holder copies no entry of a key that was reset, so an earlier one would count again.
func (ik *intake) discardLocked(begin []uint16) {
	if !slices.ContainsFunc(begin, func(p uint16) bool {
		return int(p) < len(ik.parts.list) && ik.parts.list[p].leavings &&
			ik.parts.list[p].state == partNone
	}) {
		return
	}
	ik.holder.table.Discard()
	for p := range ik.parts.list {
		ik.parts.list[p].leavings = false
	}
}

// endLocked forgets the copies that the sender of m does not keep any more.
func (ik *intake) endLocked(in *inbox, m *Move) {
	for _, p := range m.End {
		delete(in.begun, p)
		if int(p) >= len(ik.parts.list) {
			continue
		}
		switch pt := &ik.parts.list[p]; {
		case pt.state == partGiving && pt.to != nil && pt.to.boot == m.From:
			pt.ended = true // said before the gift's answer has come
		case pt.state < partHeld && pt.copyOf == m.From:
			ik.parts.forgetLocked(int(p))
		}
	}
}

// takeGiftLocked begins to hold the partitions of the gift of m, and notes in in which of them it
// refuses, and which ones the giver is to keep.
func (ik *intake) takeGiftLocked(r *route, in *inbox, m *Move) {
	for _, p := range m.Gift {
		switch {
		case int(p) >= len(ik.parts.list):
			in.refused = append(in.refused, p)
		case !ik.acceptsLocked(r, m, int(p)):
			in.refused = append(in.refused, p)
			if pt := &ik.parts.list[p]; pt.state != partGiving {
				pt.hint = m.ID // the sender goes on deciding
			}
		case ik.parts.list[p].state != partHeld:
			ik.stats.Received.Add(1)
			pt := &ik.parts.list[p]
			same := pt.copyOf == m.From && pt.pure
			ik.parts.holdLocked(int(p), m.Term)
			pt.held.from = m.From
			ik.copier.keepers.beginCopiesLocked(r, int(p))
			if ik.copier.keepers.keepGiverLocked(r, int(p), m.From, same) {
				in.whole = append(in.whole, p)
			}
		}
	}
}

// importLocked takes one entry over: in the place of what was known, if that is an earlier copy
// from the same holder and what comes is in order, or merged with it. in keeps the order; nil: it
// has none.
func (ik *intake) importLocked(now limiter.Instant, m *Move, e *limiter.Entry, in *inbox) {
	p := ik.partition(limiter.Hash(e.Key))
	pt := &ik.parts.list[p]
	replace := in != nil && pt.state < partHeld && pt.copyOf == m.From &&
		(pt.pure || in.decides(pt, uint16(p)))
	ik.keepLocked(m, p)
	ik.passed(m, limiter.Hash(e.Key))
	e.Age += m.Age
	ik.holder.table.Import(now, e, replace)
}

// keepLocked notes that something of p is kept here that comes from the sender of m.
func (ik *intake) keepLocked(m *Move, p int) {
	pt := &ik.parts.list[p]
	if pt.copyOf == 0 {
		ik.discardLocked([]uint16{uint16(p)})
		pt.copyOf, pt.pure = m.From, true
		ik.parts.enterLocked(p, partCopied)
	} else if pt.copyOf != m.From {
		pt.pure, pt.mixed = false, true
		delete(ik.parts.leftovers, uint16(p))
	}
	ik.copier.lendAgainLocked(p, m.From)
}

// acceptsLocked reports whether this node takes the partition of a gift: it should hold it in the
// epoch in which it is given, all members have answered a claim of this node in that epoch, and it
// has not promised the partition under a later term. A member that has not answered may go on
// without those that are gone as long as its right lasts (ownership, R11), so it must know of all
// that have begun to hold anything.
func (ik *intake) acceptsLocked(r *route, m *Move, p int) bool {
	if ik.parts.list[p].state == partHeld {
		return true // two have held it; what the giver had is merged by now
	}
	on := ik.right.roll.Load()
	if !on.joined() || m.Epoch != on.epoch() || ik.parts.answered != on.config || r.Ring == nil ||
		!r.should(p) {
		return false
	}
	pt := &ik.parts.list[p]
	return m.Term > pt.term || pt.term&(1<<termBits-1) == ik.boot&(1<<termBits-1) // its own claim
}

// partFormerLocked notes which boots of members the View names no more.
func (ik *intake) partFormerLocked(now limiter.Instant, r, old *route) {
	for _, m := range r.Members {
		delete(ik.former, m.Boot)
	}
	if old == nil {
		return
	}
	for i, p := range old.peers {
		if m := &old.Members[i]; m.Role == RoleMember && !r.has(p) && !r.hasBoot(m.Boot) {
			ik.former[m.Boot] = formerPeer{p, now}
		}
	}
}

// forgetFormerLocked ends what is remembered of boots that the View has not named for long. There
// must be a View.
func (ik *intake) forgetFormerLocked(now limiter.Instant) {
	for boot, f := range ik.former {
		if now >= f.since.Add(formerLasts) {
			delete(ik.former, boot)
			delete(ik.inbox, boot)
		}
	}
	r := ik.view.Load()
	for boot, in := range ik.inbox { // agents come and go, and are no former members
		if _, former := ik.former[boot]; !former && now >= in.heard.Add(formerLasts) &&
			!r.hasBoot(boot) {
			delete(ik.inbox, boot)
		}
	}
}

// formerPeer is a member that the View names no more.
type formerPeer struct {
	*peer
	since limiter.Instant
}
