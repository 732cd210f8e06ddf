package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/limiter"
	"penstock/ring"
)

// tell spreads m, which may take the place of an earlier boot. Some hear of it late.
func (r *rumours) tell(m Member) {
	for _, id := range slices.Sorted(maps.Keys(r.nodes)) {
		r.AfterFunc(r.way(m.ID, id), func() {
			if known := r.knows[id][m.ID]; r.nodes[id] != nil &&
				(known.Boot < m.Boot || known.Boot == m.Boot && known.State <= m.State) {
				r.hear(id, m)
			}
		})
	}
}

// way is how long a piece of news of one takes to another: one in four is missed by gossip, and
// comes seconds later.
func (r *rumours) way(of, to string) time.Duration {
	late := r.draw("news of "+of+" to "+to, r.slow)
	if rapid.IntRange(0, 3).Draw(r.draws, "missed") == 0 {
		late += r.draw("late", 10*time.Second)
	}
	return late
}

// restart has the node of m leave, as long as a process takes at most for that, and come back as
// another boot.
func (r *rumours) restart(m Member) (back Member, took time.Duration) {
	id := m.ID
	m.State = StateLeaving
	r.hear(id, m)
	r.tell(m)
	left := r.now
	for r.nodes[id].parts.Held() > 0 && r.now < left.Add(8*time.Second) {
		r.pass(10 * time.Millisecond)
	}
	took = time.Duration(r.now - left)
	r.nodes[id].Stop()
	delete(r.nodes, id)
	delete(r.knows, id)
	others := slices.Sorted(maps.Keys(r.nodes))
	for _, other := range others {
		r.AfterFunc(r.way(id, other), func() {
			if r.nodes[other] != nil && r.knows[other][id].Boot == m.Boot {
				delete(r.knows[other], id)
				r.hear(other)
			}
		})
	}
	r.pass(r.draw("down", time.Second))
	m.Boot += 10
	m.State = StateJoining
	seed := rapid.SampledFrom(others).Draw(r.draws, "seed")
	r.start(id, m.Boot)
	r.knows[id] = map[string]Member{}
	known := maps.Clone(r.knows[seed])
	known[id] = m
	r.hear(id, slices.Collect(maps.Values(known))...)
	r.tell(m)
	r.pass(r.draw("JOINING", time.Second))
	m.State = StateActive
	r.hear(id, m)
	r.tell(m)
	return m, took
}

// Promise: a rolling restart loses no count and takes no longer than copying what changes hands,
// also when some hear late that a node leaves, has left and has come back: it says so itself to all
// that it hands something to.
func TestRollingRestartWithLateNews(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		const members, keys = 5, 300
		r := &rumours{world: newWorld(outer, members, five), draws: t, slow: 300 * time.Millisecond}
		ms := r.members(members)
		r.knows = map[string]map[string]Member{}
		var ids []string
		for _, m := range ms {
			r.knows[m.ID] = map[string]Member{}
			for _, o := range ms {
				r.knows[m.ID][o.ID] = o
			}
			ids = append(ids, m.ID)
		}
		r.spend(keys, ids...)
		r.pass(time.Second)
		for range rapid.IntRange(1, 3).Draw(t, "restarts") {
			i := rapid.IntRange(0, members-1).Draw(t, "of")
			m, took := r.restart(ms[i])
			if took > 3*time.Second {
				t.Errorf("%s took %v to leave: %s", m.ID, took, r.held())
			}
			ms[i] = m
			r.pass(r.draw("pause", 3*time.Second))
		}
		r.pass(15 * time.Second)
		for _, id := range ids {
			r.nodes[id].SetView(r.view(id, ms))
		}
		r.pass(3 * time.Second)
		if none, many := r.holders(); none+many > 0 {
			t.Errorf("%d partitions are held by nobody, %d by several: %s", none, many, r.held())
		}
		wrong := 0
		for i := range keys {
			if d := r.check(ids[i%members], Item{
				Limit: "five", Key: fmt.Sprint("k", i),
				Op: OpPeek,
			})[0]; d.Degraded || d.Remaining != 3 {
				wrong++
			}
		}
		if wrong > 0 {
			t.Errorf("%d of %d keys are wrong", wrong, keys)
		}
	})
}

// Promise: a leaving node hands everything over in time, also when the owner of some of it is gone,
// or leaves as well, and no View says so yet.
func TestWhoLeavesDoesNotWaitForAView(t *testing.T) {
	for _, dies := range []bool{true, false} {
		w := newWorld(t, 4, five)
		const keys = 300
		w.spend(keys, "n1", "n2", "n3", "n4")
		w.pass(time.Second)
		ms := w.members(4)
		stays := []string{"n1", "n4"}
		if dies {
			w.nodes["n2"].Stop()
			delete(w.nodes, "n2")
		} else {
			ms[1].State = StateLeaving
			w.show(ms, 0, "n2")
			w.pass(3 * time.Second)
			ms[1].State = StateActive
		}
		ms[2].State = StateLeaving
		w.show(ms, 0, "n3", "n1", "n4")
		left := w.now
		for w.nodes["n3"].parts.Held() > 0 && w.now < left.Add(8*time.Second) {
			w.pass(10 * time.Millisecond)
		}
		if took := time.Duration(w.now - left); took > 2*time.Second {
			t.Errorf("n3 took %v to leave: %s", took, w.held())
		}
		for _, id := range []string{"n2", "n3"} {
			if n := w.nodes[id]; n != nil {
				n.Stop()
				delete(w.nodes, id)
			}
		}
		w.show([]Member{ms[0], ms[3]}, 0, stays...)
		w.pass(3 * time.Second)
		w.wantOneHolderEach("after both have gone")
		w.wantRemaining("after both have gone", keys, 3, stays...)
	}
}

// Promise: a node that has given up to hand over decides nothing any more when its heirs begin to,
// whatever it is still asked.
func TestWhoGivesUpLetsGo(t *testing.T) {
	w := newWorld(t, 3, five)
	key := w.key("n2", 0)
	w.pass(time.Second)
	w.hearing(func(from, to string) bool { return from != "n2" && to != "n2" })
	ms := w.members(3)
	ms[1].State = StateLeaving
	w.show(ms, 0, "n2")
	n := w.nodes["n2"]
	if d := w.take("n2", "five", key); d.Source != SourceOwner {
		t.Fatalf("%+v: it holds the key and cannot hand it over", d)
	}
	n.Relinquish()
	for range 20 {
		w.pass(100 * time.Millisecond)
		if d := w.take("n2", "five", key); d.Source == SourceOwner {
			t.Fatalf("%+v: it has let go", d)
		}
	}
}

// Promise: a gift costs no time in which nobody decides unless it is taken. A leaving node is given
// nothing back by those that have not heard so from their Views.
func TestWhoLeavesIsGivenNothing(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	gifts := 0
	w.meet = func(c *Call, deliver func() *Answer) {
		if m := c.Ask.Move; m != nil && c.To.ID == "n2" {
			gifts += len(m.Gift)
		}
		c.Answer = deliver()
	}
	ms := w.members(3)
	ms[1].State = StateLeaving
	w.show(ms, 0, "n2")
	w.pass(3 * time.Second)
	if held := w.nodes["n2"].parts.Held(); held != 0 || gifts != 0 {
		t.Errorf("n2 holds %d partitions, and was given %d", held, gifts)
	}
	w.wantOneHolderEach("before the others have heard")
}

// Promise: one node decides. A member may have called a partition free, and been given it since by
// one that is gone before it answers the claim itself.
func TestLastActOfWhoIsGone(t *testing.T) {
	w := newWorld(t, 3, five)
	w.pass(time.Second)
	n1, n2, n3 := w.nodes["n1"], w.nodes["n2"], w.nodes["n3"]
	p := ring.Partition(limiter.Hash(w.key("n1", 0)))
	n1.Relinquish()
	n3.parts.mu.Lock()
	n3.parts.holdLocked(p, n3.parts.nextTermLocked())
	n3.parts.mu.Unlock()
	w.meet = func(c *Call, deliver func() *Answer) {
		switch m := c.Ask.Move; {
		case w.nodes[c.To.ID] == nil:
			c.Err = errors.Join(ErrUnsent, ErrGone)
		case m != nil && slices.Contains(m.Claim, uint16(p)) && c.To.ID == "n3":
			n2.parts.mu.Lock()
			n2.parts.holdLocked(p, m.Term+1<<termBits)
			n2.parts.mu.Unlock()
			n3.Stop()
			delete(w.nodes, "n3")
			c.Err = ErrGone
		default:
			c.Answer = deliver()
		}
	}
	for range 100 {
		w.pass(10 * time.Millisecond)
		if n1.parts.HoldsPartition(p) && n2.parts.HoldsPartition(p) {
			t.Fatal("two decide")
		}
	}
	if w.nodes["n3"] != nil || !n1.parts.HoldsPartition(p) && !n2.parts.HoldsPartition(p) {
		t.Error("nobody holds what n2 was given")
	}
}
