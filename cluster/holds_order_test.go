package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// Promise: what an heir hears in several messages, it hears with ends of holds before the last of
// the entries, and beginnings after them: if it takes over in between, it believes less to be free
// than is, never that something is free twice.
func TestEndsOfHoldsTravelFirst(t *testing.T) {
	w := newWorld(t, 2, hundred)
	key := w.key("n2", 0)
	ended, _ := w.reserve("n2", "hundred", key, 10, time.Minute)
	w.pass(2 * time.Second)
	w.settleHold("n2", ended, 5)
	begun, _ := w.reserve("n2", "hundred", key, 20, time.Minute)
	for i, taken := 0, 0; taken < 3*copiesAtOnce; i++ {
		if k := fmt.Sprint("other ", i); w.nodes["n2"].holder.Holds(limiter.Hash(k)) {
			w.take("n2", "hundred", k)
			taken++
		}
	}
	first, last, end, beginning, messages := -1, -1, -1, -1, 0
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && m.ID == "n2" {
			if len(m.Entries) > 0 && first < 0 {
				first = messages
			}
			if len(m.Entries) > 0 {
				last = messages
			}
			for _, h := range m.Holds {
				switch {
				case ID(h.Hold.ID) == ended.Hold.ID && h.Hold.State == limiter.HoldSettled:
					end = messages
				case ID(h.Hold.ID) == begun.Hold.ID:
					beginning = messages
				}
			}
			messages++
		}
		c.Answer = deliver()
	}
	w.pass(2 * time.Second)
	if last < first+2 || end != first || beginning < last {
		t.Errorf("entries travel in messages %d to %d, the end of a hold in %d, the beginning of "+
			"another in %d", first, last, end, beginning)
	}
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
	n1, n2 := w.nodes["n1"], w.nodes["n2"]
	n2.parts.mu.Lock()
	r := n2.view.Load()
	p := r.peers[r.Find("n1")]
	n2.parts.list[ring.Partition(limiter.Hash(key))].slot = slot{to: p}
	for p.out.due = true; ; p.out.last = nil {
		m := n2.copier.composeLocked(w.now, r, p)
		if m == nil && !p.out.looking {
			break
		} else if m == nil {
			continue
		}
		n1.parts.mu.Lock()
		n1.intake.applyLocked(n1.view.Load(), w.now, m, new(MoveAnswer))
		n1.parts.mu.Unlock()
		if len(m.Entries) > 0 {
			break // and dies
		}
	}
	n2.parts.mu.Unlock()
	if h, _ := n1.holder.book.Get(limiter.HoldID(hold.Hold.ID)); h.State != limiter.HoldSettled {
		t.Errorf("the heir has the charge of the hold, and the hold as %+v", h)
	}
}
