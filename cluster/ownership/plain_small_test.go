package ownership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Promise: what holds before anybody says otherwise: a clock may run
// 4 % faster, a partition has one heir unless its founder has said none or two, a secret is not
// shown, and no lineage gives way to itself.
func TestWhatHoldsFirst(t *testing.T) {
	if p := Default(); p.Drift != 40 || p.Failover != 0 {
		t.Errorf("%+v", p)
	}
	if n := (Params{}).With(Failover).Failover; n != 0 {
		t.Errorf("the failover of %v is not the usual one", n)
	}
	for heirs, code := range []Copies{NoCopies, OneCopy, TwoCopies} {
		if CopiesOf(heirs) != code || code.Heirs() != heirs {
			t.Errorf("%d heirs are the code %d, and that is %d", heirs, CopiesOf(heirs),
				code.Heirs())
		}
	}
	if got := fmt.Sprint(Secret(0), Secret(7)); got != "no secret a secret" {
		t.Errorf("secrets are shown as %s", got)
	}
	for _, l := range []Lineage{Founded(3), Founded(3).Child(1)} {
		if l.Beats(l) {
			t.Errorf("%v beats itself", l)
		}
	}
	if got := Founded(3).Child(1).String(); got != "3.1" {
		t.Errorf("the child of 1 is %s", got)
	}
	const now = Instant(time.Hour)
	if now.Add(3) != now+3 || now.Since(now-3) != 3 {
		t.Error("instants do not add up")
	}
}

// voting are the voters of some members, in the words of R7: those of before stay; there are as
// many as can be, but for an even number above two; the last of the fullest zone goes first, and
// the first of the emptiest zone comes first.
func voting(before []Boot, members []Member, ready func(Boot) bool) (voters []Boot) {
	var stay, come []Member
	for _, m := range members {
		if m.Role == RoleOwner && slices.Contains(before, m.Boot) {
			stay = append(stay, m)
		} else if m.Role == RoleOwner && ready(m.Boot) {
			come = append(come, m)
		}
	}
	for _, m := range members {
		if len(stay)+len(come) == 0 && slices.Contains(before, m.Boot) {
			voters = append(voters, m.Boot)
		}
	}
	for _, m := range members {
		if len(voters) > 0 && slices.Contains(voters, m.Boot) {
			stay = append(stay, m) // all that may vote are leaving
		}
	}
	most := map[int]int{0: 0, 1: 1, 2: 2, 3: 3, 4: 3, 5: 5, 6: 5}
	want, small := most[len(stay)+len(come)]
	if !small {
		want = 7
	}
	share := func(zone string) (n int) {
		for _, m := range stay {
			if m.Zone == zone {
				n++
			}
		}
		return n
	}
	for len(stay) != want {
		best := -1
		if len(stay) > want {
			for i := len(stay) - 1; i >= 0; i-- {
				if best < 0 || share(stay[i].Zone) > share(stay[best].Zone) {
					best = i
				}
			}
			stay = slices.Delete(slices.Clone(stay), best, best+1)
			continue
		}
		for i := range come {
			if best < 0 || share(come[i].Zone) < share(come[best].Zone) {
				best = i
			}
		}
		stay, come = append(stay, come[best]), slices.Delete(slices.Clone(come), best, best+1)
	}
	voters = nil
	for _, m := range stay {
		voters = append(voters, m.Boot)
	}
	slices.Sort(voters)
	return voters
}

// Promise: voters are exactly those of the words at voting; all members compute the same ones.
func TestVotersInPlainWords(t *testing.T) {
	for seed := range seeds(4000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var members []Member
		var before []Boot
		ready := map[Boot]bool{}
		leaving := draw.IntN(8) == 0
		for i := range draw.IntN(14) + 1 {
			m := Member{
				ID: string(rune('a' + i)), Boot: Boot(40 + 7*i%20), Zone: pick(draw, "x", "y", "z"),
				Role: pick(draw, RoleOwner, RoleOwner, RoleOwner, RoleLeaving),
			}
			if leaving {
				m.Role = RoleLeaving
			}
			members = append(members, m)
			ready[m.Boot] = draw.IntN(3) > 0
			if draw.IntN(2) == 0 && len(before) < MaxVoters {
				before = append(before, m.Boot)
			}
		}
		is := func(b Boot) bool { return ready[b] }
		got, want := chooseVoters(before, members, is), voting(before, members, is)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v vote of %v after %v, want %v", seed, got, members, before, want)
		}
	}
}

// Promise: the first configuration of some members has them in the order of their names, the
// smallest as its root, and as many voters as may be.
func TestFirstConfiguration(t *testing.T) {
	all := []Member{{ID: "c", Boot: 1}, {ID: "a", Boot: 9}, {ID: "b", Boot: 4}}
	c := First(all)
	want := []Member{all[1], all[2], all[0]}
	if !slices.Equal(c.Members, want) || c.Epoch != (Epoch{Founded(9), 1}) ||
		!slices.Equal(c.Voters, []Boot{1, 4, 9}) || c.Previous != (Epoch{}) || all[0].ID != "c" {
		t.Errorf("%+v of %v", c, all)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}

// Promise: what members wish to know of a configuration is what it lists: a boot's member and role,
// votes, a majority, names, rivals, and whether another one says the same.
func TestWhatAConfigurationSays(t *testing.T) {
	for seed := range seeds(500) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s, _ := anything(draw)
		c := s.config
		for b := Boot(0); b < 100; b++ {
			var want Member
			votes := false
			for _, m := range c.Members {
				if m.Boot == b {
					want = m
				}
			}
			for _, v := range c.Voters {
				votes = votes || v == b
			}
			m, member := c.Member(b)
			is := want.Boot != 0
			if m != want || member != is || c.Has(b) != is || c.Votes(b) != votes {
				t.Fatalf("seed %d: %d is %+v in %v", seed, b, m, c)
			}
		}
		for _, id := range []string{"", "a", "b", "g", "r", "z"} {
			m, named := c.named(id)
			n := slices.IndexFunc(c.Members, func(m Member) bool { return m.ID == id })
			if named != (n >= 0) || named && m != c.Members[n] {
				t.Fatalf("seed %d: %q is %+v in %v", seed, id, m, c)
			}
			if c.rivalNamed(id) != (id == "r" && len(c.Rivals) > 0) {
				t.Fatalf("seed %d: %q is a rival of %v", seed, id, c)
			}
		}
		if q, n := c.Quorum(), len(c.Voters); 2*q <= n || 2*(q-1) > n {
			t.Fatalf("%d of %d are a majority", q, n)
		}
		if c.Marked() != (len(c.Rivals) == 1) || s.Marked() != c.Marked() {
			t.Fatalf("seed %d: %v is marked: %t", seed, c, c.Marked())
		}
		other := *c
		if other.Epoch.Number++; !c.same(&other) {
			t.Fatal("the epoch makes a difference")
		}
		other.Members = slices.Clone(c.Members)
		other.Members[draw.IntN(len(c.Members))].Role ^= 1
		voters, rivals := *c, *c
		voters.Voters, rivals.Rivals = c.Voters[1:], []Member{{ID: "q", Boot: 88}}
		for _, o := range []*Configuration{&other, &voters, &rivals} {
			if c.same(o) {
				t.Fatalf("seed %d: %v says the same as %v", seed, c, o)
			}
		}
	}
}
