package ownership

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// agrees counts a voter once, and reports whether that made a majority full.
func (s *State) agrees(yes *[]Boot, from Boot) bool {
	if !slices.Contains(s.config.Voters, from) || slices.Contains(*yes, from) {
		return false
	}
	*yes = slices.Sorted(slices.Values(append(slices.Clone(*yes), from)))
	return len(*yes) == len(s.config.Voters)/2+1
}

// restarts has a proposer forget what it has under way, but for its ballot and its tries.
func (p *proposer) restarts() { *p = proposer{ballot: p.ballot, tries: p.tries} }

// bids begins with the next higher ballot of this voter's place. Of a sealed epoch the value is
// what this voter was to accept, unless it was at work already; what it has asked voters to accept
// may still be accepted.
func (s *State) bids(now Instant) {
	p, place := &s.proposer, Ballot(slices.Index(s.config.Voters, s.me.Boot))
	if p.phase == phaseAccepting {
		p.before = try{p.ballot, p.value, p.yes}
	} else if s.voter.sealed && p.phase != phasePreparing {
		p.value = s.voter.pendingValue
	}
	known := max(p.ballot, s.voter.promised)
	p.ballot = known - known%16 + 16 + place
	p.phase, p.best, p.yes, p.since, p.wants = phasePreparing, 0, nil, now, true
	s.putsToVoters(Prepare{s.config.Epoch, p.ballot})
}

// finishes: a proposer of a sealed epoch, or one that has begun a ballot, repeats what it asks
// until it has waited too long: then it bids higher, or, if nobody is bound yet, begins anew.
func (s *State) finishes(now Instant) {
	p := &s.proposer
	from, works := p.since, p.phase == phasePreparing || p.phase == phaseAccepting
	if !works {
		from = s.voter.sealedAt
	}
	from = max(from, s.voter.heardAt)
	switch late := from <= now.Add(-s.patience(now)); {
	case late && p.tries < mostTries:
		p.tries++
		fallthrough
	case late:
		if s.voter.sealed {
			s.bids(now)
		} else {
			p.restarts()
		}
	case p.phase == phasePreparing:
		s.putsToVoters(Prepare{s.config.Epoch, p.ballot})
	case p.phase == phaseAccepting:
		s.putsToVoters(Accept{p.ballot, p.value})
	}
}

// proposes: what should follow is put to the voters when those before this one have had a Step
// each, from when it was first wished for: anew for what evicts nobody that another voter hears.
func (s *State) proposes(now Instant) {
	p := &s.proposer
	if !s.config.Votes(s.me.Boot) || s.voter.closed || s.stage != StageJoined {
		return
	}
	if s.voter.sealed || p.phase == phasePreparing || p.phase == phaseAccepting {
		s.finishes(now)
		return
	}
	c, sure := s.want(now, true), false
	if p.denied {
		if safe := s.want(now, false); safe != nil {
			c, sure = safe, true
		}
	}
	if c == nil {
		p.restarts()
		return
	}
	if !p.wants || sure && !p.fresh {
		p.since = now
	}
	p.wants, p.fresh = true, sure
	if first := p.since + Instant(s.p.Step)*Instant(s.rank(now)); now < first || s.givesWay(now) {
		return
	}
	if p.phase == phaseIdle || !c.same(p.value) {
		p.value, p.yes = c, nil
	}
	p.phase, p.sure = phaseCanvassing, sure
	s.putsToVoters(Canvass{p.value})
}

// consents counts the consent of a voter to what this one has asked about. Consent of longer
// ago than Renew counts no more; and none counts while this voter gives
// way to another one's ballot. The first refusal has this voter ask without those that are silent,
// and one of that has it ask with them again.
func (s *State) consents(now Instant, from Boot, m Consent) {
	p := &s.proposer
	if p.phase != phaseCanvassing || s.voter.sealed || m.Value.Epoch != p.value.Epoch ||
		!m.Value.same(p.value) {
		return
	}
	var fresh []Boot
	for _, b := range p.yes {
		if b != from && s.entry(b).consented > now.Add(-s.p.Renew) {
			fresh = append(fresh, b)
		}
	}
	p.yes = fresh
	switch {
	case s.givesWay(now):
	case m.Yes:
		s.entry(from).consented = now
		if s.agrees(&p.yes, from) {
			s.bids(now)
		}
	case p.sure && p.denied:
		p.denied = false
	case !p.sure && !p.denied:
		p.denied = true
		s.proposes(now)
	}
}

// decides tells all members of this epoch and of the next one what follows, this boot last.
func (s *State) decides(c *Configuration) {
	told := []Boot{s.me.Boot}
	for _, m := range slices.Concat(s.config.Members, c.Members) {
		if !slices.Contains(told, m.Boot) {
			s.puts(m.Boot, Decided{c})
			told = append(told, m.Boot)
		}
	}
	s.puts(s.me.Boot, Decided{c})
}

// follower is a configuration that follows that of a boot, with some members and some more.
func follower(draw *rand.Rand, s *keeper) *Configuration {
	c := *s.config
	c.Previous, c.Epoch.Number = c.Epoch, c.Epoch.Number+1
	c.Members = slices.DeleteFunc(slices.Clone(c.Members),
		func(Member) bool { return draw.IntN(4) == 0 })
	for i := range c.Members {
		c.Members[i].Role = pick(draw, RoleOwner, RoleOwner, RoleLeaving)
	}
	for i := range draw.IntN(3) {
		c.Members = append(c.Members, Member{ID: string(rune('x' + i)), Boot: Boot(70 + i)})
	}
	return &c
}

// Promise: see proposes, finishes, bids, consents and decides.
func TestProposersInPlainWords(t *testing.T) {
	did := map[string]int{}
	for seed := range uint64(6000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		note := func(what string, changed bool) {
			if changed {
				did[what]++
			}
		}
		if draw.IntN(10) == 0 {
			s.stage = StageCandidate
		}
		if draw.IntN(2) == 0 {
			s.voter.closed, s.voter.sealed = false, false
		}
		note("propose", alike(t, seed, s.clone(), func(s *keeper) { s.propose(now) },
			func(s *keeper) { s.proposes(now) }))
		c := follower(draw, s)
		note("decide", alike(t, seed, s.clone(), func(s *keeper) { s.decide(c) },
			func(s *keeper) { s.decides(c) }))
		s.stage = StageJoined
		if s.proposer.value == nil {
			continue
		}
		for range 6 {
			now = now.Add(pick(draw, 0, 0, s.p.Renew/2))
			from := pick(draw, append(slices.Clone(s.config.Members), Member{Boot: 70})...).Boot
			m := Consent{s.proposer.value, draw.IntN(4) > 0}
			if x := *m.Value; draw.IntN(8) == 0 {
				x.Epoch.Number++
				m.Value = &x
			} else if draw.IntN(8) == 0 {
				x.Members = nil
				m.Value = &x
			}
			note("consent", alike(t, seed, s, func(s *keeper) { s.consented(now, from, m) },
				func(s *keeper) { s.consents(now, from, m) }))
			if s.proposer.value == nil {
				break
			}
		}
	}
	for _, what := range []string{"propose", "decide", "consent"} {
		if did[what] < 1000 {
			t.Errorf("%s has changed anything %d times; that proves little", what, did[what])
		}
	}
}
