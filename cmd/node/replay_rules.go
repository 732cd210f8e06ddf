package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/policy"
	"penstock/sim"
)

// replayedRules is what rules would have done.
type replayedRules struct {
	Requests  int64 `json:"requests"`
	Allowed   int64 `json:"allowed"`
	Denied    int64 `json:"denied"`
	Unmatched int64 `json:"unmatched"` // of those allowed: no rule matches
	Unlimited int64 `json:"unlimited"` // likewise: a rule leaves them out
	// neither: a rule that matches needs what they do not have
	InError int64    `json:"in_error"`
	Error   string   `json:"first_error,omitempty"`
	Lacks   []string `json:"lacks"` // attributes that rules ask for, and no line has
	Skipped int      `json:"skipped_lines"`
	// of all that a rule applies, and some request fell under
	Limits []replayedPart `json:"limits"`
	Rules  []replayedPart `json:"rules"`       // that some request matched
	Most   []replayedKey  `json:"most_denied"` // ten at most
}

// replayedPart is a limit, or a rule.
type replayedPart struct {
	Name     string `json:"name"`
	Requests int64  `json:"requests"`
	Allowed  int64  `json:"allowed"` // by all limits that they fall under: then each is charged
	Denied   int64  `json:"denied"`  // by any of them: then none is
	Refused  int64  `json:"refused"` // by this limit itself, or by limits of this rule
	Shadowed int64  `json:"shadowed"`
	Keys     int    `json:"keys,omitempty"` // of a limit
}

// replayedKey is a key under a limit, and how often that limit has refused it.
type replayedKey struct {
	Limit   string `json:"limit"`
	Key     string `json:"key"`
	Refused int64  `json:"refused"`
	Allowed int64  `json:"allowed"`
}

// logClock shows the time of the log.
type logClock struct{ now limiter.Instant }

func (c *logClock) Now() limiter.Instant                          { return c.now }
func (c *logClock) AfterFunc(time.Duration, func()) (stop func()) { return func() {} }
func (c *logClock) Wait(limiter.Instant)                          {}
func (c *logClock) Call([]cluster.Call) {
	panic("replay: a node that is alone asks another")
}

func (v *policyReplayVerb) byRules(sh shell) error {
	set, err := policy.Load(v.Limits)
	if err != nil {
		return err
	}
	if set.Rules.Len() == 0 {
		return fmt.Errorf("%s: has no rules; give the name of a limit before the log", v.Limits)
	}
	file, err := openLog(v.Name, sh) // the only name is that of the log
	if err != nil {
		return fmt.Errorf("%w; without a log after it, %q is one, for the rules", err, v.Name)
	}
	defer file.close()
	log := sim.Log{Format: v.Format, Time: v.Time, Cost: v.Cost, Skip: v.Skip}
	r, err := newRulesReplay(set, int64(v.Memory))
	if err != nil {
		return err
	}
	r.out.Skipped, r.out.Lacks, err = log.ReadAttributes(file.name, file, set.Rules.Attributes(),
		v.Attribute, r.see)
	if err != nil {
		return err
	}
	out := r.sum()
	return v.print(sh.out, out, func(w io.Writer) error { return out.write(w) })
}

// rulesReplay is a node of its own, which decides on requests as doors do, at the times of the log.
// What a log cannot tell, permits and clients' clocks, no rule applies.
type rulesReplay struct {
	node   *cluster.Node
	clock  *logClock
	out    replayedRules
	limits map[string]*replayedPart
	rules  map[string]*replayedPart
	keys   map[[2]string]*replayedKey
}

func newRulesReplay(set *policy.Set, memory int64) (*rulesReplay, error) {
	r := &rulesReplay{
		clock: &logClock{}, limits: map[string]*replayedPart{},
		rules: map[string]*replayedPart{}, keys: map[[2]string]*replayedKey{},
	}
	n, err := loneNode(r.clock, memory)
	if err != nil {
		return nil, err
	}
	n.SetLimits(set.Limits)
	n.SetRules(set.Rules)
	r.node = n
	return r, nil
}

func (r *rulesReplay) see(at time.Time, attributes map[string]string, cost int64) {
	r.clock.now = limiter.Instant(at.UnixNano())
	r.out.Requests++
	request, match, err := r.node.Match(attributes, cost)
	var decisions []cluster.Decision
	if err == nil {
		if decisions = make([]cluster.Decision, len(request.Items)); len(decisions) > 0 {
			err = r.node.Check(request, decisions)
		}
	}
	if err != nil {
		r.out.InError++
		r.out.Error = cmp.Or(r.out.Error, err.Error())
		return
	}
	verdict := cluster.VerdictOf(decisions)
	switch {
	case !verdict.Allowed:
		r.out.Denied++
	case len(match.Rules) == 0:
		r.out.Unmatched++
		r.out.Allowed++
	case match.Unlimited:
		r.out.Unlimited++
		r.out.Allowed++
	default:
		r.out.Allowed++
	}
	shadowed := false
	for _, at := range levelsOf(r.node.Limits(), request.Items, decisions) {
		shadowed = shadowed || at.shadowed
		l, k := part(r.limits, at.limit), r.keys[[2]string{at.limit, at.key}]
		if k == nil {
			k = &replayedKey{Limit: at.limit, Key: at.key}
			r.keys[[2]string{at.limit, at.key}] = k
			l.Keys++
		}
		l.count(verdict.Allowed, at.refused, at.shadowed)
		if at.refused {
			k.Refused++
		} else if verdict.Allowed {
			k.Allowed++
		}
	}
	for _, name := range match.Rules {
		part(r.rules, name).count(verdict.Allowed, !verdict.Allowed, shadowed)
	}
}

func part(of map[string]*replayedPart, name string) *replayedPart {
	p := of[name]
	if p == nil {
		p = &replayedPart{Name: name}
		of[name] = p
	}
	return p
}

func (p *replayedPart) count(allowed, refused, shadowed bool) {
	p.Requests++
	if allowed {
		p.Allowed++
	} else {
		p.Denied++
	}
	if refused {
		p.Refused++
	}
	if shadowed {
		p.Shadowed++
	}
}

// sum is the report, the busiest limits and rules in front.
func (r *rulesReplay) sum() *replayedRules {
	out := &r.out
	out.Limits, out.Rules, out.Most = sorted(r.limits), sorted(r.rules), []replayedKey{}
	out.Lacks = append([]string{}, out.Lacks...)
	for _, k := range r.keys {
		if k.Refused > 0 {
			out.Most = append(out.Most, *k)
		}
	}
	slices.SortFunc(out.Most, func(a, b replayedKey) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Limit, b.Limit),
			cmp.Compare(a.Key, b.Key))
	})
	out.Most = out.Most[:min(10, len(out.Most))]
	return out
}

func sorted(parts map[string]*replayedPart) []replayedPart {
	list := []replayedPart{}
	for _, p := range parts {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b replayedPart) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name))
	})
	return list
}

func (r *replayedRules) write(w io.Writer) error {
	fmt.Fprintf(w, "%s requests: %s allowed, %s denied\n", thousands(r.Requests),
		thousands(r.Allowed), thousands(r.Denied))
	if r.Unmatched+r.Unlimited > 0 {
		fmt.Fprintf(w, "of those allowed, no rule matches %s, and %s fall under an "+
			"unlimited rule\n", thousands(r.Unmatched), thousands(r.Unlimited))
	}
	if r.InError > 0 {
		fmt.Fprintf(w, "%s are in error, the first: %s\n", thousands(r.InError), r.Error)
	}
	if len(r.Lacks) > 0 {
		fmt.Fprintf(w, "rules ask for what no line has: %s; --attribute NAME={field} says where "+
			"it is\n", strings.Join(r.Lacks, ", "))
	}
	if r.Skipped > 0 {
		fmt.Fprintf(w, "%s lines could not be read\n", thousands(int64(r.Skipped)))
	}
	for _, t := range []struct {
		head  string
		parts []replayedPart
	}{{"LIMIT", r.Limits}, {"RULE", r.Rules}} {
		if len(t.parts) == 0 {
			continue
		}
		rows := [][]string{{t.head, "REQUESTS", "ALLOWED", "DENIED", "REFUSED", "SHADOWED"}}
		for _, p := range t.parts {
			rows = append(rows, []string{
				p.Name, thousands(p.Requests), thousands(p.Allowed),
				thousands(p.Denied), thousands(p.Refused), thousands(p.Shadowed),
			})
		}
		fmt.Fprintln(w)
		if err := columns(w, rows); err != nil {
			return err
		}
	}
	if len(r.Most) == 0 {
		return nil
	}
	rows := [][]string{{"REFUSED", "ALLOWED", "LIMIT", "KEY"}}
	for _, k := range r.Most {
		rows = append(rows, []string{
			thousands(k.Refused), thousands(k.Allowed),
			k.Limit, shown(k.Key),
		})
	}
	fmt.Fprintln(w)
	return columns(w, rows)
}
