package main

import (
	"cmp"
	"slices"
	"time"

	"penstock/rpc/history"
)

// topLine is one key on a live screen: its state at the node that decides for it, and how often the
// doors of all nodes were asked for it.
type topLine struct {
	limit, key, owner string // owner is empty if the state is not known
	used, most        int64
	resetAfter        int64 // milliseconds; less than 0: never
	asked, denied     float64
}

// topTotals are what the nodes that answer have counted.
type topTotals struct {
	allowed, denied, degraded             uint64  // since the start of each node
	allowedRate, deniedRate, degradedRate float64 // a second, since the look before
	rated                                 bool    // there was a look before
}

// minLook is how long is waited for at least between two counts for a rate to be made of them.
const minLook = 100 * time.Millisecond

// totals adds up the nodes of now. Rates are those of nodes that have answered before, too, and
// were not restarted meanwhile.
func (now *topLook) totals(before *topLook) (t topTotals) {
	for name, n := range now.nodes {
		t.allowed += n.allowed
		t.denied += n.denied
		t.degraded += n.degraded
		old, seconds := before.earlier(name, n)
		if seconds == 0 {
			continue
		}
		t.rated = true
		t.allowedRate += float64(n.allowed-min(old.allowed, n.allowed)) / seconds
		t.deniedRate += float64(n.denied-min(old.denied, n.denied)) / seconds
		t.degradedRate += float64(n.degraded-min(old.degraded, n.degraded)) / seconds
	}
	return t
}

// earlier is what a node has said before, and how many seconds before it said n; 0: it has not, or
// was another start of it.
func (t *topLook) earlier(name string, n topNode) (old topNode, seconds float64) {
	if t == nil {
		return old, 0
	}
	old, known := t.nodes[name]
	if !known || old.boot != n.boot || n.at.Sub(old.at) < minLook {
		return old, 0
	}
	return old, n.at.Sub(old.at).Seconds()
}

type limitKey struct{ limit, key string }

type askedRate struct{ asked, denied float64 }

// askedRates are checks a second by key, at the doors of all nodes.
func (now *topLook) askedRates(before *topLook) map[limitKey]askedRate {
	rates := map[limitKey]askedRate{}
	for name, n := range now.nodes {
		old, seconds := before.earlier(name, n)
		if seconds > 0 && n.asked.Seconds > old.asked.Seconds &&
			n.asked.Sampled == old.asked.Sampled {
			addSince(rates, old.asked, n.asked, seconds)
		} else {
			addAverage(rates, n.asked)
		}
	}
	return rates
}

// addSince adds what was counted since an earlier list of the same sketch. A key that got its place
// in between is counted from there: what its place had counted before is Over.
func addSince(rates map[limitKey]askedRate, old, now history.HeavyList, seconds float64) {
	before := make(map[limitKey]history.Heavy, len(old.Keys))
	for _, k := range old.Keys {
		before[limitKey{k.Limit, k.Key}] = k
	}
	for _, k := range now.Keys {
		id := limitKey{k.Limit, k.Key}
		was, known := before[id]
		checks, denied := k.Checks-was.Checks, k.Denied-was.Denied
		if !known || was.Over != k.Over {
			checks, denied = k.Checks-k.Over, k.Denied
		}
		r := rates[id]
		r.asked += float64(max(0, checks)) / seconds
		r.denied += float64(max(0, denied)) / seconds
		rates[id] = r
	}
}

// addAverage adds the average of a sketch over its whole time: at a first look, and when the sketch
// has dropped its older half.
func addAverage(rates map[limitKey]askedRate, now history.HeavyList) {
	if now.Seconds <= 0 {
		return
	}
	for _, k := range now.Keys {
		id := limitKey{k.Limit, k.Key}
		r := rates[id]
		r.asked += float64(k.Checks-k.Over) / now.Seconds
		r.denied += float64(k.Denied) / now.Seconds
		rates[id] = r
	}
}

// lines are the keys of a look: those that have used most, and those that were asked for most.
func (now *topLook) lines(before *topLook) []topLine {
	rates := now.askedRates(before)
	list := make([]topLine, 0, len(now.list.Keys)+len(rates))
	for _, k := range now.list.Keys {
		id := limitKey{k.Name, k.Key}
		r := rates[id]
		delete(rates, id)
		list = append(list, topLine{
			limit: k.Name, key: k.Key, owner: k.Owner, used: k.Used, most: k.Limit,
			resetAfter: k.ResetAfter, asked: r.asked, denied: r.denied,
		})
	}
	for id, r := range rates {
		if r.asked > 0 {
			list = append(list, topLine{
				limit: id.limit, key: id.key, asked: r.asked, denied: r.denied,
			})
		}
	}
	return list
}

// topOrders are the ways to sort a live screen, by their names.
var topOrders = []struct {
	name  string
	value func(*topLine) float64
}{
	{"used", func(l *topLine) float64 { return float64(l.used) }},
	{"asked for", func(l *topLine) float64 { return l.asked }},
	{"denied", func(l *topLine) float64 { return l.denied }},
}

// sortLines puts the keys first that have most of what an order goes by.
func sortLines(list []topLine, order int) {
	value := topOrders[order].value
	slices.SortFunc(list, func(a, b topLine) int {
		return cmp.Or(cmp.Compare(value(&b), value(&a)), cmp.Compare(b.used, a.used),
			cmp.Compare(a.limit, b.limit), cmp.Compare(a.key, b.key))
	})
}
