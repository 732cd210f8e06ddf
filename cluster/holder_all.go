package cluster

import (
	"slices"

	"penstock/cluster/dedup"
	"penstock/limiter"
)

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
	for i := range items { // before the memory of the first is locked, which others may share
		items[i].again = hd.wasCharged(now, &items[i])
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
	if hd.recent.Once(now, dedup.Take{
		ID: items[0].ID, Partition: hd.partition(items[0].hash),
		GivesBack: slices.ContainsFunc(items, func(it flight) bool { return it.givesBack() }),
	}, out, func() bool { open = take(); return open }) {
		hd.stats.Repeated.Add(1)
	} else if open {
		hd.expectReports(now, items, out)
	}
	return open
}

// wasCharged reports whether the item was charged, or given back, without the others: the keys of a
// request that is asked for again may have had several owners before.
func (hd *holder) wasCharged(now limiter.Instant, it *flight) bool {
	if !it.mayBeReported() {
		return false
	}
	used := func(hold ID) bool {
		h, known := hd.book.Get(limiter.HoldID(hold))
		return known && h.State != limiter.HoldOpen && h.Used > 0 && h.Key == it.Key
	}
	hold := ofHold(it.ID)
	return it.givesBack() && hd.recent.Knows(now, ofReport(it.ID), hd.partition(it.hash)) ||
		used(hold) || used(anew(hold))
}

// expectReports remembers takes that were let in together as if each had been reported: under its
// own ID none of them is remembered. The share of a node from which its client hears nothing may
// have let them in before, and the client repeats them by way of another node: that first node
// reports them, and here they are charged already. Refunds of several keys together are reported if
// the heirs of the keys are several nodes (multi_owner_take.go).
func (hd *holder) expectReports(now limiter.Instant, items []flight, out []limiter.Decision) {
	for i := range items {
		if !items[i].mayBeReported() || !out[i].Allowed && !items[i].Limit.NeverDenies() {
			return
		}
	}
	for i := range items {
		if it := &items[i]; it.Cost != 0 {
			m := dedup.Memory{
				ID: ofReport(it.ID), Partition: uint16(hd.partition(it.hash)),
				Decisions: []limiter.Decision{out[i]}, GivesBack: it.givesBack(),
			}
			of := m
			of.ID = ofWhole(it.ID)
			hd.recent.Learn(now, []dedup.Memory{m, of})
		}
	}
}

// mayBeReported reports whether the client may have asked another node for the same, which may
// report it.
func (it *flight) mayBeReported() bool {
	return it.Op == OpTake && it.ID != (ID{}) && it.ID.Origin&nodeOrigin == 0
}

// takeAll charges all items or none. Limits that never deny have no say in it: their refusal would
// reach the client as a yes, while the others would not have been charged. They are charged if the
// others are. Those that were charged before have none either.
func (hd *holder) takeAll(now limiter.Instant, items []flight, out []limiter.Decision) {
	them := make([]limiter.Item, 0, len(items))
	for i := range items {
		if it := &items[i]; !it.again && !it.Limit.NeverDenies() {
			them = append(them,
				limiter.Item{Limit: it.Limit, Key: it.Key, Hash: it.hash, Request: it.of(it.Cost)})
		}
	}
	decisions := make([]limiter.Decision, len(them))
	all := hd.table.TakeAll(now, them, decisions)
	for i := range items {
		switch it := &items[i]; {
		case it.again:
			out[i] = hd.table.PeekRequest(now, it.Limit, it.Key, it.hash, it.of(0))
			out[i].Allowed = true
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

// holdAll opens a hold for every item, or none.
func (hd *holder) holdAll(now limiter.Instant, items []flight, out []limiter.Decision) {
	requests := make([]limiter.HoldRequest, len(items))
	for i := range items {
		if items[i].Hold == nil || items[i].checkHold() != nil {
			for k := range out {
				out[k] = limiter.Decision{RetryAfter: limiter.Never, Hold: limiter.HoldUnknown}
			}
			return
		}
		requests[i] = items[i].holdRequest()
	}
	hd.open(now, requests, out)
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
		if items[i].Limit.Consistency == limiter.Replicated && !items[i].again {
			hd.charge(&items[i], &out[i])
		}
	}
}
