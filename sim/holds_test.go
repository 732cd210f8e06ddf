package sim

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// A seed from HoldSeeds on is a world of holds, one below is not, and both are the same each time.
func TestSeedsOfHolds(t *testing.T) {
	for seed, holds := range map[uint64]bool{1: false, HoldSeeds - 1: false, HoldSeeds: true, HoldSeeds + 7: true} {
		r := Run(seed)
		if !r.OK() {
			t.Errorf("seed %d: %+v", seed, r.Failure)
		}
		if got := r.Holds.Opened+r.Holds.Leases > 0; got != holds {
			t.Errorf("seed %d: %+v", seed, r.Holds)
		}
		if again := Run(seed); again.TraceHash != r.TraceHash {
			t.Errorf("seed %d: trace %s, then %s", seed, r.TraceHash, again.TraceHash)
		}
	}
}

// Clients never have more permits at a time than there are, as they count them themselves.
func TestPermitsThatClientsHaveAtOnce(t *testing.T) {
	p := &plan{seed: 1, sky: calm, machines: make([]machinePlan, 1), length: time.Second, weather: weather{inOrder: true}}
	p.limits = []rule{{Spec: limiter.Spec{Name: "jobs", Algorithm: limiter.Concurrency, Limit: 2, Per: time.Minute}}}
	w := newWorld(p, nil)
	a := w.judge.account("jobs", "k")
	for i := range uint64(3) {
		id := cluster.ID{Origin: clientOrigin, Sequence: i + 1}
		a.held.open = append(a.held.open, &holding{id: id, account: a, units: 1, until: time.Minute, asked: i == 0})
		w.judge.toldHold(a, id)
	}
	if w.judge.failure != nil {
		t.Fatalf("two and one that is given back: %s", w.judge.failure.Detail)
	}
	a.held.open[0].asked = false
	if w.judge.toldHold(a, a.held.open[0].id); w.judge.failure == nil || w.judge.failure.Promise != "aside" {
		t.Errorf("three of two: %+v", w.judge.failure)
	}
}
