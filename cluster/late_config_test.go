package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// uninformed has a node hear nothing of what members agree on, and keep what it has heard before.
func (w *world) uninformed(id string) {
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.Ask.Words != nil && (c.To.ID == id || w.caller == id) {
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
}

// Promise: nodes that join, no request failed. An asker that has not heard yet of the configuration
// that has a new owner is told who that is.
func TestAskerOfTheConfigurationBefore(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	w.start("n4", 4)
	w.uninformed("n3")
	w.show(w.members(4), 0, "n4", "n1", "n2")
	for range 20 {
		w.pass(10 * time.Millisecond)
		if w.nodes["n4"].Held() == 0 {
			continue
		}
		if w.nodes["n3"].View().Active() != 3 {
			t.Fatal("n3 has heard of n4")
		}
		w.wantRemaining("at who has not heard of n4", keys, 3, "n3")
	}
	if w.nodes["n4"].Held() == 0 {
		t.Fatal("n4 holds nothing, so there is nothing to ask it for")
	}
}

// Promise: nodes that leave, no request failed. An asker that has not heard yet that an owner and
// its heir have left asks who has what they had.
func TestAskerOfWhoHasLeft(t *testing.T) {
	w := newWorld(t, 4, five)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3", "n4")
	w.pass(time.Second)
	w.uninformed("n4")
	ms := w.members(4)
	ms[0].State, ms[1].State = StateLeaving, StateLeaving
	w.show(ms, 0, "n1", "n2", "n3")
	w.pass(300 * time.Millisecond)
	old, tried := w.nodes["n4"].View(), 0
	for i := range keys {
		key := fmt.Sprint("k", i)
		hash := limiter.Hash(key)
		if o := old.Members[old.Owner(hash)].ID; o != "n1" && o != "n2" || !w.nodes["n3"].Holds(hash) {
			continue
		}
		tried++
		if d := w.check("n4", Item{Limit: "five", Key: key, Op: OpPeek})[0]; d.Degraded || d.Owner != "n3" || d.Remaining != 3 {
			t.Fatalf("key %d: %+v", i, d)
		}
	}
	if tried < 10 {
		t.Fatalf("n3 has got only %d keys", tried)
	}
}
