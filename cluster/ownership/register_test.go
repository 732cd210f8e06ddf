package ownership

import (
	"math/rand/v2"
	"testing"
)

// TestRegister plays the register of one epoch by itself: three voters propose different successors
// with ever higher ballots, and what they have said comes in any order, often or never. No two
// successors are ever decided.
func TestRegister(t *testing.T) {
	decided := 0
	for seed := range uint64(1000) {
		c := registerWalk(t, rand.New(rand.NewPCG(seed, 1)))
		if c != nil {
			decided++
		}
	}
	if decided < 300 {
		t.Errorf("only %d of 1000 walks decided anything", decided)
	}
}

func registerWalk(t *testing.T, random *rand.Rand) (decided *Configuration) {
	m := trio("abc", 1, 2, 3)(tickParams(0))
	var said []packet
	say := func(from Boot, sends []Send) {
		for _, x := range sends {
			switch d := x.Message.(type) {
			case Prepare, Promise, Accept, Accepted:
				said = append(said, packet{boot: from, dest: x.To, m: x.Message})
			case Decided:
				if decided != nil && !decided.same(d.Config) {
					t.Fatalf("both %v and %v are decided", decided, d.Config)
				}
				decided = d.Config
			}
		}
	}
	for range 150 {
		s := m.nodes[random.IntN(3)].s
		if len(said) == 0 || random.IntN(12) == 0 {
			if s.proposer.value == nil {
				s.proposer.value = successor(s)
			}
			s.outbid(m.now)
			s.out.Sends, s.out.own = nil, nil // what it says to itself may be lost as well
			for _, v := range s.config.Voters {
				said = append(said,
					packet{boot: s.me.Boot, dest: v, m: Prepare{s.config.Epoch, s.proposer.ballot}})
			}
			continue
		}
		p := said[random.IntN(len(said))]
		to := m.nodes[index(p.dest)].s
		if to.config.Epoch.Number > 1 { // it has installed what it decided
			continue
		}
		say(p.dest, to.Step(m.now, Received{p.boot, p.m}).Sends)
	}
	return decided
}

// successor differs from voter to voter, and evicts nobody.
func successor(s *keeper) *Configuration {
	c := *s.config
	c.Previous, c.Epoch.Number = c.Epoch, c.Epoch.Number+1
	c.Members = append([]Member(nil), c.Members...)
	c.Members[index(s.me.Boot)].Role = RoleLeaving
	return &c
}

// TestLineagesHaveNoCircle: of any two lineages one wins, and of any three there is one that both
// others give way to.
func TestLineagesHaveNoCircle(t *testing.T) {
	var all []Lineage
	var grow func(l Lineage, deep int)
	grow = func(l Lineage, deep int) {
		for b := range Boot(4) {
			child := l.Child(b + 1)
			all = append(all, child)
			if deep > 1 {
				grow(child, deep-1)
			}
		}
	}
	grow("", 3)
	for _, a := range all {
		for _, b := range all {
			if a != b && a.Beats(b) == b.Beats(a) {
				t.Fatalf("of %v and %v not one wins", a, b)
			}
			for _, c := range all {
				if a.Beats(b) && b.Beats(c) && !a.Beats(c) {
					t.Fatalf("%v beats %v, that beats %v, and that is not beaten", a, b, c)
				}
			}
		}
	}
	if p := Founded(1); !p.Child(5).Beats(p) || !p.Child(5).Beats(Founded(3)) {
		t.Error("a child beats its parent, and what its parent beats")
	}
}
