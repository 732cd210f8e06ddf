package cluster

import "penstock/limiter"

// checkAtomic admits all items or charges none. They must have one owner, which decides them under its locks at
// once. Limits of one key always have (limiter.Hash), so "10 a minute and 1000 a day for alice" works on any
// cluster; keys of several owners are refused with ErrSpread.
func (n *Node) checkAtomic(now limiter.Instant, view *route, r *Request, out []Decision) error {
	owner := view.Owner(r.Items[0].hash)
	for i := range r.Items {
		it := &r.Items[i]
		if it.Op != OpTake {
			return inputErrorf(i, "op", "an atomic request only takes; peek and reset its keys one by one")
		}
		if view.Owner(it.hash) != owner {
			return ErrSpread
		}
	}
	if owner == view.Self {
		decisions := make([]limiter.Decision, len(r.Items))
		n.decideAll(now, r.Items, decisions)
		for i := range out {
			out[i] = Decision{Decision: decisions[i], Owner: n.id, Source: SourceOwner}
		}
		return nil
	}
	away := make([]int, len(r.Items))
	for i := range away {
		away[i] = i
	}
	n.forward(now, view, r, away, out)
	unite(r.Items, out)
	return nil
}

// decideAll is the owner's decision on items that stand or fall together.
func (n *Node) decideAll(now limiter.Instant, items []Item, out []limiter.Decision) {
	take := func() { n.takeAll(now, items, out) }
	if items[0].ID == (ID{}) {
		take()
	} else if n.recent.once(now, items[0].ID, out, take) {
		n.stats.Repeated.Add(1)
	}
}

// takeAll charges all items or none. Limits that never deny have no say in it: their refusal would reach the client
// as a yes, while the others would not have been charged. They are charged if the others are.
func (n *Node) takeAll(now limiter.Instant, items []Item, out []limiter.Decision) {
	them := make([]limiter.Item, 0, len(items))
	for i := range items {
		if it := &items[i]; !it.limit.NeverDenies() {
			them = append(them, limiter.Item{Limit: it.limit, Key: it.Key, Hash: it.hash, Cost: it.Cost})
		}
	}
	decisions := make([]limiter.Decision, len(them))
	all := n.table.TakeAll(now, them, decisions)
	for i := range items {
		switch it := &items[i]; {
		case !it.limit.NeverDenies():
			out[i], decisions = decisions[0], decisions[1:]
		case all:
			out[i] = n.table.Take(now, it.limit, it.Key, it.hash, it.Cost)
		default:
			out[i] = n.table.Peek(now, it.limit, it.Key, it.hash, it.Cost)
		}
	}
}

// unite makes one answer of decisions that fell back one by one: if one of them refuses, all do. What the others
// charged to this node's share stays charged, which can only deny too early.
func unite(items []Item, out []Decision) {
	for i := range out {
		if !out[i].Allowed && !items[i].limit.NeverDenies() {
			for k := range out {
				if out[k].Source == SourceFallback {
					out[k].Allowed = false
				}
			}
			return
		}
	}
}
