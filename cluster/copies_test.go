package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
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

// Promise: what an heir has to have of a request is no longer than the request, also if a client
// gives all of its items the same id.
func TestSyncCopiesTellAnAnswerOnce(t *testing.T) {
	spec := five
	spec.Name, spec.Sync = "sync", true
	w := newWorld(t, 2, spec)
	w.pass(time.Second)
	var items []Item
	for i := 0; len(items) < MaxItems; i++ {
		if key := fmt.Sprint(i); w.nodes["n1"].View().Owns(limiter.Hash(key)) {
			id := ID{Origin: 1, Sequence: 1}
			items = append(items, Item{Limit: "sync", Key: key, Cost: 1, ID: id})
		}
	}
	most := 0
	w.meet = func(c *Call, deliver func() *Answer) {
		decisions := 0
		if m := c.Ask.Move; m != nil {
			for _, x := range m.Taken {
				decisions += len(x.Decisions)
			}
		}
		most = max(most, decisions)
		c.Answer = deliver()
	}
	request := Request{Items: items, Atomic: true}
	if err := w.nodes["n1"].Check(&request, make([]Decision, MaxItems)); err != nil {
		t.Fatal(err)
	}
	if most != MaxItems {
		t.Errorf("%d decisions in a message about %d items", most, MaxItems)
	}
}

// Promise: `replication: sync`: 0 extra, however large a request is. What an heir has to have comes
// in messages that it reads.
func TestSyncCopiesTravelInParts(t *testing.T) {
	spec := five
	spec.Name, spec.Sync, spec.OnError = "sync", true, limiter.ErrorDeny
	w := newWorldOf(t, limiter.TableConfig{Bytes: 16 << 20}, 2, spec)
	w.pass(time.Second)
	var items []Item
	for i := 0; len(items) < MaxItems; i++ {
		key := fmt.Sprintf("%0*d", MaxKey, i)
		if w.nodes["n1"].View().Owns(limiter.Hash(key)) {
			items = append(items, Item{Limit: "sync", Key: key, Cost: 1})
		}
	}
	w.meet = func(c *Call, deliver func() *Answer) {
		size := 0
		if m := c.Ask.Move; m != nil && m.Sequence == 0 {
			for _, e := range m.Entries {
				size += len(e.Key) + len(e.State)
			}
		}
		if size > copyBytes+2*MaxKey {
			t.Errorf("a copy of %d bytes in one message", size)
		}
		c.Answer = deliver()
	}
	for i, d := range w.check("n1", items...) {
		if !d.Allowed || d.Degraded {
			t.Fatalf("item %d: %+v", i, d)
		}
	}
	w.kill("n1")
	w.pass(3 * time.Second)
	for i := range items {
		items[i].Op, items[i].Cost = OpPeek, 0
	}
	for i, d := range w.check("n2", items...) {
		if d.Remaining != 4 {
			t.Fatalf("item %d after the death of the owner: %+v", i, d)
		}
	}
}
