package cluster

import (
	"errors"
	"slices"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// A claim asks all other members at once, under a term that is higher than all that the claimer has
// heard of. A member that holds none of it says so, and promises to accept the partition from
// nobody under a term up to that one: so no gift can slip through between two answers, and of two
// that claim one partition at once, only the one with the higher term can get all answers. If all
// say so, nobody holds the partition, and the claimer does from then on. Members that hold it begin
// to hand it over; members that have a copy of it, whose holder is gone, send that first.
//
// All means all members of the configuration. A claim names its epoch, and is answered within it:
// so both know the same members, and who is silent is evicted before anything of it is free.

// tendLocked begins to claim what this node should hold and does not, unless it is at it. To find
// out what that is takes a look at every partition; the ticks of a node that has found nothing do
// so again only when something has changed.
func (n *Node) tendLocked() {
	n.unsettled = true
	if !n.tending && !n.stopped {
		n.tending = true
		n.clock.AfterFunc(0, n.tend)
	}
}

// tend claims what this node should hold.
func (n *Node) tend() {
	now := n.clock.Now()
	n.mu.Lock()
	r := n.view.Load()
	wanted := n.wantedLocked(r)
	if len(wanted) == 0 {
		n.tending, n.unsettled = false, false
		n.entered.Store(n.agreed.roll.Load().joined())
		n.mu.Unlock()
		return
	}
	term, fences, epoch := n.nextTermLocked(), n.fences, n.agreed.roll.Load().epoch()
	for _, p := range wanted {
		n.parts[p].term = term
	}
	known := n.knownLocked(wanted)
	n.mu.Unlock()

	calls := n.ask(now, r, &Move{From: n.boot, ID: n.id, Addr: r.Me().PeerAddr, Term: term, Epoch: epoch, Claim: wanted, Mark: Mark{Known: known}})
	if len(calls) > 0 {
		n.net.Call(calls)
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	n.tending = false
	if n.minority.Load() || n.view.Load() != r || n.fences != fences || n.agreed.roll.Load().epoch() != epoch {
		n.tendLocked() // what was asked is old: while this node was stopped others may have been told the same
		return
	}
	n.concludeClaimLocked(now, n.clock.Now(), r, wanted, term, calls)
	n.entered.Store(true)
	n.startPushesLocked()
}

// wantedLocked lists the partitions that this node should hold and does not: its own, and those
// that it is the heir of and whose owner is gone.
func (n *Node) wantedLocked(r *route) (wanted []uint16) {
	if r == nil || r.Ring == nil || n.parts == nil || n.minority.Load() || r.Me().State != StateActive || !n.agreed.roll.Load().joined() {
		return nil
	}
	for p := range n.parts {
		if !n.holdings.held[p].Load() && !n.parts[p].giving && r.should(p) {
			wanted = append(wanted, uint16(p))
		}
	}
	return wanted
}

// should reports whether this node should hold a partition: as its owner, or as the heir of one
// that is gone.
func (r *route) should(p int) bool {
	owner := r.owner(p)
	return owner == r.Self || r.peers[owner].gone() && r.heir(p) == r.Self
}

// ask prepares the calls of a claim to all members that are not gone.
func (n *Node) ask(now limiter.Instant, r *route, claim *Move) (calls []Call) {
	deadline := now.Add(n.callTimeout)
	for i, p := range r.peers {
		if i == r.Self || r.Members[i].Role != RoleMember || p.gone() || !n.agreed.roll.Load().has(p.id, p.boot) {
			continue
		}
		m := *claim
		m.To = p.boot
		calls = append(calls, Call{
			To: r.Members[i], Deadline: deadline,
			Ask: &Ask{RingHash: r.RingHash(), Hop: 1, Deadline: deadline, Move: &m},
		})
	}
	return calls
}

// concludeClaimLocked holds what everybody has called free. Of the rest it notes who was said to
// hold it.
func (n *Node) concludeClaimLocked(asked, now limiter.Instant, r *route, wanted []uint16, term uint64, calls []Call) {
	free, bereft := make([]bool, len(wanted)), make([]bool, len(wanted))
	for k := range free {
		bereft[k] = n.holdings.gone
		free[k] = true
	}
	for i := range calls {
		c := &calls[i]
		p := r.peers[r.Find(c.To.ID)]
		switch {
		case c.Err == nil && c.Answer.Move != nil && len(c.Answer.Move.Standings) == len(wanted):
			p.answered(asked, now, c.Answer.CutOff)
			n.heardLocked(c.Answer.Move.Term)
			for k, s := range c.Answer.Move.Standings {
				free[k] = free[k] && (s == StandingFree || s == StandingBereft)
				bereft[k] = bereft[k] || s == StandingBereft
				// Who calls it busy may only hear who holds it; but then it knows better than this
				// node who that is.
				if pt := &n.parts[wanted[k]]; s == StandingHeld || s == StandingBusy && !r.reaches(pt.hint) {
					pt.hint = p.id
				}
			}
		case errors.Is(c.Err, ErrGone):
			p.left.Store(true)
			clear(free) // to somebody who had called it free before, it may have given any of it as its last act: ask again
			n.tendLocked()
		default: // it may hold any of it: ask again
			clear(free)
		}
	}
	if !n.allAnsweredLocked(calls, wanted) || n.lacksLocked(r) {
		clear(free)
	}
	if !slices.Contains(free, false) { // and so has everybody given what he had from a file
		n.awaited = nil
	}
	for k, p := range wanted {
		pt := &n.parts[p]
		if free[k] && pt.term == term && !n.holdings.held[p].Load() && r.should(int(p)) {
			if pt.copyOf != 0 && pt.copyOf != n.boot {
				n.stats.TakenOver.Add(1)
			}
			n.beginLocked(now, int(p), bereft[k])
			n.holdLocked(int(p), term)
			n.beginCopiesLocked(r, int(p))
			n.stats.Claimed.Add(1)
		}
	}
}

// allAnsweredLocked reports whether all members of the configuration have answered a claim of this
// epoch. Once they have, all in that epoch, this node takes gifts; one that came earlier was refused,
// so then it claims again at once.
func (n *Node) allAnsweredLocked(calls []Call, wanted []uint16) bool {
	on := n.agreed.roll.Load()
	if !on.joined() {
		return false
	}
	within := !slices.ContainsFunc(calls, func(c Call) bool {
		return c.Err == nil && c.Answer.Move != nil && c.Answer.Move.Epoch != on.epoch()
	})
	for i := range on.config.Members {
		m := &on.config.Members[i]
		if m.Boot == on.boot {
			continue
		}
		if !slices.ContainsFunc(calls, func(c Call) bool {
			return c.To.ID == m.ID && sameProcess(m.Boot, c.To.Boot) && c.Err == nil && c.Answer.Move != nil &&
				len(c.Answer.Move.Standings) == len(wanted)
		}) {
			return false
		}
	}
	if within && n.holdings.answered != on.config {
		n.holdings.answered = on.config
		n.tendLocked()
	}
	return true
}

// reaches reports whether the member of that id is one that is not gone.
func (r *route) reaches(id string) bool {
	i := r.Find(id)
	return i >= 0 && !r.peers[i].gone()
}

// claimed is how often a peer has claimed from this node in one epoch. It takes gifts when all
// members have answered its first claim, and says so by a second one: a gift before that would be
// refused, and nobody decides while one is under way.
type claimed struct {
	epoch ownership.Epoch
	again bool
}

// note counts a claim.
func (c *claimed) note(e ownership.Epoch) { *c = claimed{e, e == c.epoch} }

// standLocked answers a claim of m.
func (n *Node) standLocked(now limiter.Instant, r *route, claimer *peer, m *Move) []Standing {
	standings := make([]Standing, len(m.Claim))
	switch {
	case r == nil && (n.restored || len(n.awaited) > 0): // it has not looked yet at what it has from a file
		for k := range standings {
			standings[k] = StandingBusy
		}
		return standings
	case n.parts == nil:
		return standings
	}
	lives, lacks := n.livesLocked(now, r), n.lacksLocked(r)
	suffices := n.sufficesLocked(m)
	elsewhere := m.Epoch != n.agreed.roll.Load().epoch() // then it may mean other members than this node does
	for k, p := range m.Claim {
		if int(p) >= len(n.parts) {
			continue
		}
		pt := &n.parts[p]
		if suffices[p] && !lives(pt.copyOf) {
			pt.lentTo = m.From // as if it had got what is here
		}
		switch {
		case n.holdings.held[p].Load():
			standings[k] = StandingHeld // a gift follows as soon as this node's View says so too
		case elsewhere, pt.giving, m.Term <= pt.term:
			standings[k] = StandingBusy
		case pt.copyOf != 0 && pt.copyOf != m.From && (pt.lentTo != m.From || lives(pt.copyOf)):
			if !pt.restored && lives(pt.copyOf) {
				// The holder is asked as well, and says whether it still is. Its counters are newer
				// than the copy here; without those that this node may have had before, it has
				// decided all the time. If it is none any more, nobody may ever say so here.
				pt.term = m.Term
				standings[k] = n.holdings.free()
				continue
			}
			standings[k] = StandingBusy
			if pt.lentTo == m.From || lives(pt.copyOf) && !r.inherits(claimer, pt.copyOf, int(p)) {
				continue // the holder will give it, and has more than what is copied here
			}
			if claimer != nil && pt.to != claimer {
				if pt.to != nil {
					pt.former = pt.to
				}
				pt.to, pt.copied = claimer, copyWanted
				n.outboxLocked(claimer).lends = true
			}
			n.dueLocked(pt)
		case lacks:
			standings[k] = StandingBusy
		default:
			pt.term = m.Term
			standings[k] = n.holdings.free()
			pt.whole = false // from now on the claimer may decide
		}
	}
	return standings
}

// inherits reports whether p is who takes a partition over if the boot of its owner is gone.
func (r *route) inherits(p *peer, owner uint64, partition int) bool {
	if r.Ring == nil || p == nil || r.Members[r.owner(partition)].Boot != owner {
		return false
	}
	h := r.heir(partition)
	return h >= 0 && r.peers[h] == p
}

// livesLocked is whether the node of a boot is there, as far as this one knows.
func (n *Node) livesLocked(now limiter.Instant, r *route) func(boot uint64) bool {
	var asked uint64 // mostly it is the same one again
	var lives bool
	return func(boot uint64) bool {
		if boot == asked || r == nil {
			return lives
		}
		i := slices.IndexFunc(r.Members, func(m Member) bool { return m.Boot == boot })
		asked, lives = boot, i >= 0 && i != r.Self && !r.peers[i].gone() && n.agreed.roll.Load().has(r.peers[i].id, boot)
		if lives {
			n.suspectLocked(now, r.peers[i])
		}
		return lives
	}
}
