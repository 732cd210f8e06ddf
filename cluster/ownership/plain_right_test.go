package ownership

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// ended reports whether a boot is gone or has left.
func (s *State) hasGone(b Boot) bool {
	sign := s.entry(b).sign
	return sign == SignGone || sign == SignLeft
}

// hasOwner reports whether anybody owns partitions.
func hasOwner(c *Configuration) bool {
	return slices.ContainsFunc(c.Members, func(m Member) bool { return m.Role == RoleOwner })
}

// acknowledgedBy is by how many voters anything is acknowledged.
func (s *State) acknowledgedBy() (n int) {
	for _, v := range s.config.Voters {
		if s.entry(v).acked != never {
			n++
		}
	}
	return n
}

// goes reports whether a member that is leaving, and not the last one, holds nothing any more.
func (s *State) goes() bool {
	me, _ := s.config.Member(s.me.Boot)
	return s.emptied && me.Role == RoleLeaving && len(s.config.Members) > 1
}

// givesUp has the right end now. When it was valid last is now, or when it was over before; that is
// told from then on, also when it is given up once more.
func (s *State) givesUp(now Instant) {
	if r := &s.right; r.until != never {
		r.had, r.until = max(r.had, min(now, r.until)), never
	}
}

// asks is a renewal, with a farewell before it if the member has given up for good, the members
// that it has not reached for Missed if it has its right, and, if it has had none for Suspect and
// does not reach a voter, a greeting that says so.
func (s *State) asks(now Instant) {
	s.renewed = now
	if s.right.ended && s.goes() {
		s.putsToVoters(Farewell{s.config.Epoch})
	}
	m := Renew{Epoch: s.config.Epoch, Sent: now, Leaving: s.leaving}
	without := now.Since(s.right.until)
	for _, since := range []Instant{s.right.floor, s.right.began} {
		without = min(without, now.Since(since))
	}
	var missed, voters []Boot
	for _, x := range s.config.Members {
		if e := s.entry(x.Boot); e.unreached != never {
			if e.unreached <= now.Add(-s.p.Missed) {
				missed = append(missed, x.Boot)
			}
			if s.config.Votes(x.Boot) {
				voters = append(voters, x.Boot)
			}
		}
	}
	if s.right.until > now {
		m.Unreached = missed
	} else if !s.right.ended && without >= s.p.Suspect && len(voters) > 0 {
		s.putsToVoters(Hello{Member: s.me, Former: s.origin.former, Reply: true})
	}
	s.putsToVoters(m)
}

// Promise: a member asks for its right each Renew, four times as often before most voters have
// acknowledged it, and at once when it has given all away, with a farewell. It goes along with
// another voter an eighth of Renew early, unless it has stopped.
func TestRenewals(t *testing.T) {
	asked := map[bool]int{}
	for seed := range uint64(4000) {
		s, now := anything(rand.New(rand.NewPCG(seed, 1)))
		asked[alike(t, seed, s.clone(), func(s *keeper) {
			s.empties()
			s.renew(now)
		}, func(s *keeper) {
			s.hasNothing()
			if s.goes() && !s.right.ended {
				s.givesUp(now)
				s.right.ended, s.renewed = true, never
			}
			every := s.p.Renew
			if !s.right.ended && s.acknowledgedBy()*2 <= len(s.config.Voters) {
				every = s.p.Renew / 4
			}
			if s.renewed == never || s.renewed <= now.Add(-every) {
				s.asks(now)
			}
		})]++
		asked[alike(t, seed, s.clone(), func(s *keeper) { s.renewAlong(now) }, func(s *keeper) {
			if s.renewed != never && s.renewed <= now.Add(-s.p.Renew*7/8) && !s.right.ended &&
				s.polled >= now.Add(-s.p.Renew) && !s.goes() {
				s.asks(now)
			}
		})]++
	}
	if asked[true] < 1000 || asked[false] < 1000 {
		t.Errorf("it has asked: %v; that proves little", asked)
	}
}

// Promise: a voter takes in what a member wishes, unless it was overtaken, and acknowledges the
// renewal of a member, unless it is sealed, or has asked that one to step down and most still miss
// it, or does not reach it while it says that it has no right.
func TestRenewalsAreAcknowledged(t *testing.T) {
	changed := 0
	for seed := range uint64(4000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		from := pick(draw, append(slices.Clone(s.config.Members), Member{Boot: 70})...).Boot
		m := Renew{s.config.Epoch, pick(draw, 5, 6, Instant(7)), draw.IntN(2) == 0, nil}
		if draw.IntN(3) == 0 {
			m.Unreached = []Boot{s.me.Boot}
		}
		s.entry(from).wished = 6
		calm := draw.IntN(2) == 0
		s.out.Stirred = calm
		if alike(t, seed, s, func(s *keeper) { s.renewAsked(now, from, m) }, func(s *keeper) {
			e := s.entry(from)
			news := !e.seen || len(e.missed) > 0 || len(m.Unreached) > 0 || e.leaving != m.Leaving
			s.out.Stirred = calm || news
			if m.Sent >= e.wished {
				switch {
				case m.Leaving && !e.leaving:
					e.stays = false
				case !m.Leaving && e.leaving:
					e.stays = true
				}
				e.wished, e.leaving, e.missed = m.Sent, m.Leaving, m.Unreached
			}
			x, member := s.config.Member(from)
			cut := e.unreached != never && e.lapsed > now.Add(-s.p.Suspect)
			lost := x.Role == RoleLeaving && s.byMost(s.missed()[from])
			out := s.voter.sealed || s.voter.closed || !s.config.Votes(s.me.Boot)
			if out || !member || cut || lost {
				return
			}
			e.renewed, e.seen = now, true
			s.puts(from, RenewAck{m.Epoch, m.Sent, now})
			if from != s.me.Boot && s.config.Votes(from) {
				s.renewAlong(now)
			}
		}) {
			changed++
		}
	}
	if changed < 2000 {
		t.Errorf("%d renewals have changed anything; that proves little", changed)
	}
}

// Promise: the right lasts for a lease from the latest sending time that most voters have
// acknowledged, and never ends sooner than it was said; what was sent before it was given up, and
// what comes after it was given up for good, counts for nothing.
func TestAcknowledgementsCount(t *testing.T) {
	for seed := range seeds(2000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		s.right.ended = draw.IntN(8) == 0
		for range 12 {
			now += ms
			from := pick(draw, s.config.Voters...)
			m := RenewAck{s.config.Epoch, now.Add(-pick(draw, 0, s.p.Renew, s.p.Lease)), now}
			alike(t, seed, s, func(s *keeper) { s.renewAcked(now, from, m) }, func(s *keeper) {
				e := s.entry(from)
				if s.right.ended || m.Sent < s.right.floor || e.base.fast(s.p, now, m) {
					return
				}
				e.acked = max(e.acked, m.Sent)
				for at := range s.config.Voters {
					at, n := s.entry(s.config.Voters[at]).acked, 0
					for _, v := range s.config.Voters {
						if s.entry(v).acked >= at {
							n++
						}
					}
					if n*2 > len(s.config.Voters) && at != never && at >= s.right.floor {
						s.right.until = max(s.right.until, at.Add(s.p.Lease))
					}
				}
			})
			if draw.IntN(6) == 0 {
				s.right.lose(now)
			}
		}
	}
}

// Promise: a member gives its right up when its lines to most voters have ended, until they
// acknowledge something newer; for a child it remembers how long the right would have lasted.
func TestEndsOfLines(t *testing.T) {
	lost := 0
	for seed := range uint64(2000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		s.stage = pick(draw, StageJoined, StageJoined, StageCandidate)
		b := pick(draw, s.config.Members...).Boot
		before := s.right
		alike(t, seed, s, func(s *keeper) { s.lineEnded(now, b) }, func(s *keeper) {
			if e := s.entry(b); e.sign == SignUp {
				e.sign, e.signAt = SignEnded, now
			}
			lines := 0
			for _, v := range s.config.Voters {
				if v == s.me.Boot || s.entry(v).sign == SignUp {
					lines++
				}
			}
			if s.stage == StageJoined && lines*2 <= len(s.config.Voters) {
				r := &s.right
				r.lost = max(r.lost, r.until)
				r.floor = now + 1
				s.givesUp(now)
			}
		})
		if before != s.right {
			lost++
		}
	}
	if lost < 300 {
		t.Errorf("%d of 2000 have lost their right; that proves little", lost)
	}
}

// Promise: a right that was given up comes back with what was sent later; one given up for good
// does not. For how long there was none counts from the last of its end, of when it was given up,
// and of the beginning of the epoch; and for how long there is none counts from when it was valid
// last, or since that beginning.
func TestRightsAreGivenUp(t *testing.T) {
	const now = Instant(time.Hour)
	r := right{until: now - 10, floor: now - 30, began: now - 20, lost: now - 40, had: never}
	for name, row := range map[string]struct {
		does    func(r *right)
		want    right
		none    time.Duration // in its epoch, and if it was not given up for good
		without time.Duration
	}{
		"nothing": {func(*right) {}, r, 10, 10},
		"lost": {
			func(r *right) { r.lose(now - 5) },
			right{never, now - 4, false, now - 20, now - 40, now - 10},
			4, 10,
		},
		"lost before it was over": {
			func(r *right) { r.lose(now - 15) },
			right{never, now - 14, false, now - 20, now - 40, now - 15},
			14, 15,
		},
		"lost once more": {
			func(r *right) { r.lose(now - 15); r.lose(now - 5) },
			right{never, now - 4, false, now - 20, now - 40, now - 15},
			4, 15,
		},
		"over": {
			func(r *right) { r.over(now - 12) },
			right{never, now - 30, true, now - 20, now - 40, now - 12},
			0, 12,
		},
		"ceded": {
			func(r *right) { r.cede(now - 12) },
			right{never, now - 30, true, now - 20, now - 10, now - 12},
			0, 12,
		},
		"ceded after it was lost": {
			func(r *right) { r.lost = now + 7; r.cede(now) },
			right{never, now - 30, true, now - 20, now + 7, now - 10},
			0, 10,
		},
		"a new epoch": {
			func(r *right) { r.began = now - 1 },
			right{now - 10, now - 30, false, now - 1, now - 40, never},
			1, 1,
		},
	} {
		got := r
		if row.does(&got); got != row.want || got.lapsed(now) != row.none ||
			got.without(now) != row.without {
			t.Errorf("%s: %+v, want %+v; none for %d, want %d; without for %d, want %d", name,
				got, row.want, got.lapsed(now), row.none, got.without(now), row.without)
		}
	}
}

// Promise: a greeting of a member that says of no configuration is its word that it has no right.
func TestWhoSaysThatItHasNoRight(t *testing.T) {
	for seed := range seeds(500) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		s.stage = pick(draw, StageJoined, StageCandidate)
		from := pick(draw, append(slices.Clone(s.config.Members), Member{Boot: 70})...).Boot
		m := Hello{Config: pick(draw, nil, s.config)}
		alike(t, seed, s, func(s *keeper) { s.lapses(now, from, m) }, func(s *keeper) {
			if s.stage == StageJoined && s.config.Has(from) && m.Config == nil {
				s.entry(from).lapsed = now
			}
		})
	}
}

// Promise: people are told of each boot how it stands: gone or left, of a member whether it is
// quiet (as voters say) or leaves, of others whether they wait for being admitted.
func TestRosters(t *testing.T) {
	for seed := range seeds(500) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := anything(draw)
		s.stage = pick(draw, StageJoined, StageJoined, StageCandidate)
		s.entry(70).asked = true
		s.entry(71).heard = now
		got := s.Roster(now)
		if len(got) != len(s.roster) {
			t.Fatalf("seed %d: %d boots of %d are listed", seed, len(got), len(s.roster))
		}
		for i, k := range got {
			e := &s.roster[i]
			want := "stranger"
			if e.boot == 70 {
				want = "candidate"
			}
			if s.stage == StageJoined && s.config.Has(e.boot) {
				want = "member"
				if e.leaving {
					want = "leaving"
				}
				if s.config.Votes(s.me.Boot) && e.renewed <= now.Add(-s.p.Suspect) {
					want = "quiet"
				}
			}
			if s.hasGone(e.boot) {
				want = e.sign.String()
			}
			if k != (Known{e.boot, want}) {
				t.Fatalf("seed %d: %+v, want %d %s", seed, k, e.boot, want)
			}
		}
	}
}
