package cluster

import (
	"testing"
	"time"

	"penstock/cluster/dedup"
	"penstock/limiter"
	"penstock/ring"
)

// giveBack has node, which holds key, give n units back one by one, each under an ID. No time
// passes, and nothing is copied meanwhile.
func (w *world) giveBack(node, limit, key string, n int) {
	for i := range n {
		it := flight{AskItem: AskItem{
			Limit: w.limits[limit], Key: key, Cost: -1,
			ID: ID{Origin: uint64(w.now) >> 1, Sequence: uint64(i + 1)},
		}, hash: limiter.Hash(key)}
		w.nodes[node].holder.decide(w.now, &it, new(limiter.Decision))
	}
}

// Promise: a peer reads what it is sent. However much is given back between two copies, no message
// with a copy grows with it. An answer that waits for such a copy is not confirmed.
func TestMuchThatIsGivenBackTravelsInPieces(t *testing.T) {
	sync := five
	sync.Sync = true
	w := newWorld(t, 3, sync)
	key := w.key("n3", 0)
	w.take("n3", "five", key)
	w.pass(time.Second)
	most, all := 0, 0
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil {
			most, all = max(most, len(m.Taken)), all+len(m.Taken)
		}
		c.Answer = deliver()
	}
	const many = 5 * takenAtOnce
	w.giveBack("n3", "five", key, many)
	if d := w.take("n3", "five", key); !d.Degraded {
		t.Errorf("%+v is confirmed", d)
	}
	if w.pass(time.Second); most > takenAtOnce || all < many {
		t.Errorf("%d of %d are told, and %d in a message", all, many, most)
	}
	if d := w.take("n3", "five", key); d.Degraded {
		t.Errorf("%+v is not confirmed after that", d)
	}
}

// Promise: a peer that is silent for long does not need new copies because of what was given back:
// what no repeat is recognised by any more does not wait for it.
func TestOldAnswersDoNotWait(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n3", 0)
	w.take("n3", "five", key)
	w.pass(time.Second)
	heir := w.nodes["n3"].parts.list[ring.Partition(limiter.Hash(key))].to
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && m.Sequence != 0 && c.To.ID == heir.id {
			c.Err = errSilent
			return
		}
		c.Answer = deliver()
	}
	for range 10 {
		w.giveBack("n3", "five", key, 100)
		w.pass(dedup.Lasts / 4)
	}
	if n := len(heir.out.back); n == 0 || n > 500 {
		t.Errorf("%d answers wait, want those of %v", n, dedup.Lasts)
	}
	if w.pass(dedup.Lasts + time.Second); len(heir.out.back) > 0 {
		t.Errorf("%d answers wait that nobody remembers", len(heir.out.back))
	}
}

// Promise: no more is admitted than the limit says. An answer waits for a copy at a member where
// the copy of the partition is still to begin; that member hears too what was given back before.
func TestWhatIsGivenBackBeforeACopyBegins(t *testing.T) {
	sync := five
	sync.Sync = true
	w := newWorld(t, 3, sync)
	key := w.key("n3", 0)
	for range 4 {
		w.take("n3", "five", key)
	}
	w.pass(time.Second)
	first, second := w.heirOf("n3", key), "n1"
	if first == second {
		second = "n2"
	}
	refund := Item{Limit: "five", Key: key, Cost: -2, ID: ID{Origin: 77, Sequence: 1}}
	w.check("n3", refund)
	w.pass(200 * time.Millisecond)
	w.kill(first)
	n3 := w.nodes["n3"]
	n3.parts.mu.Lock()
	p := n3.view.Load().peers[n3.view.Load().Find(second)]
	n3.copier.keepers.outboxLocked(p)
	n3.copier.keepers.aimLocked(ring.Partition(limiter.Hash(key)), p, nil)
	n3.parts.mu.Unlock()
	if d := w.take("n3", "five", key); d.Degraded {
		t.Fatalf("%+v is not confirmed", d)
	}
	w.kill("n3")
	w.pass(800 * time.Millisecond)
	left := w.remaining(second, "five", key)
	w.check(second, refund)
	if now := w.remaining(second, "five", key); left != 2 || now != left {
		t.Errorf("%d are left, and %d before it was asked for again; want 2", now, left)
	}
}

// Promise: no more is admitted than the limit says. Takes that stand or fall together give back at
// two keys, and are asked for again after the death of an owner, when the keys have other owners
// than before, and perhaps more of them or fewer.
func TestWhatIsGivenBackTogetherIsKnownToTheHeirs(t *testing.T) {
	for _, c := range []struct {
		name, asked   string
		owners, heirs [2]string
	}{
		{"of one owner to two", "n3", [2]string{"n3", "n3"}, [2]string{"n1", "n2"}},
		{"of two owners to one", "n1", [2]string{"n3", "n1"}, [2]string{"n1", "n2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 3, five)
			var items []Item
			for i, owner := range c.owners {
				k := 0
				for owner == "n3" && w.heirOf(owner, w.key(owner, k)) != c.heirs[i] {
					k++
				}
				items = append(items, Item{
					Limit: "five", Key: w.key(owner, k), Cost: -2,
					ID: ID{Origin: 77, Sequence: uint64(i + 1)},
				})
				for range 4 {
					w.take(owner, "five", items[i].Key)
				}
			}
			w.pass(time.Second)
			left := func() (left [2]int64) {
				for i := range items {
					left[i] = w.remaining("n1", "five", items[i].Key)
				}
				return left
			}
			w.takeAll(c.asked, items...)
			w.pass(200 * time.Millisecond)
			w.kill("n3")
			w.pass(600 * time.Millisecond)
			before := left()
			w.takeAll("n1", items...)
			w.pass(300 * time.Millisecond)
			if now := left(); now != before || now != [2]int64{3, 3} {
				t.Errorf("%d are left, and %d before it was asked for again; want 3", now, before)
			}
		})
	}
}
