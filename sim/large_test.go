package sim

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// The promise: a node that is cut off holds nothing any more before another node holds it. That is
// so in small clusters, and in those in which asking all nodes takes long. In the end the others
// hold everything again, without the node that is cut off.
func TestNobodyTakesOverBeforeTheOwnerHasStopped(t *testing.T) {
	for _, nodes := range []int{3, 20, 130} {
		seeds := uint64(3)
		if nodes > 100 {
			seeds = 1
		}
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			t.Parallel()
			if testing.Short() && nodes > 100 {
				t.Skip("too many nodes for a short test")
			}
			for seed := range seeds {
				p := &plan{
					seed: seed, sky: outage, machines: make([]machinePlan, nodes),
					sweepEvery: 5 * time.Second,
					weather: weather{
						near: 300 * time.Microsecond, mean: 200 * time.Microsecond,
						far: 20 * time.Millisecond, inOrder: true,
					},
					length: time.Second,
					limits: []rule{
						{Spec: limiter.Spec{
							Name: "a", Algorithm: limiter.GCRA, Limit: 10,
							Per: time.Second, Burst: 30,
						}},
					},
				}
				for i := range p.machines {
					p.machines[i].clock.start = 1_700_000_000_000_000_000
				}
				at := time.Second + time.Duration(seed)*37*time.Millisecond
				for i := 1; i < nodes; i++ {
					p.faults = append(p.faults, fault{at: at, kind: cuts, node: 0, peer: i},
						fault{at: at, kind: cuts, node: i, peer: 0})
				}
				w := newWorld(p, nil)
				lost := w.machines[0].process
				var stopped, taken time.Duration
				var look func()
				look = func() {
					if stopped == 0 && w.now > at && !lost.node.Deciding() {
						stopped = w.now
					}
					if both := heldTwice(w); both >= 0 {
						t.Fatalf("seed %d: %v after the cut two nodes hold partition %d", seed,
							w.now-at, both)
					}
					if taken == 0 && w.now > at && stopped != 0 && allHeld(w) {
						taken = w.now
					}
					if w.now < at+8*time.Second {
						w.at(w.now+20*time.Millisecond, look)
					}
				}
				w.at(0, look)
				w.run()
				if f := w.judge.failure; f != nil {
					t.Fatalf("seed %d: %s: %s", seed, f.Promise, f.Detail)
				}
				if stopped == 0 || taken == 0 {
					t.Fatalf("seed %d: stopped after %v, taken over after %v", seed, stopped-at,
						taken-at)
				}
				t.Logf("seed %d: stopped after %v, taken over after %v", seed, stopped-at, taken-at)
			}
		})
	}
}

// heldTwice is a partition that two nodes hold, or -1.
func heldTwice(w *world) int {
	var by [ring.Partitions]bool
	for _, m := range w.machines {
		for p := range by {
			if m.process.node.Holds(uint64(p)) { // a hash below their number is its own partition
				if by[p] {
					return p
				}
				by[p] = true
			}
		}
	}
	return -1
}

func allHeld(w *world) bool {
	held := 0
	for p := range uint64(ring.Partitions) {
		for _, m := range w.machines {
			if m.process.node.Holds(p) {
				held++
			}
		}
	}
	return held == ring.Partitions
}
