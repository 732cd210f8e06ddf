package cluster

import (
	"time"

	"penstock/limiter"
)

// fallbackRetry is when a client may ask again that was denied without the holder, at the latest:
// by then a breaker has looked once more, or another node decides.
const fallbackRetry = time.Second

// shares decide where no holder of the key answers.
type shares struct {
	*self
	right  *right
	holder *holder
}

// fallback answers an item that no holder of its key has decided: by its limit's on_error, or, if
// this node is cut off from most of the others, by its on_partition. This is the only place that
// knows what happens when no holder answers.
//
//   - local, proportional: this node decides from its own share, which is the limit divided by the
//     members that there should be. The shares of all nodes add up to one limit, or to one unit
//     each if there are more nodes than units. That is the most that the cluster admits beyond what
//     the owner did. In a partition only the shares on this side are used.
//   - allow: admitted, unbounded.
//   - open: decided by this node alone, as if it were the only one.
//   - deny: denied.
//
// A reset has nothing to fall back on, nor has a hold that is to be settled: they are answered as
// not done, by a degraded denial. A reservation is charged to the share as a take is, all of it: it
// is a promise, and the holder of the key is told of it later (debts.go).
func (sh *shares) fallback(now limiter.Instant, view *route, it *flight) Decision {
	d := sh.undecided(view, it)
	d.RetryAfter = limiter.Never
	nodes := max(1, view.Active(), sh.right.size())
	cutOff := sh.right.minority.Load()
	switch {
	case it.Op == OpReset, it.Op.holds() && it.Op != OpReserve,
		cutOff && it.Limit.OnPartition == limiter.PartitionDeny,
		!cutOff && it.Limit.OnError == limiter.ErrorDeny:
		d.RetryAfter = fallbackRetry
	case !cutOff && it.Limit.OnError == limiter.ErrorAllow:
		d.Allowed, d.Bound = true, Unbounded
	case cutOff && it.Limit.OnPartition == limiter.PartitionOpen:
		d.Decision, d.Bound = sh.decideShare(now, it, 1), int64(nodes)*it.Limit.Capacity()
	default:
		d.Decision = sh.decideShare(now, it, nodes)
		d.Bound = max(it.Limit.Capacity(), int64(nodes)*it.Limit.Share(nodes).Capacity())
	}
	return d
}

// undecided is the answer to an item that no node has decided: a denial, and nothing is charged.
func (sh *shares) undecided(view *route, it *flight) Decision {
	d := Decision{Source: SourceFallback, Degraded: true, ID: it.ID}
	if o := view.Owner(it.hash); o >= 0 {
		d.Owner = view.Members[o].ID
	}
	d.Decision = limiter.Decision{Limit: it.Limit.Capacity(), RetryAfter: fallbackRetry}
	sh.stats.Fallback.Add(1)
	return d
}

// shareOrigin makes the ID of what a share is charged for a reservation. Under its own ID its
// owner, which may be this node by the time that it is repeated, remembers whether there is a hold.
const shareOrigin = 1 << 59

// decideShare decides from this node's share of the limit, one of so many.
func (sh *shares) decideShare(now limiter.Instant, it *flight, of int) (d limiter.Decision) {
	share := *it
	share.Limit, share.share = it.Limit.Share(of), true
	if it.Op == OpReserve {
		share.Op, share.Hold = OpTake, nil
		share.ID.Origin ^= shareOrigin
	}
	sh.holder.decide(now, &share, &d)
	if it.again = share.again; !it.again && share.ID != (ID{}) {
		sh.holder.recent.Share(now, sh.holder.remembered(&share))
	}
	return d
}

// soften has a denial of a share say that a client may ask again soon. A cost that does not fit
// into a share, now or ever, may fit into the limit, and the holder of the key will know.
func (it *flight) soften(d *limiter.Decision) {
	late := d.RetryAfter == limiter.Never || d.RetryAfter > fallbackRetry
	if it.share && !d.Allowed && late {
		d.RetryAfter = fallbackRetry
	}
}
