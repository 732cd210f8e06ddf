package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"penstock/limiter"
	"penstock/limiter/policy"
)

// policyVerb works on files of limits, without any node.
type policyVerb struct {
	Validate policyValidateVerb `cmd:"" help:"Check files of limits, and say where each fault is. Exits 0 if there is none, else 1."`
	Explain  policyExplainVerb  `cmd:"" help:"Show a limit with its defaults, for a key if one is given; or which rules a request matches."`
	Diff     policyDiffVerb     `cmd:"" help:"Show what other files would change, and which counters would be reset."`
	Replay   policyReplayVerb   `cmd:"" help:"Decide on the requests of a log, as if a limit had been in force."`
	Schema   policySchemaVerb   `cmd:"" help:"Write a JSON schema of files of limits, for editors."`
}

// policySchemaVerb writes what editors ask for.
type policySchemaVerb struct{}

// Run writes the schema.
func (v *policySchemaVerb) Run(sh shell) error {
	_, err := sh.out.Write(policy.Schema())
	return err
}

// limitsFile is where limits are read from.
type limitsFile struct {
	Limits string `arg:"" type:"path" help:"YAML file, or directory of them, as for --limits."`
}

type policyValidateVerb struct {
	Limits string `arg:"" type:"path" help:"YAML file, or directory of them, as for --limits."`
	Envoy  bool   `help:"They are files of envoyproxy/ratelimit, as for --envoy-config."`
	output
}

// faultRow is a fault as JSON shows it.
type faultRow struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

func (v *policyValidateVerb) Run(sh shell) error {
	var answer struct {
		OK     bool       `json:"ok"`
		Limits int        `json:"limits"`
		Rules  int        `json:"rules"`
		Faults []faultRow `json:"faults"`
	}
	var err error
	if v.Envoy {
		var e *policy.Envoy
		if e, err = policy.LoadEnvoy(v.Limits); err == nil {
			answer.Limits = len(e.Rules())
		}
	} else {
		var s *policy.Set
		if s, err = policy.Load(v.Limits); err == nil {
			answer.Limits, answer.Rules = len(s.Limits), s.Rules.Len()
		}
	}
	var faults policy.Faults
	if err != nil && !errors.As(err, &faults) {
		return err
	}
	answer.OK, answer.Faults = err == nil, []faultRow{}
	for _, f := range faults {
		answer.Faults = append(answer.Faults, faultRow{f.File, f.Line, f.Column, f.Field, f.Reason})
	}
	printed := v.print(sh.out, answer, func(w io.Writer) error {
		if answer.OK {
			ok := "ok"
			if coloured(w) {
				ok = paint(green, ok)
			}
			fmt.Fprintf(w, "%s: %s", ok, some(answer.Limits, "limit"))
			if answer.Rules > 0 {
				fmt.Fprintf(w, ", %s", some(answer.Rules, "rule"))
			}
			fmt.Fprintln(w)
		} else {
			fmt.Fprintln(sh.err, err)
		}
		return nil
	})
	if printed == nil && !answer.OK {
		return exitCode(1)
	}
	return printed
}

type policyExplainVerb struct {
	limitsFile
	Name string `arg:"" optional:"" help:"Name of the limit."`
	Key  string `arg:"" optional:"" help:"A key: an override may give it a limit of its own."`
	attributes
	output
}

func (v *policyExplainVerb) Run(sh shell) error {
	switch {
	case len(v.Attribute) > 0 && v.Name != "":
		return errors.New("--attribute: is given beside the name of a limit; give one of the two")
	case len(v.Attribute) > 0:
		return v.explainRules(sh)
	case v.Name == "":
		return errors.New("give the name of a limit, or --attribute NAME=VALUE to see which " +
			"rules match")
	}
	l, above, err := v.find(v.Name)
	if err != nil {
		return err
	}
	parents, err := keysAbove(l, above, v.Key)
	if err != nil {
		return err
	}
	tried := l.Candidate()
	if v.Key != "" {
		l = l.For(v.Key)
	}
	if l.Unlimited { // all else of it means nothing
		l = &limiter.Limit{Spec: limiter.Spec{Name: l.Name, Override: l.Override, Unlimited: true}}
	}
	rows, object := specRows(l.Spec), specJSON(l.Spec)
	if !l.Unlimited {
		object["most_at_once"], object["share_of_three"] = l.Capacity(), l.Share(3).Capacity()
		rows = append(rows, []string{"at once", fmt.Sprintf("%d at most", l.Capacity())},
			[]string{"alone", fmt.Sprintf("%d at most, as the share of one node of three that "+
				"reaches no other", l.Share(3).Capacity())})
	}
	if tried != nil {
		if v.Key != "" {
			tried = tried.For(v.Key)
		}
		object["candidate"] = specJSON(tried.Spec)
		rows = append(rows, candidateRows(tried.Spec)...)
	}
	if len(parents) > 0 {
		object["charges_too"] = parents
	}
	for _, p := range parents {
		text := p.Limit
		if p.Key != "" {
			text += " " + shown(p.Key)
		}
		rows = append(rows, []string{"charges too", fmt.Sprintf("%s, %d at most at once", text,
			p.AtOnce)})
	}
	return v.print(sh.out, object, func(w io.Writer) error { return columns(w, rows) })
}

// candidateRows are the fields of a candidate, below its limit. All but these are the limit's.
func candidateRows(s limiter.Spec) (rows [][]string) {
	for _, r := range specRows(s) {
		if r[0] == "override" || r[0] == "unlimited" ||
			slices.Contains(limiter.CandidateFields, r[0]) {
			rows = append(rows, []string{"candidate." + r[0], r[1]})
		}
	}
	return rows
}

// find reads the files, and returns a limit of them, and those above it.
func (f limitsFile) find(name string) (l *limiter.Limit, above []*limiter.Limit, err error) {
	set, err := policy.Load(f.Limits)
	if err != nil {
		return nil, nil, err
	}
	if l := set.Limits[name]; l != nil {
		named := func(name string) *limiter.Limit { return set.Limits[name] }
		above, err := limiter.Ancestors(l, named)
		return l, above, err
	}
	return nil, nil, fmt.Errorf("%s: there is no limit %q; there are: %s", f.Limits, name,
		strings.Join(slices.Sorted(maps.Keys(set.Limits)), ", "))
}

// specJSON are the rows of a limit as one object, with numbers as numbers.
func specJSON(s limiter.Spec) map[string]any {
	object := map[string]any{}
	for _, r := range specRows(s) {
		object[r[0]] = r[1]
		if n, err := strconv.ParseInt(r[1], 10, 64); err == nil && r[0] != "name" &&
			r[0] != "override" {
			object[r[0]] = n
		} else if r[1] == "true" && r[0] != "name" && r[0] != "override" {
			object[r[0]] = true
		}
	}
	return object
}

// specRows are the fields of a limit that say something, by the names that files have for them.
func specRows(s limiter.Spec) (rows [][]string) {
	of := reflect.ValueOf(s)
	for i := range of.NumField() {
		if v := of.Field(i); !v.IsZero() {
			name := snake(of.Type().Field(i).Name)
			text := fmt.Sprint(v.Interface())
			switch words := limiter.Words[name]; {
			case name == "sync":
				name, text = "replication", "sync"
			case words != nil && v.CanUint() && int(v.Uint()) < len(words):
				text = words[v.Uint()]
			}
			rows = append(rows, []string{name, text})
		}
	}
	return rows
}

// snake writes CountRejected as count_rejected.
func snake(name string) string {
	var b strings.Builder
	for i, c := range name {
		if unicode.IsUpper(c) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

type policyDiffVerb struct {
	Old string `arg:"" type:"path" help:"Files as they are in force."`
	New string `arg:"" type:"path" help:"Files as they would be."`
	output
}

// limitChange is what becomes of one limit.
type limitChange struct {
	Name     string   `json:"name"`
	Change   string   `json:"change"`   // added, removed or changed
	Counters string   `json:"counters"` // kept or new; empty if there are none
	Fields   []string `json:"fields"`
}

func (v *policyDiffVerb) Run(sh shell) error {
	was, err := policy.Load(v.Old)
	if err != nil {
		return err
	}
	will, err := policy.Load(v.New)
	if err != nil {
		return err
	}
	changes := append(differences(was.Limits, will.Limits), ruleChanges(was.Rules, will.Rules)...)
	return v.print(sh.out, changes, func(w io.Writer) error {
		for _, c := range changes {
			fmt.Fprintf(w, "%s: %s", c.Name, c.Change)
			if c.Change == "changed" {
				fmt.Fprintf(w, "; counters: %s", c.Counters)
			}
			fmt.Fprintln(w)
			for _, f := range c.Fields {
				fmt.Fprintf(w, "  %s\n", f)
			}
		}
		if len(changes) == 0 {
			fmt.Fprintln(w, "no limit and no rule changes")
		}
		return nil
	})
}

// differences are what becomes of limits, by name.
func differences(was, will map[string]*limiter.Limit) []limitChange {
	both := map[string]*limiter.Limit{}
	maps.Copy(both, was)
	maps.Copy(both, will)
	changes := []limitChange{}
	for _, name := range slices.Sorted(maps.Keys(both)) {
		c := limitChange{Name: name, Change: "changed", Fields: []string{}}
		switch a, b := was[name], will[name]; {
		case a == nil:
			c.Change = "added"
		case b == nil:
			c.Change = "removed"
		default:
			if c.Fields = changedFields(a, b); len(c.Fields) == 0 {
				continue
			}
			if c.Counters = "new: all keys begin anew"; sameCounters(a, b) {
				c.Counters = "kept"
			}
		}
		changes = append(changes, c)
	}
	return changes
}

// changedFields says what a limit would be after a change, its overrides and its candidate too.
func changedFields(a, b *limiter.Limit) []string {
	rows := func(l *limiter.Limit) [][]string {
		rows := specRows(l.Spec)
		for _, r := range definitionRows(policy.Format(l)) {
			if strings.HasPrefix(r[0], "overrid") || strings.HasPrefix(r[0], "order") ||
				strings.HasPrefix(r[0], "candidate.") {
				rows = append(rows, r)
			}
		}
		return rows
	}
	return changedRows(rows(a), rows(b))
}

// sameCounters finds out whether two limits count with one counter: a table is asked.
func sameCounters(a, b *limiter.Limit) bool {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 16})
	const key, now = "key", limiter.Instant(1 << 60)
	for _, l := range []*limiter.Limit{a, b} {
		table.Take(now, l, key, limiter.Hash(key), 1)
	}
	found := 0
	for from, more := (limiter.Cursor{}), true; more; {
		from, more = table.Keys(now, "", from, 8,
			func(*limiter.Limit, string, limiter.Decision) { found++ })
	}
	return found == 1
}

// shown is a key as a terminal may show it.
func shown(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.QuoteToASCII(key)
	}
	return key
}
