package cluster

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// Promise: what was given back or reset is not charged again by a member that had a copy before,
// and gets one again.
func TestForgottenCopiesDoNotComeBack(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	n1, n2 := w.nodes["n1"], w.nodes["n2"]
	limit := (*n1.inForce.Load())[five.Name].limit
	n1.parts.mu.Lock()
	defer n1.parts.mu.Unlock()
	key := ""
	for i := 0; key == ""; i++ {
		k := fmt.Sprint("k", i)
		if n1.parts.list[ring.Partition(limiter.Hash(k))].state == partNone {
			key = k
		}
	}
	p := uint16(ring.Partition(limiter.Hash(key)))
	sequence := uint64(1 << 40)
	say := func(c Copying) {
		sequence++
		c.Sequence = sequence
		m := Move{From: n2.boot, To: n1.boot, ID: "n2", Copying: c}
		n1.intake.applyLocked(n1.view.Load(), w.now, &m, new(MoveAnswer))
	}
	other := limiter.NewTable(limiter.TableConfig{})
	never := other.Entry(w.now, limit, key, limiter.Hash(key)).State
	other.Take(w.now, limit, key, limiter.Hash(key), 3)
	charged := other.Entry(w.now, limit, key, limiter.Hash(key))
	here := func() []byte {
		return n1.holder.table.Entry(w.now, limit, key, limiter.Hash(key)).State
	}
	say(Copying{Begin: []uint16{p}, Whole: []uint16{p}, Entries: []limiter.Entry{charged}})
	if !bytes.Equal(here(), charged.State) {
		t.Fatalf("a copy of which 3 are charged is %x instead of %x", here(), charged.State)
	}
	say(Copying{End: []uint16{p}})
	say(Copying{Begin: []uint16{p}, Whole: []uint16{p}}) // the key was reset: there is no entry
	if !bytes.Equal(here(), never) {
		t.Errorf("the copy of a key that was reset is %x", here())
	}
}
