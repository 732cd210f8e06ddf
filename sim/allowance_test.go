package sim

import "testing"

// Promise: what judges let pass is counted, and an allowance that is the rule fails.
func TestAllowancesAreCounted(t *testing.T) {
	s := firstSeeds()
	for i := range s.Allowed {
		x := &s.Allowed[i]
		if x.Of == 0 {
			t.Errorf("%s: no %s were looked at", x.Name, x.Kind)
		}
		t.Logf("%s: %d of %d %s", x.Name, x.Used, x.Of, x.Kind)
	}
	if names := s.allowed.beyond(); len(names) > 0 {
		t.Errorf("used too often: %q", names)
	}
	often := s.allowed
	often.used[lateTwice], often.most[lateTwice] = often.of[anyCharge]/20+1, [2]uint64{}
	if got := often.beyond(); len(got) != 1 || got[0] != "late-twice" {
		t.Errorf("a take in twenty is charged twice: %q are used too often", got)
	}
}

// Promise: among few worlds one alone makes no allowance the rule, and two do; among many one does.
func TestOneWorldIsNoSample(t *testing.T) {
	world := func(used uint64) *allowed {
		a := &allowed{of: [judgedKinds]uint64{anyKept: 100, anyWorld: 1}}
		a.used[heldMore] = used
		return a
	}
	for _, c := range []struct {
		worlds, odd int
		often       bool
	}{{20, 1, false}, {20, 2, true}, {20, 3, true}, {aSample, 1, false}, {aSample, 600, true}} {
		var sum allowed
		for i := range c.worlds {
			if i < c.odd {
				sum.add(world(100))
			} else {
				sum.add(world(0))
			}
		}
		if often := len(sum.beyond()) > 0; often != c.often {
			t.Errorf("%d of %d worlds use nothing else: used too often %t, want %t", c.odd,
				c.worlds, often, c.often)
		}
	}
	var many allowed
	for range aSample - 1 {
		many.add(world(5))
	}
	if many.add(world(6)); len(many.beyond()) == 0 {
		t.Error("the world that has used it most is left out among many")
	}
}
