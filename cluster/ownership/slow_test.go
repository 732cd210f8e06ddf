package ownership

import (
	"testing"
	"time"
)

// Promise: on slow lines, with round trips of 220 to 440 ms, members are admitted, evicted and let
// go as on fast ones, only later; and no living member is evicted because a decision, or its first
// renewal after one, was on its way.
func TestSlowLines(t *testing.T) {
	for seed := uint64(1); seed <= seeds(20); seed++ {
		w := newWorld(seed, 4)
		w.trio("a", "b", "c", "d")
		w.slow = 110 * ms
		w.run(2 * second)
		boots := map[string]Boot{}
		for _, n := range w.nodes {
			boots[n.id] = n.s.me.Boot
		}
		settles := func(what string) {
			t.Helper()
			w.run(15 * second)
			if why := w.agreed(); why != "" || w.wrong != "" {
				t.Fatalf("seed %d, %s: %s %s", seed, what, why, w.wrong)
			}
		}
		boots["e"] = w.start("e", "a", "e").s.me.Boot
		settles("one joins")
		w.step(w.node("b"), Leave{})
		settles("one leaves")
		w.node("a").up = false
		settles("one dies")
		for _, n := range w.nodes {
			if n.up && n.s.me.Boot != boots[n.id] {
				t.Fatalf("seed %d: %s lives, and was evicted", seed, n.id)
			}
		}
	}
}

// Promise: where round trips take longer than a proposer waits for the first time, nobody loses the
// right to decide while a member is admitted: what most voters have accepted is decided, also if
// the proposer has gone on to another ballot, and a voter that has accepted begins none of its own
// before it has waited.
func TestAdmittedOnSlowLines(t *testing.T) {
	for seed := uint64(1); seed <= seeds(200); seed++ {
		w := newWorld(seed, 3)
		w.start("a", "a", "b")
		w.start("b", "a", "b")
		w.run(2 * second)
		w.slow = 35 * ms
		w.run(2 * second)
		c := w.start("c", "a", "c")
		for range 300 {
			w.run(time.Duration(10 * ms))
			for _, id := range []string{"a", "b"} {
				if n := w.node(id); !n.s.Deciding(n.clock(w.now)) {
					t.Fatalf("seed %d: %s has no right while c is admitted", seed, id)
				}
			}
		}
		if c.s.Stage() != StageJoined {
			t.Fatalf("seed %d: c is not admitted", seed)
		}
	}
}
