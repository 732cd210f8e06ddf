// Package rules finds the limits that a request falls under, and its keys there, from its
// attributes. Follow one request:
//
//		rules:
//		  - match: {path: "/api/*", method: POST}
//		    apply: [{limit: login, key: "{user}"}, {limit: per-ip, key: "{ip}"}]
//
//	 1. The caller describes the request by attributes, like path=/api/login, user=alice.
//	    Set.Match looks up which rules may match, by the beginning of a path or another
//	    attribute, and looks at those alone (index.go).
//	 2. All rules that match apply, and each of their limits gets its key from a template
//	    (template.go). If several rules apply a limit with one key, it is charged once.
//	 3. The results are limits and keys, to be taken all together or not at all. This package
//	    does not take them.
//
// Why all rules, and not the first: a limit says "at most this", and another limit that applies too
// takes nothing of that back. So a rule can be added without a look at the others, also in another
// file, and a narrow rule cannot lift a wide one by standing in front. (An override is an exception
// from a limit, and of exceptions the first counts.) An exemption is a rule of its own that is
// Unlimited: a request that matches it is under no limit of any rule.
//
// Why a missing attribute is an error: a rule that matches has a key with {user} in it, and the
// request has no user. If the limit were left out, a caller would escape it by leaving the name
// out. With one key for all such requests, one caller could use it up for all. To apply the rule to
// some requests alone, write match: {user: "*"}: it matches only requests that have a user.
package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"penstock/limiter"
)

// Rule is one rule as it is written down.
type Rule struct {
	// Name is how answers call the rule, 1 … MaxName bytes of UTF-8 without control characters.
	Name string
	// Match has patterns by attribute: see limiter.Override.Key. A request is matched if for every
	// attribute one pattern matches. One that has no such attribute, or an empty one, is not.
	// Without any attribute, every request is.
	Match map[string][]string
	Apply []Apply
	// Unlimited says that the requests are under no limit, not those of other rules either. It
	// stands without Apply.
	Unlimited bool
}

// Apply is a limit that a rule puts requests under.
type Apply struct {
	Limit string // its name
	Key   string // a template: text, and attributes in braces. "{user}", "{tenant}/{ip}"
	// a template of the plan that requests are under (limiter.Override.Plan); "": none is named
	Plan string
}

// Bounds.
const (
	MaxRules      = 20_000
	MaxName       = 128  // bytes, of a rule
	MaxPatterns   = 64   // of one attribute of one rule
	MaxApply      = 16   // limits of one rule
	MaxTemplate   = 512  // bytes
	MaxAttributes = 64   // of one request, and of one rule
	MaxAttribute  = 64   // bytes of an attribute's name
	MaxValue      = 8192 // bytes of an attribute's value
)

// Set is rules, ready to be asked. It is immutable.
type Set struct {
	list  []Rule
	rules []rule // as list
	names []string
	index index
}

// rule is a Rule worked out.
type rule struct {
	name       string
	conditions []condition
	apply      []apply
	unlimited  bool
}

// condition is what a rule asks of one attribute.
type condition struct {
	attribute string
	patterns  []limiter.Pattern
}

type apply struct {
	limit   *limiter.Limit
	key     Template
	plan    Template // if planned
	planned bool
}

// New makes a Set. limits are those that the rules may name. The error is a *limiter.SpecError; its
// field is "rules[2].apply[0].limit" and the like.
func New(list []Rule, limits map[string]*limiter.Limit) (*Set, error) {
	if len(list) > MaxRules {
		return nil, faultIn("rules", "has %d rules; 0 to %d are accepted", len(list), MaxRules)
	}
	s := &Set{list: slices.Clone(list), rules: make([]rule, len(list))}
	used, named := map[string]bool{}, map[string]bool{}
	for i := range list {
		err := list[i].compile(limits, &s.rules[i])
		if err == nil && named[list[i].Name] {
			err = faultIn("name", "%.60q is the name of another rule", list[i].Name)
		}
		if err != nil {
			return nil, faultIn(fmt.Sprintf("rules[%d].%s", i, err.Field), "%s", err.Reason)
		}
		named[list[i].Name] = true
		for _, c := range s.rules[i].conditions {
			used[c.attribute] = true
		}
		for _, a := range s.rules[i].apply {
			for _, name := range append(a.key.Names(), a.plan.Names()...) {
				used[canonical(name)] = true
			}
		}
	}
	s.names = slices.Sorted(maps.Keys(used))
	s.index = newIndex(s.rules)
	return s, nil
}

// Rules are those that s was made of.
func (s *Set) Rules() []Rule { return s.list }

// Len is how many rules there are; a nil Set has none.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.list)
}

// Attributes are the names that the rules ask for, sorted. Those of headers are in lower case:
// "header:x-user".
func (s *Set) Attributes() []string {
	if s == nil {
		return nil
	}
	return s.names
}

// Check says what is wrong with r by itself. The error is a *limiter.SpecError; its field is
// "apply[0].limit" and the like.
func (r *Rule) Check(limits map[string]*limiter.Limit) error {
	if err := r.compile(limits, new(rule)); err != nil {
		return err
	}
	return nil
}

const givenTwice = "is given twice; headers are the same whatever their case"

func faultIn(field, format string, args ...any) *limiter.SpecError {
	return &limiter.SpecError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func (r *Rule) compile(limits map[string]*limiter.Limit, to *rule) *limiter.SpecError {
	if err := r.checkFields(); err != nil {
		return err
	}
	to.name, to.unlimited = r.Name, r.Unlimited
	for _, attribute := range slices.Sorted(maps.Keys(r.Match)) {
		c, err := compileCondition(attribute, r.Match[attribute])
		if err != nil {
			return err
		}
		if slices.ContainsFunc(to.conditions, func(o condition) bool {
			return o.attribute == c.attribute
		}) {
			return faultIn("match."+attribute, givenTwice)
		}
		to.conditions = append(to.conditions, c)
	}
	for i := range r.Apply {
		a, err := r.compileApply(i, limits)
		if err != nil {
			return err
		}
		to.apply = append(to.apply, a)
	}
	return nil
}

// checkFields accepts or refuses the fields of r by themselves.
func (r *Rule) checkFields() *limiter.SpecError {
	switch {
	case r.Name == "" || len(r.Name) > MaxName || !utf8.ValidString(r.Name) ||
		strings.ContainsFunc(r.Name, unicode.IsControl):
		return faultIn("name", "%.60q is not a name; 1 to %d bytes of UTF-8 without control "+
			"characters are accepted", r.Name, MaxName)
	case len(r.Match) > MaxAttributes:
		return faultIn("match", "has %d attributes; 0 to %d are accepted", len(r.Match),
			MaxAttributes)
	case r.Unlimited && len(r.Apply) > 0:
		return faultIn("unlimited", "stands beside apply; give one of the two")
	case !r.Unlimited && (len(r.Apply) < 1 || len(r.Apply) > MaxApply):
		return faultIn("apply", "has %d limits; 1 to %d are accepted, or unlimited: true instead",
			len(r.Apply), MaxApply)
	}
	return nil
}

// compileApply finds the limit of the i-th entry of apply, and compiles its key.
func (r *Rule) compileApply(
	i int, limits map[string]*limiter.Limit,
) (to apply, _ *limiter.SpecError) {
	a, at := r.Apply[i], fmt.Sprintf("apply[%d]", i)
	l := limits[a.Limit]
	switch {
	case a.Limit == "":
		return to, faultIn(at+".limit", "is missing; name a limit")
	case l == nil:
		return to, faultIn(at+".limit", "%.60q is the name of no limit here", a.Limit)
	case l.ClientTime:
		return to, faultIn(at+".limit",
			"%q goes by its clients' clocks, and cannot be taken together with others; ask for "+
				"it by its name", a.Limit)
	case l.Algorithm == limiter.Concurrency:
		return to, faultIn(at+".limit", "%q counts permits, which somebody has to return; "+
			"reserve them by its name", a.Limit)
	case slices.Contains(r.Apply[:i], a):
		return to, faultIn(at, "stands twice in this rule")
	}
	key, err := compileKey(a.Key)
	if err != nil {
		return to, faultIn(at+".key", "%s", err)
	}
	to = apply{limit: l, key: key}
	if a.Plan == "" {
		return to, nil
	}
	if len(limiter.PlansOf(l)) == 0 {
		return to, faultIn(at+".plan", "limit %q has no plans; write them into its overrides",
			a.Limit)
	}
	if to.plan, err = compileKey(a.Plan); err != nil {
		return to, faultIn(at+".plan", "%s", err)
	}
	to.planned = true
	return to, nil
}

func compileCondition(attribute string, patterns []string) (c condition, _ *limiter.SpecError) {
	field := "match." + attribute
	if err := checkName(attribute); err != nil {
		return c, faultIn(field, "%s", err)
	}
	if len(patterns) < 1 || len(patterns) > MaxPatterns {
		return c, faultIn(field, "has %d patterns; 1 to %d are accepted", len(patterns),
			MaxPatterns)
	}
	c = condition{attribute: canonical(attribute)}
	for i, text := range patterns {
		at := fmt.Sprintf("%s[%d]", field, i)
		p, err := limiter.ParsePattern(text)
		if err != nil {
			return c, faultIn(at, "%s", err)
		}
		for k := range c.patterns {
			if c.patterns[k].Covers(&p) {
				return c, faultIn(at, "%q is needless: %q comes first and matches all of it",
					text, patterns[k])
			}
		}
		c.patterns = append(c.patterns, p)
	}
	return c, nil
}

func compileKey(text string) (t Template, err error) {
	if text == "" || len(text) > MaxTemplate {
		return t, fmt.Errorf("has %d bytes; 1 to %d are accepted, as in \"{user}\"", len(text),
			MaxTemplate)
	}
	if t, err = ParseTemplate(text); err != nil {
		return t, err
	}
	for _, name := range t.Names() {
		if err := checkName(name); err != nil {
			return t, fmt.Errorf("{%.64s} %w", name, err)
		}
	}
	return t, nil
}

// checkName says what is wrong with the name of an attribute.
func checkName(name string) error {
	bad := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.ContainsRune("_-.:", c))
	}
	if name == "" || len(name) > MaxAttribute || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("is not an attribute's name; 1 to %d letters, digits, _ - . and : are "+
			"accepted", MaxAttribute)
	}
	return nil
}

// header is the prefix of attributes that are headers of HTTP. Their names are case-insensitive.
const header = "header:"

func canonical(attribute string) string {
	if strings.HasPrefix(attribute, header) {
		return strings.ToLower(attribute)
	}
	return attribute
}
