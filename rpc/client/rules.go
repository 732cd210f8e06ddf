package client

import (
	"context"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
)

// Verdict is the answer to CheckRules.
type Verdict struct {
	Allowed    bool
	RefusedBy  []string      // names of the limits that refuse, each once
	RetryAfter time.Duration // the largest wait of those; -1 if none refuses, or one of them never admits that much
	// Rules are the names of those that match. None: no limit is known for such a request; it is admitted, and nothing is counted.
	Rules     []string
	Decisions []Decision // one for each limit that the request is under
}

// CheckRules charges cost units of every limit that the rules of the cluster's files put a request under, or none. attributes
// are what is known of it, by names that the rules ask for: {"path": "/api/login", "method": "POST", "user": "alice"}. One that
// a matching rule needs for a key and that is missing is INVALID_ARGUMENT; that the node has no rules, NOT_FOUND.
func (c *Client) CheckRules(ctx context.Context, attributes map[string]string, cost int64) (Verdict, error) {
	in := &penstockv1.CheckRequest{Attributes: attributes, Cost: &cost, Id: c.nextID()}
	var out *penstockv1.CheckResponse
	err := c.twice(ctx, func(ctx context.Context) (err error) {
		out, err = c.limits.Check(ctx, in)
		return err
	})
	if err != nil {
		return Verdict{}, err
	}
	v := Verdict{
		Allowed: out.Verdict.GetAllowed(), RefusedBy: out.Verdict.GetRefusedBy(), Rules: out.Verdict.GetRules(),
		RetryAfter: duration(out.Verdict.GetRetryAfterMs()),
	}
	for _, d := range out.Decisions {
		v.Decisions = append(v.Decisions, decision(d))
	}
	return v, nil
}
