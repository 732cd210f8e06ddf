package ownership

import (
	"slices"
	"strings"
	"time"
)

// phase is how far a proposer has come with its value.
//
//	idle ─▶ canvassing ──most consent──▶ preparing ──most promise──▶ accepting ─▶ decided
//	         (binds nobody)                  ▲             │
//	                                         └─outbid, late┘
type phase uint8

const (
	phaseIdle phase = iota
	phaseCanvassing
	phasePreparing
	phaseAccepting
)

// proposer is what a voter does to have the successor of its epoch decided.
type proposer struct {
	phase  phase
	value  *Configuration
	ballot Ballot
	best   Ballot // the highest that a promise says was accepted
	yes    []Boot // voters that have agreed in this phase
	since  Instant
	wants  bool // since says since when something should change
	denied bool // a voter hears a member that is silent for this one
	sure   bool // value evicts no silent members
	fresh  bool // since is when this voter began to wish for what is sure
	tries  uint // that took too long in this epoch: answers may take longer than was waited for
	before try  // the last one that got as far as accepting
}

// try is a ballot with its value, and the voters that are known to have accepted it.
type try struct {
	ballot Ballot
	value  *Configuration
	yes    []Boot
}

// mostTries bounds the wait of a proposer: every second try that takes too long doubles it, for one
// may be too long because a message got lost.
const mostTries = 10

// rank is this voter's place among those that are up.
func (s *sight) rank(now Instant) (r int) {
	for _, v := range s.config.Voters {
		if v == s.me.Boot {
			break
		}
		if !s.evictable(now, v) {
			r++
		}
	}
	return r
}

// propose moves the decision on: that of a sealed epoch always, another one if something should
// change. Voters of a lower rank are given time to do it first.
func (s *register) propose(now Instant) {
	p := &s.proposer
	if s.stage != StageJoined || !s.config.Votes(s.me.Boot) || s.voter.closed {
		return
	}
	if s.voter.sealed || p.phase >= phasePreparing {
		s.finish(now)
		return
	}
	next, sure := s.next(now)
	if next == nil {
		*p = proposer{ballot: p.ballot, tries: p.tries}
		return
	}
	if !p.wants || sure && !p.fresh {
		p.wants, p.since = true, now
	}
	if p.fresh = sure; now.Since(p.since) < s.p.Step*time.Duration(s.rank(now)) || s.givesWay(now) {
		return
	}
	p.consider(next, sure)
	if !s.p.keeps(ruleCanvass) {
		s.outbid(now)
		return
	}
	p.phase = phaseCanvassing
	s.sendVoters(Canvass{p.value})
}

// consider takes a value, which other voters are asked about. Their consents to another value do
// not count.
func (p *proposer) consider(value *Configuration, sure bool) {
	if p.phase == phaseIdle || !value.same(p.value) {
		p.value, p.yes = value, nil
	}
	p.sure = sure
}

// next is the configuration that this voter proposes. If another one hears a member that is silent
// for this one, as where a line between two is cut, all else that should change need not wait until
// they agree on that. sure: it evicts no silent members for that reason.
func (s *register) next(now Instant) (c *Configuration, sure bool) {
	if s.proposer.denied && s.p.keeps(ruleSure) {
		if c = s.want(now, false); c != nil {
			return c, true
		}
	}
	return s.want(now, true), false
}

// patience is how long this voter waits for a ballot to come one step further.
func (s *register) patience(now Instant) time.Duration {
	return s.p.Step * time.Duration(2+s.rank(now)) << (s.proposer.tries / 2)
}

// givesWay reports whether this voter has heard of another one's ballot only just now. On a line
// with round trips longer than Step two proposers would outbid each other in turns, while all
// voters are sealed and nobody's right is acknowledged.
func (s *register) givesWay(now Instant) bool {
	return s.voter.promised > s.proposer.ballot && now.Since(s.voter.heardAt) < s.patience(now)
}

// finish brings a register to its end. A sealed voter that hears of no decision goes on with a
// ballot of its own (R4).
func (s *register) finish(now Instant) {
	p := &s.proposer
	since, wait := p.since, s.patience(now)
	if p.phase == phaseIdle || p.phase == phaseCanvassing {
		if !s.p.keeps(ruleFinish) {
			return
		}
		since = s.voter.sealedAt
	}
	if s.voter.heardAt > since {
		since = s.voter.heardAt
	}
	if now.Since(since) >= wait {
		p.tries = min(p.tries+1, mostTries)
		if s.voter.sealed {
			s.outbid(now)
		} else { // nobody is bound yet, and what was canvassed may be out of date
			*p = proposer{ballot: p.ballot, tries: p.tries}
		}
		return
	}
	switch p.phase {
	case phasePreparing:
		s.sendVoters(Prepare{s.config.Epoch, p.ballot})
	case phaseAccepting:
		s.sendVoters(Accept{p.ballot, p.value})
	}
}

// outbid begins with a ballot higher than all that this voter knows.
func (s *register) outbid(now Instant) {
	p := &s.proposer
	if s.voter.sealed && p.phase < phasePreparing {
		p.value = s.voter.pendingValue
	}
	if p.phase == phaseAccepting {
		p.before = try{p.ballot, p.value, p.yes}
	}
	place := slices.Index(s.config.Voters, s.me.Boot)
	p.ballot = (max(p.ballot, s.voter.promised)/16+1)*16 + Ballot(place)
	p.phase, p.best, p.yes, p.since, p.wants = phasePreparing, 0, nil, now, true
	s.sendVoters(Prepare{s.config.Epoch, p.ballot})
}

// agree counts a voter once among yes, and reports whether it made the quorum full.
func (s *sight) agree(yes *[]Boot, from Boot) bool {
	if !s.config.Votes(from) || slices.Contains(*yes, from) {
		return false
	}
	*yes = append(slices.Clone(*yes), from)
	slices.Sort(*yes)
	return len(*yes) == s.config.Quorum()
}

// consented counts what a voter says to a canvass, unless another proposer is at work. What a voter
// has said a while ago it may not say now: with such a consent, voters would be sealed that wait
// for a member to be quiet that is heard, and nobody would have a right meanwhile.
func (s *register) consented(now Instant, from Boot, m Consent) {
	p := &s.proposer
	if p.phase != phaseCanvassing || s.voter.sealed ||
		m.Value.Epoch != p.value.Epoch || !m.Value.same(p.value) {
		return
	}
	p.yes = slices.DeleteFunc(slices.Clone(p.yes), func(b Boot) bool {
		return s.p.keeps(ruleFresh) && (b == from || now.Since(s.entry(b).consented) >= s.p.Renew)
	})
	if !m.Yes && !s.givesWay(now) && p.denied == p.sure {
		if p.denied = !p.sure; p.denied {
			s.propose(now)
		}
	}
	if !m.Yes || s.givesWay(now) {
		return
	}
	s.entry(from).consented = now
	if s.agree(&p.yes, from) {
		s.outbid(now)
	}
}

func (s *register) promised(from Boot, m Promise) {
	p := &s.proposer
	if p.phase != phasePreparing {
		return
	}
	if m.Ballot != p.ballot {
		s.voter.promised = max(s.voter.promised, m.Ballot) // outbid: the next ballot is higher
		return
	}
	if m.Accepted > p.best {
		p.best, p.value = m.Accepted, m.Value
	}
	if s.agree(&p.yes, from) {
		p.phase, p.yes = phaseAccepting, nil
		s.sendVoters(Accept{p.ballot, p.value})
	}
}

// accepted counts what a voter has accepted, under this ballot or the one before: what a majority
// has accepted under one ballot is decided, whatever this voter has begun since.
func (s *register) accepted(from Boot, m Accepted) {
	p := &s.proposer
	switch {
	case p.phase == phaseAccepting && m.Ballot == p.ballot:
		if s.agree(&p.yes, from) {
			s.decide(p.value)
		}
	case p.before.value != nil && m.Ballot == p.before.ballot:
		if s.agree(&p.before.yes, from) {
			s.decide(p.before.value)
		}
	}
}

// decide tells the members of the epoch, and those that c adds, that c follows.
func (s *register) decide(c *Configuration) {
	before := s.config
	for _, m := range before.Members {
		if m.Boot != s.me.Boot {
			s.send(m.Boot, Decided{c})
		}
	}
	for _, m := range c.Members {
		if !before.Has(m.Boot) {
			s.send(m.Boot, Decided{c})
		}
	}
	s.send(s.me.Boot, Decided{c})
}

// want is the configuration that should follow, or nil: without the evicted, with candidates, with
// members that leave marked so, and with as many voters as there can be. silent: members that are
// silent are evicted, too.
func (s *sight) want(now Instant, silent bool) *Configuration {
	c := s.config
	next := &Configuration{
		Epoch:    Epoch{c.Epoch.Lineage, c.Epoch.Number + 1},
		Previous: c.Epoch, Rivals: s.rivalsLeft(now), Failover: c.Failover, Copies: c.Copies,
		Secret: c.Secret,
	}
	missed := s.missed()
	for _, m := range c.Members {
		if len(c.Members) > 1 && (s.entry(m.Boot).sign >= SignGone ||
			silent && s.suspects(now, m.Boot)) {
			continue
		}
		m.Role = s.roleOf(now, &m, missed)
		next.Members = append(next.Members, m)
	}
	if s.massive(now, next) {
		next.Members = slices.Clone(c.Members)
	}
	if len(next.Members) == 0 { // all have left at once: this one is the last
		m, _ := c.Member(s.me.Boot)
		m.Role = RoleOwner
		next.Members = []Member{m}
	}
	s.admit(now, next)
	slices.SortFunc(next.Members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	next.Voters = chooseVoters(c.Voters, next.Members, s.ready(now, next))
	if len(next.Voters) == 0 || next.same(c) {
		return nil // without voters nothing could be decided ever again
	}
	return next
}

// ready says which owners may become voters (R7): members of this configuration, if all members
// have renewed in it; and none while a rival's boots may be counted on to end with the rival (R13),
// but as soon as next names none: the only voter may be leaving.
func (s *sight) ready(now Instant, next *Configuration) func(Boot) bool {
	all := true
	for _, m := range s.config.Members {
		all = all && (s.entry(m.Boot).seen || s.evictable(now, m.Boot))
	}
	switch {
	case !s.p.keeps(ruleReady):
		return func(Boot) bool { return true }
	case next.Marked() && s.p.keeps(ruleGrow):
		return func(Boot) bool { return false }
	}
	return func(b Boot) bool { return all && s.config.Has(b) && s.entry(b).seen }
}

// unreachable reports whether most other members do not reach b, though it renews its right (R10):
// it is asked to step down.
func (s *sight) unreachable(now Instant, b Boot, missed map[Boot]int) bool {
	return s.byMost(missed[b]) && now.Since(s.entry(b).renewed) < s.p.Suspect
}

// missed counts the other members that say that they do not reach a boot. It is counted for all
// boots at once: in a large cluster nearly all of them miss nobody.
func (s *sight) missed() (by map[Boot]int) {
	for i := range s.roster {
		e := &s.roster[i]
		if len(e.missed) == 0 || !s.config.Has(e.boot) {
			continue
		}
		for j, b := range e.missed {
			if b != e.boot && !slices.Contains(e.missed[:j], b) {
				if by == nil {
					by = make(map[Boot]int)
				}
				by[b]++
			}
		}
	}
	return by
}

// byMost reports whether n are most of the members beside one.
func (s *sight) byMost(n int) bool {
	return n*2 > len(s.config.Members)-1 && n > 1 && s.p.keeps(ruleStepDown)
}

// reachedByMost reports whether at least half of the other members have renewed in this epoch, and
// do not say that they miss b. What the others will say cannot make most of them miss it.
func (s *sight) reachedByMost(b Boot) bool {
	n := 0
	for _, m := range s.config.Members {
		e := s.entry(m.Boot)
		if m.Boot != b && (e.seen || m.Boot == s.me.Boot) && !slices.Contains(e.missed, b) {
			n++
		}
	}
	return s.entry(b).seen && n*2 >= len(s.config.Members)-1
}

// admit adds candidates to next. A candidate with the name of a member waits until that one is
// evicted.
func (s *sight) admit(now Instant, next *Configuration) {
	for i := range s.roster {
		e := &s.roster[i]
		if !e.asked || e.sign >= SignGone || now.Since(e.heard) >= s.p.Lease ||
			slices.Contains(s.evicted, e.boot) && s.p.keeps(ruleChain) {
			continue
		}
		if _, taken := next.named(e.member.ID); taken {
			continue
		}
		if s.config.Marked() && s.p.keeps(ruleGrow) && !s.config.rivalNamed(e.member.ID) {
			continue
		}
		m := e.member
		m.Role = RoleOwner
		next.Members = append(next.Members, m)
		next.Rivals = slices.DeleteFunc(next.Rivals, func(r Member) bool { return r.ID == m.ID })
	}
}

// rivalsLeft are the rivals that may still decide. A rival admits no strangers, so when its process
// is gone, only those that it has taken along from before may decide, until their right ends.
func (s *sight) rivalsLeft(now Instant) (left []Member) {
	for _, r := range s.config.Rivals {
		if e := s.entry(r.Boot); e.sign < SignGone || now.Since(e.signAt) < s.p.quiet() {
			left = append(left, r)
		}
	}
	return left
}
