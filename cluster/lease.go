package cluster

import (
	"cmp"

	"penstock/cluster/lease"
	"penstock/limiter"
)

// How a node spends, asks for and grants leases. Package lease keeps those that it has; here stands
// what it says to the holders of keys, and what it does as a holder.

// lent is the item's key as a lease knows it.
func (it *flight) lent() lease.Key { return lease.Key{Limit: it.Limit, Key: it.Key, Hash: it.hash} }

// mayFree reports whether it may make room where a moment ago there was none: a reset, a refund, or
// a client that settles a hold.
func (it *flight) mayFree() bool {
	return it.Op == OpReset || it.Op == OpTake && it.Cost < 0 ||
		it.Op == OpSettle && it.Hold.ID.Origin&nodeOrigin == 0
}

// decideLeased decides on an item of a leased limit at a node that does not hold its key, if the
// node has a lease for that, or has just been denied.
func (lc *local) decideLeased(now limiter.Instant, it *flight, out *Decision) bool {
	if !it.takes() || it.Limit.NeverDenies() {
		if it.mayFree() {
			lc.leases.FreeAgain(it.lent())
		}
		return false
	}
	view := lc.view.Load()
	if view == nil || view.Owner(it.hash) < 0 {
		return false
	}
	var answer [1]limiter.Decision
	decided, source, owner := false, SourceLease, view.Members[view.Owner(it.hash)].ID
	take := func() bool {
		var ask *lease.Ask
		if decided, ask = lc.leases.Spend(now, it.lent(), it.Cost, &answer[0]); ask != nil {
			lc.askLeaseSoon(ask)
		}
		return decided
	}
	learned, shared := false, false
	if t := lc.holder.remembered(it); t.ID == (ID{}) {
		take()
	} else if lc.holder.recent.Once(now, t, answer[:], take) {
		lc.stats.Repeated.Add(1)
		decided, shared = true, lc.holder.recent.Shared(now, t)
		// it came with a gift: the former holder has decided that
		if learned = lc.holder.recent.Learned(now, t); learned {
			source = SourceForwarded
			owner = cmp.Or(lc.parts.whereabouts(view, it.hash), lc.parts.formerly(it.hash), owner)
		}
	}
	if !decided {
		return false
	}
	switch {
	case learned, shared:
	case !answer[0].Allowed:
		source = SourceDenied
		lc.stats.Cached.Add(1)
	default:
		lc.stats.Leased.Add(1)
	}
	*out = Decision{Decision: answer[0], Source: source, Owner: owner}
	if shared {
		out.Source, out.Degraded, out.Bound = SourceFallback, true, it.Limit.Capacity()
	}
	return true
}

// heardLease notes what became of a forwarded item of a leased limit.
func (lc *local) heardLease(sent limiter.Instant, it *flight, d *limiter.Decision) {
	if it.takes() {
		lc.leases.Heard(sent, it.lent(), it.Cost, d)
	}
}

// askLeaseSoon sends a to the holder of its key, beside what is under way.
func (lc *local) askLeaseSoon(a *lease.Ask) {
	lc.clock.AfterFunc(0, func() { lc.askLease(a) })
}

func (lc *local) askLease(a *lease.Ask) {
	sent := lc.clock.Now()
	old, want := lc.leases.Begin(a)
	of := flight{AskItem: AskItem{Limit: a.Key.Limit, Key: a.Key.Key}, hash: a.Key.Hash}

	r := batch{deadline: sent.Add(limiter.LeaseTTL / 2)}
	for _, h := range old {
		r.items = append(r.items, of.same(AskItem{
			Cost: h.Size - h.Units, Op: OpSettle, Hold: &HoldTerms{ID: h.ID},
		}))
	}
	if a.More {
		r.items = append(r.items, of.same(AskItem{
			Cost: want, Op: OpLease, ID: lc.nextID(), Hold: &HoldTerms{
				TTL:    limiter.LeaseTTL,
				Holder: lc.id,
			},
		}))
	}
	out := make([]Decision, len(r.items))
	if view := lc.view.Load(); view != nil && len(r.items) > 0 {
		lc.forwarder.checkEach(sent, view, &r, out)
		lc.confirms.confirmOwn(r.deadline, r.items, out)
	}
	lc.reportLost(&r, out)

	var unheard []lease.Held
	for i, h := range old {
		if out[i].Source == SourceFallback {
			unheard = append(unheard, h)
		}
	}
	var grant *lease.Grant
	if a.More {
		grant = grantOf(r.items[len(old)].ID, &out[len(old)])
	}
	lc.leases.Done(sent, lc.clock.Now(), a, unheard, grant)
}

// grantOf reads the answer to a request for a lease.
func grantOf(id ID, d *Decision) *lease.Grant {
	g := &lease.Grant{ID: id, Unknown: d.Source == SourceFallback || d.Degraded, Rest: d.Decision}
	if d.Hold == limiter.HoldOpen {
		g.Units = d.Drained
	}
	return g
}

// reportLost charges what was spent of leases that no node knows any more, because the granting
// node died before its heir had heard of them.
func (lc *local) reportLost(settled *batch, out []Decision) {
	r := batch{deadline: settled.deadline}
	for i := range settled.items {
		if it := &settled.items[i]; it.Op == OpSettle && it.Cost > 0 &&
			out[i].Hold == limiter.HoldUnknown {
			r.items = append(r.items, it.same(AskItem{Cost: it.Cost, Terms: Terms{Report: true}}))
		}
	}
	if view := lc.view.Load(); view != nil && len(r.items) > 0 {
		lc.forwarder.checkEach(lc.clock.Now(), view, &r, make([]Decision, len(r.items)))
	}
}

// tendLeases renews leases and gives them back.
func (lc *local) tendLeases(now limiter.Instant) {
	limits := *lc.catalog.limits.Load()
	asks := lc.leases.Tick(now, func(k lease.Key) bool {
		named := limits[k.Limit.Name]
		if named == nil {
			return false
		}
		under, err := named.Under(k.Limit.Plan(), k.Key)
		return err != nil || under != k.Limit
	})
	for _, a := range asks {
		lc.askLeaseSoon(a)
	}
}
