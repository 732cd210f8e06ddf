package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: the answers of each named limit are counted, those of inline ones together, takes and
// reservations only; a limit that stays keeps its counts when others change.
func TestLimitTallies(t *testing.T) {
	spec := limiter.Spec{Name: "rate", Algorithm: limiter.FixedWindow, Limit: 2, Per: time.Hour}
	w := newWorld(t, 1, spec)
	n := w.nodes["n1"]
	dry, inline := spec, spec
	dry.Name, dry.DryRun, inline.Name = "dry", true, "inline"
	limits := Limits{}
	for _, s := range []limiter.Spec{spec, dry, inline} {
		l, err := limiter.New(s)
		if err != nil {
			t.Fatal(err)
		}
		limits[s.Name] = l
	}
	brought := limits["inline"]
	delete(limits, "inline")
	n.SetLimits(limits)
	ask := func(it Item, times int) {
		t.Helper()
		items := make([]Item, times)
		for i := range items {
			items[i] = it
		}
		if err := n.Check(&Request{Items: items}, make([]Decision, times)); err != nil {
			t.Fatal(err)
		}
	}
	ask(Item{Limit: "rate", Key: "k", Cost: 1}, 5)
	ask(Item{Limit: "dry", Key: "k", Cost: 1}, 3)
	ask(Item{Inline: brought, Key: "k", Cost: 1}, 3)
	ask(Item{Limit: "rate", Key: "k", Op: OpPeek}, 7)
	ask(Item{Limit: "rate", Key: "k", Op: OpReset}, 1)
	want := map[string][3]uint64{"rate": {2, 3, 0}, "dry": {2, 0, 1}, OtherLimits: {2, 1, 0}}
	check := func(when string) {
		t.Helper()
		got := n.LimitTallies()
		for name, w := range want {
			for outcome := range w {
				if c := got[name].Checks[outcome]; c[SourceOwner] != w[outcome] {
					t.Errorf("%s: %d of %s are %v; want %d", when, c[SourceOwner], name,
						Outcome(outcome), w[outcome])
				}
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: there are tallies of %d limits; want %d", when, len(got), len(want))
		}
	}
	check("at first")
	delete(limits, "dry")
	delete(want, "dry")
	n.SetLimits(Limits{"rate": limits["rate"]})
	check("when another limit is gone")
	if s := n.Stats(); s.Allowed() != 8 || s.Denied() != 4 || s.Shadowed() != 1 || s.Peeks() != 7 {
		t.Errorf("allowed %d, denied %d, shadowed %d, peeked %d in all; want 8, 4, 1 and 7",
			s.Allowed(), s.Denied(), s.Shadowed(), s.Peeks())
	}
}
