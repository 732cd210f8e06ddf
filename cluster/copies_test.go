package cluster

import (
	"testing"
	"time"

	"penstock/ring"
)

// Promise: a node says how many of its partitions no other node knows, and how old what its copies
// lack is.
func TestCopiesAreCounted(t *testing.T) {
	w := newWorld(t, 2, five)
	w.pass(2 * time.Second)
	held := 0
	for _, id := range []string{"n1", "n2"} {
		c := w.nodes[id].copier.Copies()
		if held += c.Held; c.Unreplicated != 0 || c.Giving != 0 || c.Lag != 0 {
			t.Errorf("%s at rest: %+v", id, c)
		}
	}
	if held != ring.Partitions {
		t.Errorf("%d partitions are held, want %d", held, ring.Partitions)
	}
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.Ask.Move != nil && len(c.Ask.Move.Entries) > 0 {
			c.Err = ErrUnsent
			return
		}
		c.Answer = deliver()
	}
	w.take("n1", "five", w.key("n1", 0))
	w.pass(400 * time.Millisecond)
	if c := w.nodes["n1"].copier.Copies(); c.Lag < 200*time.Millisecond ||
		c.Lag > 500*time.Millisecond {
		t.Errorf("a change waits for a silent heir: %+v", c)
	}
	alone := newWorld(t, 1, five)
	alone.pass(time.Second)
	if c := alone.nodes["n1"].copier.Copies(); c.Unreplicated != c.Held ||
		c.Held != ring.Partitions {
		t.Errorf("alone: %+v", c)
	}
}

// Promise: no check waits longer than its deadline, nor for the copy of what it has charged.
func TestNoCopyIsWaitedForBeyondTheDeadline(t *testing.T) {
	sync := five
	sync.Name, sync.Sync = "sync", true
	w := newWorld(t, 2, sync)
	key := w.key("n1", 0)
	w.pass(time.Second)
	deadline, waited := w.now.Add(20*time.Millisecond), false
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.Ask.Move != nil && w.caller == "n1" && c.Ask.Move.Sequence == 0 {
			waited = true
			if c.Deadline > deadline || c.Ask.Deadline > deadline {
				t.Errorf("the copy is waited for %v longer than the deadline",
					time.Duration(max(c.Deadline, c.Ask.Deadline)-deadline))
			}
		}
		c.Answer = deliver()
	}
	out := make([]Decision, 1)
	r := Request{Items: []Item{{Limit: "sync", Key: key, Cost: 1}}, Deadline: deadline}
	if err := w.nodes["n1"].Check(&r, out); err != nil || !waited {
		t.Errorf("waited for a copy %t, error %v", waited, err)
	}
}
