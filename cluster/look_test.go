package cluster

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
)

// wide is a table of which a look takes several steps.
var wide = limiter.TableConfig{Bytes: 16 << 20, Shards: 512}

// die ends a node without a word, and shows the others that it is gone.
func (w *world) die(id string, ms []Member) (rest []Member) {
	w.nodes[id].Stop()
	delete(w.nodes, id)
	rest = slices.DeleteFunc(slices.Clone(ms), func(m Member) bool { return m.ID == id })
	for other := range w.nodes {
		w.nodes[other].SetView(w.view(other, rest))
	}
	return rest
}

// giftsDuringALook has gifts to n3 wait, but for the first of each giver, until n3 says the
// count-th thing to the giver of that one.
func (w *world) giftsDuringALook(count int) (come func()) {
	gifts, said, open := map[uint64]int{}, map[string]int{}, map[string]bool{}
	w.meet = func(c *Call, deliver func() *Answer) {
		m := c.Ask.Move
		if m != nil && c.To.ID == "n3" && len(m.Gift) > 0 {
			if gifts[m.From]++; gifts[m.From] > 1 && !open[m.ID] {
				c.Err = errors.New("lost")
				return
			}
		}
		if m != nil && m.ID == "n3" && m.Sequence != 0 {
			if said[c.To.ID]++; said[c.To.ID] == count {
				open[c.To.ID] = true
				w.pass(2 * tickEvery) // the next gifts come while n3 looks through its table
			}
		}
		c.Answer = deliver()
	}
	return func() { w.meet = nil }
}

// Promise: no count is lost when the node that has joined last dies, wherever its looks through the
// table were when it was given more.
func TestGiftsDuringALook(t *testing.T) {
	const keys = 1200
	for count := 1; count <= 12; count++ {
		t.Run(fmt.Sprintf("message=%d", count), func(t *testing.T) {
			w := newWorldOf(t, wide, 2, five)
			w.spend(keys, "n1", "n2")
			w.start("n3", 3)
			come := w.giftsDuringALook(count)
			w.show(w.members(3), 0, "n3", "n2", "n1")
			w.pass(time.Second)
			come()
			w.pass(2 * time.Second)
			w.wantOneHolderEach("after the join")
			for i := range keys {
				w.take("n3", "five", fmt.Sprint("k", i))
			}
			w.pass(time.Second) // nobody charges anything
			rest := w.die("n3", w.members(3))
			w.pass(2 * time.Second)
			w.wantRemaining("after the crash", keys, 2, rest[0].ID, rest[1].ID)
		})
	}
}

// looksNeeded is for which members n1 looks through its table without delay, by its last looks.
func (w *world) looksNeeded() (ids []string) {
	for _, p := range w.nodes["n1"].copier.keepers.outboxes {
		if p.out.needed {
			ids = append(ids, p.id)
		}
	}
	return ids
}

// Promise: p99 of checks while nodes join ≤ 1.5 times that without. A copy for a node that joins
// gives way to checks, since the heir of before keeps its own; where there is no other, it comes
// sooner.
func TestCopiesForANewNodeGiveWay(t *testing.T) {
	w := newWorldOf(t, wide, 3, five)
	w.spend(300, "n1", "n2", "n3")
	w.pass(3 * time.Second)
	if needed := w.looksNeeded(); len(needed) == 0 {
		t.Error("none of the first copies is needed")
	}
	w.start("n4", 4)
	ms := w.members(4)
	w.show(ms, 0, "n4", "n3", "n2", "n1")
	w.pass(3 * time.Second)
	if needed := w.looksNeeded(); slices.Contains(needed, "n4") {
		t.Error("the copies for a node that joins are needed")
	}
	w.die("n2", ms)
	w.pass(5 * time.Second)
	if needed := w.looksNeeded(); !slices.Contains(needed, "n4") {
		t.Errorf("after a death needed are those for %v", needed)
	}
}
