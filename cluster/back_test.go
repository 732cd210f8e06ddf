package cluster

import (
	"maps"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// Promise: no more is admitted than the limit says. What a client gives back, and asks for again
// under the same ID after its owner has died, is given back once: the heir that has counters which
// know of it knows of its ID as well, however the counters came there.
func TestWhatIsGivenBackIsKnownToTheHeir(t *testing.T) {
	sync := five
	sync.Sync = true
	other := five
	other.Name = "other"
	const tick = 150 * time.Millisecond
	for _, c := range []struct {
		name  string
		limit limiter.Spec
		items []Item
		first func(w *world)
		// what happens before the owner dies
		then func(w *world, owner, key string)
	}{
		{
			name: "a refund, with what has changed", limit: five, items: []Item{{Cost: -2}},
			then: func(w *world, _, _ string) { w.pass(tick) },
		},
		{
			name: "a reset, with what has changed", limit: five, items: []Item{{Op: OpReset}},
			then: func(w *world, owner, key string) {
				w.pass(tick)
				w.take(owner, "five", key)
				w.pass(tick)
			},
		},
		{
			name: "a refund with others", limit: five,
			items: []Item{{Cost: -2}, {Limit: "other", Cost: 1}},
			then:  func(w *world, _, _ string) { w.pass(tick) },
		},
		{
			name: "a refund, with a copy that begins after it", limit: five,
			items: []Item{{Cost: -2}},
			then: func(w *world, owner, key string) {
				w.pass(tick)
				w.kill(w.heirOf(owner, key))
				w.pass(2 * tick)
			},
		},
		{
			name: "a refund, passed on by an heir", limit: five, items: []Item{{Cost: -2}},
			then: func(w *world, owner, key string) {
				w.pass(tick)
				heir := w.heirOf(owner, key)
				w.kill(owner)
				w.pass(3 * tick)
				w.kill(heir)
			},
		},
		{
			name: "a refund, with the copy of a take that waits for it", limit: sync,
			items: []Item{{Cost: -2}},
			first: func(w *world) {
				w.meet = func(c *Call, deliver func() *Answer) {
					if m := c.Ask.Move; m != nil && m.Sequence == 0 && len(m.Entries) > 0 {
						c.Err, w.meet = errSilent, nil // the copy of the refund itself
						return
					}
					c.Answer = deliver()
				}
			},
			then: func(w *world, owner, key string) { w.take(owner, "five", key) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 5, c.limit, other)
			key := w.key("n3", 0)
			for range 4 {
				w.take("n3", "five", key)
			}
			w.pass(time.Second)
			r := Request{Items: c.items, Atomic: len(c.items) > 1}
			for i := range r.Items {
				it := &r.Items[i]
				it.ID, it.Key = ID{Origin: 77, Sequence: uint64(i + 1)}, key
				if it.Limit == "" {
					it.Limit = "five"
				}
			}
			ask := func(node string) []Decision {
				out := make([]Decision, len(r.Items))
				if err := w.nodes[node].Check(&r, out); err != nil {
					t.Fatal(err)
				}
				return out
			}
			asked := w.now
			if c.first != nil {
				c.first(w)
			}
			before := ask("n3")
			c.then(w, "n3", key)
			if w.nodes["n3"] != nil {
				w.kill("n3")
			}
			w.pass(4 * tick)
			node := slices.Max(slices.Collect(maps.Keys(w.nodes)))
			left := w.remaining(node, "five", key)
			for i, d := range ask(node) {
				if d.Decision != before[i].Decision {
					t.Errorf("item %d, asked for again after %v: %+v, was %+v", i,
						time.Duration(w.now-asked), d, before[i])
				}
			}
			if again := w.remaining(node, "five", key); again != left || left == 5 {
				t.Errorf("%d are left of 5, and %d before it was asked for again", again, left)
			}
		})
	}
}

// heirOf is the member that keeps the copy of a key.
func (w *world) heirOf(owner, key string) string {
	return w.nodes[owner].parts.list[ring.Partition(limiter.Hash(key))].to.id
}

// Promise: nobody else's keys suffer from a member that lies. It says that it has answered takes of
// a partition that there is none of; no node crashes when it hands partitions over afterwards.
func TestMemoryOfNoPartition(t *testing.T) {
	w := newWorld(t, 3, five)
	w.spend(30, "n1", "n2", "n3")
	w.pass(time.Second)
	n1, n2 := w.nodes["n1"], w.nodes["n2"]
	n1.Deliver(&Ask{Hop: 1, Deadline: w.now.Add(time.Second), Move: &Move{
		From: n2.boot, To: n1.boot, ID: "n2", Secret: n1.view.Load().Secret,
		Copying: Copying{Sequence: 1 << 40},
		Giving: Giving{Taken: []Memory{{
			ID: ID{Origin: 77, Sequence: 1}, Partition: ring.Partitions, GivesBack: true,
			Decisions: []limiter.Decision{{Allowed: true}},
		}}},
	}})
	if n1.Stats().Implausible.Load() == 0 {
		t.Error("it is believed")
	}
	n1.Relinquish()
	w.pass(3 * time.Second)
	w.wantRemaining("when n1 has left", 30, 3, "n2", "n3")
}
