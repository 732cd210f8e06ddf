package cluster

import (
	"cmp"
	"slices"

	"penstock/limiter"
)

// standLocked answers a claim of m.
func (cl *claimer) standLocked(now limiter.Instant, r *route, claimer *peer, m *Move) []Standing {
	standings := make([]Standing, len(m.Claim))
	switch {
	// It has not looked yet at what it has from a file.
	case r == nil && (cl.restorer.restored || len(cl.awaits.awaited) > 0):
		for k := range standings {
			standings[k] = StandingBusy
		}
		return standings
	case cl.parts.list == nil:
		return standings
	}
	c := claim{
		Move: m, view: r, claimer: claimer, lives: cl.livesLocked(now, r),
		lacks: cl.awaits.lacksLocked(r), suffices: cl.sufficesLocked(m),
		elsewhere: m.Epoch != cl.right.roll.Load().epoch(),
	}
	for k, p := range m.Claim {
		if int(p) < len(cl.parts.list) {
			standings[k] = cl.standOneLocked(&c, p)
		}
	}
	return standings
}

// claim is what another member claims, and what this node knows of it.
type claim struct {
	*Move
	view    *route
	claimer *peer                  // nil: the View does not have it
	lives   func(boot uint64) bool // whether a boot is there
	lacks   bool                   // a member of this node's file is not there
	// of another epoch: it may mean other members than this node does
	elsewhere bool
	suffices  map[uint16]bool // partitions of which the claimer knows what this node does
}

// standOneLocked answers for one partition.
func (cl *claimer) standOneLocked(c *claim, p uint16) Standing {
	pt := &cl.parts.list[p]
	if c.suffices[p] && !c.lives(pt.copyOf) {
		pt.lentTo = c.From // as if it had got what is here
	}
	switch {
	case pt.state == partHeld:
		return StandingHeld // a gift follows as soon as this node's View says so too
	case c.elsewhere, pt.state == partGiving, c.Term <= pt.term:
		return StandingBusy
	case pt.whole && pt.lentTo != c.From && c.claimer != nil &&
		(pt.lentOf != 0 || pt.copyOf == c.From):
		cl.lendWholeLocked(c, p)
		return StandingBusy
	case pt.copyOf != 0 && pt.copyOf != c.From && (pt.lentTo != c.From || c.lives(pt.copyOf)):
		return cl.standAsCopyLocked(c, p)
	case c.lacks:
		return StandingBusy
	}
	pt.term, pt.whole, pt.gave = c.Term, false, false // from now on the claimer may decide
	return cl.parts.free()
}

// standAsCopyLocked answers for a partition that another boot held, and of which the claimer has
// not got the copy that is here. If the holder is gone the copy is lent.
func (cl *claimer) standAsCopyLocked(c *claim, p uint16) Standing {
	pt := &cl.parts.list[p]
	if c.lives(pt.copyOf) {
		// The holder is asked as well, and says whether it still is. Its counters are newer than
		// the copy here; without those that this node may have had before, it has decided all the
		// time. If it is none any more, no other node may ever say so here. Counters from a file
		// go to the next holder (restore.go), which takes them in when it is one.
		pt.term = c.Term
		return cl.parts.free()
	}
	cl.lendLocked(c, pt, copyWanted)
	return StandingBusy
}

// lendLocked has the claimer get what is here.
func (cl *claimer) lendLocked(c *claim, pt *part, has copyState) {
	if c.claimer != nil && pt.to != c.claimer {
		if pt.to != nil {
			pt.former = pt.to
		}
		pt.to, pt.copied = c.claimer, has
		cl.copier.keepers.outboxLocked(c.claimer).lends = true
	}
	cl.copier.keepers.dueLocked(pt)
}

// lendWholeLocked lends a whole copy of what nobody has begun to hold since: a node that does has
// heard from this one that it is free, and then the copy here is no whole one any more. A claimer
// that held it last, and was stopped for a while, has all of that: it is told that it has.
func (cl *claimer) lendWholeLocked(c *claim, p uint16) {
	pt, has := &cl.parts.list[p], copyWanted
	if pt.lastHolder() == c.From {
		has = copyWhole
	}
	cl.lendLocked(c, pt, has)
}

// lastHolder is the boot that held the partition last of which a whole copy is here.
func (pt *part) lastHolder() uint64 { return cmp.Or(pt.lentOf, pt.copyOf) }

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
