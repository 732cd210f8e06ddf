package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/cluster/ownership"
)

// Promise: a member that answers again is not reported as one that cannot be reached, also when the
// configuration has changed meanwhile: most voters that say so have it step down.
func TestReachedAgainIsSaid(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	victim := w.nodes["n1"].right.roll.Load().boot
	cut, reported := true, false
	w.meet = func(c *Call, deliver func() *Answer) {
		from := w.caller
		if cut && (from == "n1" && c.To.ID == "n2" || from == "n2" && c.To.ID == "n1") {
			c.Err = errSilent
			return
		}
		if c.Ask.Words != nil && from == "n2" {
			for _, said := range c.Ask.Words.Said {
				if r, renews := said.(ownership.Renew); renews {
					reported = slices.Contains(r.Unreached, victim)
				}
			}
		}
		c.Answer = deliver()
	}
	w.pass(3 * time.Second)
	if !reported {
		t.Fatal("n2 has not reported that n1 does not answer")
	}
	w.start("n4", 4)
	w.show(w.members(4), 0, "n1", "n2", "n3", "n4")
	for range 100 {
		if w.pass(10 * time.Millisecond); len(w.nodes["n2"].right.Agreed().Members) == 4 {
			break
		}
	}
	if len(w.nodes["n2"].right.Agreed().Members) != 4 {
		t.Fatal("n4 has not been admitted")
	}
	cut = false
	w.pass(time.Second)
	if reported {
		t.Error("n1 answers, and n2 reports that it does not")
	}
}

// Promise: a node that leaves waits for copies that are still needed, and for no others: the last
// other member ends those that it has given to one that is gone, and to the leaver.
func TestLeaverOfTwoIsSoonGone(t *testing.T) {
	for _, members := range []int{2, 3} {
		w := newWorld(t, members, five)
		w.spend(50, "n1", "n2")
		w.pass(time.Second)
		if members == 3 {
			w.kill("n3")
			w.pass(20 * time.Millisecond)
		}
		ms := w.members(2)
		ms[1].State = StateLeaving
		w.show(ms, 0, "n1", "n2")
		w.pass(2 * time.Second)
		if n := w.nodes["n2"]; n.agreed.state.Ending() != ownership.Left {
			t.Errorf("of %d: n2 leaves since two seconds, and its line has ended by %v", members,
				n.agreed.state.Ending())
		}
		w.wantRemaining("by the one that is left", 50, 3, "n1")
	}
}

// Promise: a member that need not keep a copy any longer has none, also if the last changes come
// with that word: else it would wait, when it leaves, for a word that was said already.
func TestEndedCopiesStayEnded(t *testing.T) {
	w := newWorld(t, 3, five)
	w.spend(500, "n1", "n2", "n3")
	w.pass(time.Second)
	slow := w.now.Add(350 * time.Millisecond) // as long, n1 hears nothing of copies from n2
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && m.ID == "n2" && c.To.ID == "n1" && w.now < slow {
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	charge := func() {
		for i := range 500 {
			w.take("n2", five.Name, fmt.Sprint("k", i))
		}
		w.pass(120 * time.Millisecond)
	}
	charge()
	charge()
	ms := w.members(4)
	w.start("n4", 4)
	w.show(ms, 0, "n1", "n2", "n3", "n4")
	w.pass(200 * time.Millisecond)
	w.meet = nil
	w.pass(2 * time.Second)
	n1, n2 := w.nodes["n1"], w.nodes["n2"]
	for p := range n1.parts.list {
		if n1.parts.list[p].copyOf != n2.boot {
			continue
		}
		if pt := &n2.parts.list[p]; pt.state != partHeld || pt.to == nil || pt.to.id != "n1" {
			t.Fatalf("n1 keeps a copy of partition %d for n2, which is %v there", p, pt.state)
		}
	}
}
