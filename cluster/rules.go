package cluster

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"penstock/limiter"
	"penstock/limiter/rules"
)

// SetRules replaces the rules. They have been made with the limits that they name, and stay with
// them: a request that a rule matches is decided by limits and rules of one time, whatever
// SetLimits does meanwhile. A limit that was put takes the place of the one that a rule names.
func (c *catalog) SetRules(r *rules.Set) {
	c.rules.Store(r)
	c.rulesHash.Store(hashRules(r))
}

// Rules are those in force; nil: none.
func (c *catalog) Rules() *rules.Set { return c.rules.Load() }

// ErrNoRules says that a request came with attributes to a node that has no rules: an answer would
// be a yes to everything.
var ErrNoRules = errors.New("attributes: this node has no rules that say what they mean; " +
	"give it rules: in a file of limits, or name limit and key")

// Match makes a request of attributes: by the rules, all limits that it falls under with these,
// together or not at all, each of cost. Check decides it. A request without items is admitted as it
// is: no rule matches it, or one that leaves it out. The error is ErrNoRules or an *InputError.
func (c *catalog) Match(attributes map[string]string, cost int64) (*Request, rules.Match, error) {
	set := c.rules.Load()
	if set.Len() == 0 {
		c.counts.Refused.Add(1)
		return nil, rules.Match{}, ErrNoRules
	}
	m, err := set.Match(attributes)
	if err == nil {
		err = keysFit(m.Items)
	}
	var spec *limiter.SpecError
	if errors.As(err, &spec) {
		c.counts.Refused.Add(1)
		return nil, m, &InputError{Field: spec.Field, Reason: spec.Reason}
	}
	r := &Request{Atomic: true, Items: make([]Item, len(m.Items))}
	for i, it := range m.Items {
		ruled := it.Limit
		if put := c.putLimit(ruled.Name); put != nil {
			ruled = put
		}
		r.Items[i] = Item{
			Limit: ruled.Name, Key: it.Key, Plan: it.Plan, Cost: cost, Ruled: ruled,
		}
	}
	if len(m.Rules) == 0 {
		c.counts.Unmatched.Add(1)
	}
	return r, m, nil
}

// keysFit says what is wrong with what the rules make of attributes. It is a *limiter.SpecError, as
// that of rules.Set.Match.
func keysFit(items []rules.Item) error {
	if len(items) > MaxItems {
		return &limiter.SpecError{
			Field: "attributes",
			Reason: fmt.Sprintf("fall under %d limits by the rules; at most %d at once are decided",
				len(items), MaxItems),
		}
	}
	for _, it := range items {
		if len(it.Key) > MaxKey {
			return &limiter.SpecError{
				Field: "attributes",
				Reason: fmt.Sprintf("make a key of %d bytes for limit %q; at most %d are accepted",
					len(it.Key), it.Limit.Name, MaxKey),
			}
		}
	}
	return nil
}

// Verdict is what the decisions of a request say together.
type Verdict struct {
	Allowed bool // by all
	// names of the limits that refuse, each once, in the order of the items
	RefusedBy []string
	// the largest of theirs; limiter.Never if none refuses, or one of them never admits that much
	RetryAfter time.Duration
}

// VerdictOf sums decisions up.
func VerdictOf(out []Decision) Verdict {
	v := Verdict{Allowed: true, RetryAfter: limiter.Never}
	for i := range out {
		d := &out[i]
		if v.Allowed = v.Allowed && d.Allowed; d.Allowed || d.along {
			continue
		}
		switch {
		case len(v.RefusedBy) == 0, d.RetryAfter == limiter.Never:
			v.RetryAfter = d.RetryAfter
		case v.RetryAfter != limiter.Never:
			v.RetryAfter = max(v.RetryAfter, d.RetryAfter)
		}
		if !slices.Contains(v.RefusedBy, d.Rule.Name) {
			v.RefusedBy = append(v.RefusedBy, d.Rule.Name)
		}
	}
	return v
}
