package web

import (
	"net/http"

	"penstock/cluster"
	"penstock/limiter/rules"
	"penstock/rpc/door"
)

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
func newRuledJSON(m *rules.Match, out []cluster.Decision) DecisionsJSON {
	answer := newDecisionsJSON(out)
	answer.Verdict = newVerdictJSON(out)
	answer.Verdict.Rules = append([]string{}, m.Rules...)
	return answer
}

// ruledBody answers a body with attributes.
func (c *checks) ruledBody(r *http.Request, body *bodyJSON) (answer DecisionsJSON, err error) {
	one := body.itemJSON
	one.Cost = nil
	if body.Items != nil || one != (itemJSON{}) {
		c.node.Stats().Refused.Add(1)
		return answer, door.Wrong("attributes",
			"stand beside items, limit, key or another field of an item; with them "+
				"there is only cost")
	}
	cost := int64(1)
	if body.Cost != nil {
		cost = *body.Cost
	}
	m, out, err := door.CheckRuled(c.decider(r), recorderOf(c.audit, r), body.Attributes,
		&cluster.Item{Cost: cost}, 0)
	if err != nil {
		return answer, door.RulesError(err)
	}
	return newRuledJSON(&m, out), nil
}
