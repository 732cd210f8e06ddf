package cluster

import (
	"errors"
	"slices"
	"time"

	"penstock/limiter"
)

// A claim asks all other members at once, under a term that is higher than all that the claimer has
// heard of. A member that holds none of it says so, and promises to accept the partition from
// nobody under a term up to that one: so no gift can slip through between two answers, and of two
// that claim one partition at once, only the one with the higher term can get all answers. If all
// say so, nobody holds the partition, and the claimer does from then on. Members that hold it begin
// to hand it over; members that have a copy of it, whose holder is gone, send that first.
//
// Views come late, so a claimer may not know all who have come meanwhile, and one of those may hold
// the partition by now. So a claim says whom the claimer knows, and who knows others answers with
// their boots: as long as there is one that the claimer has never known, it gets nothing; nor does
// it while it hears itself somebody who has claimed and whom its View does not name. A boot that no
// View has named here, and that does not answer at its address, is answered with nothing but that
// (stranger.go). What a member has said last it need not say again: it may leave, or die, before
// that one has been heard of.
//
// Members that are gone are not asked (contact.go says who is, and makes sure that they decide
// nothing when they come back). But a link may be cut between two members only, or one be declared
// dead by mistake: then whom the claimer does not reach goes on deciding, because it reaches most
// of the others. So a claim says who is not asked, and whoever has had a sign of life from one of
// those lately calls nothing free, whether his View still names that one or not; nor does the
// claimer himself. Of any two majorities, somebody is in both.

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

func (n *Node) tend() { n.tendAgain(suspectAgain) }

// tendAgain claims what this node should hold. If nothing is said to be free, for others hear whom
// it takes for gone, it does so once more after a pause: those others look at once. 0: it leaves
// that to the next tick.
func (n *Node) tendAgain(pause time.Duration) {
	now := n.clock.Now()
	n.mu.Lock()
	r := n.view.Load()
	wanted := n.wantedLocked(now, r)
	if len(wanted) == 0 {
		n.tending, n.unsettled = false, false
		n.mu.Unlock()
		return
	}
	term, fences := n.nextTermLocked(), n.fences
	for _, p := range wanted {
		n.parts[p].term = term
	}
	var unasked []uint64
	if !n.agreed.on {
		unasked = n.unaskedLocked(now, r)
	}
	epoch := n.agreed.roll.Load().epoch()
	n.mu.Unlock()

	calls := n.ask(now, r, &Move{From: n.boot, ID: n.id, Addr: r.Me().PeerAddr, Term: term, Epoch: epoch, Claim: wanted, Knows: Knows{r.boots, unasked}})
	if len(calls) > 0 {
		n.net.Call(calls)
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	n.tending = false
	now = n.clock.Now()
	if !n.agreed.on {
		n.learnWhomLocked(now, r, calls)
	}
	if n.stalled(now) || n.minority.Load() || n.view.Load() != r || n.fences != fences || n.agreed.roll.Load().epoch() != epoch {
		n.tendLocked() // what was asked is old: while this node was stopped others may have been told the same
		return
	}
	n.concludeClaimLocked(now, r, wanted, term, unasked, calls)
	n.startPushesLocked()
	if pause > 0 && len(unasked) > 0 && !n.tending && !n.stopped {
		n.tending = true
		n.clock.AfterFunc(pause, func() { n.tendAgain(0) })
	}
}

// unaskedLocked lists the boots of members that are not asked by a claim: those that are gone, and
// those that no View names any more.
func (n *Node) unaskedLocked(now limiter.Instant, r *route) (boots []uint64) {
	for i, p := range r.peers {
		if i != r.Self && r.Members[i].Role == RoleMember && n.gone(now, p) {
			boots = append(boots, p.boot)
		}
	}
	for b := range n.former {
		boots = append(boots, b)
	}
	slices.Sort(boots)
	return boots
}

// hearsLocked reports whether this node has had a sign of life lately from any of the boots, and
// looks whether they live.
func (n *Node) hearsLocked(now limiter.Instant, r *route, boots []uint64) (any bool) {
	if r == nil || len(boots) == 0 {
		return false
	}
	contact := n.paceLocked(r)
	hear := func(p *peer) {
		if !p.left.Load() && now <= limiter.Instant(p.sound.Load()).Add(contact) {
			n.suspectLocked(now, p)
			any = true
		}
	}
	for i, p := range r.peers {
		if i != r.Self && slices.Contains(boots, p.boot) {
			hear(p)
		}
	}
	for _, b := range boots {
		if f, known := n.former[b]; known {
			hear(f.peer)
		}
	}
	return any
}

// hearsStrangersLocked reports whether this node has had a sign of life lately from somebody who
// has claimed, and whom its View does not name.
func (n *Node) hearsStrangersLocked(now limiter.Instant, r *route) bool {
	contact := n.paceLocked(r)
	for boot, heard := range n.strangers {
		if !r.hasBoot(boot) && now <= heard.Add(contact) { // one that the View names may have been noted while that View was made
			return true
		}
	}
	return false
}

// hearsay is which boots that this node did not know a member has named last, when it answered a
// claim: they may hold something.
type hearsay struct {
	known []uint64
	at    limiter.Instant
}

// learnWhomLocked notes whom those know that have answered a claim. What each says takes the place
// of what it has said before.
func (n *Node) learnWhomLocked(now limiter.Instant, r *route, calls []Call) {
	for i := range calls {
		c := &calls[i]
		if c.Err != nil || c.Answer.Move == nil {
			continue
		}
		var strange []uint64
		for _, b := range c.Answer.Move.Known {
			if n.strangeLocked(r, b) && len(strange) < mostBoots {
				strange = append(strange, b)
			}
		}
		if len(strange) > 0 {
			n.hearsay[c.To.Boot] = hearsay{strange, now}
		} else {
			delete(n.hearsay, c.To.Boot)
		}
	}
}

// toldOfStrangersLocked reports whether somebody's last word was of a boot that this node has not
// heard of since. That its teller is gone by now says nothing of the boot.
func (n *Node) toldOfStrangersLocked(now limiter.Instant, r *route) bool {
	for _, h := range n.hearsay {
		if now < h.at.Add(strangerLasts) && slices.ContainsFunc(h.known, func(b uint64) bool { return n.strangeLocked(r, b) }) {
			return true
		}
	}
	return false
}

// wantedLocked lists the partitions that this node should hold and does not: its own, and those
// that it is the heir of and whose owner is gone.
func (n *Node) wantedLocked(now limiter.Instant, r *route) (wanted []uint16) {
	if r.Ring == nil || n.parts == nil || n.minority.Load() || r.Me().State != StateActive || n.agreed.on && !n.agreed.roll.Load().joined() {
		return nil
	}
	for p := range n.parts {
		if !n.holdings.held[p].Load() && !n.parts[p].giving && n.should(now, r, p) {
			wanted = append(wanted, uint16(p))
		}
	}
	return wanted
}

func (n *Node) should(now limiter.Instant, r *route, p int) bool {
	owner := r.owner(p)
	return owner == r.Self || n.gone(now, r.peers[owner]) && r.heir(p) == r.Self
}

// ask prepares the calls of a claim to all members that are not gone.
func (n *Node) ask(now limiter.Instant, r *route, claim *Move) (calls []Call) {
	deadline := now.Add(n.callTimeout)
	for i, p := range r.peers {
		if i == r.Self || r.Members[i].Role != RoleMember || n.gone(now, p) || n.agreed.on && !n.agreed.roll.Load().has(p.id, p.boot) {
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
func (n *Node) concludeClaimLocked(now limiter.Instant, r *route, wanted []uint16, term uint64, unasked []uint64, calls []Call) {
	free, bereft := make([]bool, len(wanted)), make([]bool, len(wanted))
	for k := range free {
		bereft[k] = n.parts[wanted[k]].bereft
		free[k] = true
	}
	for i := range calls {
		c := &calls[i]
		p := r.peers[r.Find(c.To.ID)]
		switch {
		case c.Err == nil && c.Answer.Move != nil && len(c.Answer.Move.Standings) == len(wanted):
			p.met(now, c.Answer.CutOff)
			n.toldOfRival(p, c.Answer.Rival)
			n.heardLocked(c.Answer.Move.Term)
			for k, s := range c.Answer.Move.Standings {
				free[k] = free[k] && (s == StandingFree || s == StandingBereft)
				bereft[k] = bereft[k] || s == StandingBereft
				// Who calls it busy may only hear who holds it; but then it knows better than this
				// node who that is.
				if pt := &n.parts[wanted[k]]; s == StandingHeld || s == StandingBusy && !n.reachedLocked(now, r, pt.hint) {
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
	if n.agreed.on {
		if !n.allAnswered(calls, wanted) || n.lacksLocked(now, r) {
			clear(free)
		}
	} else if n.outnumberedLocked(now, r) || n.hearsLocked(now, r, unasked) || n.hearsStrangersLocked(now, r) || n.toldOfStrangersLocked(now, r) ||
		n.lacksLocked(now, r) {
		clear(free)
	}
	if !slices.Contains(free, false) { // and so has everybody given what he had from a file
		n.awaited = nil
	}
	for k, p := range wanted {
		pt := &n.parts[p]
		if free[k] && pt.term == term && !n.holdings.held[p].Load() && n.should(now, r, int(p)) {
			if pt.copyOf != 0 && pt.copyOf != n.boot {
				n.stats.TakenOver.Add(1)
			}
			n.beginLocked(now, int(p), bereft[k])
			n.holdLocked(int(p), term)
			pt.to, pt.copied = r.copyTarget(int(p)), copyWanted
			n.dueLocked(pt)
			n.stats.Claimed.Add(1)
		}
	}
}

// allAnswered reports whether all members of the configuration have answered a claim of this epoch.
func (n *Node) allAnswered(calls []Call, wanted []uint16) bool {
	on := n.agreed.roll.Load()
	if !on.joined() {
		return false
	}
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
	return true
}

// outnumberedLocked reports whether more are gone than are left, as far as this node knows. It need
// not wait until it has had no contact for so long: others may be in the same place, who have come
// back as well and are known to nobody yet, and then several would find that nobody holds anything.
func (n *Node) outnumberedLocked(now limiter.Instant, r *route) bool {
	s := newSides(n.id)
	for i, p := range r.peers {
		switch m := &r.Members[i]; {
		case i == r.Self || !p.missable(m) || p.leaves.Load():
		case n.gone(now, p) || p.cutOff.Load():
			s.miss(m.ID)
		case p.fresh || m.State != StateActive:
		default:
			s.reach(m.ID)
		}
	}
	for id := range n.lost {
		s.miss(id)
	}
	return s.minority()
}

// reachedLocked reports whether the member of that id is one that is not gone.
func (n *Node) reachedLocked(now limiter.Instant, r *route, id string) bool {
	i := r.Find(id)
	return i >= 0 && !n.gone(now, r.peers[i])
}

// strangeLocked reports whether a boot is none that this node knows, or knew once.
func (n *Node) strangeLocked(r *route, boot uint64) bool {
	_, former := n.former[boot]
	return !former && !r.hasBoot(boot)
}

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
	lives, lacks := n.livesLocked(now, r), n.lacksLocked(now, r)
	var heard bool
	if n.agreed.on {
		heard = m.Epoch != n.agreed.roll.Load().epoch() // then it may mean others than this node does
	} else {
		heard = n.hearsLocked(now, r, m.Unasked)
	}
	for k, p := range m.Claim {
		if int(p) >= len(n.parts) {
			continue
		}
		pt := &n.parts[p]
		switch {
		case n.holdings.held[p].Load():
			standings[k] = StandingHeld // a gift follows as soon as this node's View says so too
		case heard, pt.giving, m.Term <= pt.term, claimer != nil && claimer.fresh:
			standings[k] = StandingBusy
		case pt.copyOf != 0 && pt.copyOf != m.From && (pt.lentTo != m.From || lives(pt.copyOf)):
			if !pt.restored && lives(pt.copyOf) && (n.agreed.on || r.boots == m.Members) && !slices.Contains(m.Unasked, pt.copyOf) {
				// The holder is asked as well, and says whether it still is. Its counters are newer
				// than the copy here; without those that this node may have had before, it has
				// decided all the time. If it is none any more, nobody may ever say so here.
				pt.term = m.Term
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
			}
			n.dueLocked(pt)
		case lacks:
			standings[k] = StandingBusy
		default:
			pt.term = m.Term
			if pt.bereft {
				standings[k] = StandingBereft
			}
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
		asked, lives = boot, i >= 0 && i != r.Self && !n.gone(now, r.peers[i]) && (!n.agreed.on || n.agreed.roll.Load().has(r.peers[i].id, boot))
		if lives {
			n.suspectLocked(now, r.peers[i])
		}
		return lives
	}
}
