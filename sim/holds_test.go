package sim

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// A seed from HoldSeeds on is a world of holds, one below is not, and both are the same each time.
func TestSeedsOfHolds(t *testing.T) {
	for seed, holds := range map[uint64]bool{
		1: false, HoldSeeds - 1: false, HoldSeeds: true,
		HoldSeeds + 7: true,
	} {
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
	p := &plan{
		seed: 1, sky: calm, machines: make([]machinePlan, 1), length: time.Second,
		weather: weather{inOrder: true},
	}
	p.limits = []rule{{Spec: limiter.Spec{
		Name: "jobs", Algorithm: limiter.Concurrency, Limit: 2,
		Per: time.Minute,
	}}}
	w := newWorld(p, nil)
	a := w.judge.account("jobs", "k")
	for i := range uint64(3) {
		id := cluster.ID{Origin: clientOrigin, Sequence: i + 1}
		a.held.open = append(a.held.open, &holding{
			id: id, account: a, units: 1, lasting: lasting{until: time.Minute}, asked: i == 0,
		})
		w.judge.aside.toldHold(a, id)
	}
	if w.judge.failure != nil {
		t.Fatalf("two and one that is given back: %s", w.judge.failure.Detail)
	}
	a.held.open[0].asked = false
	if w.judge.aside.toldHold(a, a.held.open[0].id); w.judge.failure == nil ||
		w.judge.failure.Promise != "aside" {
		t.Errorf("three of two: %+v", w.judge.failure)
	}
}

// Exceptions from a limit decide for their keys, and each key is held to its own.
func TestScenarioWithOverrides(t *testing.T) {
	r := parsed(t, `
nodes: 3
duration: 10s
limits:
  - name: api
    algorithm: fixed_window
    limit: 10
    per: 1m
    overrides: [{key: "big-*", limit: 100}, {key: "free-*", unlimited: true}]
traffic:
  - {limit: api, key: small, rate: 50/s}
  - {limit: api, key: big, rate: 50/s}
  - {limit: api, key: free, rate: 50/s}
`).Run()
	if !r.OK() {
		t.Fatalf("%+v", r.Failure)
	}
	// some 500 of the third key
	if sum := r.Limits[0].Sum; sum.Admitted < 10+100+400 || sum.Admitted > 10+100+600 ||
		sum.Extra != 0 {
		t.Errorf("%+v", sum)
	}
}

// Units that are reserved, held and leased in a scenario are counted, never go beyond the limit,
// and come back when their time is over.
func TestScenarioOfHolds(t *testing.T) {
	r := parsed(t, `
nodes: 3
duration: 20s
limits:
  - {name: tokens, algorithm: gcra, limit: 100, per: 1s, burst: 200}
  - {name: jobs, algorithm: concurrency, limit: 3, per: 1m}
  - {name: hot, algorithm: gcra, limit: 500, per: 1s, consistency: leased}
traffic:
  - {limit: tokens, key: team, rate: 10/s, cost: 20,
     reserve: {for: 500ms, used: 50%, abandoned: 5%}}
  - {limit: jobs, key: pool, rate: 10/s, reserve: {for: 1s, ttl: 500ms, abandoned: 10%}}
  - {limit: hot, key: page, rate: 300/s}
faults:
  - {at: 10s, restart: n2}
`).Run()
	if !r.OK() {
		t.Fatalf("%+v", r.Failure)
	}
	tokens, jobs, hot := r.Limits[0].Sum, r.Limits[1].Sum, r.Limits[2].Sum
	if tokens.Extra+jobs.Extra+hot.Extra != 0 {
		t.Errorf("extra: %+v %+v %+v", tokens, jobs, hot)
	}
	if tokens.Admitted < 2500 || tokens.Denied == 0 && jobs.Denied == 0 || jobs.Admitted < 40 ||
		jobs.Admitted > 140 {
		t.Errorf("%+v %+v", tokens, jobs)
	}
	if h := r.Holds; h.Spent < 2000 || h.Settled < 150 || h.RanOut < 10 || h.Extended < 20 {
		t.Errorf("%+v", h)
	}
}
