package ownership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Promise: the configuration that should follow is this one, without those that are gone, or silent
// if they are to be evicted and are not too many; those that leave are marked so; newcomers that
// are heard are in it, unless their name is taken or they were evicted; and rivals are named until
// they cannot decide any more. If it is the same, nothing should follow.
func TestWhatShouldFollow(t *testing.T) {
	follows, nobodyVotes := 0, 0
	for seed := range seeds(3000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := drawn(draw)
		if draw.IntN(2) == 0 {
			calmed(s, now)
		}
		for i := range draw.IntN(3) {
			b := Boot(50 + i)
			e := s.entry(b)
			e.asked, e.heard = draw.IntN(4) > 0, now.Add(-pick(draw, 0, s.p.Lease-1, s.p.Lease))
			e.sign = pick(draw, SignUp, SignUp, SignGone)
			e.member = Member{ID: pick(draw, "a", "r", "x", "y"), Boot: b, Role: RoleLeaving}
			if draw.IntN(6) == 0 {
				s.evicted = append(s.evicted, b)
			}
		}
		if draw.IntN(3) == 0 {
			s.config.Rivals = []Member{{ID: "r", Boot: 80}, {ID: "q", Boot: 81}}
			for _, r := range s.config.Rivals {
				e := s.entry(r.Boot)
				e.sign = pick(draw, SignUp, SignEnded, SignGone, SignLeft)
				e.signAt = now.Add(-pick(draw, 0, s.p.quiet()-1, s.p.quiet()))
			}
		}
		for _, silent := range []bool{false, true} {
			want, got := following(s, now, silent), s.want(now, silent)
			switch {
			case len(want.Voters) == 0: // it could decide nothing ever again
				nobodyVotes++
				if got != nil {
					t.Fatalf("seed %d: after %v follows %v, without voters", seed, s.config, got)
				}
				continue
			case got == nil && !want.same(s.config), got != nil && want.same(s.config):
				t.Fatalf("seed %d: after %v follows %v, want %v", seed, s.config, got, want)
			case got == nil:
				continue
			}
			follows++
			if fmt.Sprint(got) != fmt.Sprint(want) || got.Previous != s.config.Epoch ||
				got.Failover != s.config.Failover || got.Copies != s.config.Copies ||
				got.Secret != s.config.Secret {
				t.Fatalf("seed %d: after %v follows %v, want %v", seed, s.config, got, want)
			}
		}
	}
	if follows < 1000 || nobodyVotes < 10 {
		t.Errorf("only %d configurations follow, and %d would have no voters: that proves little",
			follows, nobodyVotes)
	}
}

// calmed has most of what could change a configuration not be so.
func calmed(s *State, now Instant) {
	for i := range s.roster {
		e := &s.roster[i]
		e.sign, e.renewed, e.seen, e.missed, e.leaving = SignUp, now, true, nil, false
	}
}

// following is what should follow, one rule after the other.
func following(s *State, now Instant, silent bool) *Configuration {
	c := s.config
	next := &Configuration{Epoch: Epoch{c.Epoch.Lineage, c.Epoch.Number + 1}}
	for _, r := range c.Rivals {
		e := s.entry(r.Boot)
		if gone := e.sign == SignGone || e.sign == SignLeft; !gone ||
			now < e.signAt.Add(s.p.quiet()) {
			next.Rivals = append(next.Rivals, r)
		}
	}
	missed := s.missed()
	for _, m := range c.Members {
		e := s.entry(m.Boot)
		out := e.sign == SignGone || e.sign == SignLeft || silent && s.suspects(now, m.Boot)
		if len(c.Members) == 1 {
			out, m.Role = false, RoleOwner
		} else if e.leaving || s.unreachable(now, m.Boot, missed) {
			m.Role = RoleLeaving
		} else if e.stays || s.reachedByMost(m.Boot) {
			m.Role = RoleOwner
		}
		if !out {
			next.Members = append(next.Members, m)
		}
	}
	if s.massive(now, next) {
		next.Members = slices.Clone(c.Members)
	}
	if len(next.Members) == 0 {
		me := s.me
		me.Role = RoleOwner
		next.Members = []Member{me}
	}
	taken := func(list []Member, id string) bool {
		return slices.ContainsFunc(list, func(m Member) bool { return m.ID == id })
	}
	for _, e := range s.roster {
		m := e.member
		m.Role = RoleOwner
		if !e.asked || e.sign == SignGone || e.heard <= now.Add(-s.p.Lease) ||
			slices.Contains(s.evicted, e.boot) || taken(next.Members, m.ID) ||
			len(c.Rivals) > 0 && !taken(c.Rivals, m.ID) {
			continue
		}
		next.Members = append(next.Members, m)
		next.Rivals = slices.DeleteFunc(next.Rivals, func(r Member) bool { return r.ID == m.ID })
	}
	slices.SortFunc(next.Members, func(a, b Member) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	known := len(next.Rivals) == 0
	for _, m := range c.Members {
		known = known && (s.entry(m.Boot).seen || s.evictable(now, m.Boot))
	}
	next.Voters = chooseVoters(c.Voters, next.Members, func(b Boot) bool {
		return known && c.Has(b) && s.entry(b).seen
	})
	return next
}

// Promise: a voter keeps the highest ballot that it has promised and says what it accepted; it
// accepts no lower one, and what it accepts evicts nobody that may have a right; and from the first
// value that it is to accept on it acknowledges nothing.
func TestAcceptorsKeepTheirWord(t *testing.T) {
	for seed := range seeds(2000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := drawn(draw)
		s.config.Voters = nil // all vote
		for _, m := range s.config.Members {
			s.config.Voters = append(s.config.Voters, m.Boot)
			if e := s.entry(m.Boot); draw.IntN(3) > 0 {
				e.sign = SignUp
			}
		}
		ballot := func() Ballot {
			return Ballot(16*(1+draw.IntN(3)) + draw.IntN(len(s.config.Voters)))
		}
		var highest, accepted Ballot
		var value, asked *Configuration
		var pending Ballot
		for range 12 {
			b := ballot()
			from := s.ballotOf(b)
			now = now.Add(pick(draw, 0, s.p.Renew, s.p.quiet()))
			var got []Message
			hear := func(m Message) {
				fx := s.Step(now, Received{from, m})
				got = nil
				for _, x := range fx.Sends {
					switch x.Message.(type) {
					case Promise, Accepted, RenewAck:
						got = append(got, x.Message)
					}
				}
			}
			if from == s.me.Boot {
				continue
			}
			may := func() bool {
				return !slices.ContainsFunc(s.config.Members, func(m Member) bool {
					e := s.entry(m.Boot)
					return !asked.Has(m.Boot) && e.sign != SignGone && e.sign != SignLeft &&
						now < e.renewed.Add(s.p.quiet())
				})
			}
			switch draw.IntN(4) {
			case 0:
				highest = max(highest, b)
				hear(Prepare{s.config.Epoch, b})
				want := Promise{s.config.Epoch, highest, accepted, value}
				if len(got) != 1 || got[0] != Message(want) {
					t.Fatalf("seed %d: promised %v, want %v", seed, got, want)
				}
			case 1, 2:
				other := *s.config
				other.Previous, other.Epoch.Number = other.Epoch, other.Epoch.Number+1
				other.Members = slices.DeleteFunc(slices.Clone(other.Members),
					func(m Member) bool { return draw.IntN(4) == 0 })
				low := b < highest
				if b == accepted || b == pending {
					other = *asked
				}
				var want []Message
				if !low {
					highest = b
					if b != accepted {
						pending, asked = b, &other
						if may() {
							accepted, value = b, asked
						}
					}
					if b == accepted {
						want = []Message{Accepted{s.config.Epoch, b}}
					}
				}
				hear(Accept{b, &other})
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("seed %d: ballot %d is answered %v, want %v", seed, b, got, want)
				}
			case 3:
				member, _ := s.config.Member(from)
				stays := member.Role == RoleOwner && !s.deaf(now, from)
				hear(Renew{Epoch: s.config.Epoch, Sent: 5})
				sealed := pending != 0
				if stays && (len(got) == 0) != sealed {
					t.Fatalf("seed %d: sealed: %t, and a renewal is answered with %v", seed, sealed,
						got)
				}
			}
			if s.voter.accepted != accepted || (s.voter.value == nil) != (value == nil) ||
				s.voter.sealed != (pending != 0) {
				t.Fatalf("seed %d: accepted %d, want %d", seed, s.voter.accepted, accepted)
			}
		}
	}
}

// Promise: a proposer goes on with the value that was accepted under the highest ballot, when a
// majority has promised; a majority of acceptances decides, each voter counted once.
func TestProposersTakeWhatWasAccepted(t *testing.T) {
	for seed := range seeds(1000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := drawn(draw)
		s.config.Voters = nil
		for _, m := range s.config.Members {
			s.config.Voters = append(s.config.Voters, m.Boot)
		}
		values := make([]*Configuration, 5)
		for i := range values {
			c := *s.config
			c.Previous, c.Epoch.Number = c.Epoch, c.Epoch.Number+1
			c.Copies = Copies(i)
			values[i] = &c
		}
		const ballot = 64
		own := values[4]
		s.proposer = proposer{phase: phasePreparing, ballot: ballot, value: own, since: now}
		var best Ballot
		want, yes := own, map[Boot]bool{}
		quorum := len(s.config.Voters)/2 + 1
		for range 30 {
			from := pick(draw, s.config.Voters...)
			accepted := Ballot(draw.IntN(4))
			m := Promise{s.config.Epoch, ballot, accepted, values[accepted]}
			if accepted == 0 {
				m.Value = nil
			}
			if draw.IntN(5) == 0 {
				m.Ballot, m.Value, m.Accepted = 70, values[3], 69 // of another try
			} else if len(yes) < quorum {
				if yes[from] = true; accepted > best {
					best, want = accepted, values[accepted]
				}
			}
			s.promised(from, m)
			if asks := s.proposer.phase == phaseAccepting; asks != (len(yes) == quorum) {
				t.Fatalf("seed %d: goes on: %t, with %d promises of %d", seed, asks, len(yes),
					quorum)
			}
			if s.proposer.value != want {
				t.Fatalf("seed %d: goes on with %v, want %v", seed, s.proposer.value, want)
			}
		}
		if len(yes) < quorum {
			continue
		}
		s.out = outbox{}
		clear(yes)
		for range 30 {
			from, b := pick(draw, s.config.Voters...), pick(draw, Ballot(ballot), ballot, 70)
			full := len(yes) >= quorum
			if b == ballot {
				yes[from] = true
			}
			before := len(s.out.own)
			s.accepted(from, Accepted{s.config.Epoch, b})
			decides := len(s.out.own) > before
			if decides != (!full && len(yes) == quorum) {
				t.Fatalf("seed %d: decided: %t, with %d of %d", seed, decides, len(yes), quorum)
			}
			if decides && s.out.own[before].(Decided).Config != want {
				t.Fatalf("seed %d: %v is decided, not %v", seed, s.out.own[before], want)
			}
		}
	}
}

// Promise: a proposer waits for a ballot the longer the more voters come before it, and twice as
// long after every second try.
func TestPatienceOfProposers(t *testing.T) {
	for seed := range seeds(100) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := drawn(draw)
		want := time.Duration(2+s.rank(now)) * s.p.Step
		for tries := range uint(mostTries + 1) {
			if s.proposer.tries = tries; tries > 0 && tries%2 == 0 {
				want *= 2
			}
			if got := s.patience(now); got != want {
				t.Fatalf("after %d tries it waits %v, want %v", tries, got, want)
			}
			for _, ago := range []time.Duration{want - 1, want} {
				s.voter.heardAt = now.Add(-ago)
				for ballot := range Ballot(3) {
					s.voter.promised, s.proposer.ballot = 1, ballot
					if way := s.givesWay(now); way != (ballot < 1 && ago < want) {
						t.Fatalf("%v after it heard of ballot 1, it gives way with its %d: %t", ago,
							ballot, way)
					}
				}
			}
		}
	}
}

// Promise: voters are counted as gone, silent or heard; too few of them that are not gone begin a
// child.
func TestVotersThatAreLeft(t *testing.T) {
	for seed := range seeds(1000) {
		s, now := drawn(rand.New(rand.NewPCG(seed, 1)))
		alive, silent, gone, left := 0, 0, 0, 0
		for _, v := range s.config.Voters {
			sign := s.entry(v).sign
			switch {
			case v != s.me.Boot && (sign == SignGone || sign == SignLeft && s.suspects(now, v)):
				gone++
			case s.suspects(now, v):
				silent++
			default:
				alive++
				if v != s.me.Boot && sign == SignLeft {
					left++
				}
			}
		}
		if a, q := s.votersLeft(now); a != alive || q != silent {
			t.Fatalf("seed %d: %d are heard and %d silent, want %d and %d", seed, a, q, alive,
				silent)
		}
		if lost := 2*(alive+silent-left) <= len(s.config.Voters); s.lostVoters() != lost {
			t.Fatalf("seed %d: %d of %d voters are gone and %d have left, lost: %t", seed, gone,
				len(s.config.Voters), left, !lost)
		}
	}
}

// Promise: what a line shows of a boot moves its sign as drawn: a refusal counts after the line has
// ended, and nothing takes back that a boot is gone or has left.
func TestSignsMove(t *testing.T) {
	want := map[Sign][4]Sign{ // up, ended, refused, left
		SignUp:    {SignUp, SignEnded, SignUp, SignLeft},
		SignEnded: {SignUp, SignEnded, SignGone, SignLeft},
		SignGone:  {SignGone, SignGone, SignGone, SignGone},
		SignLeft:  {SignLeft, SignLeft, SignLeft, SignLeft},
	}
	for sign, to := range want {
		for i, e := range []lineEvent{lineUp, lineEnded, lineRefused, lineLeft} {
			if got := sign.next(e, true); got != to[i] {
				t.Errorf("%v after event %d is %v, want %v", sign, e, got, to[i])
			}
		}
	}
}

// Promise: what is here of a partition is all that its holder had if it was whole when its holder
// was last heard, but for copyLag; nothing at all is all of it in the first epoch of a root.
func TestFreshCopies(t *testing.T) {
	s, now := drawn(rand.New(rand.NewPCG(1, 1)))
	of := s.config.Members[0].Boot
	if of == s.me.Boot {
		of = s.config.Members[1].Boot
	}
	s.entry(of).heard = now
	root := *s.config
	root.Previous = Epoch{}
	for name, row := range map[string]struct {
		c    Copy
		root bool
		want bool
	}{
		"nothing":            {Copy{}, false, false},
		"nothing, in a root": {Copy{}, true, true},
		"half":               {Copy{Of: of, At: now}, false, false},
		"whole":              {Copy{Of: of, Whole: true, At: now}, false, true},
		"old":                {Copy{Of: of, Whole: true, At: now.Add(-copyLag)}, false, true},
		"too old": {
			Copy{Of: of, Whole: true, At: now.Add(-copyLag - 1)}, false, false,
		},
		"too old, and a root": {
			Copy{Of: of, Whole: true, At: now.Add(-copyLag - 1)}, true, false,
		},
		"its own":         {Copy{Of: s.me.Boot, Whole: true, At: never}, false, true},
		"half of its own": {Copy{Of: s.me.Boot, At: now}, false, false},
	} {
		k := keep(s, 0).clone()
		if row.root {
			k.config = &root
		}
		if got := k.fresh(Part{Copy: row.c}); got != row.want {
			t.Errorf("%s is all: %t", name, got)
		}
	}
}
