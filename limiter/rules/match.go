package rules

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"penstock/limiter"
)

// Match is what rules say about a request.
type Match struct {
	Rules     []string // names of the matching rules, in the order of the file; empty: none
	Items     []Item   // what it falls under; empty if no rule matches, or if it is Unlimited
	Unlimited bool     // one of the rules says so
}

// Item is a limit that a request falls under, and its key there.
type Item struct {
	Limit *limiter.Limit
	Key   string
	Plan  string // see Apply.Plan; "": none is named
}

// Match finds the rules that a request with these attributes matches. The error is a
// *limiter.SpecError; its field is "attributes", or an attribute's, as in "attributes.user".
func (s *Set) Match(attributes map[string]string) (m Match, err error) {
	if attributes, err = check(attributes); err != nil {
		return m, err
	}
	var room [64]int32
	candidates := s.index.candidates(room[:0], attributes)
	found := candidates[:0]
	for _, i := range candidates {
		if r := &s.rules[i]; r.matches(attributes) {
			m.Rules = append(m.Rules, r.name)
			m.Unlimited = m.Unlimited || r.unlimited
			found = append(found, i)
		}
	}
	if m.Unlimited {
		return m, nil
	}
	for _, i := range found {
		for k := range s.rules[i].apply {
			a := &s.rules[i].apply[k]
			key, err := a.key.Fill(func(name string) (string, error) {
				if v := attributes[canonical(name)]; v != "" {
					return v, nil
				}
				return "", faultIn("attributes."+name, "is missing; rule %q needs it for the "+
					"key of limit %q. Send it, or have the rule match %s: \"*\"",
					s.rules[i].name, a.limit.Name, name)
			})
			if err != nil {
				return Match{}, err
			}
			if it := (Item{a.limit, key, a.planOf(attributes)}); !slices.Contains(m.Items, it) {
				m.Items = append(m.Items, it)
			}
		}
	}
	return m, nil
}

// planOf is the plan that a request with these attributes is under: none if it lacks an attribute
// that the template needs.
func (a *apply) planOf(attributes map[string]string) string {
	if !a.planned {
		return ""
	}
	plan, err := a.plan.Fill(func(name string) (string, error) {
		if v := attributes[canonical(name)]; v != "" {
			return v, nil
		}
		return "", errNoPlan
	})
	if err != nil {
		return ""
	}
	return plan
}

var errNoPlan = errors.New("the request has no attribute that says its plan")

func (r *rule) matches(attributes map[string]string) bool {
	for i := range r.conditions {
		if !r.conditions[i].matches(attributes) {
			return false
		}
	}
	return true
}

func (c *condition) matches(attributes map[string]string) bool {
	v := attributes[c.attribute]
	if v == "" {
		return false
	}
	for i := range c.patterns {
		if c.patterns[i].Matches(v) {
			return true
		}
	}
	return false
}

// check says what is wrong with the attributes of a request, and returns them with the names of
// headers in lower case.
func check(attributes map[string]string) (map[string]string, error) {
	if len(attributes) > MaxAttributes {
		return nil, faultIn("attributes", "are %d; at most %d are accepted", len(attributes),
			MaxAttributes)
	}
	lower := true
	for name, v := range attributes {
		if err := checkName(name); err != nil {
			return nil, faultIn("attributes", "%.64q %v", name, err)
		}
		if len(v) > MaxValue {
			return nil, faultIn("attributes."+name, "has %d bytes; at most %d are accepted",
				len(v), MaxValue)
		}
		lower = lower && canonical(name) == name
	}
	if lower {
		return attributes, nil
	}
	all := make(map[string]string, len(attributes))
	for name, v := range attributes {
		to := canonical(name)
		if other, twice := all[to]; twice && other != v {
			return nil, faultIn("attributes."+to, givenTwice)
		}
		all[to] = v
	}
	return all, nil
}

// String is the rule in one line, without its name: "method=POST path=/api/* → login {user}, per-ip
// {ip}".
func (r *Rule) String() string {
	var b strings.Builder
	for i, attribute := range slices.Sorted(maps.Keys(r.Match)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(attribute + "=" + strings.Join(r.Match[attribute], "|"))
	}
	if len(r.Match) == 0 {
		b.WriteString("every request")
	}
	b.WriteString(" → ")
	if r.Unlimited {
		b.WriteString("unlimited")
	}
	for i, a := range r.Apply {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(a.Limit + " " + a.Key)
		if a.Plan != "" {
			b.WriteString(" (plan " + a.Plan + ")")
		}
	}
	return b.String()
}
