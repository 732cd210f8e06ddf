package ownership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// claimer is a boot that has just installed a configuration of four, and claims three of twelve
// partitions.
func claimer() (s *keeper, now Instant, mine []int) {
	p := Default()
	c := &Configuration{
		Epoch: Epoch{Founded(9), 7}, Previous: Epoch{Founded(9), 6}, Voters: []Boot{10, 11, 12},
	}
	for i := range 4 {
		c.Members = append(c.Members, Member{ID: string(rune('a' + i)), Boot: Boot(10 + i)})
	}
	now = Instant(time.Hour)
	within, fx := Within(&p, c.Members[1], now, c)
	s = keep(within, 12)
	s.follow(now, fx)
	s.out = outbox{}
	for i := range s.parts {
		if placeOwners(c, i) == s.me.Boot {
			mine = append(mine, i)
		}
	}
	return s, now, mine
}

// Promise: a partition is held when each member of the epoch has answered that it is free, or when
// all have answered and it is given; a copy that is better than this boot's own is fetched before,
// and none is better. Answers that were heard before, are of others or of other partitions, and
// gifts that come early count for nothing.
func TestClaimsAreConcluded(t *testing.T) {
	for seed := range seeds(2000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now, mine := claimer()
		right := draw.IntN(3) > 0
		if right {
			s.right.until = now.Add(time.Hour)
		}
		own := map[int]Copy{}
		for _, i := range mine {
			if draw.IntN(2) == 0 {
				own[i] = Copy{Of: 77, Epoch: 4 + draw.Uint64N(3), Whole: draw.IntN(2) == 0}
				s.parts[i].Copy = own[i]
			}
		}
		others := []Boot{10, 12, 13}
		answered := map[Boot]bool{}
		free, best := map[int]int{}, map[int]offer{}
		held, fetches := map[int]bool{}, map[int]bool{}
		for range 40 {
			now = now.Add(time.Millisecond)
			var m Message
			from := pick(draw, 10, 12, 13, Boot(55))
			switch what := draw.IntN(6); {
			case what < 3:
				answer := ClaimAnswer{Epoch: s.config.Epoch}
				for _, i := range mine {
					answer.Parts = append(answer.Parts, PartAnswer{
						Partition: i,
						Standing:  pick(draw, StandingFree, StandingFree, StandingHeld),
						Copy: pick(draw, Copy{}, Copy{
							Of: from, Epoch: 4 + draw.Uint64N(4),
							Whole: draw.IntN(2) == 0,
						}),
					})
				}
				if draw.IntN(8) == 0 {
					answer.Parts = answer.Parts[1:]
				} else if from != 55 && !answered[from] {
					answered[from] = true
					for _, a := range answer.Parts {
						if a.Standing == StandingHeld {
							continue
						}
						free[a.Partition]++
						than := own[a.Partition]
						if b, is := best[a.Partition]; is {
							than = b.copy
						}
						if a.Copy.better(than) {
							best[a.Partition] = offer{a.Partition, from, a.Copy}
						}
					}
				}
				m = answer
			case what < 5:
				i := pick(draw, mine...)
				if m = (Gift{s.config.Epoch, i}); len(answered) == len(others) {
					held[i] = true
				}
			default:
				i := pick(draw, mine...)
				if !fetches[i] {
					continue
				}
				s.Step(now, Fetched{i})
				if right && !held[i] {
					held[i] = true
					if s.parts[i].Copy != best[i].copy {
						t.Fatalf("seed %d: %d is held from %+v, want %+v", seed, i,
							s.parts[i].Copy, best[i].copy)
					}
				}
			}
			if m != nil {
				fx := s.Step(now, Received{from, m})
				for _, x := range fx.Parts {
					if x.Kind != PartFetch {
						continue
					}
					if fetches[x.Partition] = true; x.Boot != best[x.Partition].from {
						t.Fatalf("seed %d: %d is fetched from %d, want %+v", seed, x.Partition,
							x.Boot, best[x.Partition])
					}
				}
				taken := slices.ContainsFunc(fx.Sends, func(x Send) bool {
					_, is := x.Message.(Taken)
					return is && x.To == from
				})
				if g, is := m.(Gift); is && taken != held[g.Partition] {
					t.Fatalf("seed %d: a gift of %d is receipted: %t", seed, g.Partition, taken)
				}
			}
			for _, i := range mine {
				if _, better := best[i]; free[i] == len(others) && !better {
					held[i] = true
				}
				if got := s.Part(i).Kind == Held; got != held[i] {
					t.Fatalf("seed %d: %d is held: %t; %v have answered, %d call it free, "+
						"better: %+v", seed, i, got, answered, free[i], best[i])
				}
			}
		}
	}
}

// Promise: a claim of the owner of partitions in this epoch is answered for each of them, and what
// was held is given after that, as often as is asked; another's claim is not answered.
func TestClaimsAreAnswered(t *testing.T) {
	for seed := range seeds(1000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now, _ := claimer()
		claimed, of := []int{}, Boot(10)
		for i := range s.parts {
			if placeOwners(s.config, i) != of {
				continue
			}
			s.parts[i] = Part{Kind: pick(draw, None, Copied, Held), Epoch: 7, Copy: Copy{Of: 99}}
			claimed = append(claimed, i)
		}
		was := slices.Clone(s.parts)
		claim := Claim{s.config.Epoch, claimed}
		for range 2 { // the answer may be lost
			var want []string
			answer := ClaimAnswer{Epoch: s.config.Epoch}
			var gifts []string
			for _, i := range claimed {
				a := PartAnswer{Partition: i, Copy: was[i].Copy}
				if was[i].Kind == Held {
					a.Standing = StandingHeld
					a.Copy = Copy{Of: of, Epoch: 7, Whole: true}
					gifts = append(gifts, fmt.Sprint(of, Gift{s.config.Epoch, i}))
				}
				answer.Parts = append(answer.Parts, a)
			}
			want = append([]string{fmt.Sprint(of, answer)}, gifts...)
			var got []string
			for _, x := range s.Step(now, Received{of, claim}).Sends {
				got = append(got, fmt.Sprint(x.To, x.Message))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: answered with %q, want %q", seed, got, want)
			}
		}
		for _, wrong := range []Claim{
			{s.config.Epoch, []int{claimed[0] + 2}},
			{s.config.Epoch, []int{-1}},
			{s.config.Epoch, []int{claimed[0], len(s.parts)}},
		} {
			if fx := s.Step(now, Received{of, wrong}); len(fx.Sends) > 0 {
				t.Fatalf("seed %d: %v is answered with %v", seed, wrong, fx.Sends)
			}
		}
	}
}

// Promise: a boot follows the child of another one, and gives up its right, if an operator says so
// or if it has none or too few voters are left; of two it follows the smaller boot, as long as that
// is there, and of two halves of a pair the first one that has asked.
func TestWhoIsFollowed(t *testing.T) {
	bound := 0
	for seed := range seeds(2000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, now := drawn(draw)
		if draw.IntN(2) == 0 {
			s.right.until = now + 1
		}
		if draw.IntN(2) == 0 {
			s.fork.kind = pick(draw, forkFollows, forkChild)
			s.fork.of = pick(draw, s.config.Members...).Boot
		}
		from := pick(draw, s.config.Members...).Boot
		gone := 0
		for _, v := range s.config.Voters {
			if sign := s.entry(v).sign; sign == SignGone || sign == SignLeft {
				gone++
			}
		}
		before, until := s.fork, s.right.until
		recovers := draw.IntN(3) == 0
		follows := recovers || now >= until || 2*(len(s.config.Voters)-gone) <= len(s.config.Voters)
		if before.on() && before.of < from && s.entry(before.of).sign != SignGone {
			follows = false
		}
		if v := s.config.Voters; before.on() && before.of != from && !recovers && len(v) == 2 &&
			!slices.Contains(v, s.me.Boot) && slices.Contains(v, from) &&
			slices.Contains(v, before.of) && s.entry(before.of).sign != SignGone {
			follows = false
			bound++
		}
		s.secede(now, from, Secede{s.config.Epoch, recovers})
		if s.out.own == nil == (follows && from == s.me.Boot) ||
			(len(s.out.Sends) == 1) != (follows && from != s.me.Boot) {
			t.Fatalf("seed %d: it follows %d: want %t; %v", seed, from, follows, s.out)
		}
		switch {
		case !follows || before.of == from:
			if s.fork.of != before.of || s.right.until != until {
				t.Fatalf("seed %d: its fork is %+v, before %+v", seed, s.fork, before)
			}
		case s.fork.of != from || s.fork.kind != forkFollows || s.fork.since != now ||
			s.Deciding(now) || !s.right.ended || !s.voter.closed || !s.voter.sealed ||
			s.right.lost < until:
			t.Fatalf("seed %d: it follows with %+v, %+v, %+v", seed, s.fork, s.right, s.voter)
		}
	}
	if !testing.Short() && bound < 10 {
		t.Errorf("%d follow half of a pair and are asked by the other; that proves little", bound)
	}
}
