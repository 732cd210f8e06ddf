package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/limiter"
)

// level is a limit of a tree: so many in an hour from the first.
func level(name, parent string, limit int64) limiter.Spec {
	return limiter.Spec{
		Name: name, Parent: parent, Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: limit, Per: time.Hour,
	}
}

// Promise, for trees: whatever is asked, at whichever node, the count of each parent is the sum of
// what its children have admitted; no level admits more than its limit; a refused check charges no
// level; and the answer is that of one table with all levels (treeModel).
func TestParentsCountTheSumOfTheirChildren(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes := rapid.IntRange(1, 4).Draw(rt, "nodes")
		m := &treeModel{
			limits: map[string]int64{"user": 12, "team": 20, "org": 30},
			spent:  map[string]int64{}, held: map[string]int64{}, own: map[string]int64{},
		}
		w := newWorld(t, nodes, level("user", "team", 12), level("team", "org", 20),
			level("org", "", 30))
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			m.step(rt, w)
			w.settle()
			m.compare(rt, w)
		}
	})
}

// treeModel counts a tree of user, team and org in the plainest way.
type treeModel struct {
	limits      map[string]int64
	spent, held map[string]int64 // by limit and key
	own         map[string]int64 // what was asked for under that limit, and not below
	open        []Item           // reservations, as they were asked for
	next        uint64           // id
	last        *Item            // take that was answered within two seconds
	lastAllowed bool
}

// levelsOf are limit and key of each level that an item charges.
func levelsOf(it *Item) (all [][2]string) {
	names := map[string][]string{
		"user": {"user", "team", "org"}, "team": {"team", "org"}, "org": {"org"},
	}[it.Limit]
	key := it.Key
	for _, name := range names {
		all = append(all, [2]string{name, key})
		key, _ = limiter.ParentKey(key)
	}
	return all
}

// place is a level as the model keeps it.
func place(level [2]string) string { return level[0] + " " + level[1] }

// fits reports whether all levels of items have room for all costs.
func (m *treeModel) fits(items ...Item) bool {
	more := map[string]int64{}
	for i := range items {
		for _, l := range levelsOf(&items[i]) {
			more[place(l)] += items[i].Cost
		}
	}
	for i := range items {
		for _, l := range levelsOf(&items[i]) {
			if at := place(l); m.spent[at]+m.held[at]+more[at] > m.limits[l[0]] {
				return false
			}
		}
	}
	return true
}

func (m *treeModel) charge(it Item, cost int64) {
	m.own[it.Limit+" "+it.Key] += cost
	for _, l := range levelsOf(&it) {
		m.spent[place(l)] += cost
	}
}

func (m *treeModel) hold(it Item, cost int64) {
	for _, l := range levelsOf(&it) {
		m.held[place(l)] += cost
	}
}

// item draws a take.
func (m *treeModel) item(rt *rapid.T) Item {
	m.next++
	limit := rapid.SampledFrom([]string{"user", "user", "user", "team", "org"}).Draw(rt, "limit")
	key := strings.Join([]string{
		rapid.SampledFrom([]string{"acme", "umbrella"}).Draw(rt, "org"),
		rapid.SampledFrom([]string{"sales", "search"}).Draw(rt, "team"),
		rapid.SampledFrom([]string{"ann", "bob"}).Draw(rt, "user"),
	}[:map[string]int{"user": 3, "team": 2, "org": 1}[limit]], "/")
	return Item{
		Limit: limit, Key: key, Cost: rapid.Int64Range(1, 9).Draw(rt, "cost"),
		ID: ID{Origin: 7, Sequence: m.next},
	}
}

// step asks for something at one of the nodes, and holds the answer against the model.
func (m *treeModel) step(rt *rapid.T, w *world) {
	node := fmt.Sprintf("n%d", rapid.IntRange(1, len(w.nodes)).Draw(rt, "node"))
	last := m.last
	m.last = nil
	switch op := rapid.SampledFrom([]string{
		"take", "take", "take", "together", "in a row", "repeat", "reserve", "settle", "refund",
	}).Draw(rt, "op"); {
	case op == "together":
		a, b := m.item(rt), m.item(rt)
		want := m.fits(a, b)
		if out, all := w.takeAll(node, a, b); all != want {
			rt.Fatalf("%v and %v together: %+v, want %t", a, b, out, want)
		}
		if want {
			m.charge(a, a.Cost)
			m.charge(b, b.Cost)
		}
	case op == "in a row":
		a, b := m.item(rt), m.item(rt)
		out := w.check(node, a, b)
		m.took(rt, a, out[0])
		m.took(rt, b, out[1])
	case op == "repeat" && last != nil:
		if d := w.check(node, *last)[0]; d.Allowed != m.lastAllowed {
			rt.Fatalf("%v again at %s: %+v, want %t as before", *last, node, d, m.lastAllowed)
		}
	case op == "reserve":
		it := m.item(rt)
		want := m.fits(it)
		it.Op, it.Hold = OpReserve, &HoldTerms{TTL: time.Hour}
		d := w.check(node, it)[0]
		if d.Allowed != want || want != (d.Hold == limiter.HoldOpen) {
			rt.Fatalf("reserving %v: %+v, want %t", it, d, want)
		}
		if want {
			m.hold(it, it.Cost)
			it.ID = d.ID
			m.open = append(m.open, it)
		}
	case op == "settle" && len(m.open) > 0:
		m.settle(rt, w, node)
	case op == "refund":
		it := m.item(rt)
		if it.Cost = -min(it.Cost, m.own[it.Limit+" "+it.Key]); it.Cost < 0 {
			w.check(node, it)
			m.charge(it, it.Cost)
		}
	default:
		it := m.item(rt)
		m.took(rt, it, w.check(node, it)[0])
		m.last = &it
	}
}

// settle says of the oldest reservation that less was used, or all.
func (m *treeModel) settle(rt *rapid.T, w *world, node string) {
	it := m.open[0]
	m.open = m.open[1:]
	used := rapid.Int64Range(0, it.Cost).Draw(rt, "used")
	settled := Item{
		Limit: it.Limit, Key: it.Key, Op: OpSettle, Cost: used, Hold: &HoldTerms{ID: it.ID},
	}
	for range 2 {
		if d := w.check(node, settled)[0]; !d.Allowed || d.Hold != limiter.HoldSettled {
			rt.Fatalf("settling %v with %d: %+v", it, used, d)
		}
	}
	m.hold(it, -it.Cost)
	m.charge(it, used)
}

// took holds the answer to a take against the model, and charges it there.
func (m *treeModel) took(rt *rapid.T, it Item, d Decision) {
	m.lastAllowed = m.fits(it)
	if d.Allowed != m.lastAllowed {
		rt.Fatalf("%v: %+v, want %t", it, d, m.lastAllowed)
	}
	if d.Allowed {
		m.charge(it, it.Cost)
	}
	least, refuses := int64(limiter.MaxLimit), ""
	for _, l := range levelsOf(&it) {
		left := m.limits[l[0]] - m.spent[place(l)] - m.held[place(l)]
		least = min(least, left)
		if !d.Allowed && refuses == "" && left < it.Cost {
			refuses = l[0]
		}
	}
	if d.Remaining != least || !d.Allowed && d.Rule.Name != refuses {
		rt.Fatalf("%v: %+v of limit %q; want %d left, and a refusal by %q", it, d, d.Rule.Name,
			least, refuses)
	}
}

// compare holds what is left of all levels against the model.
func (m *treeModel) compare(rt *rapid.T, w *world) {
	for at, spent := range m.spent {
		name, key, _ := strings.Cut(at, " ")
		n := w.nodes["n1"]
		look := flight{AskItem: AskItem{
			Limit: n.Limits()[name], Key: key, Op: OpPeek,
		}, hash: limiter.Hash(key)}
		var out [1]Decision
		n.forwarder.checkEach(w.now, n.view.Load(),
			&batch{items: []flight{look}, deadline: w.now.Add(time.Second)}, out[:])
		if want := m.limits[name] - spent - m.held[at]; out[0].Remaining != want {
			rt.Fatalf("%d remain of %s, want %d", out[0].Remaining, at, want)
		}
		if spent+m.held[at] > m.limits[name] {
			rt.Fatalf("the model has %d of %d spent of %s", spent, m.limits[name], at)
		}
		children := m.own[at]
		for below, n := range m.spent {
			l, k, _ := strings.Cut(below, " ")
			if parent, _ := limiter.ParentKey(k); parent == key &&
				map[string]string{"user": "team", "team": "org"}[l] == name {
				children += n
			}
		}
		if children != spent {
			rt.Fatalf("%s has %d spent; it and its children were asked for %d", at, spent, children)
		}
	}
}

// treeWorld has three nodes and the tree user < team < org, of 10, 20 and 30 in an hour.
func treeWorld(t *testing.T, more ...limiter.Spec) *world {
	return newWorld(t, 3, append(more, level("user", "team", 10), level("team", "org", 20),
		level("org", "", 30))...)
}

const ann = "acme/search/ann"

// left is what remains of each level of ann's, asked for alone.
func (w *world) left() (left [3]int64) {
	w.t.Helper()
	w.settle()
	n := w.nodes["n1"]
	for i, name := range []string{"user", "team", "org"} {
		key := []string{ann, "acme/search", "acme"}[i]
		look := flight{
			AskItem: AskItem{Limit: n.Limits()[name], Key: key, Op: OpPeek},
			hash:    limiter.Hash(key),
		}
		var out [1]Decision
		n.forwarder.checkEach(w.now, n.view.Load(),
			&batch{items: []flight{look}, deadline: w.now.Add(time.Second)}, out[:])
		left[i] = out[0].Remaining
	}
	return left
}

// Promise: the answer names the limit that refuses; a peek shows the least and charges nothing; a
// reset is that of the named level alone; a report goes to all levels.
func TestAnswersOfATree(t *testing.T) {
	w := treeWorld(t)
	d := w.check("n1", Item{Limit: "user", Key: ann, Cost: 8})[0]
	if !d.Allowed || d.Remaining != 2 || d.Rule.Name != "user" || d.Decision.Limit != 10 {
		t.Errorf("%+v of %q", d, d.Rule.Name)
	}
	w.settle()
	w.check("n1", Item{Limit: "team", Key: "acme/search", Cost: 11})
	w.settle()
	d = w.check("n2", Item{Limit: "user", Key: ann, Cost: 2})[0]
	if d.Allowed || d.Rule.Name != "team" || d.Remaining != 1 || d.RetryAfter <= 0 {
		t.Errorf("refused by the team: %+v of %q", d, d.Rule.Name)
	}
	if got := w.left(); got != [3]int64{2, 1, 11} {
		t.Errorf("%v are left, want 2, 1 and 11", got)
	}
	d = w.check("n3", Item{Limit: "user", Key: ann, Op: OpPeek})[0]
	if d.Remaining != 1 || d.Rule.Name != "team" || !d.Allowed {
		t.Errorf("a peek: %+v of %q", d, d.Rule.Name)
	}
	w.check("n1", Item{Limit: "user", Key: ann, Op: OpReset})
	if got := w.left(); got != [3]int64{10, 1, 11} {
		t.Errorf("after a reset %v are left, want 10, 1 and 11", got)
	}
	report := Item{Limit: "user", Key: ann, Cost: 5}
	report.Report = true
	w.check("n1", report)
	if got := w.left(); got != [3]int64{5, 0, 6} {
		t.Errorf("after a report %v are left, want 5, 0 and 6", got)
	}
	w.check("n1", Item{Limit: "user", Key: ann, Cost: -4})
	if got := w.left(); got != [3]int64{9, 4, 10} {
		t.Errorf("after a refund %v are left, want 9, 4 and 10", got)
	}
}
