package ownership

import "testing"

// Promise: on slow lines, whose round trips take 220 to 440 ms, members are admitted, evicted and
// let go as on fast ones, only later; and no living member is evicted because a decision, or its
// first renewal after one, was on its way.
func TestSlowLines(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
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
