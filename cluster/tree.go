package cluster

import (
	"errors"
	"fmt"
	"slices"

	"penstock/limiter"
)

// A limit may have a parent (limiter.Spec.Parent). A check that names it charges all limits above
// it too, each under a key of its own, or none of them. Follow one:
//
//  1. Node.admit finds that the limit of an item has a parent, and growRuns writes the item down
//     with its levels: itself, its parent under the key up to the last slash, and so on. From here
//     on each level is an item as others are.
//  2. A take or a reservation and its levels stand or fall together, whichever nodes hold their
//     keys (checkAtomic). All else is done at each level by itself: a refund, a report, a peek, a
//     settlement. A reset is the named level's alone, and never comes here.
//  3. The answers of the levels are folded into one (fold).
//
// The node that is asked does this by its own limits; owners of keys need not know of trees.

// ancestry is what is above a limit in force.
type ancestry struct {
	levels []limitInForce // the parent first
	fault  error          // why a request cannot be decided: a parent is missing, or is none
}

// growTrees finds what is above the limits that have a parent. It is done once for a set of limits,
// so a circle of parents costs a request nothing but its error.
func growTrees(inForce map[string]limitInForce) {
	for name, x := range inForce {
		if x.limit.Parent != "" {
			x.above = ancestryOf(inForce, x.limit)
			inForce[name] = x
		}
	}
}

func ancestryOf(inForce map[string]limitInForce, l *limiter.Limit) *ancestry {
	named := func(name string) *limiter.Limit { return inForce[name].limit }
	above, err := limiter.Ancestors(l, named)
	a := &ancestry{fault: err}
	for _, at := range above {
		a.levels = append(a.levels, inForce[at.Name])
	}
	return a
}

// CheckParents says what is wrong with the parents of limits that are to be in force together: of
// the first by name that has a fault now and had none among before. It is a *limiter.SpecError.
func CheckParents(before, after Limits) error {
	var first *limiter.Limit
	var fault error
	for _, l := range after {
		if first != nil && first.Name < l.Name {
			continue
		}
		_, err := limiter.Ancestors(l, func(name string) *limiter.Limit { return after[name] })
		if err == nil {
			continue
		}
		if old := before[l.Name]; old != nil && old.Parent == l.Parent {
			if _, had := limiter.Ancestors(old, func(name string) *limiter.Limit {
				return before[name]
			}); had != nil {
				continue
			}
		}
		first, fault = l, err
	}
	return fault
}

// A treeRun is some items of a request in a row that are decided at once, with what is above them.
type treeRun struct {
	first  int      // the items of the request from there on
	items  []flight // they, and behind them the levels above
	levels [][]int  // of each item, its place and those of what is above it, among items
	atomic bool
}

// growRuns divides items, which are those of r and of which some have a parent, into runs that are
// decided at once. They keep their order. A request that it refuses has charged nothing.
func growRuns(
	limits map[string]limitInForce, r *Request, items []flight,
) (runs []treeRun, err error) {
	if r.Atomic && len(items) > 1 {
		return growTogether(limits, r, items)
	}
	for i := range items {
		it := &items[i]
		alone := it.child && (it.Op == OpReserve || it.Op == OpTake && it.Cost > 0 && !it.Report)
		if last := len(runs) - 1; last < 0 || alone || runs[last].atomic ||
			len(runs[last].items)+limiter.MaxLevels > MaxItems {
			runs = append(runs, treeRun{first: i, atomic: alone})
		}
		run := &runs[len(runs)-1]
		run.add(it)
		if err := run.grow(limits, i, &r.Items[i]); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// growTogether makes one run of items that stand or fall together. The levels above come behind
// all of them: a rule may name a parent as well.
func growTogether(
	limits map[string]limitInForce, r *Request, items []flight,
) (runs []treeRun, err error) {
	run := treeRun{atomic: true}
	for i := range items {
		run.add(&items[i])
	}
	for i := range items {
		if err := run.grow(limits, i, &r.Items[i]); err != nil {
			return nil, err
		}
	}
	if n := len(run.items); n > MaxItems {
		return nil, &InputError{
			Field: "items",
			Reason: fmt.Sprintf("are %d, and %d with the parents of their limits; at most %d are "+
				"decided together", len(items), n, MaxItems),
		}
	}
	return []treeRun{run}, nil
}

// add adds an item without what is above it.
func (run *treeRun) add(it *flight) {
	run.levels = append(run.levels, []int{len(run.items)})
	run.items = append(run.items, *it)
}

// grow adds what is above an item, the i-th of the request.
func (run *treeRun) grow(limits map[string]limitInForce, i int, asked *Item) error {
	it := &run.items[run.levels[i-run.first][0]]
	if !it.child {
		return nil
	}
	above := limits[asked.Limit].above
	switch named := asked.Ruled; {
	case asked.Inline != nil:
		return inputErrorf(i, "inline.parent", "is for limits with a name that all know; one that "+
			"a request brings along has none")
	case named != nil && (above == nil || limits[asked.Limit].limit.Parent != named.Parent):
		above = ancestryOf(limits, named)
	}
	if above.fault != nil {
		return faultOf(i, above.fault)
	}
	if it.Drain || it.Strict {
		field := map[bool]string{true: "drain", false: "strict"}[it.Drain]
		return inputErrorf(i, field, "is not for limit %q, which has a parent: what is charged "+
			"to one of them is charged to all", it.Limit.Name)
	}
	own := *it // what follows makes run.items move
	key := own.Key
	for level := range above.levels {
		below, has := key, false
		if key, has = limiter.ParentKey(key); !has {
			return inputErrorf(i, "key", "%q is too short for limit %q: the key of %q, which is "+
				"charged too, is what stands before the last slash, and nothing stands before one "+
				"in %q", own.Key, own.Limit.Name, above.levels[level].limit.Name, below)
		}
		k := -1
		if asked.Ruled != nil { // rules charge one limit with one key once
			k = run.find(above.levels[level].limit.Name, key)
		}
		if k < 0 {
			a := own.above(&above.levels[level], key, level)
			if err := a.heldAbove(i); err != nil {
				return err
			}
			k = len(run.items)
			run.items = append(run.items, a)
		}
		run.levels[i-run.first] = append(run.levels[i-run.first], k)
	}
	return nil
}

// find is the place of a limit and a key among the items; -1: there is none.
func (run *treeRun) find(limit, key string) int {
	return slices.IndexFunc(run.items, func(x flight) bool {
		return x.Key == key && x.Limit.Name == limit
	})
}

// above is it at a level above it, from 0.
func (it *flight) above(of *limitInForce, key string, level int) flight {
	a := flight{AskItem: it.AskItem, hash: limiter.Hash(key), tally: of.tally}
	a.Limit, a.Key, a.ID = of.limit.For(key), key, ofLevel(it.ID, level)
	if it.Hold != nil {
		terms := *it.Hold
		terms.ID = ofLevel(terms.ID, level)
		a.Hold = &terms
	}
	return a
}

// heldAbove says why the level, of the i-th item, cannot be held.
func (it *flight) heldAbove(i int) error {
	var spec *limiter.SpecError
	if it.Op == OpReserve && errors.As(it.checkHold(), &spec) {
		return inputErrorf(i, spec.Field, "%s", spec.Reason)
	}
	return nil
}

// faultOf is the error of the i-th item if the parents of its limit are none.
func faultOf(i int, fault error) error {
	var spec *limiter.SpecError
	if errors.As(fault, &spec) {
		return inputErrorf(i, "limit", "cannot be charged: the %s %s", spec.Field, spec.Reason)
	}
	return fault
}

// treeOrigin and levelSequence make the ID of a level of that of the item.
const (
	treeOrigin    = 1 << 59
	levelSequence = 0x9e3779b97f4a7c15
)

// ofLevel is the ID of a level above the item with this one: a repeat has the same, and so has a
// settlement of the hold. Of the complement of an ID it is the complement (reserveAll).
func ofLevel(id ID, level int) ID {
	if id == (ID{}) {
		return id
	}
	return ID{
		Origin:   id.Origin ^ treeOrigin,
		Sequence: id.Sequence ^ levelSequence*uint64(level+1),
	}
}

// checkTrees decides runs of items, which r is made of, one after the other, into out.
func checkTrees(
	n *Node, now limiter.Instant, r *batch, runs []treeRun, out []Decision,
) error {
	for k := range runs {
		run := &runs[k]
		if k > 0 {
			now = n.clock.Now()
		}
		view, under := n.view.Load(), n.right.tenure(now)
		levels := batch{
			items: run.items, deadline: r.deadline, atomic: run.atomic,
			followed: k+1 < len(runs), trace: r.trace, hungUp: r.hungUp,
		}
		all := make([]Decision, len(run.items))
		if !run.atomic {
			n.forwarder.checkEach(now, view, &levels, all)
		} else if err := n.multiOwner.checkAtomic(now, view, &levels, all); err != nil {
			n.stats.Refused.Add(1) // growRuns has let through what only a first run can have
			return err
		}
		run.spare(all)
		finish(n, now, under, &levels, all)
		for i := range run.levels {
			d := &out[run.first+i]
			*d = run.fold(i, all)
			countSpared(n, now, &run.items[run.levels[i][0]], d)
		}
	}
	return nil
}

// spare marks the levels of refused checks that do not refuse: nothing is charged there, so nothing
// is counted either.
func (run *treeRun) spare(all []Decision) {
	refuses := func(k int) bool {
		return !all[k].Allowed && !all[k].along && !run.items[k].Limit.NeverDenies()
	}
	for _, levels := range run.levels {
		it := &run.items[levels[0]]
		if len(levels) == 1 || it.Op != OpTake && it.Op != OpReserve || it.peeks() ||
			!slices.ContainsFunc(levels, refuses) {
			continue
		}
		for _, k := range levels {
			run.items[k].spared = !refuses(k)
		}
	}
}

// countSpared counts the answer d to an item that another level has refused: its limit is the one
// that was asked for.
func countSpared(n *Node, now limiter.Instant, it *flight, d *Decision) {
	if !it.spared {
		return
	}
	it.spared = false
	n.stats.tallyOf(it).add(it.cellOf(d, true), 1)
	if n.observer != nil {
		n.show(now, &batch{items: []flight{*it}}, []Decision{*d})
	}
}
