package ownership

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Promise: from one moment on nothing happens by time alone to a boot that is calm: it is a member
// that has its right, and nothing is under way. Each thing that is ends the calm.
func TestWhatEndsACalm(t *testing.T) {
	calm := func() (*keeper, Instant) {
		w := newWorld(1, 3)
		w.trio("a", "b", "c")
		w.run(2 * second)
		n := w.node("a")
		return n.s, n.clock(w.now)
	}
	s, now := calm()
	if due, is := s.Due(now); !is || due <= now || due > now.Add(s.p.Renew) {
		t.Fatalf("calm: %t, until %v from now", is, due.Since(now))
	}
	for name, do := range map[string]func(s *keeper, e *entry){
		"it is no member":    func(s *keeper, _ *entry) { s.stage = StageCandidate },
		"its door is closed": func(s *keeper, _ *entry) { s.closed = true },
		"it wishes to leave": func(s *keeper, _ *entry) { s.leaving = true },
		"it holds nothing":   func(s *keeper, _ *entry) { s.emptied = true },
		"it leaves":          func(s *keeper, _ *entry) { s.me.Role = RoleLeaving },
		"it has given up":    func(s *keeper, _ *entry) { s.right.ended = true },
		"its right is over":  func(s *keeper, _ *entry) { s.right.until = now },
		"it renews at once":  func(s *keeper, _ *entry) { s.renewed = never },
		"nobody has acknowledged": func(s *keeper, _ *entry) {
			forAll(s, func(e *entry) { e.acked = never })
		},
		"it claims a partition":   func(s *keeper, _ *entry) { s.parts[2].Kind = Claiming },
		"it proposes":             func(s *keeper, _ *entry) { s.proposer.phase = phaseCanvassing },
		"it wishes for something": func(s *keeper, _ *entry) { s.proposer.wants = true },
		"it is sealed":            func(s *keeper, _ *entry) { s.voter.sealed = true },
		"it votes no more":        func(s *keeper, _ *entry) { s.voter.closed = true },
		"a value waits":           func(s *keeper, _ *entry) { s.voter.pending = 1 },
		"it forks":                func(s *keeper, _ *entry) { s.fork.kind = forkFollows },
		"there is a rival":        func(s *keeper, _ *entry) { rival(s) },
		"most voters are gone": func(s *keeper, _ *entry) {
			forAll(s, func(e *entry) { e.sign = SignGone })
		},
		"a member is gone":         func(_ *keeper, e *entry) { e.sign = SignGone },
		"a member has not renewed": func(_ *keeper, e *entry) { e.seen = false },
		"a member is silent":       func(s *keeper, e *entry) { e.renewed = now.Add(-s.p.Suspect) },
		"a member wishes to leave": func(_ *keeper, e *entry) { e.leaving = true },
	} {
		s, _ := calm()
		if do(s, s.entry(s.config.Members[1].Boot)); !is(s, now) {
			continue
		}
		t.Errorf("a boot is calm although %s", name)
	}
	for _, m := range s.config.Members {
		if e := s.entry(m.Boot); m.Boot != s.me.Boot {
			e.renewed = now.Add(-s.p.Suspect + 5) // which is soon
			if due, is := s.Due(now); !is || due != now+5 {
				t.Errorf("%s is silent in 5 ns, and calm: %t, for %v", m.ID, is, due.Since(now))
			}
			e.renewed = now
		}
	}
}

func is(s *keeper, now Instant) bool {
	_, calm := s.Due(now)
	return calm
}

func forAll(s *keeper, do func(*entry)) {
	for i := range s.roster {
		if s.roster[i].boot != s.me.Boot {
			do(&s.roster[i])
		}
	}
}

func rival(s *keeper) {
	c := *s.config
	c.Rivals = []Member{{ID: "r", Boot: 77}}
	s.config = &c
}

// Promise: the times of a cluster are those that its founder has said, for each member that
// installs its configuration, and not for others that share its parameters.
func TestFailoverOfTheConfiguration(t *testing.T) {
	p := Default()
	for _, failover := range []time.Duration{0, MinFailover, 5 * time.Second, MaxFailover} {
		c := First([]Member{{ID: "a", Boot: 1}})
		c.Failover = failover
		s, _ := Within(&p, c.Members[0], 1, c)
		want := failover
		if failover == 0 {
			want = Failover
		}
		if s.p.Lease != want*12/20 || s.p.Suspect != s.p.Lease || s.p.Margin != want/20 ||
			s.p.Renew*3 != s.p.Lease || s.p.quiet() != s.p.Lease+s.p.Margin ||
			s.p.Stop != want*8/20 || s.p.Mass != 2*want || s.p.Missed != want ||
			s.p.Step != want/20 {
			t.Errorf("failover %v: %+v", failover, *s.p)
		}
		if said := p.With(failover).Failover; said != failover || p.With(Failover).Failover != 0 {
			t.Errorf("failover %v is said to be %v", failover, said)
		}
		if p.Lease != Failover*12/20 {
			t.Fatalf("failover %v of one boot changes the parameters of others", failover)
		}
		if s.DecideUntil() != Instant(1).Add(s.p.Lease) {
			t.Errorf("failover %v: alone it decides until %v", failover, s.DecideUntil())
		}
	}
}

// Promise: a process with an ended boot calls all members of the cluster that it belonged to, and
// what it knows of partitions are copies.
func TestNextBootKnowsTheOthers(t *testing.T) {
	for _, elect := range []Electorate{{}, Of("a", "b"), {Others: []string{"c", "x"}}} {
		s, _, _ := claimer()
		s.origin.elect, s.config.Secret = elect, 5
		s.parts[0].Kind, s.parts[0].Copy = Held, Copy{Of: 10, Whole: true}
		s.Step(0, Received{10, Missed{s.config.Epoch}})
		next := s.Next(99)
		if next.me.Boot != 99 || next.me.ID != "b" || next.Stage() != StageCandidate ||
			next.Config() != s.config || next.origin.former != 11 {
			t.Fatalf("%+v of %+v at the stage %v", next.me, next.origin, next.Stage())
		}
		e := next.origin.elect
		calls := slices.Concat(e.IDs, e.Others)
		slices.Sort(calls)
		for _, id := range []string{"a", "b", "c", "d"} {
			if n := slices.Index(append(calls, id), id); n == len(calls) {
				t.Errorf("%s is not called", id)
			}
		}
		if all := len(slices.Compact(slices.Clone(calls))); all != len(calls) || e.Secret != 5 {
			t.Errorf("called are %v", calls)
		}
		for i := range next.parts {
			if p := next.Part(i); p.Kind != Copied && p.Kind != None || p.Bound != 0 {
				t.Errorf("partition %d is %+v", i, p)
			}
		}
		if next.Part(0).Copy != s.Part(0).Copy {
			t.Error("it has no copies")
		}
	}
}

// Promise: a state may be copied, with its roster and its partitions: nothing that happens to one
// is seen of the other.
func TestCopiesOfStates(t *testing.T) {
	for seed := range seeds(30) {
		w := newWorld(seed, 3)
		type copied struct {
			s    *keeper
			hash string
		}
		look := func(s *keeper) string {
			h := hasher{}
			h.keeper(0, s)
			return fmt.Sprintf("%x %v %v", h.buf, s.parts, s.claims)
		}
		var copies []copied
		w.drop = func(_, _ string, _ Message) bool {
			for _, n := range w.nodes {
				if w.random.IntN(40) == 0 {
					c := n.s.clone()
					copies = append(copies, copied{c, look(c)})
				}
			}
			return false
		}
		w.trio("a", "b", "c")
		w.start("d", "a", "d")
		w.run(second)
		w.kill("b")
		w.run(2 * second)
		for _, c := range copies {
			if got := look(c.s); got != c.hash {
				t.Fatalf("seed %d: a copy has become\n%s, it was\n%s", seed, got, c.hash)
			}
		}
	}
}

// Promise: a member that was asked to step down, and has given all away, is an owner like any other
// once it is one again. If it is asked once more, it keeps its right until it has given all away
// again: without it, nobody would decide for what it holds.
func TestOwnerAgainHoldsAgain(t *testing.T) {
	members := []Member{{ID: "a", Boot: 1}, {ID: "b", Boot: 2}, {ID: "c", Boot: 3}}
	p := Default()
	c := First(members)
	s, _ := Within(&p, members[0], 0, c)
	install := func(r Role) {
		next := *c
		next.Previous, next.Epoch = c.Epoch, Epoch{c.Epoch.Lineage, c.Epoch.Number + 1}
		next.Members = slices.Clone(c.Members)
		next.Members[0].Role = r
		s.install(0, &next)
		c = &next
	}
	install(RoleLeaving)
	s.Step(0, Emptied{})
	if !s.mayGo() {
		t.Fatal("a member that has given all away may not go")
	}
	install(RoleOwner)
	install(RoleLeaving)
	if s.mayGo() {
		t.Error("a member that is asked once more may go before it has given anything away")
	}
	if s.Step(0, Emptied{}); !s.mayGo() {
		t.Error("a member that has given all away once more may not go")
	}
}
