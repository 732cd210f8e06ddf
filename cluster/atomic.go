package cluster

import "penstock/limiter"

// checkAtomic admits all items or charges none. If they have one owner, it decides them under its
// locks at once. Limits of one key always have (limiter.Hash), so "10 a minute and 1000 a day for
// alice" is one round trip on any cluster. Keys of several owners are set aside at all of them
// first (multi_owner_take.go; reservations: multi_owner.go). So are keys of one owner that has not
// got all of them yet, while two other nodes hold some each.
func (mo *multiOwner) checkAtomic(
	now limiter.Instant, view *route, r *batch, out []Decision,
) error {
	owner, spread := view.Owner(r.items[0].hash), false
	for i := range r.items {
		it := &r.items[i]
		if !it.Op.together(r.items[0].Op) {
			return inputErrorf(i, "op",
				"an atomic request only takes, or only reserves; do all else one by one")
		}
		spread = spread || view.Owner(it.hash) != owner
	}
	if spread {
		return mo.decideApart(now, view, r, out)
	}
	nameMates(r.items)
	if mo.forwarder.decideTogether(now, r, out) {
		return nil
	}
	away := make([]int, len(r.items))
	for i := range away {
		away[i] = i
	}
	if !r.parted {
		mo.forwarder.forward(now, view, r, away, out)
	}
	if r.parted {
		return mo.decideApart(mo.clock.Now(), mo.view.Load(), r, out)
	}
	unite(r.items, out)
	return nil
}

// decideApart has each item decided by the node that holds its key, all or none.
func (mo *multiOwner) decideApart(
	now limiter.Instant, view *route, r *batch, out []Decision,
) error {
	if r.items[0].Op == OpReserve {
		mo.reserveAll(now, view, r, out)
		unite(r.items, out)
		return nil
	}
	r.multiOwner = true
	return mo.takeAll(now, view, r, out)
}

// part has the items of r decided apart, because a node holds the key of the first and not those of
// all: unless some node may have decided them all, without an answer, or some cannot be set aside.
func (r *batch) part() {
	r.parted = true
	for i := range r.items {
		it := &r.items[i]
		if it.doubt != nil || it.Op == OpTake && it.standsWithOthers(i) != nil {
			r.parted = false
		}
	}
}

// together reports whether an item of this operation may stand or fall with a first one of that
// operation.
func (op Op) together(first Op) bool { return op == first && (op == OpTake || op == OpReserve) }

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
