package sim

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Promise: a report of a take that the node remembers to have let in charges nothing, so its answer
// is that to the take. It may be reported all the same: by a node that held the key meanwhile, had
// not heard of that, and has refused the take to itself.
func TestReportOfWhatIsRemembered(t *testing.T) {
	take := cluster.ID{Origin: clientOrigin, Sequence: 7}
	yes := limiter.Decision{Allowed: true, Limit: 10, Remaining: 3, ResetAfter: time.Minute}
	charged := limiter.Decision{Allowed: true, Limit: 10, Remaining: 2, ResetAfter: time.Second}
	for _, x := range []struct {
		name   string
		after  time.Duration
		got    limiter.Decision
		broken bool
	}{
		{"it is answered as the take was", time.Second, yes, false},
		{"it is charged", time.Second, charged, true},
		{"it is charged, and the take is forgotten", memory, charged, false},
	} {
		w := newWorld(&plan{
			seed: 1, sky: outage, machines: make([]machinePlan, 2), sweepEvery: 5 * time.Second,
			limits: []rule{{Spec: limiter.Spec{
				Name: "a", Algorithm: limiter.FixedWindow, Limit: 10, Per: time.Minute,
			}}},
		}, nil)
		p, from, j := w.machines[0].process, w.machines[1].process, w.judge
		j.once.memories.add(nil, take, p, w.now, []limiter.Decision{yes}, true)
		w.now += x.after
		report := cluster.AskItem{
			Cost: 1, ID: cluster.ID{Origin: take.Origin ^ reportOrigin, Sequence: take.Sequence},
			Terms: cluster.Terms{Report: true},
		}
		j.deliveredDebt(from, p, &report, j.account("a", "one"), x.got)
		if got := j.failure != nil; got != x.broken {
			t.Errorf("%s: a promise is broken: %v; want %v", x.name, got, x.broken)
		}
	}
}
