package cluster

import "penstock/limiter"

// A node may be stopped between the instant at which a request came and its answer, for longer than
// its right lasts. Another node may have decided on the same keys since it charged the request, so
// such an answer is marked with the whole limit (R5 of the protocol, ownership/DESIGN.md). That
// takes one more look at the clock for each request of which anything was decided here, and none on
// a node with a right that never ends.

// tenure is the right to decide that a request begins with.
type tenure struct {
	until  int64  // Instant
	lapses uint64 // agreement.lapses
	none   bool   // it was over: what is decided here is decided later, under another one
}

func (rt *right) tenure(now limiter.Instant) tenure {
	until := rt.until.Load()
	return tenure{until, rt.lapses.Load(), until <= int64(now)}
}

// lapsedSince reports whether the node may have been without a right at some time since t began.
// A right that was renewed before its end goes on.
func (rt *right) lapsedSince(t tenure) bool {
	if t.until == neverEnds {
		return false
	}
	now := int64(rt.clock.Now())
	return now >= t.until && (now >= rt.until.Load() || !t.none && rt.lapses.Load() != t.lapses)
}

// markLate marks what this node has decided for a client, if its right may have ended since.
func (rt *right) markLate(t tenure, items []flight, out []Decision) {
	for i := range out {
		if out[i].Source != SourceOwner || items[i].Limit.Unlimited {
			continue
		}
		if !rt.lapsedSince(t) {
			return
		}
		for k := range out[i:] {
			if d := &out[i+k]; d.Source == SourceOwner && !d.Degraded {
				d.Degraded, d.Bound = true, items[i+k].Limit.Capacity()
			}
		}
		return
	}
}

// markLateAnswer is markLate for what it has decided for another node.
func (rt *right) markLateAnswer(a *Ask, answer *Answer) {
	for i := range answer.Items {
		if answer.Items[i].Status != StatusDone || answer.Items[i].Owner != "" {
			continue
		}
		if !rt.lapsedSince(answer.under) {
			return
		}
		for k := range answer.Items[i:] {
			it := &answer.Items[i+k]
			if it.Status == StatusDone && it.Owner == "" && !it.Degraded &&
				!a.Items[i+k].Limit.Unlimited {
				it.Degraded, it.Bound = true, it.Decision.Limit
			}
		}
		return
	}
}
