package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"penstock/limiter"
	"penstock/limiter/policy"
	"penstock/limiter/rules"
	"penstock/rpc/client"
)

// attributes are what is known of a request, for rules.
type attributes struct {
	Attribute map[string]string `short:"a" mapsep:"none" placeholder:"NAME=VALUE" help:"An attribute of a request, as in path=/api/x, instead of limit and key: the rules of the limits' files match it. May be repeated."`
}

// ruled is what the limits that a request falls under say together.
type ruled struct {
	Allowed    bool        `json:"allowed"`
	Rules      []string    `json:"rules"`
	RefusedBy  []string    `json:"refused_by"`
	RetryAfter int64       `json:"retry_after_ms"`
	Decisions  []ruledItem `json:"decisions"`
}

type ruledItem struct {
	Allowed    bool   `json:"allowed"`
	Name       string `json:"name"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after_ms"`
	Owner      string `json:"owner"`
	Degraded   bool   `json:"degraded"`
	Shadow     bool   `json:"shadow"`
}

// byRules checks what the rules of the cluster make of the attributes.
func (v *checkVerb) byRules(sh shell) error {
	var out client.Verdict
	err := v.ask(func(ctx context.Context, c *client.Client) (err error) {
		out, err = c.CheckRules(ctx, v.Attribute, v.Cost)
		return err
	})
	if err != nil {
		return err
	}
	answer := ruled{
		Allowed: out.Allowed, Rules: append([]string{}, out.Rules...), RefusedBy: append([]string{},
			out.RefusedBy...),
		RetryAfter: toMs(out.RetryAfter), Decisions: []ruledItem{},
	}
	for _, d := range out.Decisions {
		answer.Decisions = append(answer.Decisions, ruledItem{
			d.Allowed, d.LimitName, d.Limit,
			d.Remaining, toMs(d.RetryAfter), d.Owner, d.Degraded, d.Shadow,
		})
	}
	if err := v.print(sh.out, answer, answer.write); err != nil {
		return err
	}
	if !answer.Allowed {
		return exitDenied
	}
	return nil
}

// toMs is -1 for what never comes.
func toMs(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

func (v ruled) write(w io.Writer) error {
	rows := [][]string{{"allowed"}}
	switch {
	case !v.Allowed:
		rows = [][]string{
			{"denied", "by " + strings.Join(v.RefusedBy, ", ")},
			{"retry after", wait(v.RetryAfter)},
		}
	case len(v.Rules) == 0:
		rows = append(rows, []string{"rules", "none matches, so nothing is counted"})
	case len(v.Decisions) == 0:
		rows = append(rows, []string{"limits", "none: one of the rules says unlimited"})
	}
	if len(v.Rules) > 0 {
		rows = append(rows, []string{"rules", strings.Join(v.Rules, ", ")})
	}
	if err := columns(w, rows); err != nil || len(v.Decisions) == 0 {
		return err
	}
	fmt.Fprintln(w)
	rows = [][]string{{"LIMIT", "SAYS", "LEFT", "OF", "OWNER"}}
	for _, d := range v.Decisions {
		says := "yes"
		switch {
		case d.Shadow:
			says = "no (dry run)"
		case !d.Allowed:
			says = "no"
		}
		if d.Degraded {
			says += ", degraded"
		}
		rows = append(rows, []string{
			d.Name, says, thousands(d.Remaining),
			thousands(d.Limit), d.Owner,
		})
	}
	return columns(w, rows)
}

// matched is what rules say about a request, as policy explain shows it.
type matched struct {
	Rules     []matchedRule `json:"rules"`
	Unlimited bool          `json:"unlimited"`
	Limits    []matchedItem `json:"limits"` // taken all together, or none
}

type matchedRule struct {
	Name string `json:"name"`
	Rule string `json:"rule"`
}

type matchedItem struct {
	Limit  string `json:"limit"`
	Key    string `json:"key"`
	AtOnce int64  `json:"at_once"`
}

// explainRules says which rules a request with these attributes matches, and what it falls under.
func (v *policyExplainVerb) explainRules(sh shell) error {
	set, err := policy.Load(v.Limits)
	if err != nil {
		return err
	}
	if set.Rules.Len() == 0 {
		return fmt.Errorf("%s: there are no rules", v.Limits)
	}
	m, err := set.Rules.Match(v.Attribute)
	if err != nil {
		return err
	}
	texts := map[string]string{}
	for _, r := range set.Rules.Rules() {
		texts[r.Name] = r.String()
	}
	answer := matched{Rules: []matchedRule{}, Unlimited: m.Unlimited, Limits: []matchedItem{}}
	for _, name := range m.Rules {
		answer.Rules = append(answer.Rules, matchedRule{name, texts[name]})
	}
	for _, it := range m.Items {
		answer.add(matchedItem{it.Limit.Name, it.Key, it.Limit.For(it.Key).Capacity()})
	}
	named := func(name string) *limiter.Limit { return set.Limits[name] }
	for _, it := range m.Items { // what is above is charged once, be it named by a rule or not
		above, err := limiter.Ancestors(it.Limit, named)
		if err != nil {
			return err
		}
		levels, err := keysAbove(it.Limit, above, it.Key)
		if err != nil {
			return err
		}
		for _, level := range levels {
			answer.add(level)
		}
	}
	return v.print(sh.out, answer, answer.write)
}

// add adds a limit with a key, unless it is there already.
func (m *matched) add(it matchedItem) {
	if !slices.Contains(m.Limits, it) {
		m.Limits = append(m.Limits, it)
	}
}

func (m matched) write(w io.Writer) error {
	if len(m.Rules) == 0 {
		_, err := fmt.Fprintln(w, "no rule matches: the request is admitted, and "+
			"nothing is counted")
		return err
	}
	rows := [][]string{{"RULE", "MATCHES, AND APPLIES"}}
	for _, r := range m.Rules {
		rows = append(rows, []string{r.Name, r.Rule})
	}
	if err := columns(w, rows); err != nil {
		return err
	}
	if m.Unlimited {
		_, err := fmt.Fprintln(w, "\nunlimited: the request is admitted, and nothing is counted")
		return err
	}
	rows = [][]string{{"LIMIT", "AT ONCE", "KEY"}}
	for _, it := range m.Limits {
		rows = append(rows, []string{it.Limit, fmt.Sprint(it.AtOnce), shown(it.Key)})
	}
	fmt.Fprintln(w)
	return columns(w, rows)
}

// ruleChanges are the rules that are in one of two sets alone. A rule that changes is removed and
// added.
func ruleChanges(was, will *rules.Set) []limitChange {
	count := map[string]int{}
	for _, r := range was.Rules() {
		count[r.String()]--
	}
	for _, r := range will.Rules() {
		count[r.String()]++
	}
	var changes []limitChange
	for _, text := range slices.Sorted(maps.Keys(count)) {
		c := limitChange{Name: "rule " + text, Change: "added", Fields: []string{}}
		if count[text] < 0 {
			c.Change = "removed"
		}
		if count[text] != 0 {
			changes = append(changes, c)
		}
	}
	return changes
}
