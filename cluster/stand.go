package cluster

import (
	"slices"

	"penstock/limiter"
)

// standLocked answers a claim of m.
func (cl *claimer) standLocked(now limiter.Instant, r *route, claimer *peer, m *Move) []Standing {
	standings := make([]Standing, len(m.Claim))
	switch {
	case r == nil && (cl.restorer.restored || len(cl.awaits.awaited) > 0): // it has not looked yet at what it has from a file
		for k := range standings {
			standings[k] = StandingBusy
		}
		return standings
	case cl.parts.list == nil:
		return standings
	}
	lives, lacks := cl.livesLocked(now, r), cl.awaits.lacksLocked(r)
	suffices := cl.sufficesLocked(m)
	// then it may mean other members than this node does
	elsewhere := m.Epoch != cl.right.roll.Load().epoch()
	for k, p := range m.Claim {
		if int(p) >= len(cl.parts.list) {
			continue
		}
		pt := &cl.parts.list[p]
		if suffices[p] && !lives(pt.copyOf) {
			pt.lentTo = m.From // as if it had got what is here
		}
		switch {
		case pt.state == partHeld:
			standings[k] = StandingHeld // a gift follows as soon as this node's View says so too
		case elsewhere, pt.state == partGiving, m.Term <= pt.term:
			standings[k] = StandingBusy
		case pt.copyOf != 0 && pt.copyOf != m.From && (pt.lentTo != m.From || lives(pt.copyOf)):
			if !pt.restored && lives(pt.copyOf) {
				// The holder is asked as well, and says whether it still is. Its counters are newer
				// than the copy here; without those that this node may have had before, it has
				// decided all the time. If it is none any more, nobody may ever say so here.
				pt.term = m.Term
				standings[k] = cl.parts.free()
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
				cl.copier.outboxLocked(claimer).lends = true
			}
			cl.copier.dueLocked(pt)
		case lacks:
			standings[k] = StandingBusy
		default:
			pt.term = m.Term
			standings[k] = cl.parts.free()
			pt.whole = false // from now on the claimer may decide
		}
	}
	return standings
}

// livesLocked is whether the node of a boot is there, as far as this one knows.
func (cl *claimer) livesLocked(now limiter.Instant, r *route) func(boot uint64) bool {
	var asked uint64 // mostly it is the same one again
	var lives bool
	return func(boot uint64) bool {
		if boot == asked || r == nil {
			return lives
		}
		i := slices.IndexFunc(r.Members, func(m Member) bool { return m.Boot == boot })
		asked, lives = boot, i >= 0 && i != r.Self && !r.peers[i].gone() &&
			cl.right.roll.Load().has(r.peers[i].id, boot)
		if lives {
			cl.contacts.suspectLocked(now, r.peers[i])
		}
		return lives
	}
}
