package cluster

import (
	"cmp"
	"slices"

	"penstock/limiter"
)

// multiOwner are requests for keys of several owners that stand or fall together.
type multiOwner struct {
	*self
	forwarder *forwarder
	holder    *holder
	shares    *shares
	debts     *debtor
	confirms  *confirmer
}

// reserveAll opens holds on keys of several owners, all or none: it asks all owners at once, and if
// one of them refuses, it cancels what the others have opened, after it has answered. No request
// waits for the hold of another one, so there is no deadlock. A hold that is not cancelled, because
// this node dies or nobody is reached, runs out as every hold does. Two requests for the same keys
// may refuse each other, if each gets one of them first. So a request that was refused because of
// another reservation alone cancels and tries once more, key after key in one order for all. Of
// several that do, the one that gets the first key that they have in common meets none of the
// others at the next, and one of them gets all.
func (mo *multiOwner) reserveAll(now limiter.Instant, view *route, r *batch, out []Decision) {
	mo.forwarder.checkEach(now, view, r.each(r.items), out)
	if mo.granted(r, out) {
		return
	}
	if !contested(r.items, out) {
		mo.release(r, cancels(r, r.items, out))
		return
	}
	if mo.debts.settleLater(mo.debts.settleOnce(r.deadline,
		cancels(r, r.items, out))); mo.clock.Now() >= r.deadline {
		return
	}
	order := make([]int, len(r.items))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &r.items[a], &r.items[b]
		return cmp.Or(cmp.Compare(x.hash, y.hash), cmp.Compare(x.Limit.Name, y.Limit.Name))
	})
	for k, i := range order {
		now = mo.clock.Now()
		one := r.each(r.items[i : i+1 : i+1])
		out[i] = Decision{}
		// that of the first try has been cancelled
		one.items[0].ID = anew(one.items[0].ID)
		mo.forwarder.checkEach(now, mo.view.Load(), one, out[i:i+1])
		out[i].ID = one.items[0].ID // those that follow may take long
		if !mo.granted(one, out[i:i+1]) {
			var opened []settlement
			for _, j := range order[:k+1] {
				opened = append(opened, cancels(r, r.items[j:j+1], out[j:j+1])...)
			}
			mo.release(r, opened)
			return
		}
	}
}

// each is some items of r, each of which stands or falls by itself.
func (r *batch) each(items []flight) *batch {
	return &batch{
		items: items, deadline: r.deadline, owed: r.owed, trace: r.trace, hungUp: r.hungUp,
	}
}

// contested reports whether a request was refused because of what is set aside, and of nothing
// else. What an owner refuses for itself it refuses the next time as well: all that a second try
// would do is to keep the client waiting.
func contested(items []flight, out []Decision) (is bool) {
	for i := range out {
		d, l := &out[i], items[i].Limit
		switch {
		case d.Hold == limiter.HoldInTheWay && items[i].Cost <= l.Capacity():
			is = true
		case !d.Allowed && d.Owner != "" && !l.NeverDenies():
			return false
		}
	}
	return is
}

// release releases what a refused request has opened, after its answer; or before what follows it.
func (mo *multiOwner) release(r *batch, list []settlement) {
	if r.followed {
		list = mo.debts.settleOnce(r.deadline, list)
	}
	mo.debts.settleLater(list)
}

// released reports whether the owner remembers a yes to the item, and has released since what was
// set aside then.
func (d *Decision) released(it *flight) bool {
	return it.Op == OpReserve && d.Allowed && d.Hold == limiter.HoldInTheWay
}

// refuseReleased has answers to a refused request say what its first try was answered; but where
// no owner refuses, what was released is refused.
func refuseReleased(asks []flight, out []Decision) {
	refused := false
	for i := range out {
		refused = refused || !out[i].Allowed && out[i].Owner != "" &&
			!asks[i].Limit.NeverDenies()
	}
	for i := range out {
		if !out[i].released(&asks[i]) {
			continue
		}
		if out[i].Hold = limiter.HoldOpen; !refused {
			out[i].Hold, out[i].Allowed = limiter.HoldNone, false
			out[i].RetryAfter = fallbackRetry
		}
	}
}

// granted reports whether no owner with a say has refused. Where r is owed, an owner that has not
// answered has none yet.
func (mo *multiOwner) granted(r *batch, out []Decision) bool {
	for i := range r.items {
		if out[i].released(&r.items[i]) ||
			!out[i].Allowed && !r.items[i].Limit.NeverDenies() && !(r.owed && out[i].Owner == "") {
			return false
		}
	}
	return true
}
