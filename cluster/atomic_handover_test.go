package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// comesSlowly has n3 come to two nodes that give it nothing yet. It returns a key that n1 holds,
// and one that n2 does; n3 owns both.
func comesSlowly(t *testing.T, w *world) (keys []string) {
	t.Helper()
	w.pass(2 * time.Second)
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; c.To.ID == "n3" && m != nil && m.Sequence != 0 {
			c.Answer = &Answer{Move: &MoveAnswer{}}
			return
		}
		c.Answer = deliver()
	}
	w.start("n3", 3)
	w.show(w.members(3), 0, "n1", "n2", "n3")
	w.pass(300 * time.Millisecond)
	for _, holder := range []string{"n1", "n2"} {
		n := w.nodes[holder]
		for i := 0; ; i++ {
			key := fmt.Sprint("key ", i)
			v, hash := n.view.Load(), limiter.Hash(key)
			if o := v.Owner(hash); o == v.Find("n3") && n.holder.Holds(hash) {
				keys = append(keys, key)
				break
			}
		}
	}
	return keys
}

// Promise: a node that joins degrades no answer. What stands or falls together is decided also
// while the next owner of all keys has got none of them yet, and two nodes hold them.
func TestAtomicWhileAnOwnerComes(t *testing.T) {
	w := newWorld(t, 2, hundred)
	keys := comesSlowly(t, w)
	for i, id := range []string{"n1", "n2", "n3"} {
		began := w.now
		out, all := w.takeAll(id, Item{Limit: "hundred", Key: keys[0], Cost: 10},
			Item{Limit: "hundred", Key: keys[1], Cost: 20})
		if !all || out[0].Degraded || out[1].Degraded || w.now > began.Add(5*time.Millisecond) {
			t.Errorf("at %s: %+v after %v", id, out, time.Duration(w.now-began))
		}
		w.pass(100 * time.Millisecond)
		w.remain(keys, 100-10*int64(i+1), 100-20*int64(i+1))
	}
}

// Promise: a request that is repeated is charged once, also if its keys have come to several nodes,
// or to one, since it was first decided.
func TestAtomicRepeatedAcrossAHandover(t *testing.T) {
	w := newWorld(t, 2, hundred)
	w.pass(2 * time.Second)
	ms := w.members(3)
	next := w.view("n1", ms)
	var keys []string // of n1; then one of them is n3's
	for i := 0; len(keys) < 2; i++ {
		key := w.key("n1", i)
		if moves := next.Owner(limiter.Hash(key)) == next.Find("n3"); moves == (len(keys) == 1) {
			keys = append(keys, key)
		}
	}
	ask := func(node string, sequence uint64) {
		t.Helper()
		a, b := of(10, keys[0]), of(20, keys[1])
		a.ID = ID{Origin: 7, Sequence: sequence}
		if out, all := w.takeAll(node, a, b); !all || out[0].Degraded || out[1].Degraded {
			t.Errorf("at %s: %+v", node, out)
		}
	}
	ask("n2", 1)
	w.remain(keys, 90, 80)
	w.start("n3", 3)
	w.show(ms, 0, "n1", "n2", "n3")
	w.pass(time.Second)
	ask("n2", 1)
	w.remain(keys, 90, 80)
	ask("n2", 2)
	w.remain(keys, 80, 60)
	ms[2].State = StateLeaving
	w.show(ms, 0, "n1", "n2", "n3")
	w.leaves("n3")
	ask("n2", 2)
	w.remain(keys, 80, 60)
}
