package cluster

import (
	"slices"

	"penstock/cluster/dedup"
	"penstock/cluster/denial"
	"penstock/cluster/lease"
	"penstock/limiter"
)

// Which denials a node follows that does not decide for a key. Package denial tells the whole
// story, and keeps them; here stands what depends on the View: the owner that has denied must still
// be the owner, and be there.

// local lets a node decide on keys that other nodes hold, from what those have lent or denied.
type local struct {
	*self
	right     *right
	catalog   *catalog
	parts     *partitions
	holder    *holder
	forwarder *forwarder
	confirms  *confirmer

	leases  lease.Leases
	denials denial.Cache
}

// givesBack reports whether an item may make its key freer than it was.
func (it *flight) givesBack() bool { return givesBack(it.Op, it.Cost) }

func givesBack(op Op, cost int64) bool { return op == OpReset || op == OpTake && cost < 0 }

// takes reports whether an item asks for nothing but units.
func (it *flight) takes() bool { return it.Op == OpTake && it.Cost > 0 && it.Terms == (Terms{}) }

// place is the item's key as a denial knows it.
func (it *flight) place() denial.Key {
	return denial.Key{
		Limit: it.Limit, Key: it.Key,
		Hash: it.hash,
	}
}

// decideAway decides an item of a key that this node does not hold, from what the owner has lent or
// denied.
func (lc *local) decideAway(now limiter.Instant, it *flight, out *Decision) bool {
	switch {
	case it.delivered: // the asker goes on to the holder
		return false
	case it.givesBack(): // a take after it in the same request must be asked for after it
		lc.denials.Forget(now, it.hash)
	case lc.denials.Len() > 0 && it.takes() && lc.decideDenied(now, it, out):
		return true
	}
	return it.Limit.Consistency == limiter.Leased && lc.decideLeased(now, it, out)
}

// decideDenied denies what the owner has just denied, as long as the owner is there and owns the
// key.
func (lc *local) decideDenied(now limiter.Instant, it *flight, out *Decision) bool {
	v := lc.denials.Find(now, it.place(), it.Cost, it.ID != ID{}, dedup.Lasts)
	if v.Known {
		it.Tell = v.Tell
	}
	if !v.Denied {
		return false
	}
	view := lc.view.Load()
	if view == nil || lc.right.minority.Load() || view.ownerBoot(it.hash) != v.By {
		return false
	}
	lc.stats.Cached.Add(1)
	*out = Decision{
		Decision: v.Answer, Source: SourceDenied,
		Owner: view.Members[view.Owner(it.hash)].ID,
	}
	return true
}

// heard notes what a node has answered to an item, unless it stands or falls with others.
func (lc *local) heard(sent, now limiter.Instant, view *route, it *flight, c *Call, a *AnswerItem) {
	switch d := &a.Decision; {
	case it.givesBack():
		lc.denials.Forget(now, it.hash)
	case d.Allowed || c.Ask.Atomic || !it.takes() || !it.Limit.KeepsDenials():
	case d.Hold != limiter.HoldNone || a.Degraded || a.Owner != "" ||
		view.ownerBoot(it.hash) != c.To.Boot:
	default:
		lc.denials.Note(now, it.place(),
			&denial.Answer{By: c.To.Boot, Sent: sent, Cost: it.Cost, Denied: *d, Told: a.Told})
	}
	if it.Limit.Consistency == limiter.Leased {
		lc.heardLease(sent, it, &a.Decision)
	}
}

// promise notes that boot is to be told when a denial of the item ends, if this node can do so: it
// owns the key by its own View, which knows that boot.
func (nt *notices) promise(now limiter.Instant, boot uint64, it *flight) bool {
	if boot == 0 || !it.takes() || !it.Limit.KeepsDenials() {
		return false
	}
	return nt.watches.Promise(now, boot, it.hash, func() bool {
		view := nt.view.Load() // a change of the View that comes later finds the promise
		return view != nil && view.Owns(it.hash) && view.hasBoot(boot)
	})
}

// promised reports whether the promise is worth saying: the decision is a denial, and not a
// remembered one, which says when it ended by when it was first asked for. If not, the promise
// stays: there may be another denial of that key to keep it for.
func promised(it *flight, out *AnswerItem) bool {
	d := &out.Decision
	return out.Status == StatusDone && !it.again && !d.Allowed && d.RetryAfter > 0 &&
		d.Hold == limiter.HoldNone && !out.Degraded
}

// givenBack are the hashes of the keys to which a has given back something here.
func givenBack(a *Ask, answer *Answer) (hashes []uint64) {
	for i := range a.Items {
		it, out := &a.Items[i], &answer.Items[i]
		if givesBack(it.Op, it.Cost) && out.Status == StatusDone && out.Owner == "" {
			hashes = append(hashes, limiter.Hash(it.Key))
		}
	}
	return hashes
}

// ownGivenBack are the hashes of the keys to which this node, as the holder, has given back
// something.
func ownGivenBack(items []flight, out []Decision) (hashes []uint64) {
	for i := range items {
		if it := &items[i]; it.givesBack() && out[i].Source == SourceOwner {
			hashes = append(hashes, it.hash)
		}
	}
	return hashes
}

// MustNotify is Node.MustNotify.
func (nt *notices) MustNotify(a *Ask, answer *Answer) bool {
	if nt.watches.Len() == 0 {
		return false
	}
	return slices.ContainsFunc(givenBack(a, answer),
		func(hash uint64) bool { return nt.watches.Watched(hash, a.From) })
}

// GivesBack reports whether Deliver of a may wait to tell others of it (Node.MustNotify).
func (a *Ask) GivesBack() bool {
	return slices.ContainsFunc(a.Items, func(it AskItem) bool { return givesBack(it.Op, it.Cost) })
}
