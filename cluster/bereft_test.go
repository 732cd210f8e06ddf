package cluster

import (
	"testing"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

// lacks has a node hold a partition of which counters were forgotten.
func (w *world) lacks(id, key string) {
	n := w.nodes[id]
	n.parts.mu.Lock()
	defer n.parts.mu.Unlock()
	p := ring.Partition(limiter.Hash(key))
	n.parts.list[p].whole = false
	n.parts.beginLocked(w.now, p, true)
	n.parts.list[p].whole = true
	n.parts.list[p].copied = copyWanted // a new holder begins its copies after that
	n.copier.keepers.dueLocked(&n.parts.list[p])
}

// Promise: a takeover without a copy is marked until a window has passed, also when the key changes
// hands meanwhile, and no longer. The mark is on that key alone, with all that may be forgotten.
func TestForgottenIsMarked(t *testing.T) {
	spec := limiter.Spec{
		Name:      "minute",
		Algorithm: limiter.FixedWindow,
		Limit:     40,
		Per:       time.Minute,
	}
	w := newWorld(t, 3, spec)
	w.pass(time.Second)
	key, other := w.key("n1", 0), w.key("n2", 0)
	want := func(when string, marked bool) {
		t.Helper()
		for _, n := range []string{"n2", "n3"} {
			if d := w.take(n, "minute", key); d.Degraded != marked || marked && d.Bound != 40 {
				t.Errorf("%s, by %s: %+v; marked should be %t", when, n, d, marked)
			}
			if d := w.take(n, "minute", other); d.Degraded {
				t.Errorf("%s, another key: %+v", when, d)
			}
		}
	}
	want("before", false)
	w.lacks("n1", key)
	want("after the takeover", true)
	w.pass(10 * time.Second)
	ms := w.members(3)
	ms[0].State = StateLeaving
	w.show(ms, 0, "n1", "n2", "n3")
	w.pass(3 * time.Second)
	if w.nodes["n1"].parts.Held() != 0 {
		t.Fatal("n1 still holds something")
	}
	want("after a gift", true)
	w.pass(45 * time.Second)
	want("within the window", true)
	w.pass(5 * time.Second)
	want("after the window", false)
}

// Promise: a takeover with a part of a copy is marked, and one with a whole copy is not, be it the
// holder's or one that another member has kept.
func TestPartOfACopyIsNone(t *testing.T) {
	spec := limiter.Spec{
		Name:      "minute",
		Algorithm: limiter.FixedWindow,
		Limit:     40,
		Per:       time.Minute,
	}
	for name, x := range map[string]struct {
		part   bool // the heir gets a part of a copy
		other  bool // the third member has a whole one
		marked bool
	}{
		"a whole copy":               {false, false, false},
		"a part":                     {true, false, true},
		"a part, and another's copy": {true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, spec)
			w.pass(time.Second)
			n, key := w.nodes["n1"], w.key("n1", 0)
			p := ring.Partition(limiter.Hash(key))
			for _, other := range w.nodes {
				other.parts.gone = true // somebody has gone before
			}
			r, pt := n.view.Load(), &n.parts.list[p]
			heir := pt.to
			third := r.peers[3-r.Self-r.Find(heir.id)]
			copyTo := func(to *peer) {
				n.parts.mu.Lock()
				pt.to, pt.copied = to, copyWanted
				n.copier.keepers.dueLocked(pt)
				n.copier.startPushesLocked()
				n.parts.mu.Unlock()
				w.pass(200 * time.Millisecond)
			}
			if x.other {
				w.nodes[heir.id].parts.forgetLocked(p)
				copyTo(third)
			}
			if x.part {
				w.meet = func(c *Call, deliver func() *Answer) {
					if m := c.Ask.Move; m != nil && m.From == n.boot && len(m.Whole) > 0 {
						own := *m
						own.Whole = nil
						c.Ask.Move = &own
					}
					c.Answer = deliver()
				}
				pt.former = nil
				copyTo(heir)
				w.meet = nil
			}
			w.kill("n1")
			w.pass(3 * time.Second)
			d := w.take(heir.id, "minute", key)
			if d.Owner != heir.id || d.Degraded != x.marked || x.marked && d.Bound != 40 {
				t.Errorf("%+v; marked should be %t", d, x.marked)
			}
		})
	}
}

// Promise: a copy that is out of date counts for nothing. Of all members that have ever had copies
// of a partition only those keep them that get them still, also if another one was to get them for
// a moment meanwhile; and a copy that helped a claimer is not the newest any more.
func TestOldCopiesAreForgotten(t *testing.T) {
	w := newWorld(t, 4, five)
	w.pass(time.Second)
	key := w.key("n1", 0)
	n, p := w.nodes["n1"], ring.Partition(limiter.Hash(key))
	w.take("n1", "five", key)
	r := n.view.Load()
	heir := r.copyTarget(p, 1)
	var others []*peer
	for _, x := range r.peers {
		if x != heir && x.id != n.id {
			others = append(others, x)
		}
	}
	n.parts.mu.Lock()
	n.copier.keepers.aimLocked(p, others[0], nil) // which gets nothing before that is over
	n.copier.keepers.aimLocked(p, others[1], nil)
	n.copier.keepers.dueLocked(&n.parts.list[p])
	n.copier.startPushesLocked()
	n.parts.mu.Unlock()
	w.pass(time.Second)
	w.take("n1", "five", key)
	w.pass(time.Second)
	for _, x := range []*peer{heir, others[0]} {
		if pt := &w.nodes[x.id].parts.list[p]; pt.copyOf != 0 || pt.whole {
			t.Errorf("%s has kept a copy of boot %d", x.id, pt.copyOf)
		}
	}
	if pt := &w.nodes[others[1].id].parts.list[p]; pt.copyOf != n.boot || !pt.whole {
		t.Errorf("%s, which gets copies, has one of boot %d", others[1].id, pt.copyOf)
	}
	w.kill("n1")
	w.pass(3 * time.Second)
	if d := w.take(heir.id, "five", key); d.Owner != heir.id || d.Remaining != 2 {
		t.Errorf("the heir has taken over: %+v; want 2 of 5 left", d)
	}
	if pt := &w.nodes[others[1].id].parts.list[p]; pt.whole && pt.copyOf == n.boot {
		t.Errorf("%s has lent its copy, and takes it for the newest", others[1].id)
	}
}

// Promise: a node that has heard of a process which decided, and which is no member of the cluster
// that the node comes to belong to, answers claims as one that has seen a member go.
func TestFoundedAnew(t *testing.T) {
	first := ownership.First([]ownership.Member{{ID: "n1", Boot: 1}, {ID: "n2", Boot: 2}})
	for _, c := range []struct {
		before []uint64
		want   Standing
	}{{nil, StandingFree}, {[]uint64{1, 2}, StandingFree}, {[]uint64{1, 7}, StandingBereft}} {
		h := new(holdings)
		h.succeed(c.before, &roll{stage: ownership.StageJoined, config: first})
		if got := h.free(); got != c.want {
			t.Errorf("%v decided before: %v, want %v", c.before, got, c.want)
		}
	}
}

// Promise: a copy that is lent is whole at the member that should hold the partition, and at no
// other: that one may have been told meanwhile to forget what had come of it, and would begin later
// without it and say nothing (world 3040007080).
func TestLentIsWholeAtItsOwnerAlone(t *testing.T) {
	w := founded(t, 3, func(*ownership.Configuration) {}, five)
	n := w.nodes["n1"]
	r := n.view.Load()
	h, parts := new(holdings), make([]part, ring.Partitions)
	for _, owned := range []bool{false, true} {
		p := 0
		for (r.owner(p) == r.Self) != owned {
			p++
		}
		m := &Move{From: w.nodes["n2"].boot}
		m.Lent, m.Whole = []uint16{uint16(p)}, []uint16{uint16(p)}
		if h.complete(r, parts, m); parts[p].whole != owned {
			t.Errorf("a lent partition, which the node should hold: %t, is whole: %t", owned,
				parts[p].whole)
		}
	}
}
