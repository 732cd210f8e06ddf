package notation

import (
	"penstock/cluster"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
)

// Decisions makes the decisions of a response.
func Decisions(out []cluster.Decision) []*penstockv1.Decision {
	all := make([]*penstockv1.Decision, len(out))
	for i := range out {
		d := &out[i]
		all[i] = &penstockv1.Decision{
			Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining,
			RetryAfterMs: door.Millis(d.Retry()), ResetAfterMs: door.Millis(d.ResetAfter),
			DelayMs:   door.Millis(d.Delay),
			LimitName: d.Rule.Name, Owner: d.Owner, Source: Source(d.Source),
			Degraded: d.Degraded, Bound: d.Bound, Shadow: d.Shadow,
			Restarted: door.Restarted(d), Override: d.Rule.Override,
			Drained: d.Drained, SessionMs: int64(d.Session),
			Tag: d.Tag(), Tier: int32(d.Tier()), Denial: encodeDenial(d),
		}
	}
	return all
}

// encodeDenial is nil if the limit has no words of its own.
func encodeDenial(d *cluster.Decision) *penstockv1.Denial {
	said := d.Said()
	if said.Status == 0 && said.Body == "" {
		return nil
	}
	return &penstockv1.Denial{
		Status: int32(said.Status), ContentType: said.ContentType, Body: said.Body,
	}
}

// Source is the source of a decision as messages name it.
func Source(s cluster.Source) penstockv1.Source {
	return penstockv1.Source(s) + penstockv1.Source_SOURCE_OWNER
}
