package cluster

import (
	"time"

	"penstock/limiter"
)

// fallbackRetry is when a client denied by on_error: deny may ask again: by then a breaker has looked once more.
const fallbackRetry = time.Second

// fallback answers an item that no owner has decided, by its limit's on_error. This is the only place that knows
// what happens when nobody answers.
//
//	local  this node decides from its own share, limit divided by the members in the ring. The shares of all nodes
//	       add up to one limit, or to one unit each if there are more nodes than units: that is the most that the
//	       cluster admits beyond what the owner did.
//	allow  admitted, unbounded.
//	deny   denied.
//
// A reset has nothing to fall back on: it is answered as not done, by a degraded denial.
func (n *Node) fallback(now limiter.Instant, view *route, it *Item, owner string) Decision {
	d := Decision{Owner: owner, Source: SourceFallback, Degraded: true}
	d.Decision = limiter.Decision{Limit: it.limit.Capacity(), RetryAfter: limiter.Never}
	n.stats.Fallback.Add(1)
	switch {
	case it.Op == OpReset, it.limit.OnError == limiter.ErrorDeny:
		d.RetryAfter = fallbackRetry
	case it.limit.OnError == limiter.ErrorAllow:
		d.Allowed, d.Bound = true, Unbounded
	default:
		share := *it
		nodes := max(1, view.Active())
		share.limit = it.limit.Share(nodes)
		d.Decision = n.decide(now, &share)
		d.Bound = max(it.limit.Capacity(), int64(nodes)*share.limit.Capacity())
	}
	return d
}
