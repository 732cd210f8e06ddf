package cluster

import (
	"slices"

	"penstock/limiter"
	"penstock/ring"
)

// checkAtomic admits all items or charges none. If they have one owner, it decides them under its
// locks at once. Limits of one key always have (limiter.Hash), so "10 a minute and 1000 a day for
// alice" is one round trip on any cluster. Keys of several owners are set aside at all of them
// first (together.go; reservations: spread.go).
func (n *Node) checkAtomic(now limiter.Instant, view *route, r *batch, out []Decision) error {
	owner, spread := view.Owner(r.items[0].hash), false
	for i := range r.items {
		it := &r.items[i]
		if !it.Op.together(r.items[0].Op) {
			return inputErrorf(i, "op",
				"an atomic request only takes, or only reserves; do all else one by one")
		}
		spread = spread || view.Owner(it.hash) != owner
	}
	switch {
	case spread && r.items[0].Op == OpReserve:
		n.spreads.reserveSpread(now, view, r, out)
		unite(r.items, out)
		return nil
	case spread:
		r.spread = true
		return n.spreads.takeSpread(now, view, r, out)
	}
	if n.holder.decideAllHere(now, r.items, out) {
		return nil
	}
	away := make([]int, len(r.items))
	for i := range away {
		away[i] = i
	}
	n.forwarder.forward(now, view, r, away, out)
	unite(r.items, out)
	return nil
}

// together reports whether an item of this operation may stand or fall with a first one of that
// operation.
func (op Op) together(first Op) bool { return op == first && (op == OpTake || op == OpReserve) }

// decideAllHere decides on items that stand or fall together if this node holds all their keys, and
// reports whether it does.
func (hd *holder) decideAllHere(now limiter.Instant, items []flight, out []Decision) bool {
	decisions := make([]limiter.Decision, len(items))
	if !hd.decideAll(now, items, decisions) {
		return false
	}
	for i := range out {
		out[i] = Decision{Decision: decisions[i]}
		hd.sign(now, &items[i], &out[i])
	}
	return true
}

// decideAll is the holder's decision on items that stand or fall together, if it holds them all.
func (hd *holder) decideAll(now limiter.Instant, items []flight, out []limiter.Decision) bool {
	for i := range items {
		if items[i].Limit.Consistency != limiter.Replicated && !hd.decides(now, items[i].hash) {
			return false
		}
	}
	take := func() bool {
		if items[0].Op == OpReserve {
			hd.holdAll(now, items, out)
		} else {
			hd.takeAll(now, items, out)
		}
		hd.chargeAll(items, out)
		return !slices.ContainsFunc(out, func(d limiter.Decision) bool { return d.Closed })
	}
	if items[0].ID == (ID{}) {
		return take()
	}
	open := true
	if hd.recent.Once(now, items[0].ID, ring.Partition(items[0].hash), out,
		func() bool { open = take(); return open }) {
		hd.stats.Repeated.Add(1)
	}
	return open
}

// chargeAll has the others hear of what was charged to replicated limits among items that stand or
// fall together.
func (hd *holder) chargeAll(items []flight, out []limiter.Decision) {
	if slices.ContainsFunc(out, func(d limiter.Decision) bool { return d.Closed }) {
		return
	}
	for i := range items {
		if !out[i].Allowed && !items[i].Limit.NeverDenies() {
			return
		}
	}
	for i := range items {
		if items[i].Limit.Consistency == limiter.Replicated {
			hd.charge(&items[i], &out[i])
		}
	}
}

// takeAll charges all items or none. Limits that never deny have no say in it: their refusal would
// reach the client as a yes, while the others would not have been charged. They are charged if the
// others are.
func (hd *holder) takeAll(now limiter.Instant, items []flight, out []limiter.Decision) {
	them := make([]limiter.Item, 0, len(items))
	for i := range items {
		if it := &items[i]; !it.Limit.NeverDenies() {
			them = append(them,
				limiter.Item{Limit: it.Limit, Key: it.Key, Hash: it.hash, Request: it.of(it.Cost)})
		}
	}
	decisions := make([]limiter.Decision, len(them))
	all := hd.table.TakeAll(now, them, decisions)
	for i := range items {
		switch it := &items[i]; {
		case !it.Limit.NeverDenies():
			out[i], decisions = decisions[0], decisions[1:]
		case all:
			out[i] = hd.table.Do(now, it.Limit, it.Key, it.hash, it.of(it.Cost))
		default:
			out[i] = hd.table.PeekRequest(now, it.Limit, it.Key, it.hash, it.of(it.Cost))
			left := hd.table.PeekRequest(now, it.Limit, it.Key, it.hash, it.of(0))
			out[i].ShowsLeft(&left)
		}
	}
}

// unite makes one answer of decisions that fell back one by one: if one of them refuses, all do.
// What the others charged to this node's share stays charged, which can only deny too early.
func unite(items []flight, out []Decision) {
	for i := range out {
		if !out[i].Allowed && !items[i].Limit.NeverDenies() {
			for k := range out {
				if out[k].Source == SourceFallback && out[k].Allowed {
					out[k].Allowed, out[k].along = false, true
				}
			}
			return
		}
	}
}
