package cluster

import (
	"testing"
	"time"

	"penstock/cluster/ownership"
)

// Promise: a node that has taken a key over decides for it alone. Counters that the holder of
// before has kept, and sends when it is back, undo no reset, there and at the next holder.
func TestOldHolderSaysNothingNew(t *testing.T) {
	w := founded(t, 3, func(*ownership.Configuration) {}, five)
	key := w.key("n3", 0)
	for range 3 {
		w.take("n3", "five", key)
	}
	w.pass(time.Second)
	w.hearing(func(from, to string) bool { return (from == "n3") == (to == "n3") })
	w.take("n3", "five", key) // while its right lasts
	w.pass(4 * time.Second)
	d := w.take("n1", "five", key)
	if d.Remaining != 1 {
		t.Fatalf("the key was taken over: %+v, want 1 left", d)
	}
	by := d.Owner
	if d := w.check(by, Item{Limit: "five", Key: key, Op: OpReset})[0]; !d.Allowed {
		t.Fatalf("reset: %+v", d)
	}
	w.hearing(func(from, to string) bool { return true })
	for range 400 {
		w.pass(5 * time.Millisecond)
		d := w.check("n1", Item{Limit: "five", Key: key, Op: OpPeek})[0]
		if !d.Degraded && d.Remaining != 5 {
			t.Fatalf("%v after the cut: %+v; want all 5 left", w.now, d)
		}
	}
	if d := w.take("n1", "five", key); d.Owner != "n3" || d.Remaining != 4 {
		t.Errorf("in the end: %+v, want 4 left at n3", d)
	}
}
