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
	w := newWorld(t, 3, five, hundred)
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
	say(Copying{Entries: []limiter.Entry{charged}})
	say(Copying{End: []uint16{p}})
	beside := (*n1.inForce.Load())[hundred.Name].limit
	other.Take(w.now, beside, key, limiter.Hash(key), 1)
	say(Copying{Lent: []uint16{p}, Entries: []limiter.Entry{
		other.Entry(w.now, beside, key, limiter.Hash(key)),
	}})
	if !bytes.Equal(here(), never) {
		t.Errorf("beside a copy that was lent, a key that was reset is %x", here())
	}
}

// Promise: what the holder of a key has charged when a hold was settled, just before it stopped,
// is charged by the next one as soon as it is told so: no more, and no less.
func TestLateSettlementIsCharged(t *testing.T) {
	for _, charged := range []int64{0, 20} { // by the next holder, before it is told
		w := newWorld(t, 3, hundred)
		w.pass(time.Second)
		n1, n2 := w.nodes["n1"], w.nodes["n2"]
		limit, key := (*n1.inForce.Load())[hundred.Name].limit, w.key("n1", 0)
		hash := limiter.Hash(key)
		hold := limiter.Hold{
			ID: limiter.HoldID{Origin: 1, Sequence: 2}, Limit: limit, Key: key, Units: 3,
			Deadline: w.now.Add(time.Minute), State: limiter.HoldOpen,
		}
		n1.holder.book.Import(w.now, &hold)
		if charged > 0 {
			w.check("n1", Item{Limit: limit.Name, Key: key, Cost: charged})
		}
		stopped := limiter.NewTable(limiter.TableConfig{})
		stopped.Take(w.now, limit, key, hash, 3)
		hold.State, hold.Units, hold.Used = limiter.HoldSettled, 0, 3
		n1.parts.mu.Lock()
		m := Move{From: n2.boot, To: n1.boot, ID: "n2", Copying: Copying{
			Sequence: 1 << 40,
			Entries:  []limiter.Entry{stopped.Entry(w.now, limit, key, hash)},
			Holds:    []HoldCopy{{Hold: hold}},
		}}
		n1.intake.applyLocked(n1.view.Load(), w.now, &m, new(MoveAnswer))
		n1.parts.mu.Unlock()
		if got := w.remaining("n1", limit.Name, key); got != 100-3-charged {
			t.Errorf("%d are left of 100 when 3 and %d are charged", got, charged)
		}
	}
}
