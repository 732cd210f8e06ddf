package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: a node that stood still for longer than owners remember answers says so to its doors
// from the first instruction on, until all that came meanwhile has been read; one that stood still
// for less does not.
func TestNodeSaysThatItStoodStill(t *testing.T) {
	for name, still := range map[string]struct {
		lasts time.Duration
		old   bool
	}{
		"for longer than owners remember": {2200 * time.Millisecond, true},
		"not for that long":               {900 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, five)
			w.pass(20 * time.Second) // nodes are idle
			w.freeze("n1")
			w.pass(still.lasts)
			if got := w.nodes["n1"].StoodStill(); got != still.old {
				t.Errorf("in its first instruction: %v", got)
			}
			w.thaw("n1")
			for _, ms := range []time.Duration{0, 20, 400} {
				w.pass(ms * time.Millisecond)
				if got := w.nodes["n1"].StoodStill(); got != still.old {
					t.Errorf("%v ms after the last look: %v", int64(ms), got)
				}
			}
			if w.pass(oldFor); w.nodes["n1"].StoodStill() {
				t.Error("it is never over")
			}
		})
	}
}

// Promise: a node that has stopped has no ticks, and is not taken for one that stood still.
func TestStoppedNodeIsNotOld(t *testing.T) {
	var s stillness
	at := limiter.Instant(time.Hour)
	s.runs(at)
	if s.mayBeOld(at.Add(2*time.Second)) || !s.mayBeOld(at.Add(2*time.Second+1)) {
		t.Error("it counts from another instant than its last tick")
	}
	s.ends()
	if s.mayBeOld(at.Add(time.Hour)) {
		t.Error("a node without timers stands still")
	}
}
