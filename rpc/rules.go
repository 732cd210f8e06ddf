package rpc

import (
	"fmt"
	"net/http"
	"strings"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/rules"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/access"
	"penstock/rpc/door"
)

// checkRuled decides on a request by what is known of it. each has what all its items have: cost,
// terms, and the ID of the first.
func checkRuled(n *cluster.Node, who *access.Ticket, attributes map[string]string,
	each *cluster.Item, deadline limiter.Instant,
) (rules.Match, []cluster.Decision, error) {
	request, m, err := n.Match(attributes, each.Cost)
	if err != nil {
		return m, nil, err
	}
	out := make([]cluster.Decision, len(request.Items))
	if len(out) == 0 {
		return m, out, nil
	}
	if err := door.Permit(who, request); err != nil {
		return m, nil, err
	}
	request.Deadline, request.Items[0].ID = deadline, each.ID
	for i := range request.Items {
		request.Items[i].Terms = each.Terms
	}
	return m, out, n.Check(request, out)
}

// checkMessage decides on c.in: on items, or on attributes.
func (s *rateLimiter) checkMessage(deadline limiter.Instant, c *checkCall) error {
	in := c.in
	if len(in.Attributes) == 0 {
		if in.Cost != nil || in.Id != nil {
			s.node.Stats().Refused.Add(1)
			return &cluster.InputError{
				Field:  "cost",
				Reason: "and id of a request are for one with attributes; items have their own",
			}
		}
		return s.decide(deadline, in.Items, in.Atomic, cluster.OpTake, c)
	}
	if len(in.Items) > 0 {
		s.node.Stats().Refused.Add(1)
		return &cluster.InputError{
			Field:  "attributes",
			Reason: "are given together with items; give one of the two",
		}
	}
	cost := int64(1)
	if in.Cost != nil {
		cost = *in.Cost
	}
	each := &cluster.Item{
		Cost: cost, ID: cluster.ID{Origin: in.Id.GetOrigin(), Sequence: in.Id.GetSequence()},
	}
	m, out, err := checkRuled(s.node, c.from.Ticket(), in.Attributes, each, deadline)
	if err != nil {
		return ofRules(err)
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

// ofRules says an error of Node.Check without the items, which the caller has not made.
func ofRules(err error) error {
	if input, ok := err.(*cluster.InputError); ok && strings.HasPrefix(input.Field, "items") {
		return &cluster.InputError{
			Field:  "attributes",
			Reason: fmt.Sprintf("mean items of which one is wrong: %v", input),
		}
	}
	return err
}

// verdictJSON is what the decisions of an atomic request say together.
type verdictJSON struct {
	Allowed      bool     `json:"allowed"`
	RefusedBy    []string `json:"refused_by"`
	RetryAfterMs int64    `json:"retry_after_ms"`
	Rules        []string `json:"rules,omitzero"` // with attributes
}

func newVerdictJSON(out []cluster.Decision) *verdictJSON {
	v := cluster.VerdictOf(out)
	return &verdictJSON{
		Allowed: v.Allowed, RefusedBy: append([]string{}, v.RefusedBy...),
		RetryAfterMs: door.Millis(v.RetryAfter),
	}
}

// newRuledJSON answers attributes.
func newRuledJSON(m *rules.Match, out []cluster.Decision) decisionsJSON {
	answer := newDecisionsJSON(out)
	answer.Verdict = newVerdictJSON(out)
	answer.Verdict.Rules = append([]string{}, m.Rules...)
	return answer
}

// ruledBody answers a body with attributes.
func (w *web) ruledBody(r *http.Request, body *bodyJSON) (answer decisionsJSON, err error) {
	one := body.itemJSON
	one.Cost = nil
	if body.Items != nil || one != (itemJSON{}) {
		w.Node.Stats().Refused.Add(1)
		return answer, &cluster.InputError{
			Field: "attributes",
			Reason: "stand beside items, limit, key or another field of an item; with them " +
				"there is only cost",
		}
	}
	cost := int64(1)
	if body.Cost != nil {
		cost = *body.Cost
	}
	m, out, err := checkRuled(w.Node, access.Of(r.Context()), body.Attributes,
		&cluster.Item{Cost: cost}, 0)
	if err != nil {
		return answer, ofRules(err)
	}
	return newRuledJSON(&m, out), nil
}
