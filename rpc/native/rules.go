package native

import (
	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
)

// checkMessage decides on c.in: on items, or on attributes.
func (s *rateLimiter) checkMessage(deadline limiter.Instant, c *checkCall) error {
	in := c.in
	ruled := in.Cost != nil || in.Id != nil
	// An empty map is not on the wire. Of a request with neither items nor attributes, but with the
	// fields that belong to attributes, nothing is known, and a rule for all requests matches it.
	if len(in.Attributes) == 0 && (len(in.Items) > 0 || !ruled) {
		if ruled {
			s.node.Stats().Refused.Add(1)
			return door.Wrong("cost",
				"and id of a request are for one with attributes; items have their own")
		}
		return s.decide(deadline, in.Items, in.Atomic, cluster.OpTake, c)
	}
	if len(in.Items) > 0 {
		s.node.Stats().Refused.Add(1)
		return door.Wrong("attributes", "are given together with items; give one of the two")
	}
	cost := int64(1)
	if in.Cost != nil {
		cost = *in.Cost
	}
	id, drawn := idOf(in.Id)
	if !drawn {
		s.node.Stats().Refused.Add(1)
		return door.Wrong("id.origin", badOrigin, id.Origin)
	}
	each := &cluster.Item{Cost: cost, ID: id}
	m, out, err := door.CheckRuled(s.decider(c), c.from.Recorder(s.audit), in.Attributes, each,
		deadline)
	if err != nil {
		return door.RulesError(err)
	}
	c.out, c.verdict = out, encodeVerdict(out)
	c.verdict.Rules = m.Rules
	return nil
}

func encodeVerdict(out []cluster.Decision) *penstockv1.Verdict {
	v := cluster.VerdictOf(out)
	return &penstockv1.Verdict{
		Allowed: v.Allowed, RefusedBy: v.RefusedBy,
		RetryAfterMs: door.Millis(v.RetryAfter),
	}
}
