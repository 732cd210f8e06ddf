package cluster

import (
	"bytes"
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: what has changed last before a gift is in all copies if the gift is refused: the member
// that is given the partition next may be one of those.
func TestRefusedGiftsAreInAllCopies(t *testing.T) {
	w := founded(t, 3, copiesOf(2), five)
	key := ""
	for i := 0; key == ""; i++ { // of n1, and of n4 when that is there
		if k := w.key("n1", i); w.view("n1", w.members(4)).Members[w.view("n1",
			w.members(4)).Owner(limiter.Hash(k))].ID == "n4" {
			key = k
		}
	}
	w.take("n1", "five", key)
	w.pass(time.Second)
	n1 := w.nodes["n1"]
	hash := limiter.Hash(key)
	p, l := uint16(n1.parts.partition(hash)), (*n1.limits.Load())["five"]
	refused, charged := 0, false
	w.meet = func(c *Call, deliver func() *Answer) {
		m := c.Ask.Move
		if m == nil || m.ID != "n1" || c.To.ID != "n4" {
			c.Answer = deliver()
			return
		}
		if len(m.Gift) > 0 {
			refused++
			gift := m.Gift
			m.Gift = nil
			a := deliver().Move
			m.Gift, a.Refused = gift, gift
			c.Answer = &Answer{Move: a}
			return
		}
		c.Answer = deliver()
		if pt := &n1.parts.list[p]; pt.copied >= copyWhole && !charged {
			charged = true
			w.take("n1", "five", key)
		}
	}
	w.start("n4", 4)
	w.show(w.members(4), 0, "n1", "n2", "n3", "n4")
	w.pass(time.Second)
	if refused == 0 || !charged {
		t.Fatalf("%d gifts are refused; a take before the first: %t", refused, charged)
	}
	pt := &n1.parts.list[p]
	if pt.state != partHeld || pt.second.to == nil {
		t.Fatalf("n1 has it as %v, with a second copy at %v", pt.state, pt.second.to)
	}
	want := n1.holder.table.Entry(w.now, l, key, hash)
	for _, id := range []string{pt.to.id, pt.second.to.id} {
		if e := w.nodes[id].holder.table.Entry(w.now, l, key, hash); !bytes.Equal(e.State,
			want.State) {
			t.Errorf("the copy at %s is %x, not %x", id, e.State, want.State)
		}
	}
}
