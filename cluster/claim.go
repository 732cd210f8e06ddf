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
// to hand it over; members that have a copy of it, if its holder is gone, send that first.
//
// All means all members of the configuration. A claim names its epoch, and is answered within it:
// so both know the same members, and a silent member is evicted before anything of it is free.

// claimer claims the partitions that this node should hold. Guarded by partitions.mu.
type claimer struct {
	*self
	right    *right
	parts    *partitions
	copier   *copier
	contacts *contacts
	intake   *intake
	awaits   *awaits
	restorer *restorer

	tending bool // a claim is under way
	// the last one that was claimed in before all were in it: then it is claimed in once more, at
	// once
	early *ownership.Configuration
}

// tendLocked begins to claim what this node should hold and does not, unless it is at it. To find
// out what that is takes a look at every partition; the ticks of a node that has found nothing do
// so again only when something has changed.
func (cl *claimer) tendLocked() {
	cl.parts.unsettled = true
	if !cl.tending && !cl.stopped.Load() {
		cl.tending = true
		cl.clock.AfterFunc(0, cl.tend)
	}
}

// tend claims what this node should hold.
func (cl *claimer) tend() {
	now := cl.clock.Now()
	cl.parts.mu.Lock()
	r := cl.view.Load()
	wanted := cl.wantedLocked(r)
	if len(wanted) == 0 {
		cl.tending, cl.parts.unsettled = false, false
		cl.right.entered.Store(cl.right.roll.Load().joined())
		cl.parts.mu.Unlock()
		return
	}
	term, fences, epoch := cl.parts.nextTermLocked(), cl.parts.fences, cl.right.roll.Load().epoch()
	for _, p := range wanted {
		cl.parts.list[p].term = term
	}
	calls := cl.askLocked(now, r, &Move{
		From: cl.boot, ID: cl.id, Addr: r.Me().PeerAddr, Term: term,
		Epoch: epoch, Claiming: Claiming{Claim: wanted, Known: cl.knownLocked(wanted)},
	})
	cl.parts.mu.Unlock()
	if len(calls) > 0 {
		cl.contacts.Call(calls)
	}

	cl.parts.mu.Lock()
	defer cl.parts.mu.Unlock()
	cl.tending = false
	if cl.right.minority.Load() || cl.view.Load() != r || cl.parts.fences != fences ||
		cl.right.roll.Load().epoch() != epoch {
		// what was asked is old: while this node was stopped others may have been told the same
		cl.tendLocked()
		return
	}
	cl.concludeClaimLocked(now, cl.clock.Now(), r, wanted, term, calls)
	cl.right.entered.Store(true)
	cl.copier.startPushesLocked()
}

// wantedLocked lists the partitions that this node should hold and does not: its own, and those
// that it is the heir of, if their owner is gone.
func (cl *claimer) wantedLocked(r *route) (wanted []uint16) {
	if r == nil || r.Ring == nil || cl.parts.list == nil || cl.right.minority.Load() ||
		r.Me().State != StateActive || !cl.right.roll.Load().joined() {
		return nil
	}
	for p := range cl.parts.list {
		if cl.parts.list[p].state < partHeld && r.should(p) {
			wanted = append(wanted, uint16(p))
		}
	}
	return wanted
}

// askLocked prepares the calls of a claim to all members that are not gone.
func (cl *claimer) askLocked(now limiter.Instant, r *route, claim *Move) (calls []Call) {
	deadline := now.Add(cl.callTimeout)
	for i, p := range r.peers {
		if i == r.Self || r.Members[i].Role != RoleMember || p.gone() ||
			!cl.right.roll.Load().has(p.id, p.boot) {
			continue
		}
		m := *claim
		m.To = p.boot
		if in := cl.intake.inbox[p.boot]; in != nil {
			m.Heard = in.sequence
		}
		calls = append(calls, Call{
			To: r.Members[i], Deadline: deadline,
			Ask: &Ask{RingHash: r.RingHash(), Hop: 1, Deadline: deadline, Move: &m},
		})
	}
	return calls
}

// concludeClaimLocked begins to hold what all have called free. Of the rest it notes which member
// was said to hold it.
func (cl *claimer) concludeClaimLocked(
	asked, now limiter.Instant, r *route, wanted []uint16, term uint64, calls []Call,
) {
	free, bereft := cl.freeLocked(asked, now, r, wanted, calls)
	if !cl.allAnsweredLocked(calls, wanted) || cl.awaits.lacksLocked(r) {
		clear(free)
	}
	if !slices.Contains(free, false) { // and so all have given what they had from a file
		cl.awaits.awaited = nil
	}
	for k, p := range wanted {
		pt := &cl.parts.list[p]
		if !free[k] || pt.term != term || pt.state == partHeld || !r.should(int(p)) {
			continue
		}
		if pt.copyOf != 0 && pt.copyOf != cl.boot {
			cl.stats.TakenOver.Add(1)
		}
		cl.parts.beginLocked(now, int(p), bereft[k])
		cl.parts.holdLocked(int(p), term)
		cl.intake.succeedLocked(p)
		cl.copier.keepers.beginCopiesLocked(r, int(p))
		cl.stats.Claimed.Add(1)
	}
}

// freeLocked reports which of the partitions wanted all members have called free that were asked,
// and of which of them counters may be forgotten.
func (cl *claimer) freeLocked(
	asked, now limiter.Instant, r *route, wanted []uint16, calls []Call,
) (free, bereft []bool) {
	free, bereft = make([]bool, len(wanted)), make([]bool, len(wanted))
	for k := range free {
		free[k], bereft[k] = true, cl.parts.gone
	}
	for i := range calls {
		c := &calls[i]
		p := r.peers[r.Find(c.To.ID)]
		switch {
		case c.Err == nil && c.Answer.Move != nil && len(c.Answer.Move.Standings) == len(wanted):
			if !c.Passed {
				p.answered(asked, now, c.Answer.CutOff)
			}
			cl.parts.heardLocked(c.Answer.Move.Term)
			for k, s := range c.Answer.Move.Standings {
				free[k] = free[k] && (s == StandingFree || s == StandingBereft)
				bereft[k] = bereft[k] || s == StandingBereft
				// A member that calls it busy may only have heard of the holder; but then it knows
				// better than this node which one that is.
				if pt := &cl.parts.list[wanted[k]]; s == StandingHeld ||
					s == StandingBusy && !r.reaches(pt.hint) {
					pt.hint = p.id
				}
			}
		case errors.Is(c.Err, ErrGone):
			p.left.Store(true)
			// it may have given any of it, as its last act, to a member that had called it free
			// before: ask again
			clear(free)
			cl.tendLocked()
		default: // it may hold any of it: ask again
			clear(free)
		}
	}
	return free, bereft
}

// allAnsweredLocked reports whether all members of the configuration have answered a claim of this
// epoch. Once they have, all in that epoch, this node takes gifts; one that came earlier was
// refused, so then it claims again at once.
func (cl *claimer) allAnsweredLocked(calls []Call, wanted []uint16) bool {
	on := cl.right.roll.Load()
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
			return c.To.ID == m.ID && SameProcess(m.Boot, c.To.Boot) && c.Err == nil &&
				c.Answer.Move != nil &&
				len(c.Answer.Move.Standings) == len(wanted)
		}) {
			return false
		}
	}
	switch {
	case within && cl.parts.answered != on.config:
		cl.parts.answered = on.config
		cl.tendLocked()
	case !within && cl.early != on.config: // they are about to hear of it
		cl.early = on.config
		cl.tendLocked()
	}
	return true
}
