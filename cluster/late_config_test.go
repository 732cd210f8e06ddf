package cluster

import (
	"testing"
	"time"
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

// Promise: nodes that join, no request failed. As long as a member has not heard of the
// configuration that has a new owner, that one is given nothing: the member may go on without those
// that are gone while its right lasts (R11). Until then the holders
// go on answering.
func TestNewOwnerWaitsForTheLastToHear(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	w.start("n4", 4)
	w.uninformed("n3")
	w.show(w.members(4), 0, "n4", "n1", "n2")
	for range 20 {
		w.pass(10 * time.Millisecond)
		if held := w.nodes["n4"].parts.Held(); held != 0 {
			t.Fatalf("n4 holds %d partitions, and n3 has not heard of it", held)
		}
		w.wantRemaining("at who has not heard of n4", keys, 3, "n3")
	}
	if w.nodes["n4"].View().Active() != 4 || w.nodes["n3"].View().Active() != 3 {
		t.Fatal("n4 is not there, or n3 has heard of it")
	}
	w.meet = nil
	w.pass(time.Second)
	if w.nodes["n4"].parts.Held() == 0 {
		t.Fatal("all have heard of n4, and it holds nothing")
	}
	w.wantRemaining("in the end", keys, 3, "n1", "n2", "n3", "n4")
}

// Promise: nodes that leave, no request failed, also at a member that has not heard of it.
func TestAskerOfThoseThatLeave(t *testing.T) {
	w := newWorld(t, 4, five)
	const keys = 300
	w.spend(keys, "n1", "n2", "n3", "n4")
	w.pass(time.Second)
	w.uninformed("n4")
	ms := w.members(4)
	ms[0].State, ms[1].State = StateLeaving, StateLeaving
	w.show(ms, 0, "n1", "n2", "n3")
	w.pass(300 * time.Millisecond)
	if w.nodes["n3"].View().Active() != 2 || w.nodes["n4"].View().Active() != 4 {
		t.Fatal("n3 has not heard that two leave, or n4 has")
	}
	w.wantRemaining("at who has not heard", keys, 3, "n4")
}
