package sim

import (
	"slices"
	"strings"
	"testing"

	"penstock/cluster"
)

// kindFaults show in worlds of kinds, where every unit is counted and availability is demanded.
func kindFaults() []planted {
	return []planted{
		{"the breaker never closes again", []promise{ready}, func(p *process) {
			broken := make(map[string]bool)
			p.hears = func(calls []cluster.Call) {
				for i := range calls {
					c := &calls[i]
					if broken[c.To.ID] = broken[c.To.ID] || c.Err != nil; broken[c.To.ID] {
						c.Answer, c.Err = nil, errSilence
					}
				}
			}
		}},
		{
			"copies are said to be taken in, and dropped",
			[]promise{lossless, exact},
			onMove(func(_ *process, m *cluster.Move) {
				if len(m.Gift) == 0 {
					m.Entries = nil
				}
			}, nil),
		},
	}
}

// Promise: the judges of loss and of availability can fail. The same worlds hold without the fault.
func TestPlantedFaultsOfKindsAreCaught(t *testing.T) {
	for _, f := range kindFaults() {
		t.Run(f.name, func(t *testing.T) {
			for i := range uint64(20) {
				seed := KindSeeds + i // a node joins, and one dies
				w := newWorld(draw(seed), nil)
				if w.run(); w.judge.failure != nil {
					continue
				}
				w = newWorld(draw(seed), f.plant)
				w.run()
				failure := w.judge.failure
				if failure == nil {
					continue
				}
				if !slices.ContainsFunc(f.by, func(p promise) bool {
					return promiseWords[p][0] == failure.Promise
				}) {
					t.Fatalf("seed %d: caught as %q: %s", seed, failure.Promise, failure.Detail)
				}
				t.Logf("seed %d: %s: %s", seed, failure.Promise,
					strings.SplitN(failure.Detail, "\n", 2)[0])
				return
			}
			t.Error("not caught")
		})
	}
}
