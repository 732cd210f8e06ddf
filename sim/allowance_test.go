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
	often.used[lateTwice] = often.of[anyCharge]/20 + 1
	if got := often.beyond(); len(got) != 1 || got[0] != "late-twice" {
		t.Errorf("a take in twenty is charged twice: %q are used too often", got)
	}
}
