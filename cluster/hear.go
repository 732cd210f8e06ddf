package cluster

import (
	"slices"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// hear answers what a peer says about partitions, or nil if it is for another boot, or from a stranger.
func (n *Node) hear(now limiter.Instant, r *route, m *Move) *MoveAnswer {
	if m.To != n.boot {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heardLocked(m.Term)
	var sender, leaver *peer
	if r != nil {
		if i := r.Find(m.ID); i >= 0 && r.Members[i].Boot == m.From {
			sender = r.peers[i]
			sender.met(now, m.CutOff)
		}
	}
	if f, known := n.former[m.From]; known {
		f.met(now, m.CutOff)
		if sender == nil && f.leaving() { // it goes on handing over what it held, also when others say already that it has left
			leaver = f.peer
		}
	}
	if _, known := n.strangers[m.From]; known && sender == nil {
		n.strangers[m.From] = now
	}
	a := &MoveAnswer{}
	cutOff := n.minority.Load() && r != nil
	if cutOff { // whoever asks may have come just before, and not have heard of those who are missed
		a.Known = n.knownLocked(now, r, true)
	}
	if len(m.Claim) > 0 {
		a.Standings = n.standLocked(now, r, sender, m)
		if r != nil && n.parts != nil && (m.Members != r.boots || len(n.strangers) > 0) {
			a.Known = n.knownLocked(now, r, cutOff)
		}
		if sender == nil {
			n.strangers[m.From] = now
		} else if sender.out != nil {
			for _, p := range m.Claim {
				delete(sender.out.refused, p)
			}
		}
		if r != nil && n.parts != nil {
			n.startPushesLocked()
		}
	}
	if m.Sequence != 0 {
		if sender == nil {
			sender = leaver
		}
		if sender == nil || n.stopped || n.parts == nil && len(m.Charges) == 0 { // who has stopped has written its file: what came now would be lost with it
			return nil
		}
		n.applyLocked(now, r, sender, m, a)
	} else if len(m.Entries)+len(m.Holds)+len(m.Lent) > 0 && sender != nil && n.parts != nil && !n.stopped {
		a.Refused = n.unheldLocked(m.Lent)
		for i := range m.Entries {
			e := &m.Entries[i]
			if len(a.Refused) == 0 || !slices.Contains(a.Refused, uint16(ring.Partition(limiter.Hash(e.Key)))) {
				n.importLocked(now, m, e, false)
			}
		}
		n.importHolds(now, m)
		n.copyLentLocked(m.Lent)
		n.stats.Copied.Add(uint64(len(m.Entries)))
		a.Applied = true
	}
	a.Term, a.Up = n.term, time.Duration(now-n.began)
	return a
}

// inbox is what was last taken in from a boot.
type inbox struct {
	sequence uint64
	refused  []uint16
	begun    map[uint16]bool // partitions whose copies the boot keeps
}

// applyLocked takes the copies and the gift of m in, unless it has done so before.
func (n *Node) applyLocked(now limiter.Instant, r *route, sender *peer, m *Move, a *MoveAnswer) {
	in := n.inbox[m.From]
	if in == nil {
		in = new(inbox)
		n.inbox[m.From] = in
	}
	a.Applied = true
	switch {
	case m.Sequence == in.sequence:
		a.Refused = in.refused
		return
	case m.Sequence < in.sequence: // an old one, that nobody waits for
		return
	}
	in.sequence, in.refused = m.Sequence, nil
	n.stats.Copied.Add(uint64(len(m.Entries) + len(m.Charges)))
	n.chargedElsewhere(now, m.Charges)
	if n.parts == nil {
		return
	}
	for _, p := range m.Begin {
		if in.begun == nil {
			in.begun = make(map[uint16]bool)
		}
		in.begun[p] = true
		if int(p) < len(n.parts) && n.parts[p].giving && n.parts[p].to != nil && n.parts[p].to.boot == m.From {
			n.copiedBackLocked(&n.parts[p], m.From)
		}
		if int(p) < len(n.parts) && !n.holdings.held[p].Load() && !n.parts[p].giving {
			pt := &n.parts[p]
			pt.pure = pt.copyOf == 0 || pt.copyOf == m.From || pt.lentTo == m.From // the last has got all that there was
			pt.copyOf, pt.lost, pt.hint = m.From, 0, m.ID
			n.holdings.kept[p].Store(true)
		}
	}
	for _, p := range m.End {
		delete(in.begun, p)
		if int(p) < len(n.parts) && n.parts[p].copyOf == m.From && !n.holdings.held[p].Load() && !n.parts[p].giving {
			n.forgetLocked(int(p))
		}
	}
	for i := range m.Entries {
		// What is held here already is not made better by an old copy that somebody lends: it was lent to who held it before.
		if p := uint16(ring.Partition(limiter.Hash(m.Entries[i].Key))); in.begun[p] || !n.holdings.held[p].Load() {
			n.importLocked(now, m, &m.Entries[i], true)
		}
	}
	n.importHolds(now, m)
	if len(m.Lent) > 0 {
		n.copyLentLocked(m.Lent)
		n.tendLocked()
	}
	for i := range m.Taken {
		n.recent.Learn(now, &m.Taken[i])
	}
	for _, p := range m.Gift {
		if int(p) >= len(n.parts) || !n.acceptsLocked(now, r, sender, m, int(p)) {
			in.refused = append(in.refused, p)
			if int(p) < len(n.parts) && !n.parts[p].giving {
				n.parts[p].hint = m.ID // it goes on deciding
			}
			continue
		}
		if !n.holdings.held[p].Load() {
			n.stats.Received.Add(1)
			n.holdLocked(int(p), m.Term)
			n.parts[p].to, n.parts[p].copied = r.copyTarget(int(p)), copyWanted
			n.dueLocked(&n.parts[p])
		}
	}
	a.Refused = in.refused
	if len(m.Gift) > 0 {
		n.startPushesLocked()
	}
}

// copyLentLocked has what is held here of lent partitions copied once more: whoever gets copies of them, or is about to be given them, may
// have got those before what was lent came, and what is merged does not count as changed.
func (n *Node) copyLentLocked(lent []uint16) {
	for _, p := range lent {
		if int(p) < len(n.parts) && n.holdings.held[p].Load() && n.parts[p].copied != copyWanted {
			n.parts[p].copied = copyWanted
			n.dueLocked(&n.parts[p])
		}
	}
}

// importLocked takes one entry over: in the place of what was known, if that is an earlier copy from the same holder and
// what comes is in order, or merged with it.
func (n *Node) importLocked(now limiter.Instant, m *Move, e *limiter.Entry, inOrder bool) {
	p := ring.Partition(limiter.Hash(e.Key))
	pt := &n.parts[p]
	replace := inOrder && !n.holdings.held[p].Load() && !pt.giving && pt.copyOf == m.From && pt.pure
	if pt.copyOf == 0 {
		pt.copyOf, pt.pure = m.From, true
		n.holdings.kept[p].Store(true)
	} else if pt.copyOf != m.From {
		pt.pure = false
	}
	pt.lentTo = 0 // what was lent of it is out of date
	e.Age += m.Age
	n.table.Import(now, e, replace)
}

// acceptsLocked reports whether this node takes the partition of a gift. After it was stopped, or cut off, it takes nothing from who has not
// answered it since: the gift may have lain at its door, and meanwhile be taken for lost, and its partition be claimed by another one. Of who
// leaves it takes what another one should hold: who of them has not heard of something, nobody finds out in time, and it will give it on.
func (n *Node) acceptsLocked(now limiter.Instant, r *route, sender *peer, m *Move, p int) bool {
	pt := &n.parts[p]
	switch {
	case n.holdings.held[p].Load():
		return true // two have held it; what the giver had is merged by now
	case limiter.Instant(sender.hears.Load()) < n.resumed:
		return false
	case n.stalled(now), n.minority.Load(), r.Ring == nil, r.Me().State != StateActive, !n.should(now, r, p) && !sender.leaving():
		return false
	}
	return m.Term > pt.term || pt.term&(1<<termBits-1) == n.boot&(1<<termBits-1) // its own claim
}
