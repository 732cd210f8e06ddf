package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: an owner that was paused never serves stale. The answers to what it asked before it was
// paused say nothing when it goes on: others may have been told the same since.
func TestClaimOfWhoWasStoppedIsOld(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 100
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	n2 := w.nodes["n2"]
	claims := 0
	w.meet = func(c *Call, deliver func() *Answer) {
		c.Answer = deliver()
		if m := c.Ask.Move; m == nil || m.ID != "n2" || len(m.Claim) == 0 {
			return
		}
		if claims++; claims != 2 { // both have said that they hold nothing of it
			return
		}
		w.freeze("n2")
		w.pass(silence + time.Second)
		w.thaw("n2")
	}
	n2.Relinquish()
	n2.parts.mu.Lock()
	n2.claims.tendLocked()
	n2.parts.mu.Unlock()
	w.settle()
	if claims < 2 {
		t.Fatalf("%d claims", claims)
	}
	if _, many := w.holders(); many > 0 {
		t.Errorf("%d partitions have two holders when n2 goes on", many)
	}
	w.pass(2 * time.Second)
	w.wantOneHolderEach("after it went on")
	// marked or not: of what was free when it was stopped, others have begun with no whole copy
	for i := range keys {
		if d := w.check("n1",
			Item{Limit: "five", Key: fmt.Sprint("k", i), Op: OpPeek})[0]; d.Remaining != 3 {
			t.Fatalf("key %d: %+v", i, d)
		}
	}
}

// Promise: a node that leaves takes no count along. A node that has stopped takes in no copies,
// which it would not write down any more, and says so to the sender.
func TestWhoHasStoppedTakesNothingIn(t *testing.T) {
	w := newWorld(t, 2, five)
	w.pass(time.Second)
	n2 := w.nodes["n2"]
	l := n2.Limits()["five"]
	key := w.key("n2", 0)
	w.take("n1", "five", key)
	e := n2.holder.table.Entry(w.now, l, key, limiter.Hash(key))
	e.Key = key
	n2.Stop()
	for _, m := range []Move{
		{Copying: Copying{Sequence: 1 << 40, Begin: []uint16{7}, Entries: []limiter.Entry{e}}},
		{Copying: Copying{Entries: []limiter.Entry{e}}},
	} {
		m.From, m.To, m.ID = w.nodes["n1"].boot, n2.boot, "n1"
		before := n2.stats.Copied.Load()
		a := n2.Deliver(&Ask{Hop: 1, Deadline: w.now.Add(time.Second), Move: &m})
		if a.Move != nil && a.Move.Applied || n2.stats.Copied.Load() != before {
			t.Errorf("sequence %d: %+v, and %d copies", m.Sequence, a.Move,
				n2.stats.Copied.Load()-before)
		}
	}
}

// Promise: a name is its member's. A process that was stopped, and may have been replaced since,
// says of no process of its name that it is the member, itself included.
func TestWhoWasStoppedIsSureOfNoName(t *testing.T) {
	w := founded(t, 3, copiesOf(1), five)
	w.pass(time.Second)
	n1, n3 := w.nodes["n1"], w.nodes["n3"]
	if !n1.Membership().Has(n3.boot) || !n3.Membership().Has(n3.boot) {
		t.Error("a member is none, while all is well")
	}
	w.freeze("n3")
	w.pass(3 * time.Second)
	if n3.Membership().Has(n3.boot) {
		t.Error("a member that was stopped goes by what it had heard before")
	}
	if n1.Membership().Has(n3.boot) || !n1.Membership().Has(n1.boot) {
		t.Error("a member that was replaced is one in the eyes of another")
	}
}

// Promise: what a hold was settled for just before its owner was stopped is charged once, also if
// the key was charged while another node decided.
func TestSettledBeforeAStopIsCharged(t *testing.T) {
	w := founded(t, 3, copiesOf(1), ten)
	w.pass(time.Second)
	key := w.key("n3", 0)
	settle, d := w.reserve("n1", "ten", key, 3, time.Hour)
	if !d.Allowed {
		t.Fatalf("%+v", d)
	}
	w.pass(time.Second)
	settle.Cost = 3
	if d := w.check("n3", settle)[0]; d.Remaining != 7 {
		t.Fatalf("settled: %+v", d)
	}
	w.freeze("n3")
	w.pass(2 * time.Second)
	if d := w.check("n1", Item{Limit: "ten", Key: key, Cost: 4})[0]; d.Remaining != 3 {
		t.Errorf("while the owner is stopped: %+v; want 3 left", d)
	}
	w.thaw("n3")
	w.pass(3 * time.Second)
	for _, id := range []string{"n1", "n2", "n3"} {
		d := w.check(id, Item{Limit: "ten", Key: key, Op: OpPeek})[0]
		if d.Remaining != 3 || d.Degraded {
			t.Errorf("at %s, when it goes on: %+v; want 3 left", id, d)
		}
	}
}
