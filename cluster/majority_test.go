package cluster

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// rumours are what each node of a world has heard of the others: news take a while, to each of them
// another one.
type rumours struct {
	*world
	draws *rapid.T
	knows map[string]map[string]Member // by node
	side  map[string]bool              // of a cut; nil: there is none
	slow  time.Duration                // the longest way of a piece of news
}

func (r *rumours) together(a, b string) bool { return r.side[a] == r.side[b] }

// hear tells id of ms.
func (r *rumours) hear(id string, ms ...Member) {
	for _, m := range ms {
		r.knows[id][m.ID] = m
	}
	r.nodes[id].SetView(r.view(id, slices.Collect(maps.Values(r.knows[id]))))
}

// spread tells everybody of m, if there is no cut between them by then.
func (r *rumours) spread(m Member) {
	for _, id := range slices.Sorted(maps.Keys(r.nodes)) {
		r.AfterFunc(r.draw("news of "+m.ID+" to "+id, r.slow), func() {
			if r.together(id, m.ID) && r.knows[id][m.ID].State <= m.State {
				r.hear(id, m)
			}
		})
	}
}

func (r *rumours) draw(what string, most time.Duration) time.Duration {
	return 10 * time.Millisecond * time.Duration(rapid.IntRange(0,
		int(most/(10*time.Millisecond))).Draw(r.draws, what))
}

// come starts a node that hears first of all that one of the others knows, and is ACTIVE after a
// while.
func (r *rumours) come(m Member, seed string) {
	r.start(m.ID, m.Boot)
	r.knows[m.ID] = map[string]Member{}
	m.State = StateJoining
	r.hear(m.ID, append(slices.Collect(maps.Values(r.knows[seed])), m)...)
	r.spread(m)
	r.lose(m.ID)
	r.AfterFunc(2*r.slow, func() { // what was on its way to the seed when it came
		if !r.together(seed, m.ID) {
			return
		}
		for _, other := range slices.Sorted(maps.Keys(r.knows[seed])) {
			if o := r.knows[seed][other]; r.knows[m.ID][other].State <= o.State {
				r.hear(m.ID, o)
			}
		}
	})
	m.State = StateActive
	r.AfterFunc(r.draw("JOINING "+m.ID, 7*time.Second), func() { r.spread(m) })
}

// Promise: in a partition, the side of the majority goes on, and one node decides. Nodes come one
// after the other, all know all for a second, and then a cut may go anywhere; some may come to one
// side while the cluster is cut.
func TestTheMajorityGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		r := &rumours{world: newWorld(outer, 1, five), draws: t, slow: 500 * time.Millisecond}
		ms := r.members(8)
		r.knows = map[string]map[string]Member{"n1": {"n1": ms[0]}}
		seed := func() string {
			return rapid.SampledFrom(slices.Sorted(maps.Keys(r.nodes))).Draw(t,
				"seed")
		}
		members := rapid.IntRange(2, 6).Draw(t, "members")
		for _, m := range ms[1:members] {
			r.come(m, seed())
			r.pass(r.draw("pause", 1500*time.Millisecond))
		}
		for slices.ContainsFunc(slices.Collect(maps.Values(r.nodes)),
			func(n *Node) bool { return n.View().Active() < members }) {
			r.pass(100 * time.Millisecond)
		}
		r.pass(time.Second + r.draw("before the cut", 5*time.Second))

		r.side = map[string]bool{}
		sides := [2][]string{}
		for _, m := range ms[:members] {
			far := rapid.Bool().Draw(t, m.ID+" is on the other side")
			r.side[m.ID] = far
			k := 0
			if far {
				k = 1
			}
			sides[k] = append(sides[k], m.ID)
		}
		r.hearing(r.together)
		for _, m := range ms[:members] {
			r.lose(m.ID)
		}
		for _, m := range ms[members : members+rapid.IntRange(0, 2).Draw(t, "newcomers")] {
			r.AfterFunc(r.draw("comes after", 5*time.Second), func() {
				s := seed()
				r.side[m.ID] = r.side[s]
				r.come(m, s)
			})
		}
		for range 100 {
			r.pass(100 * time.Millisecond)
			if _, many := r.holders(); many > 0 && !r.tied() {
				t.Fatalf("%d partitions are held by several: %s", many, r.held())
			}
		}
		for _, s := range sides {
			if 2*len(s) > members {
				if none, _ := r.holders(); none > 0 {
					t.Errorf("%d partitions are held by nobody, and %v are the majority: %s", none,
						s, r.held())
				}
			}
		}
	})
}

// lose has id hear one after the other that those on the other side are dead.
func (r *rumours) lose(id string) {
	for _, other := range slices.Sorted(maps.Keys(r.knows[id])) {
		if !r.together(id, other) {
			r.AfterFunc(1500*time.Millisecond+r.draw("news of the death of "+other+" to "+id,
				4*time.Second), func() {
				delete(r.knows[id], other)
				r.hear(id)
			})
		}
	}
}

// tied reports whether all nodes that hold anything say that another one may, of a cluster of two.
func (w *world) tied() bool {
	for _, n := range w.nodes {
		if n.parts.Held() > 0 && !n.right.marked.Load() {
			return false
		}
	}
	return true
}

// held is how many partitions each node holds.
func (w *world) held() (s string) {
	for _, id := range slices.Sorted(maps.Keys(w.nodes)) {
		s += fmt.Sprintf(" %s: %d", id, w.nodes[id].parts.Held())
	}
	return s
}
