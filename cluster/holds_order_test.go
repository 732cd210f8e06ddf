package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// Promise: what an heir hears in several messages, it hears with the end of each hold beside the
// entry that has its charge, and with beginnings after all entries. If it takes over in between,
// nothing that was charged is forgotten, or charged twice.
func TestEndsOfHoldsTravelWithTheirEntries(t *testing.T) {
	w := newWorld(t, 2, hundred)
	key := w.key("n2", 0)
	var ended []Item
	for i := range 5 {
		hold, _ := w.reserve("n2", "hundred", w.key("n2", i), 10, time.Minute)
		ended = append(ended, hold)
	}
	w.pass(2 * time.Second)
	for _, hold := range ended {
		w.settleHold("n2", hold, 5)
	}
	begun, _ := w.reserve("n2", "hundred", key, 20, time.Minute)
	for i, taken := 0, 0; taken < 3*copiesAtOnce; i++ {
		if k := fmt.Sprint("other ", i); w.nodes["n2"].holder.Holds(limiter.Hash(k)) {
			w.take("n2", "hundred", k)
			taken++
		}
	}
	// in which message an entry of a key travels, and a hold
	entries, holds, last := map[string]int{}, map[ID]int{}, -1
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && m.ID == "n2" && len(m.Entries)+len(m.Holds) > 0 {
			last++
			for _, e := range m.Entries {
				entries[e.Key] = last
			}
			for _, h := range m.Holds {
				holds[ID(h.Hold.ID)] = last
			}
		}
		c.Answer = deliver()
	}
	w.pass(2 * time.Second)
	apart := 0
	for _, hold := range ended {
		if holds[hold.Hold.ID] != entries[hold.Key] {
			t.Errorf("the end of a hold travels in message %d, and its charge in %d",
				holds[hold.Hold.ID], entries[hold.Key])
		}
		if entries[hold.Key] > 0 {
			apart++
		}
	}
	if apart == 0 || last < 2 || holds[begun.Hold.ID] != last {
		t.Errorf("of %d messages none but the first has a charge, or the beginning is in %d",
			last+1, holds[begun.Hold.ID])
	}
}

// looksFor has n2 look through its table for what n1 is to have of the partition of a key, and n1
// take in what n2 says of it, until n2 dies with its first entries, or all is said. It returns how
// many entries that were.
func (w *world) looksFor(key string, dies bool) (said int) {
	n1, n2 := w.nodes["n1"], w.nodes["n2"]
	n2.parts.mu.Lock()
	defer n2.parts.mu.Unlock()
	r := n2.view.Load()
	p := r.peers[r.Find("n1")]
	n2.parts.list[ring.Partition(limiter.Hash(key))].slot = slot{to: p}
	for p.out.due = true; said == 0 || !dies; p.out.last = nil {
		m := n2.copier.composeLocked(w.now, r, p)
		if m == nil && !p.out.looking {
			break
		} else if m == nil {
			continue
		}
		said += len(m.Entries)
		n1.parts.mu.Lock()
		n1.intake.applyLocked(n1.view.Load(), w.now, m, new(MoveAnswer))
		n1.parts.mu.Unlock()
	}
	return said
}

// heirsHold is a hold as n1 knows it.
func (w *world) heirsHold(it Item) limiter.Hold {
	h, _ := w.nodes["n1"].holder.book.Get(limiter.HoldID(it.Hold.ID))
	return h
}

// Promise: what a hold has charged is charged once, also if its holder dies between the look
// through the table that has found the charge and the next one at what has changed.
func TestEndsOfHoldsTravelWithALook(t *testing.T) {
	w := newWorld(t, 2, hundred)
	key := w.key("n2", 0)
	w.take("n2", "hundred", key)
	hold, _ := w.reserve("n2", "hundred", key, 10, time.Minute)
	w.pass(2 * time.Second)
	w.settleHold("n2", hold, 4)
	w.looksFor(key, true)
	if h := w.heirsHold(hold); h.State != limiter.HoldSettled {
		t.Errorf("the heir has the charge of the hold, and the hold as %+v", h)
	}
}

// Promise: what was charged is not forgotten if its holder dies between a look through the table
// for other keys and the next one at what has changed. The end of a hold is not told before its
// charge.
func TestEndsOfHoldsDoNotTravelWithALookForOthers(t *testing.T) {
	w := newWorld(t, 2, hundred)
	key, other := w.key("n2", 0), w.key("n2", 1)
	hold, _ := w.reserve("n2", "hundred", key, 10, time.Minute)
	w.take("n2", "hundred", other)
	w.pass(2 * time.Second)
	w.settleHold("n2", hold, 10)
	if said := w.looksFor(other, false); said == 0 {
		t.Fatal("the look has found nothing")
	}
	if h := w.heirsHold(hold); h.State != limiter.HoldOpen {
		t.Errorf("the heir has the hold as %+v, and no entry with its charge", h)
	}
}

// Promise: of the ends that are still to be told, a look tells those of the keys that it has just
// read, and no others of the same partition.
func TestALookTellsTheEndsOfWhatItHasRead(t *testing.T) {
	o := new(outbox)
	o.addEndsOf([]waitingEntry{{Entry: limiter.Entry{Key: "read"}}}, []limiter.Hold{
		{Key: "read", State: limiter.HoldSettled}, {Key: "not yet", State: limiter.HoldRanOut},
	})
	if len(o.settled) != 1 || o.settled[0].Key != "read" {
		t.Errorf("told are the ends %+v", o.settled)
	}
}

// Promise: what a hold has charged is charged once, also if its holder dies after a copy beside
// those in order has brought the charge of that hold for the sake of another request.
func TestEndsOfHoldsTravelBesideTheOrder(t *testing.T) {
	spec := hundred
	spec.Sync = true
	for _, waits := range []string{"for the next tick", "in the outbox", "on its way"} {
		w := newWorld(t, 2, spec)
		key, settles := w.key("n2", 0), false
		hold, _ := w.reserve("n2", "hundred", key, 10, 5*time.Second)
		w.pass(2 * time.Second)
		w.meet = func(c *Call, deliver func() *Answer) { // nothing that is in order reaches n1
			switch m := c.Ask.Move; {
			case m != nil && m.ID == "n2" && m.Sequence != 0:
				c.Err = fmt.Errorf("silence")
			case settles && m != nil && m.ID == "n2":
				c.Answer = &Answer{Move: &MoveAnswer{}}
			default:
				c.Answer = deliver()
			}
		}
		if waits == "in the outbox" {
			n2 := w.nodes["n2"]
			n2.parts.mu.Lock()
			// with something else
			n2.copier.keepers.outboxLocked(n2.view.Load().peers[0]).busy = true
			n2.parts.mu.Unlock()
		}
		settles = true
		w.settleHold("n2", hold, 4)
		settles = false
		if waits != "for the next tick" {
			w.pass(150 * time.Millisecond)
		}
		if d := w.take("n2", "hundred", key); !d.Allowed || d.Degraded {
			t.Fatalf("%s: the copy is not confirmed: %+v", waits, d)
		}
		if h := w.heirsHold(hold); h.State != limiter.HoldSettled {
			t.Errorf("%s: the heir has the charge of the hold, and the hold as %+v", waits, h)
		}
		w.meet = nil
		w.kill("n2")
		w.pass(8 * time.Second)
		if left := w.remaining("n1", "hundred", key); left != 95 {
			t.Errorf("%s: %d of 100 are left, 4 were settled and 1 taken", waits, left)
		}
	}
}
