package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// lacks has a node hold a partition of which counters were forgotten.
func (w *world) lacks(id, key string) {
	n := w.nodes[id]
	n.mu.Lock()
	defer n.mu.Unlock()
	p := ring.Partition(limiter.Hash(key))
	n.parts[p].copyOf = 0
	n.beginLocked(w.now, p, true)
	n.parts[p].copyOf = n.boot
	n.parts[p].copied = copyWanted // a new holder begins its copies after that
	n.dueLocked(&n.parts[p])
}

// Promise: a takeover without a copy is marked until a window has passed, also when the key changes
// hands meanwhile, and no longer. What is marked is that key, with all that may be forgotten.
func TestForgottenIsMarked(t *testing.T) {
	spec := limiter.Spec{Name: "minute", Algorithm: limiter.FixedWindow, Limit: 40, Per: time.Minute}
	w := newWorld(t, 3, spec)
	w.pass(time.Second)
	key, other := w.key("n1", 0), w.key("n2", 0)
	want := func(when string, marked bool) {
		t.Helper()
		for _, n := range []string{"n2", "n3"} {
			if d := w.take(n, "minute", key); d.Degraded != marked || marked && d.Bound != 40 {
				t.Errorf("%s, by %s: %+v; marked should be %t", when, n, d, marked)
			}
			if d := w.take(n, "minute", other); d.Degraded {
				t.Errorf("%s, another key: %+v", when, d)
			}
		}
	}
	want("before", false)
	w.lacks("n1", key)
	want("after the takeover", true)
	w.pass(10 * time.Second)
	ms := w.members(3)
	ms[0].State = StateLeaving
	w.show(ms, 0, "n1", "n2", "n3")
	w.pass(3 * time.Second)
	if w.nodes["n1"].Held() != 0 {
		t.Fatal("n1 still holds something")
	}
	want("after a gift", true)
	w.pass(45 * time.Second)
	want("within the window", true)
	w.pass(5 * time.Second)
	want("after the window", false)
}
