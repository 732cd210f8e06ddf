package ownership

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func pick[T any](draw *rand.Rand, from ...T) T { return from[draw.IntN(len(from))] }

// drawn is a boot that has joined a configuration of up to seven members, and knows anything of
// each of them.
func drawn(draw *rand.Rand) (s *State, now Instant) {
	now = Instant(time.Hour)
	p := Default()
	n := 1 + draw.IntN(7)
	c := &Configuration{Epoch: Epoch{Founded(9), 7}, Previous: Epoch{Founded(9), 6}}
	for i := range n {
		m := Member{ID: string(rune('a' + i)), Boot: Boot(10 + i), Role: pick(draw, RoleOwner,
			RoleOwner, RoleLeaving)}
		c.Members = append(c.Members, m)
		if draw.IntN(2) == 0 || i == 0 {
			c.Voters = append(c.Voters, m.Boot)
		}
	}
	me := c.Members[draw.IntN(n)]
	s = New(&p, me, Electorate{}, 0)
	s.stage, s.config = StageJoined, c
	ago := func() Instant {
		return now.Add(-pick(draw, 0, 1, p.Renew, p.Suspect-1, p.Suspect, p.quiet(), p.Mass-1,
			p.Mass))
	}
	since := func() Instant { return pick(draw, never, ago()) }
	for _, m := range c.Members {
		e := s.entry(m.Boot)
		e.sign, e.signAt = pick(draw, SignUp, SignUp, SignUp, SignEnded, SignGone, SignLeft), ago()
		e.heard, e.renewed, e.acked, e.lapsed = ago(), ago(), since(), since()
		e.seen, e.leaving, e.stays = draw.IntN(3) > 0, draw.IntN(5) == 0, draw.IntN(5) == 0
		e.unreached = pick(draw, never, never, ago())
		for range draw.IntN(3) {
			e.missed = append(e.missed, c.Members[draw.IntN(n)].Boot)
		}
	}
	return s, now
}

// Promise: a right lasts for a lease from the latest instant that a majority of the voters has
// acknowledged, or a later one.
func TestMajorityOfAcknowledgements(t *testing.T) {
	for seed := range seeds(500) {
		s, _ := drawn(rand.New(rand.NewPCG(seed, 1)))
		by := func(at Instant) (n int) {
			for _, v := range s.config.Voters {
				if s.entry(v).acked >= at {
					n++
				}
			}
			return n
		}
		at := s.acknowledged()
		if by(at)*2 <= len(s.config.Voters) || at != never && by(at+1)*2 > len(s.config.Voters) {
			t.Fatalf("seed %d: %v is acknowledged by %d of %d, what is later by %d", seed, at,
				by(at), len(s.config.Voters), by(at+1))
		}
	}
}

// Promise: a member is asked to step down if most of the others miss it, two at least, and each
// counts once; and it goes on if half of them have renewed and do not.
func TestMissedByMost(t *testing.T) {
	for seed := range seeds(2000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := drawn(draw)
		for _, m := range s.config.Members {
			misses, reaches := 0, 0
			for _, o := range s.config.Members {
				e := s.entry(o.Boot)
				switch {
				case o.Boot == m.Boot:
				case slices.Contains(e.missed, m.Boot):
					misses++
				case e.seen || o.Boot == s.me.Boot:
					reaches++
				}
			}
			others, e := len(s.config.Members)-1, s.entry(m.Boot)
			most := misses >= 2 && misses > others-misses
			heard := now-e.renewed < Instant(s.p.Suspect)
			if got := s.unreachable(now, m.Boot, s.missed()); got != (most && heard) {
				t.Fatalf("seed %d: %s is unreachable: %t; %d of %d miss it, heard: %t", seed, m.ID,
					got, misses, others, heard)
			}
			if got := s.reachedByMost(m.Boot); got != (e.seen && reaches >= others-reaches) {
				t.Fatalf("seed %d: %s is reached: %t, by %d of %d", seed, m.ID, got, reaches,
					others)
			}
		}
	}
}

// Promise: a member is suspected when it has been silent for Suspect, or, if it is heard and has
// not begun this epoch yet, for Mass; nobody suspects itself. One that is gone, or has left, is not
// waited for. Many at once are evicted only when each has been silent for Mass.
func TestWhoIsEvicted(t *testing.T) {
	for seed := range seeds(2000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := drawn(draw)
		value := &Configuration{Members: slices.DeleteFunc(slices.Clone(s.config.Members),
			func(Member) bool { return draw.IntN(3) == 0 })}
		silent, early, let, rank := 0, false, true, 0
		for _, m := range s.config.Members {
			e := s.entry(m.Boot)
			cut := e.unreached != never && now-e.lapsed < Instant(s.p.Suspect)
			slow := !e.seen && !cut && now-e.heard < Instant(s.p.Suspect)
			wait := s.p.Suspect
			if slow {
				wait = s.p.Mass
			}
			suspect := m.Boot != s.me.Boot && now-e.renewed >= Instant(wait)
			gone := e.sign == SignGone || e.sign == SignLeft
			if got := s.suspects(now, m.Boot); got != suspect {
				t.Fatalf("seed %d: %s is suspected: %t, %+v", seed, m.ID, got, e)
			}
			if s.Evictable(now, m.Boot) != (gone || suspect) {
				t.Fatalf("seed %d: %s is let go: %t, %+v", seed, m.ID, !gone && !suspect, e)
			}
			if !value.Has(m.Boot) && !gone {
				silent++
				early = early || now-e.renewed < Instant(s.p.Mass)
			}
			let = let && (value.Has(m.Boot) || gone || suspect)
			if slices.Contains(s.config.Voters, m.Boot) && m.Boot < s.me.Boot && !gone && !suspect {
				rank++
			}
		}
		many := silent >= 2 && silent > len(s.config.Members)/3 && early
		if got := s.massive(now, value); got != many {
			t.Fatalf("seed %d: %d of %d are many: %t", seed, silent, len(s.config.Members), got)
		}
		evicts := len(value.Members) < len(s.config.Members)
		want := s.config.Votes(s.me.Boot) && (!evicts || let && !many)
		if got := s.wouldAccept(now, value); got != want {
			t.Fatalf("seed %d: %v after %v would be accepted: %t, want %t", seed, value, s.config,
				got, want)
		}
		if s.config.Votes(s.me.Boot) && s.rank(now) != rank {
			t.Fatalf("seed %d: %d has the rank %d of %v, want %d", seed, s.me.Boot, s.rank(now),
				s.config, rank)
		}
		back := *value
		back.Members = append(slices.Clone(value.Members), Member{ID: "z", Boot: 99})
		if s.evicted = []Boot{98, 99}; s.wouldAccept(now, &back) {
			t.Fatalf("seed %d: a boot that was evicted would be admitted", seed)
		}
		if s.evicted = nil; s.wouldAccept(now, &back) != want {
			t.Fatalf("seed %d: a newcomer would be admitted: %t", seed, !want)
		}
	}
}

// Promise: the acknowledgements of a voter count unless its clock has run faster than this one, by
// more than Drift thousandths, since one of the last seconds.
func TestFastClocks(t *testing.T) {
	p := Default()
	for seed := range seeds(200) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var x exchange
		first := RenewAck{Sent: Instant(draw.Int64N(1000)), Clock: Instant(draw.Int64N(1 << 40))}
		back := first.Sent + Instant(draw.Int64N(1000))
		if x.fast(&p, back, first) {
			t.Fatal("the first acknowledgement counts not")
		}
		thousands := 1 + draw.Int64N(1<<30)
		now := first.Sent + Instant(1000*thousands) // as much has passed here at most
		for _, faster := range []Instant{-1, 0, 1} {
			y := x
			clock := first.Clock + Instant((1000+p.Drift)*thousands) + faster
			if got := y.fast(&p, now, RenewAck{Sent: now - 1, Clock: clock}); got != (faster > 0) {
				t.Fatalf("a clock that is %d too fast after %d is: %t", faster, now-first.Sent, got)
			}
			want := x
			if now-back > Instant(window) {
				want = exchange{now - 1, now, clock}
			}
			if y != want {
				t.Fatalf("compared with %+v next, want %+v", y, want)
			}
		}
	}
	none := p
	none.Drift = 0
	x := exchange{1, 1, 1}
	if x.fast(&none, 2, RenewAck{Sent: 2, Clock: 1 << 40}) {
		t.Error("clocks are compared")
	}
}

// Promise: there are as many voters as can be, up to seven, an odd number but for a pair; those of
// before stay before others come; nobody votes that leaves, unless all leave; and zones have as
// equal shares as that allows.
func TestVotersAreChosen(t *testing.T) {
	for seed := range seeds(3000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var members []Member
		var before, owners, able, old []Boot
		ready := map[Boot]bool{}
		for i := range draw.IntN(12) + 1 {
			m := Member{
				ID: string(rune('a' + i)), Boot: Boot(20 - i), Zone: pick(draw, "x", "y", "z"),
				Role: pick(draw, RoleOwner, RoleOwner, RoleLeaving),
			}
			members = append(members, m)
			voted := draw.IntN(2) == 0 && len(before) < MaxVoters
			ready[m.Boot] = draw.IntN(3) > 0
			if voted {
				before = append(before, m.Boot)
			}
			if m.Role != RoleOwner {
				continue
			}
			owners = append(owners, m.Boot)
			if voted {
				old = append(old, m.Boot)
			}
			if voted || ready[m.Boot] {
				able = append(able, m.Boot)
			}
		}
		got := chooseVoters(before, members, func(b Boot) bool { return ready[b] })
		if len(able) == 0 {
			able, old, owners = before, before, before
		}
		most := min(len(able), MaxVoters)
		if most > 2 {
			most -= 1 - most%2
		}
		stay := 0
		for _, b := range got {
			if !slices.Contains(able, b) || !slices.Contains(owners, b) {
				t.Fatalf("seed %d: %d votes, and may not: %v of %v", seed, b, got, members)
			}
			if slices.Contains(old, b) {
				stay++
			}
		}
		if len(got) != most || !slices.IsSorted(got) || stay != min(len(old), most) {
			t.Fatalf("seed %d: %v vote, %d of them as before; want %d, and %d of %v", seed, got,
				stay, most, min(len(old), most), old)
		}
		zones := map[string]int{}
		for _, m := range members {
			if slices.Contains(got, m.Boot) {
				zones[m.Zone]++
			}
		}
		for _, in := range members { // none that may vote as well makes it more even
			for _, out := range members {
				free := slices.Contains(old, in.Boot) == slices.Contains(old, out.Boot)
				if slices.Contains(got, in.Boot) && !slices.Contains(got, out.Boot) && free &&
					slices.Contains(able, out.Boot) && zones[in.Zone] > zones[out.Zone]+1 {
					t.Fatalf("seed %d: %v vote, %v by zone: %d for %d would be more even", seed,
						got, zones, out.Boot, in.Boot)
				}
			}
		}
	}
}

// Promise: a voter that is asked for its consent before it sees that a member is gone, or has left,
// consents as soon as it sees that, and once; to what was asked in another epoch, never.
func TestConsentComesWithTheSight(t *testing.T) {
	for _, x := range []struct {
		name   string
		events []Event
		want   int
	}{
		{"its address refuses", []Event{AddressRefused{3}, AddressRefused{3}}, 1},
		{"it says farewell", []Event{
			Received{3, Farewell{Epoch{Founded(9), 4}}}, AddressRefused{3},
		}, 1},
		{"another one's address refuses", []Event{AddressRefused{4}}, 0},
		{"the next epoch begins", []Event{Received{2, Decided{&Configuration{
			Epoch: Epoch{Founded(9), 5}, Previous: Epoch{Founded(9), 4},
			Members: []Member{{ID: "a", Boot: 1}, {ID: "b", Boot: 2}, {ID: "c", Boot: 3}},
			Voters:  []Boot{1, 2, 3},
		}}}, AddressRefused{3}}, 0},
	} {
		p := Default()
		c := &Configuration{Epoch: Epoch{Founded(9), 4}, Voters: []Boot{1, 2, 3, 4}}
		for i, id := range []string{"a", "b", "c", "d"} {
			c.Members = append(c.Members, Member{ID: id, Boot: Boot(i + 1)})
		}
		now := Instant(time.Hour)
		s, _ := Within(&p, c.Members[0], now, c)
		value := &Configuration{
			Epoch: Epoch{Founded(9), 5}, Previous: c.Epoch, Voters: []Boot{1, 2, 4},
			Members: []Member{c.Members[0], c.Members[1], c.Members[3]},
		}
		for _, e := range []Event{
			LineUp{3}, LineUp{4}, LineEnded{3}, LineEnded{4}, Received{2, Canvass{value}},
		} {
			for _, said := range s.Step(now, e).Sends {
				if m, ok := said.Message.(Consent); ok && m.Yes {
					t.Fatalf("%s: it consents before", x.name)
				}
			}
		}
		consents := 0
		for _, e := range x.events {
			for _, said := range s.Step(now, e).Sends {
				if m, ok := said.Message.(Consent); ok {
					consents++
					if said.To != 2 || !m.Yes || m.Value != value {
						t.Errorf("%s: it says %+v to %d", x.name, m, said.To)
					}
				}
			}
		}
		if consents != x.want {
			t.Errorf("%s: it consents %d times, want %d", x.name, consents, x.want)
		}
	}
}
