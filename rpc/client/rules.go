package client

import (
	"context"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
)

// Verdict is the answer to CheckRules.
type Verdict struct {
	Allowed   bool
	RefusedBy []string // names of the limits that refuse, each once
	// the largest wait of those; -1 if none refuses, or one of them never admits that much
	RetryAfter time.Duration
	// Rules are the names of the rules that match. If there are none, no limit applies: the request
	// is admitted, and nothing is counted.
	Rules     []string
	Decisions []Decision // one for each limit that the request is under
}

// CheckRules charges cost units of every limit that the rules of the cluster's files put a request
// under, or none.
//
// attributes describe the request, by the names that the rules use: {"path": "/api/login",
// "method": "POST", "user": "alice"}. If a matching rule needs a missing attribute for a key, the
// error is INVALID_ARGUMENT; if the node has no rules, it is NOT_FOUND.
func (c *Client) CheckRules(ctx context.Context, attributes map[string]string,
	cost int64,
) (Verdict, error) {
	out, err := c.limits.Check(ctx, &penstockv1.CheckRequest{Attributes: attributes, Cost: &cost})
	if err != nil {
		return Verdict{}, err
	}
	v := Verdict{
		Allowed: out.Verdict.GetAllowed(), RefusedBy: out.Verdict.GetRefusedBy(),
		Rules:      out.Verdict.GetRules(),
		RetryAfter: duration(out.Verdict.GetRetryAfterMs()),
	}
	for _, d := range out.Decisions {
		v.Decisions = append(v.Decisions, decision(d))
	}
	return v, nil
}
