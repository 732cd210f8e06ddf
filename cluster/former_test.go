package cluster

import (
	"fmt"
	"testing"
	"time"
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
