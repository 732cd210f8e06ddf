package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
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
