package door

import (
	"strings"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/rules"
	"penstock/rpc/access"
)

// Decider decides on requests: a node, or one that notes what it does.
type Decider interface {
	Check(r *cluster.Request, out []cluster.Decision) error
	Match(attributes map[string]string, cost int64) (*cluster.Request, rules.Match, error)
}

// CheckRuled decides on a request of the client of rec by what is known of it. each has what all
// its items have: cost, terms, and the ID of the first.
func CheckRuled(n Decider, rec Recorder, attributes map[string]string,
	each *cluster.Item, deadline limiter.Instant,
) (rules.Match, []cluster.Decision, error) {
	if err := rec.Who.May(access.Check); err != nil { // also if no rule matches
		return rules.Match{}, nil, err
	}
	request, m, err := n.Match(attributes, each.Cost)
	if err != nil {
		return m, nil, err
	}
	out := make([]cluster.Decision, len(request.Items))
	if len(out) == 0 {
		return m, out, nil
	}
	if err := Permit(rec.Who, request); err != nil {
		return m, nil, err
	}
	request.Deadline, request.Items[0].ID = deadline, each.ID
	for i := range request.Items {
		request.Items[i].Terms = each.Terms
	}
	if GivesBack(request.Items) {
		return m, out, rec.Check(n, request, out)
	}
	return m, out, n.Check(request, out)
}

// RulesError says an error of Node.Check without the items, which the caller has not made.
func RulesError(err error) error {
	if input, ok := err.(*cluster.InputError); ok && strings.HasPrefix(input.Field, "items") {
		return Wrong("attributes", "mean items of which one is wrong: %v", input)
	}
	return err
}
