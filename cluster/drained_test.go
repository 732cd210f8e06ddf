package cluster

import (
	"fmt"
	"testing"
	"time"
)

// Promise: a node that was drained goes on answering by asking the members that there are, also
// when all are others than those of which it was one.
func TestWhoWasDrainedFollowsTheMembers(t *testing.T) {
	w := founded(t, 3, secretOf(0xfeedfacecafebeef), five)
	const keys = 60
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	ms := w.members(3)
	ms[0].State = StateLeaving
	w.show(ms, 0, "n1", "n2", "n3")
	for w.nodes["n1"].Held() > 0 {
		w.pass(10 * time.Millisecond)
	}
	w.pass(time.Second)
	w.start("n4", 4)
	w.start("n5", 5)
	ms = append(ms, w.members(5)[3:]...)
	w.show(ms, 0, "n1", "n2", "n3", "n4", "n5")
	w.pass(3 * time.Second)
	for i := 1; i <= 2; i++ {
		ms[i].State = StateLeaving
	}
	w.show(ms, 0, "n1", "n2", "n3", "n4", "n5")
	w.leaves("n2")
	w.leaves("n3")
	w.show(append(ms[:1:1], ms[3:]...), 0, "n1", "n4", "n5")
	w.pass(time.Second)
	if a, b := w.nodes["n1"].View(), w.nodes["n4"].View(); a.RingHash() != b.RingHash() {
		t.Errorf("the drained node goes by %v, a member by %v", a.Members, b.Members)
	}
	var items []Item
	for i := range 3 {
		items = append(items, Item{Limit: "five", Key: fmt.Sprint("k", i), Cost: 1})
	}
	out, _ := w.takeAll("n1", items...)
	for i, d := range out {
		if d.Degraded || d.Remaining != 2 {
			t.Errorf("key %d, with others: %+v", i, d)
		}
	}
	for i := 3; i < keys; i++ {
		if d := w.take("n1", "five", fmt.Sprint("k", i)); d.Degraded || d.Remaining != 2 {
			t.Errorf("key %d: %+v", i, d)
		}
	}
}

// Promise: as soon as a node has left it goes by what gossip said last, also if gossip says nothing
// more: a member that came meanwhile is one.
func TestWhoHasLeftGoesByGossip(t *testing.T) {
	w := founded(t, 3, copiesOf(1), five)
	ms := w.members(4)
	ms[0].State = StateLeaving
	w.show(ms, 0, "n1") // n4 is no member of the configuration that n1 knows
	w.show(ms[:3], 0, "n2", "n3")
	if state := w.nodes["n1"].View().Members[3].State; state == StateActive {
		t.Fatalf("n4 is %v before n1 has left", state)
	}
	for w.nodes["n1"].Held() > 0 {
		w.pass(10 * time.Millisecond)
	}
	w.pass(time.Second)
	if state := w.nodes["n1"].View().Members[3].State; state != StateActive {
		t.Errorf("n4 is %v after n1 has left, want active", state)
	}
}
