package ownership

import (
	"slices"
	"sort"
)

// Sign is what a boot's line and address have told. It is one state with one transition:
//
//	up ──line ended──▶ ended ──address refused──▶ gone
//	▲────line up────────┘
//	up, ended ──farewell──▶ left
//
// A refusal alone says nothing: a packet filter, a sidecar or a reused address may refuse for a
// living process. A line that ended alone says nothing either. Gone is final, for a boot never
// returns; left as well, unless a configuration makes the boot an owner nevertheless.
type Sign uint8

const (
	SignUp    Sign = iota // nothing speaks against it
	SignEnded             // its line has ended, and its address has not been tried since
	SignGone              // … and refused: the process does not exist any more
	SignLeft              // it has given up its right for good, by its own word
)

func (s Sign) String() string { return [...]string{"up", "ended", "gone", "left"}[s] }

// lineEvent is what moves a Sign.
type lineEvent uint8

const (
	lineUp lineEvent = iota
	lineEnded
	lineRefused
	lineLeft
)

// next is the transition function of a Sign.
func (s Sign) next(e lineEvent, both bool) Sign {
	switch {
	case s == SignGone || s == SignLeft:
		return s
	case e == lineLeft:
		return SignLeft
	case e == lineEnded:
		return SignEnded
	case e == lineRefused && (s == SignEnded || !both):
		return SignGone
	case e == lineUp:
		return SignUp
	}
	return s
}

// Known is one boot in the roster, for people, and its standing.
type Known struct {
	Boot     Boot
	Standing string
}

// Roster lists what this boot knows of others, by boot:
//
//	candidate   has asked to be admitted
//	member      is in the configuration
//	quiet       … and has not renewed with this voter for Suspect
//	leaving     … and wishes to leave
//	gone, left  see Sign
//	stranger    none of these
func (s *sight) Roster(now Instant) []Known {
	known := make([]Known, len(s.roster))
	for i := range s.roster {
		e := &s.roster[i]
		joined := s.stage == StageJoined && s.config.Has(e.boot)
		known[i] = Known{e.boot, "stranger"}
		switch {
		case e.sign >= SignGone:
			known[i].Standing = e.sign.String()
		case joined && s.config.Votes(s.me.Boot) && now.Since(e.renewed) >= s.p.Suspect:
			known[i].Standing = "quiet"
		case joined && e.leaving:
			known[i].Standing = "leaving"
		case joined:
			known[i].Standing = "member"
		case e.asked:
			known[i].Standing = "candidate"
		}
	}
	return known
}

// entry is what is known of one boot.
type entry struct {
	boot   Boot
	member Member // of a candidate
	sign   Sign
	signAt Instant // when sign last changed

	heard     Instant // when it last said anything
	asked     bool    // it wants to be admitted
	askedAt   Instant // … since then
	leaving   bool    // it wants to leave
	stays     bool    // it wanted to, and does no more
	seen      bool    // it has renewed with this voter in the epoch installed
	unreached Instant // since when it cannot be called from here; never: it can
	missed    []Boot  // those that cannot be called from there
	wished    Instant // when it sent the renewal that says leaving, stays and missed

	lapsed    Instant // when it last said, as a member, that it has no right
	consented Instant // when it last consented to what this voter proposes

	renewed Instant // when this voter last acknowledged a renewal of it
	acked   Instant // sending time of the newest renewal of this member that it has acknowledged
	base    exchange
}

// line moves the sign.
func (e *entry) line(l lineEvent, now Instant) { e.signed(e.sign.next(l, true), now) }

func (e *entry) signed(to Sign, now Instant) {
	if to != e.sign {
		e.sign, e.signAt = to, now
	}
}

// entry returns what is known of a boot; a pointer that lasts until the next call.
func (s *sight) entry(b Boot) *entry {
	i := sort.Search(len(s.roster), func(i int) bool { return s.roster[i].boot >= b })
	if i == len(s.roster) || s.roster[i].boot != b {
		s.roster = slices.Insert(s.roster, i, entry{
			boot: b, signAt: never, heard: never, askedAt: never, renewed: never, acked: never,
			unreached: never, consented: never, lapsed: never,
		})
	}
	return &s.roster[i]
}

// refused notes that nobody listens at the address of a boot, or that another boot does.
func (s *State) refused(now Instant, b Boot) {
	e := s.entry(b)
	e.signed(e.sign.next(lineRefused, s.p.keeps(ruleBoth)), now)
	if e.sign == SignGone && s.founding.votedFor == b && s.stage == StageOutside {
		s.end(Unfounded)
	}
	s.reconsider(now)
}

// left notes that a member has given up its right for good.
func (s *State) left(now Instant, b Boot) {
	s.entry(b).line(lineLeft, now)
	s.reconsider(now)
}

// lineEnded notes that a line has ended. A member that has lost its lines to most voters may be the
// one that is refused, so it gives up its right until they acknowledge something new.
func (s *renewer) lineEnded(now Instant, b Boot) {
	s.entry(b).line(lineEnded, now)
	if s.stage != StageJoined || !s.p.keeps(ruleLines) {
		return
	}
	lines := 0
	for _, v := range s.config.Voters {
		if v == s.me.Boot || s.entry(v).sign == SignUp {
			lines++
		}
	}
	if lines < s.config.Quorum() {
		s.right.lost = max(s.right.lost, s.right.until)
		s.right.lose(now)
	}
}

// closing ends the boot before its process closes its door.
func (s *State) closing() {
	s.closed = true
	if s.p.keeps(ruleDoor) {
		s.end(Closed)
	}
}

// forget drops entries that say nothing any more, after a configuration was installed.
func (s *sight) forget() {
	rivals := slices.Concat(s.config.Rivals, s.leftOut())
	s.roster = slices.DeleteFunc(s.roster, func(e entry) bool {
		return e.boot != s.me.Boot && !s.config.Has(e.boot) && !e.asked &&
			!slices.ContainsFunc(rivals, func(m Member) bool { return m.Boot == e.boot })
	})
}
