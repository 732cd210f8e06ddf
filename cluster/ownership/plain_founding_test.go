package ownership

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// unfoundedBoot is a boot that is in no cluster, of which all else is drawn.
func unfoundedBoot(draw *rand.Rand) (s *keeper, now Instant) {
	s, now = anything(draw)
	s.stage = pick(draw, StageOutside, StageOutside, StageOutside, StageCandidate, StageJoined)
	s.me = Member{ID: pick(draw, "a", "b", "x"), Boot: 10}
	size := draw.IntN(6)
	s.origin.elect.Size = size
	if draw.IntN(4) == 0 {
		s.origin.elect.Members = []string{pick(draw, "a", "b", "c")}
	}
	f := &s.founding
	f.gaveUp = draw.IntN(8) == 0
	f.since = now.Add(-pick(draw, 0, s.p.Lease-1, s.p.Lease))
	if draw.IntN(3) == 0 {
		f.since = never
	}
	for i := range draw.IntN(5) {
		m := Member{ID: string(rune('a' + i)), Boot: Boot(40 + i)}
		if m.ID == s.me.ID {
			continue
		}
		f.met = append(f.met, m)
		e := s.entry(m.Boot)
		e.heard = now.Add(-pick(draw, 0, 0, s.p.Lease-1, s.p.Lease))
		e.sign = pick(draw, SignUp, SignUp, SignUp, SignGone)
		if draw.IntN(2) == 0 {
			f.votes = append(f.votes, m.Boot)
		}
	}
	if draw.IntN(3) == 0 {
		f.votes = nil
	}
	f.votedFor = pick(draw, 0, 0, 10, 10, 40, Boot(41))
	return s, now
}

// greeting is what a boot says of itself.
func (s *State) greeting(now Instant, reply bool) Hello {
	h := Hello{Member: s.me, Former: s.origin.former, Reply: reply}
	if s.stage == StageJoined {
		h.Config, h.Deciding = s.config, now < s.right.until
	}
	return h
}

// calls greets the boots that belong to the cluster and are not in it: a member does so each Renew,
// and greets the others only if it votes; its rivals too.
func (s *State) calls(now Instant) {
	joined := s.stage == StageJoined
	if joined && s.renewed != never && s.renewed > now.Add(-s.p.Renew) {
		return
	}
	ids := slices.Clone(s.origin.elect.IDs)
	if !joined || s.config.Votes(s.me.Boot) {
		ids = append(ids, s.origin.elect.Others...)
	}
	for _, id := range ids {
		in := joined && slices.ContainsFunc(s.config.Members, func(m Member) bool {
			return m.ID == id
		})
		if id != s.me.ID && !in {
			s.out.Sends = append(s.out.Sends, Send{Addr: id, Message: s.greeting(now, false)})
		}
	}
	if joined {
		for _, r := range s.config.Rivals {
			s.puts(r.Boot, s.greeting(now, false))
		}
	}
}

// counts counts a vote. A majority of the electorate founds: those that have voted are the members.
func (s *State) counts(from Boot) {
	f := &s.founding
	if !slices.Contains(f.votes, from) {
		f.votes = append(slices.Clone(f.votes), from)
	}
	if 2*len(f.votes) <= s.origin.elect.Size {
		return
	}
	var members []Member
	for _, m := range append(slices.Clone(f.met), s.me) {
		if slices.Contains(f.votes, m.Boot) {
			members = append(members, m)
		}
	}
	s.founds(members)
}

// founds tells all of them what their first configuration is. All that may vote do.
func (s *State) founds(members []Member) {
	members = slices.SortedFunc(slices.Values(members), func(a, b Member) int {
		return strings.Compare(a.ID, b.ID)
	})
	elect := s.origin.elect
	c := &Configuration{
		Epoch: Epoch{Founded(s.me.Boot), 1}, Members: members, Secret: elect.Secret,
		Copies: s.p.Copies, Failover: s.p.Failover,
	}
	if elect.Stamp != 0 {
		c.Epoch.Lineage = Founded(elect.Stamp)
	}
	c.Voters = chooseVoters(nil, members, func(Boot) bool { return true })
	for _, m := range members {
		s.puts(m.Boot, Decided{c})
	}
}

// searches is what a boot outside does at each poll: of those that it has met and that still answer
// the smallest id asks for votes, when they are a majority, all that are said to be members are
// among them, and the rest has had a lease to answer.
func (s *State) searches(now Instant) {
	f, elect := &s.founding, &s.origin.elect
	var met []Member
	for _, m := range f.met {
		if !s.hasGone(m.Boot) && s.entry(m.Boot).heard > now.Add(-s.p.Lease) {
			met = append(met, m)
		}
	}
	f.met = met
	there := len(met) + 1
	few := 2*there <= elect.Size-elect.Size%2
	if s.stage != StageOutside || elect.Size == 0 || f.gaveUp || few {
		return
	}
	for _, id := range elect.Members {
		if !slices.ContainsFunc(met, func(m Member) bool { return m.ID == id }) {
			return
		}
	}
	if f.since == never {
		f.since = now
	}
	if there < elect.Size && f.since > now.Add(-s.p.Lease) {
		return
	}
	mine := f.votedFor == s.me.Boot
	switch {
	case there > 1 && met[0].ID < s.me.ID: // met are sorted
		if mine {
			for _, b := range f.votes {
				s.puts(b, Release{})
			}
			f.gaveUp, f.votedFor, f.votes = true, 0, nil
		}
	case mine || f.votedFor == 0:
		f.votedFor = s.me.Boot
		s.counts(s.me.Boot)
		for _, m := range met {
			s.puts(m.Boot, Vote{Founder: s.me.Boot})
		}
	}
}

// asksIn asks all members of a cluster to admit this boot.
func (s *State) asksIn() {
	for _, m := range s.config.Members {
		s.puts(m.Boot, Join{s.me, s.origin.former})
	}
}

// greeted learns whether somebody is founded, which of two lineages wins, or which boot may be
// asked for a vote; and answers what is no answer.
func (s *State) greeted(now Instant, from Boot, m Hello) {
	joined := s.stage == StageJoined
	if joined && m.Config == nil && s.config.Has(from) {
		s.entry(from).lapsed = now
	}
	answers := !m.Reply
	switch {
	case joined && m.Config != nil:
		own, theirs := s.config.Epoch, m.Config.Epoch
		switch {
		case theirs.Lineage == own.Lineage:
			answers = false
			if theirs.Number > own.Number && !s.passed(theirs) {
				s.puts(from, Behind{own})
			}
		case m.Deciding && (theirs.Lineage.Beats(own.Lineage) ||
			max(s.right.until, s.right.had, s.right.began) <= now.Add(-s.p.Mass)):
			s.config, answers = m.Config, false
			s.ends(Conceded)
		}
	case m.Config != nil:
		answers = false
		again := s.stage == StageCandidate && s.config.Epoch == m.Config.Epoch
		s.stage, s.config = StageCandidate, m.Config
		s.founding, s.asking = founding{since: never}, candidacy{since: never}
		if !again {
			s.asksIn()
		}
	case s.stage == StageCandidate:
		for _, x := range s.config.Members {
			if x.ID == m.Member.ID && x.Boot != from && !slices.Contains(s.asking.heirs, m.Member) {
				s.asking.heirs = append(s.asking.heirs, m.Member)
			}
		}
	case s.stage == StageOutside:
		var met []Member
		for _, o := range s.founding.met {
			if o.ID != m.Member.ID {
				met = append(met, o)
			}
		}
		if slices.Contains(s.origin.elect.IDs, m.Member.ID) {
			met = append(met, m.Member)
		}
		slices.SortFunc(met, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
		s.founding.met = met
	}
	if answers {
		s.puts(from, s.greeting(now, true))
	}
}

// Promise: see searches, calls, greeted and counts; a boot votes once, for the first that asks,
// until that one releases it, and a member says instead that it is founded.
func TestFoundersInPlainWords(t *testing.T) {
	did := map[string]int{}
	for seed := range uint64(4000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := unfoundedBoot(draw)
		try := func(what string, does, plain func(s *keeper)) {
			if alike(t, seed, s.clone(), does, plain) {
				did[what]++
			}
		}
		try("found", func(s *keeper) { s.found(now) }, func(s *keeper) { s.searches(now) })
		try("greet", func(s *keeper) { s.greet(now) }, func(s *keeper) { s.calls(now) })
		from := pick(draw, Boot(40), 41, 42, 12)
		m := Vote{pick(draw, s.me.Boot, from), draw.IntN(2) == 0}
		try("vote", func(s *keeper) { s.vote(now, from, m) }, func(s *keeper) {
			f := &s.founding
			switch mine := f.votedFor == s.me.Boot && m.Founder == s.me.Boot; {
			case s.stage == StageJoined && !m.Given:
				s.puts(from, s.greeting(now, true))
			case s.stage == StageOutside && !m.Given && (f.votedFor == 0 || f.votedFor == from):
				f.votedFor = from
				s.puts(from, Vote{from, true})
			case s.stage == StageOutside && m.Given && mine && !f.gaveUp:
				s.counts(from)
			}
		})
		try("release", func(s *keeper) { s.released(from) }, func(s *keeper) {
			if s.stage == StageOutside && s.founding.votedFor == from {
				s.founding.votedFor = 0
			}
		})
		h := Hello{Reply: draw.IntN(2) == 0, Deciding: draw.IntN(2) == 0}
		h.Member = Member{ID: pick(draw, "a", "b", "c", "z"), Boot: from}
		s.asking.heirs = []Member{{ID: "b", Boot: 41}}
		if draw.IntN(2) == 0 {
			c := *s.config
			c.Epoch = Epoch{
				pick(draw, c.Epoch.Lineage, c.Epoch.Lineage, Founded(8), Founded(10)),
				6 + draw.Uint64N(3),
			}
			h.Config = &c
		}
		s.right.until = pick(draw, s.right.until, now.Add(-s.p.Mass), now.Add(-s.p.Mass)+1)
		other := rand.New(rand.NewPCG(seed, 2))
		for _, at := range []*Instant{&s.right.had, &s.right.began} {
			*at = pick(other, *at, never, now.Add(-s.p.Mass), now.Add(-s.p.Mass)+1)
		}
		try("hello", func(s *keeper) { s.hello(now, from, h) },
			func(s *keeper) { s.greeted(now, from, h) })
	}
	for _, what := range []string{"found", "greet", "vote", "release", "hello"} {
		if did[what] < 200 {
			t.Errorf("%s has changed anything %d times; that proves little", what, did[what])
		}
	}
}

// Promise: a member notes which boot asks to be admitted, and that its former boot is gone. It
// tells one that is a member so, one that was evicted to take another boot, and, as a voter, one
// with the name of a member that has renewed since that the name is in use.
func TestWhoAsksToBeAdmitted(t *testing.T) {
	answers := map[string]int{}
	for seed := range uint64(3000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		s.stage = pick(draw, StageJoined, StageJoined, StageJoined, StageCandidate)
		from := pick(draw, s.config.Members[0].Boot, 70, 70, 90)
		m := Join{Member{ID: pick(draw, "a", "z"), Boot: from}, pick(draw, 0, Boot(61))}
		holder := s.config.Members[0].Boot
		if e := s.entry(70); draw.IntN(2) == 0 {
			e.asked, e.askedAt = true, s.entry(holder).renewed+pick(draw, Instant(-1), 0, 1)
		}
		s.entry(61).signAt = 5
		answers[""]++
		alike(t, seed, s, func(s *keeper) { s.joinAsked(now, from, m) }, func(s *keeper) {
			switch {
			case s.stage != StageJoined:
				return
			case s.config.Has(from):
				s.puts(from, Decided{s.config})
				return
			case from == 90:
				s.puts(from, Missed{})
				return
			}
			if e := s.entry(from); !e.asked {
				e.asked, e.askedAt = true, now
			}
			s.entry(from).member = m.Member
			if e := s.entry(61); m.Former == 61 && e.sign != SignGone {
				e.sign, e.signAt = SignGone, now
			}
			lives := s.entry(holder).renewed > s.entry(from).askedAt
			if s.config.Votes(s.me.Boot) && m.Member.ID == "a" && lives {
				answers["refused"]++
				s.puts(from, Refuse{holder})
			}
		})
	}
	if answers["refused"] < 50 {
		t.Errorf("%d were refused; that proves little", answers["refused"])
	}
}

// Promise: the cluster that a candidate asks is no more when each member is gone, or has been
// silent for Mass, since it was first asked, while another boot has its name.
func TestClustersThatAreNoMore(t *testing.T) {
	extinct, drawn := map[bool]uint64{}, seeds(3000)
	for seed := range drawn {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		for i, m := range s.config.Members {
			e := s.entry(m.Boot)
			e.heard = now.Add(-pick(draw, s.p.Mass, s.p.Mass, s.p.Mass+1, s.p.Mass-1))
			if i > 2 || draw.IntN(3) == 0 {
				e.sign = SignGone
			}
			if draw.IntN(3) > 0 {
				s.asking.heirs = append(s.asking.heirs, Member{ID: m.ID, Boot: 70})
			}
		}
		quiet := now.Add(-s.p.Mass)
		s.asking.since = pick(draw, never, quiet, quiet, quiet+1)
		since, want := s.asking.since, true
		for _, m := range s.config.Members {
			heir := slices.Contains(s.asking.heirs, Member{ID: m.ID, Boot: 70}) || m.ID == s.me.ID
			silent := since != never && since <= quiet && s.entry(m.Boot).heard <= quiet
			want = want && (s.hasGone(m.Boot) || heir && silent)
		}
		got := s.extinct(now)
		if extinct[got]++; got != want {
			t.Fatalf("seed %d: %v is no more: %t", seed, s.config, got)
		}
		if since == never && s.asking.since != now || since != never && s.asking.since != since {
			t.Fatalf("seed %d: asked since %v, before %v", seed, s.asking.since, since)
		}
	}
	if extinct[true] < drawn/10 || extinct[false] < drawn/10 {
		t.Errorf("no more: %v; that proves little", extinct)
	}
}

// Promise: an operator may have a boot found a cluster that is in none, if no member of the one
// that it asks has been heard for Mass, but for those that are gone; and a member begin a child, if
// it has no right.
func TestWhoRecovers(t *testing.T) {
	alone := map[bool]int{}
	for seed := range seeds(3000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		s.stage = pick(draw, StageOutside, StageCandidate, StageCandidate, StageJoined)
		for _, m := range s.config.Members {
			s.entry(m.Boot).heard = now.Add(-pick(draw, s.p.Mass, s.p.Mass, s.p.Mass, s.p.Mass-1))
		}
		s.right.until = pick(draw, now, now+1)
		if s.stage == StageOutside && draw.IntN(2) == 0 {
			s.config = nil
		}
		want := s.stage < StageJoined
		if s.config != nil {
			for _, m := range s.config.Members {
				e := s.entry(m.Boot)
				heard := e.heard > now.Add(-s.p.Mass) && !s.hasGone(m.Boot)
				want = want && (m.Boot == s.me.Boot || !heard)
			}
		}
		if got := s.Alone(now); got != want {
			t.Fatalf("seed %d: in %v, %v, it is alone: %t", seed, s.config, s.stage, got)
		}
		alone[want]++
		alike(t, seed, s, func(s *keeper) { s.recover(now) }, func(s *keeper) {
			if s.stage == StageJoined && s.right.until <= now {
				s.beginFork(now, forkRecovery)
			} else if want {
				s.founds([]Member{s.me})
			}
		})
	}
	if alone[true] < 200 || alone[false] < 200 {
		t.Errorf("alone: %v; that proves little", alone)
	}
}
