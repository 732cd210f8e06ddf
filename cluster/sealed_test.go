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

// Promise: a second copy of which the look was under way while a gift was, and was refused, is made
// once more, for that look has not read the partition; and a key that was reset just before the
// seal is known to a copy that begins later.
func TestSecondCopyAfterARefusedGift(t *testing.T) {
	w := founded(t, 3, copiesOf(2), five)
	n, key := w.nodes["n1"], w.key("n1", 0)
	p := n.parts.partition(limiter.Hash(key))
	n.parts.mu.Lock()
	defer n.parts.mu.Unlock()
	pt := &n.parts.list[p]
	o := n.copier.keepers.outboxLocked(pt.second.to)
	for _, c := range []struct{ before, after copyState }{
		{copyBegun, copyAgain},
		{copyWanted, copyWanted},
		{copyTaken, copyTaken},
	} {
		pt.second.copied, o.begun, o.emptied = c.before, nil, nil
		n.parts.enterLocked(p, partGiving)
		n.copier.emptiedLocked(p, waitingEntry{Entry: limiter.Entry{Key: key}})
		n.parts.holdLocked(p, n.parts.nextTermLocked())
		n.copier.keepers.goOnLocked(p)
		again := c.after == copyAgain
		if pt.second.copied != c.after || (len(o.begun) == 1) != again {
			t.Errorf("a copy in state %d is in %d, and begins anew: %v", c.before,
				pt.second.copied, o.begun)
		}
		if kept := len(o.emptied) == 1; kept != (c.before == copyWanted) {
			t.Errorf("a copy in state %d hears of the reset key when it begins: %t", c.before, kept)
		}
	}
}
