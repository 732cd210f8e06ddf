package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/cluster/debts"
	"penstock/limiter"
)

// Promise: while a node that has joined waits for its copies, a check takes one call as before, and
// afterwards as well: of all that a member has given away, one check asks it in vain.
func TestKeysOnTheirWayTakeOneCall(t *testing.T) {
	const keys = 1000
	w := newWorld(t, 3, five)
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && c.To.ID == "n4" && len(m.Entries) > 0 {
			c.Answer = &Answer{Move: &MoveAnswer{}} // it takes nothing in
			return
		}
		c.Answer = deliver()
	}
	w.start("n4", 4)
	w.show(w.members(4), 0, "n1", "n2", "n3", "n4")
	w.pass(time.Second)
	if n := w.nodes["n4"].Copies().Held; n > 0 {
		t.Fatalf("the new node holds %d partitions", n)
	}
	asked := func(id string) (most int) {
		w.calls = 0
		for i := range keys {
			before := w.calls
			if d := w.take(id, "five", fmt.Sprint("k", i)); d.Degraded {
				t.Errorf("key %d at %s: %+v", i, id, d)
			}
			most = max(most, w.calls-before)
		}
		return most
	}
	for _, id := range []string{"n1", "n4"} {
		if most := asked(id); most != 1 {
			t.Errorf("while the copies are missing a check at %s takes %d calls", id, most)
		}
	}
	w.meet = nil
	w.pass(3 * time.Second)
	w.wantOneHolderEach("after the join")
	asked("n1") // one check learns of each giver that it has given
	if most := asked("n1"); most != 1 {
		t.Errorf("after the join a check takes %d calls", most)
	}
}

// keyGivenOn is a world of three that a fourth has joined, and a key that n4 has got from n2. No
// node has asked for anything since.
func keyGivenOn(t *testing.T) (w *world, key string) {
	w = newWorld(t, 3, five)
	before := w.nodes["n1"].View()
	w.start("n4", 4)
	w.show(w.members(4), 0, "n1", "n2", "n3", "n4")
	w.pass(3 * time.Second)
	for i := 0; ; i++ {
		key = w.key("n4", i)
		if before.Members[before.Owner(limiter.Hash(key))].ID == "n2" {
			return w, key
		}
	}
}

// Promise: a node that does not answer is missed by requests for what it holds, and by no others.
// Another one that has been asked nothing since the ring changed relies on the owner of before for
// one send, and for a minute.
func TestSilentOwnerOfBeforeIsNotReliedOn(t *testing.T) {
	w, key := keyGivenOn(t)
	r, it := w.nodes["n1"].view.Load(), &flight{hash: limiter.Hash(key)}
	now, later := r.formerOwner(w.now, it, 1), r.formerOwner(w.now.Add(formerFirst), it, 1)
	if now != r.Find("n2") || later != nobody {
		t.Errorf("it asks member %d first, want n2, and %d later", now, later)
	}
	w.meet = func(c *Call, deliver func() *Answer) {
		if c.To.ID == "n2" && len(c.Ask.Items) > 0 {
			w.Wait(c.Deadline)
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	if d := w.take("n1", "five", key); d.Degraded || d.Owner != "n4" {
		t.Errorf("%+v, want a decision of n4", d)
	}
}

// Promise: what a share has admitted is charged by the node that decides, also if the owner of
// before was asked for it in vain: that one holds the key no more, and has given nothing on of it.
func TestDebtsAreChargedByTheOwnerOfNow(t *testing.T) {
	w, key := keyGivenOn(t)
	n1 := w.nodes["n1"]
	n1.debts.ledger.Owe(&debts.Debt{
		Limit: n1.Limits()["five"], Key: key, Hash: limiter.Hash(key), Cost: 1, At: w.now,
		Report: ID{Origin: 5, Sequence: 1}, Doubt: (*debts.Doubt)(nil).With(2),
	})
	w.pass(time.Second)
	if left := w.remaining("n4", "five", key); left != 4 {
		t.Errorf("%d of 5 are left, and %d debts forgiven", left, n1.Stats().Forgiven.Load())
	}
}
