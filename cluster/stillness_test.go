package cluster

import (
	"errors"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: a request delivered twice is charged once, also if the node that had it first stood
// still meanwhile, for longer than the owner remembers its answer. A request without an id, and
// what comes later, is served.
func TestWhatLayAtADoor(t *testing.T) {
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
			key := w.key("n2", 0)
			it := Item{Limit: "five", Key: key, Cost: 1, ID: ID{Origin: 7, Sequence: 1}}
			ask := func(id string, it Item) error {
				return w.nodes[id].Check(&Request{Items: []Item{it}}, make([]Decision, 1))
			}
			w.freeze("n1")
			if err := ask("n3", it); err != nil {
				t.Fatal(err)
			}
			w.pass(still.lasts)
			w.thaw("n1")
			for _, ms := range []time.Duration{0, 20, 400} {
				w.pass(ms * time.Millisecond)
				if err := ask("n1", it); errors.Is(err, ErrMayBeOld) != still.old {
					t.Errorf("%v ms after it goes on: %v", ms, err)
				}
			}
			if left := w.remaining("n2", "five", key); left != 4 {
				t.Errorf("%d of 5 are left, and one was asked for", left)
			}
			it.ID = ID{}
			if err := ask("n1", it); err != nil {
				t.Errorf("without an id: %v", err)
			}
			w.pass(oldFor)
			it.ID = ID{Origin: 7, Sequence: 2}
			if err := ask("n1", it); err != nil {
				t.Errorf("a moment later: %v", err)
			}
			if left := w.remaining("n2", "five", key); left != 2 {
				t.Errorf("%d of 5 are left, and three were asked for", left)
			}
		})
	}
}

// Promise: a node that has stopped has no ticks, and is not taken for one that stood still.
func TestWhoHasStoppedIsNotOld(t *testing.T) {
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
