package sim

import "testing"

// What clients ask does not depend on what becomes of it: written down beforehand, it makes the
// same world.
func TestScriptMakesTheSameWorld(t *testing.T) {
	t.Parallel()
	n := uint64(60)
	if testing.Short() {
		n = 15
	}
	for seed := range n {
		p := draw(seed)
		p.traffic, p.script = traffic{}, recorded(draw(seed))
		w := newWorld(p, nil)
		w.run()
		if got, want := w.report().TraceHash, Run(seed).TraceHash; got != want {
			t.Errorf("seed %d: trace %s by script, %s as drawn", seed, got, want)
		}
	}
}
