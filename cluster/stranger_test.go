package cluster

import (
	"math"
	"testing"
	"time"

	"penstock/limiter"
)

// extremes are messages about partitions with each field as far off as it can be.
func extremes() map[string]Move {
	all := make([]uint16, 4093)
	for i := range all {
		all[i] = uint16(i)
	}
	return map[string]Move{
		"term":     {Term: math.MaxUint64},
		"claim":    {Claim: all, Term: math.MaxUint64, Knows: Knows{Members: math.MaxUint64}},
		"no term":  {Claim: all},
		"unasked":  {Claim: all, Term: 1 << 40, Knows: Knows{Unasked: make([]uint64, mostBoots+1)}},
		"sequence": {Sequence: math.MaxUint64, Gift: all, Term: 1 << 60},
		"age":      {Sequence: 1, Age: math.MaxInt64, Begin: all, End: all, Lent: all, Gift: all},
		"negative": {Age: math.MinInt64, Entries: []limiter.Entry{{}}},
		"taken":    {Sequence: 1, Taken: make([]Memory, 1000)},
		"cut off":  {CutOff: true},
	}
}

// Promise: forged messages change nothing: no term is believed, little is remembered of who sent
// them, and a node that is killed is replaced as ever.
func TestForgedMovesChangeNothing(t *testing.T) {
	w := newWorld(t, 3, five)
	const keys = 60
	w.spend(keys, "n1", "n2", "n3")
	w.pass(time.Second)
	boot, third := uint64(1<<50), w.nodes["n3"].boot
	forge := func() {
		for _, id := range []string{"n1", "n2"} {
			for name, m := range extremes() {
				for _, from := range []string{"n1", "n2", "n3", "evil", ""} {
					boot++
					m.From, m.To, m.ID = boot, w.nodes[id].boot, from
					a := w.nodes[id].Deliver(&Ask{Hop: 1, Deadline: w.now.Add(time.Second), Move: &m}).Move
					if a != nil && (a.Term > 0 || len(a.Standings) > 0 || a.Applied) {
						t.Fatalf("%s from %q is answered with %+v", name, from, a)
					}
				}
			}
			for _, name := range []string{"term", "claim", "unasked", "age", "negative", "sequence"} { // under the name of a member
				m := extremes()[name]
				m.From, m.To, m.ID = third, w.nodes[id].boot, "n3"
				if a := w.nodes[id].Deliver(&Ask{Hop: 1, Deadline: w.now.Add(time.Second), Move: &m}).Move; a != nil {
					t.Fatalf("%s from a member is answered with %+v", name, a)
				}
			}
		}
	}
	for range 100 {
		forge()
		w.pass(10 * time.Millisecond)
	}
	for _, id := range []string{"n1", "n2"} {
		n := w.nodes[id]
		if kept := len(n.strangers) + len(n.acquainted) + len(n.inbox) + len(n.hearsay) + len(n.former); kept > mostAcquainted {
			t.Errorf("%s remembers %d senders", id, kept)
		}
		if n.term>>termBits > 1000 {
			t.Errorf("%s has come to the term %d", id, n.term>>termBits)
		}
	}
	w.kill("n3")
	for range 20 {
		forge()
		w.pass(100 * time.Millisecond)
	}
	if none, many := w.holders(); none+many > 0 {
		t.Errorf("%d partitions have no holder, and %d have two", none, many)
	}
}

// Terms end at the highest, and do not begin anew.
func TestTermsDoNotOverflow(t *testing.T) {
	w := newWorld(t, 2, five)
	n := w.nodes["n1"]
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.heardLocked(n.term+(maxTermJump-1)<<termBits) && n.term>>termBits < maxTerm-maxTermJump {
	}
	if n.heardLocked(math.MaxUint64) {
		n.term = math.MaxUint64
	}
	before := n.term
	for range 3 {
		if next := n.nextTermLocked(); next>>termBits < before>>termBits {
			t.Fatalf("after %x comes %x", before, next)
		}
	}
}
