package cluster

import (
	"cmp"
	"slices"
	"strings"

	"penstock/limiter"
)

// reserveSpread opens holds on keys of several owners, all or none: it asks all owners at once, and if one of them refuses,
// it cancels what the others have opened, after it has answered. Nothing waits for a hold of somebody else, so there is no deadlock.
// Two requests for the same keys may refuse each other, if each gets one of them first. So who was refused because of what
// is set aside cancels and tries once more, key after key in one order for all: of those that do, who gets the first key that
// they have in common meets none of the others at the next, and one of them gets all.
func (n *Node) reserveSpread(now limiter.Instant, view *route, r *Request, out []Decision) {
	n.checkEach(now, view, &Request{Items: r.Items, Deadline: r.Deadline, owed: r.owed}, out)
	if n.granted(r, out) {
		return
	}
	if !slices.ContainsFunc(out, func(d Decision) bool { return d.Hold == limiter.HoldInTheWay }) {
		opened := cancels(r.Items, out) // now: both are the caller's
		n.clock.AfterFunc(0, func() { n.cancel(n.clock.Now().Add(DefaultDeadline), opened) })
		return
	}
	opened := cancels(r.Items, out)
	if n.cancel(r.Deadline, opened); n.clock.Now() >= r.Deadline {
		n.clock.AfterFunc(0, func() { n.cancel(n.clock.Now().Add(DefaultDeadline), opened) }) // perhaps it got nowhere
		return
	}
	order := make([]int, len(r.Items))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &r.Items[a], &r.Items[b]
		return cmp.Or(cmp.Compare(x.hash, y.hash), cmp.Compare(x.limit.Name, y.limit.Name))
	})
	for k, i := range order {
		now = n.clock.Now()
		one := &Request{Items: r.Items[i : i+1 : i+1], Deadline: r.Deadline, owed: r.owed}
		out[i] = Decision{}
		one.Items[0].ID.Sequence = ^one.Items[0].ID.Sequence // that of the first try has been cancelled
		if n.checkEach(now, n.view.Load(), one, out[i:i+1]); !n.granted(one, out[i:i+1]) {
			opened := make([]Item, 0, k)
			for _, j := range order[:k] {
				opened = append(opened, cancels(r.Items[j:j+1], out[j:j+1])...)
			}
			n.clock.AfterFunc(0, func() { n.cancel(n.clock.Now().Add(DefaultDeadline), opened) })
			return
		}
	}
}

// granted reports whether nobody who has a say has refused. Where r is owed, who has not answered has none yet.
func (n *Node) granted(r *Request, out []Decision) bool {
	for i := range r.Items {
		if !out[i].Allowed && !r.Items[i].limit.NeverDenies() && !(r.owed && out[i].Owner == "") {
			return false
		}
	}
	return true
}

// cancels are the settlements that release what was opened, or may have been.
func cancels(items []Item, out []Decision) (list []Item) {
	for i := range items {
		if it := &items[i]; it.Op == OpReserve && (out[i].Hold == limiter.HoldOpen || out[i].Source == SourceFallback || out[i].Owner == "") {
			list = append(list, Item{Key: strings.Clone(it.Key), Op: OpSettle, Hold: &HoldTerms{ID: it.ID}, limit: it.limit, hash: it.hash})
		}
	}
	return list
}

// cancel settles holds with nothing. One that nobody hears of runs out.
func (n *Node) cancel(deadline limiter.Instant, list []Item) {
	now, view := n.clock.Now(), n.view.Load()
	if len(list) == 0 || view == nil {
		return
	}
	n.checkEach(now, view, &Request{Items: list, Deadline: deadline}, make([]Decision, len(list)))
}
