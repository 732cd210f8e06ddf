package cluster

import (
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// Promise: nodes that join, no request failed. Who has not heard that it should hold a partition
// refuses it, and while it is asked nobody decides; so it is not asked again and again, and gets
// what it should have as soon as it claims it.
func TestRefusedGiftWaitsForAClaim(t *testing.T) {
	w := newWorld(t, 1, five)
	const keys = 100
	w.spend(keys, "n1")
	ms := w.members(2)
	ms[1].State = StateJoining
	w.start("n2", 2)
	w.show(ms, 0, "n1", "n2")
	w.pass(time.Second)
	most, gifts := 0, map[uint16]int{} // by partition
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil {
			for _, p := range m.Gift {
				gifts[p]++
				most = max(most, gifts[p])
			}
		}
		c.Answer = deliver()
	}
	ms[1].State = StateActive
	w.show(ms, 0, "n1")
	w.pass(900 * time.Millisecond)
	if most != 1 || w.nodes["n1"].Held() != 4093 {
		t.Errorf("a partition was given %d times to who has not heard that it is ACTIVE, and n1 holds %d", most, w.nodes["n1"].Held())
	}
	w.show(ms, 0, "n2")
	w.pass(50 * time.Millisecond)
	if got, want := w.nodes["n2"].Held(), 4093/3; got < want {
		t.Errorf("%d partitions are n2's 50 ms after it has heard so", got)
	}
	w.pass(time.Second)
	w.wantOneHolderEach("a second later")
	w.wantRemaining("a second later", keys, 3, "n1", "n2")
}

// Promise: nodes that join, no request failed. Who takes itself for the owner, because it has not
// heard who has come, asks the others.
func TestOwnerHasNotHeardWhoHolds(t *testing.T) {
	w := newWorld(t, 2, five)
	ms := w.members(4)
	w.start("n4", 4)
	w.show([]Member{ms[0], ms[1], ms[3]}, 0, "n4", "n1", "n2")
	w.pass(2 * time.Second)
	w.start("n3", 3)
	w.show(ms, 0, "n1", "n2", "n4")
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && m.ID == "n3" && len(m.Claim) > 0 {
			c.Err = errSilent // nor does it learn from answers to its claims who knows better
			return
		}
		c.Answer = deliver()
	}
	w.show(ms[:3], 0, "n3") // it has not heard of n4
	w.pass(2 * time.Second)
	asked := 0
	for i := range 40 {
		key := w.key("n4", i)
		view := w.nodes["n3"].view.Load()
		if view.Owner(limiter.Hash(key)) != view.Self {
			continue
		}
		asked++
		if d := w.take("n3", "five", key); d.Degraded || d.Owner != "n4" {
			t.Errorf("%s at n3: %+v", key, d)
		}
	}
	if asked == 0 {
		t.Fatal("n3 takes itself for the owner of none of these keys")
	}
}

// Promise: nodes that join and leave, no request failed. Two who each take the other one for who
// decides, because they have heard different news, do not keep an asker from finding who does.
func TestAskerLeavesACircle(t *testing.T) {
	w := newWorld(t, 4, five)
	w.pass(time.Second)
	ms := w.members(4)
	ms[3].State = StateJoining // in the eyes of n3
	w.show(ms, 0, "n3")
	for i := range 20 {
		key := w.key("n4", i)
		view, k := w.nodes["n3"].view.Load(), ring.Partition(limiter.Hash(key))
		if view.Members[view.Owner(limiter.Hash(key))].ID != "n1" {
			continue
		}
		w.nodes["n1"].parts[k].hint, w.nodes["n2"].parts[k].hint = "n2", "n1"
		if d := w.take("n3", "five", key); d.Degraded || d.Owner != "n4" {
			t.Errorf("%s: %+v", key, d)
		}
		return
	}
	t.Fatal("n1 is never taken for the owner")
}
