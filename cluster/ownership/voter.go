package ownership

import (
	"slices"
)

// voter is this boot's part in the register of its epoch: an acceptor of single-decree Paxos that
// decides the successor. An acceptor is sealed by the first Accept: from then on it acknowledges no
// renewals, for anyone, so every right that it has acknowledged is over Lease + Margin later (R4).
type voter struct {
	sealed   bool
	closed   bool // this boot follows a child lineage, and takes part in this register no more
	sealedAt Instant
	promised Ballot
	heardAt  Instant // when this voter first heard of the latest ballot, or was to accept it

	accepted Ballot
	value    *Configuration // of accepted

	pending      Ballot // an Accept that waits until the evicted have no right any more
	pendingValue *Configuration

	refused refusal
}

// refusal is a canvass that a voter has not consented to, the last one of this epoch.
type refusal struct {
	of    Boot // the proposer
	value *Configuration
}

// evictable reports whether this voter would let b go: it is gone, has left, or is quiet (R4, R6).
func (s *sight) evictable(now Instant, b Boot) bool {
	return s.entry(b).sign >= SignGone || s.suspects(now, b)
}

// suspects reports whether b has been silent for Suspect. One that is heard, and has not renewed in
// this epoch yet, may be waiting for the decision on a slow line: it has Mass.
func (s *sight) suspects(now Instant, b Boot) bool {
	e, wait := s.entry(b), s.p.Suspect
	if !e.seen && !s.deaf(now, b) && now.Since(e.heard) < s.p.Suspect {
		wait = s.p.Mass
	}
	return b != s.me.Boot && now.Since(e.renewed) >= wait
}

// wouldAccept reports what this voter says to a canvass. It binds nobody.
func (s *register) wouldAccept(now Instant, value *Configuration) bool {
	if !s.config.Votes(s.me.Boot) || s.voter.closed {
		return false
	}
	if s.voter.sealed {
		return true
	}
	for _, m := range s.config.Members {
		if value.Has(m.Boot) {
			continue
		}
		if !s.evictable(now, m.Boot) || s.massive(now, value) {
			return false
		}
	}
	for _, m := range value.Members {
		if s.p.keeps(ruleChain) && slices.Contains(s.evicted, m.Boot) {
			return false
		}
	}
	return true
}

// canvassed says whether this voter would accept what another one is about to propose.
func (s *register) canvassed(now Instant, from Boot, value *Configuration) {
	yes := s.wouldAccept(now, value)
	if s.voter.refused = (refusal{}); !yes {
		s.voter.refused = refusal{from, value}
	}
	s.send(from, Consent{value, yes})
}

// reconsider consents to what this voter has refused, once it sees what it lacked: that a member is
// gone, which its proposer has seen a moment earlier. Asked again by the proposer's next Poll, it
// would consent as well, only later.
func (s *register) reconsider(now Instant) {
	r := s.voter.refused
	if s.stage != StageJoined || r.value == nil || !s.wouldAccept(now, r.value) {
		return
	}
	s.voter.refused = refusal{}
	s.send(r.of, Consent{r.value, true})
}

// massive reports whether value evicts too many silent members at once, too early (R7). One silent
// member is never many, and members that are gone or have left are not waited for.
func (s *sight) massive(now Instant, value *Configuration) bool {
	silent, early := 0, false
	for _, m := range s.config.Members {
		if e := s.entry(m.Boot); !value.Has(m.Boot) && e.sign < SignGone {
			silent++
			early = early || now.Since(e.renewed) < s.p.Mass
		}
	}
	return silent > 1 && silent*3 > len(s.config.Members) && early && s.p.keeps(ruleMass)
}

// prepare promises a ballot, and tells what was accepted before.
func (s *register) prepare(now Instant, from Boot, m Prepare) {
	if s.voter.closed || !s.config.Votes(s.me.Boot) {
		return
	}
	if m.Ballot > s.voter.promised {
		s.voter.promised, s.voter.heardAt = m.Ballot, now
	}
	s.send(from, Promise{m.Epoch, s.voter.promised, s.voter.accepted, s.voter.value})
}

// accept seals the epoch. The value is accepted at once if no boot that it evicts can have a
// right any more, else as soon as that is so.
func (s *register) accept(now Instant, m Accept) {
	v := &s.voter
	if v.closed || !s.config.Votes(s.me.Boot) || m.Ballot < v.promised {
		return
	}
	v.promised = m.Ballot
	if !v.sealed {
		v.sealed, v.sealedAt = true, now
	}
	if v.accepted == m.Ballot {
		s.send(s.ballotOf(m.Ballot), Accepted{s.config.Epoch, m.Ballot})
		return
	}
	if v.pending != m.Ballot {
		v.heardAt = now
	}
	v.pending, v.pendingValue = m.Ballot, m.Value
	s.acceptPending(now)
}

// acceptPending accepts what waits, if it need not any more.
func (s *register) acceptPending(now Instant) {
	v := &s.voter
	if v.closed || v.pending == 0 || v.pending < v.promised || v.accepted >= v.pending {
		return
	}
	for _, m := range s.config.Members {
		e := s.entry(m.Boot)
		if v.pendingValue.Has(m.Boot) || e.sign >= SignGone || !s.p.keeps(ruleQuiet) {
			continue
		}
		if now.Since(e.renewed) < s.p.quiet() {
			return
		}
	}
	v.accepted, v.value = v.pending, v.pendingValue
	s.send(s.ballotOf(v.accepted), Accepted{s.config.Epoch, v.accepted})
}

// ballotOf is the voter that a ballot belongs to.
func (s *sight) ballotOf(b Ballot) Boot { return s.config.Voters[b%16] }

// decided installs a configuration that follows this boot's own (R2). A candidate installs any that
// names it, for it has installed none before.
//
// A boot that has begun a child, and not installed it, installs what its epoch has decided instead:
// nobody else can install that child, so there will be none. A boot that has promised to follow a
// child takes the word of the one that began it alone: by that word, there will be no child.
func (s *State) decided(now Instant, from Boot, c *Configuration) {
	switch {
	case s.stage == StageOutside || s.stage == StageCandidate:
		if c.Has(s.me.Boot) {
			s.install(now, c)
		}
	case s.stage != StageJoined:
	case c.Previous == s.config.Epoch:
		inLineage := c.Epoch.Lineage == s.config.Epoch.Lineage
		if s.fork.kind == forkFollows && s.fork.of != from && inLineage {
			return
		}
		missed := s.entry(from).missed
		s.install(now, c)
		s.handToMissed(c, missed)
	case !s.p.keeps(ruleChain) && c.Epoch.Number > s.config.Epoch.Number:
		s.install(now, c)
	}
}

// handToMissed tells members what is decided that the one that has told this boot does not reach.
// They would ask only when they renew next.
func (s *speaker) handToMissed(c *Configuration, missed []Boot) {
	if s.stage != StageJoined {
		return
	}
	for _, b := range missed {
		if b != s.me.Boot && c.Has(b) {
			s.send(b, Decided{c})
		}
	}
}

// keepChain is how many configurations a member can hand on, and keepEvicted how many boots it
// remembers that never return.
const (
	keepChain   = 16
	keepEvicted = 1024
)

// install begins the epoch of c.
func (s *State) install(now Instant, c *Configuration) {
	before := s.config
	if s.stage == StageJoined {
		for _, m := range before.Members {
			if !c.Has(m.Boot) {
				s.evicted = append(s.evicted, m.Boot)
			}
		}
		s.evicted = s.evicted[max(0, len(s.evicted)-keepEvicted):]
	}
	joined := s.stage == StageJoined
	s.config, s.stage = c, StageJoined
	if c.Failover != s.p.Failover {
		p := s.p.With(c.Failover)
		s.p = &p
	}
	s.chain = append(slices.Clone(s.chain), c)
	s.chain = s.chain[max(0, len(s.chain)-keepChain):]
	s.voter, s.proposer, s.fork, s.founding = voter{}, proposer{}, fork{}, founding{}
	s.out.Installed = append(s.out.Installed, c)
	me, named := c.Member(s.me.Boot)
	if !named {
		if s.leaving && joined {
			s.end(Left)
		} else {
			s.end(Evicted)
		}
		return
	}
	s.me.Role, s.right.began = me.Role, now
	if me.Role != RoleLeaving { // it is an owner again, and holds something from now on
		s.right.ended, s.emptied = false, false
	}
	for _, m := range c.Members {
		e := s.entry(m.Boot)
		e.asked, e.seen, e.missed = false, false, nil
		// Its proposer had not heard the farewell. The member has its right again, from this
		// epoch, so that of before says nothing.
		if e.sign == SignLeft && m.Role != RoleLeaving {
			e.signed(SignUp, now)
		}
		if s.p.keeps(ruleOneEpoch) {
			e.acked = never
		}
		if s.p.keeps(ruleLearn) {
			e.renewed = now
		}
	}
	s.forget()
	// An acknowledgement of this epoch is of a renewal in it, so the right was lost before that was
	// sent, be it at the same instant.
	s.right.floor = min(s.right.floor, now)
	s.renewed = never
	s.renew(now)
}
