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
	"penstock/limiter/rules"
	"penstock/sim"
)

// replayedRules is what rules would have done.
type replayedRules struct {
	Requests  int64 `json:"requests"`
	Allowed   int64 `json:"allowed"`
	Denied    int64 `json:"denied"`
	Delayed   int64 `json:"delayed"` // of those allowed: their callers wait first
	Longest   int64 `json:"longest_delay_ms"`
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
	// what the log says itself; nil: nothing
	Changed *changed `json:"changed,omitempty"`
}

// replayedPart is a limit, or a rule.
type replayedPart struct {
	Name     string `json:"name"`
	Requests int64  `json:"requests"`
	Allowed  int64  `json:"allowed"` // by all limits that they fall under: then each is charged
	Denied   int64  `json:"denied"`  // by any of them: then none is
	Refused  int64  `json:"refused"` // by this limit itself, or by limits of this rule
	Shadowed int64  `json:"shadowed"`
	// of those allowed: by this limit, or limits of this rule
	Delayed int64 `json:"delayed"`
	Keys    int   `json:"keys,omitempty"` // of a limit
}

// replayedKey is a key under a limit, and how often that limit has refused it.
type replayedKey struct {
	Limit   string `json:"limit"`
	Key     string `json:"key"`
	Refused int64  `json:"refused"`
	Delayed int64  `json:"delayed"` // of those allowed
	Allowed int64  `json:"allowed"`

	seen bool
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
	log, change, err := v.log()
	if err != nil {
		return err
	}
	r, err := newRulesReplay(set, int64(v.Memory))
	if err != nil {
		return err
	}
	r.out.Changed = change
	r.out.Skipped, r.out.Lacks, err = log.ReadAttributes(file.name, file, set.Rules.Attributes(),
		v.Attribute, r.see)
	if err = cmp.Or(err, r.wrong); err != nil {
		return err
	}
	out := r.sum()
	page := replayPage{
		log: file.name, headline: out.headline(), changed: out.Changed, tables: out.tables(),
	}
	if err := v.writePage(page, &r.line); err != nil {
		return err
	}
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
	line   timeline
	wrong  error // what the log says itself cannot be told
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

// loggedMatch is what follows from the attributes of requests.
type loggedMatch struct {
	request   *cluster.Request
	match     rules.Match
	err       error
	decisions []cluster.Decision
	levels    []level // that they fall under
	rules     []*replayedPart
}

// level is a limit with a key, which some items of a request fall under.
type level struct {
	limit *replayedPart
	key   *replayedKey
	items []int
}

// match finds, or remembers, what requests with the same attributes fall under.
func (r *rulesReplay) match(of *sim.LoggedRequest) *loggedMatch {
	if m, known := of.Memo.(*loggedMatch); known {
		return m
	}
	m := &loggedMatch{}
	of.Memo = m
	if m.request, m.match, m.err = r.node.Match(of.Attributes, 1); m.err != nil {
		return m
	}
	m.decisions = make([]cluster.Decision, len(m.request.Items))
	for _, at := range levelsOf(r.node.Limits(), m.request.Items) {
		l, k := part(r.limits, at.limit), r.keys[[2]string{at.limit, at.key}]
		if k == nil {
			k = &replayedKey{Limit: at.limit, Key: at.key}
			r.keys[[2]string{at.limit, at.key}] = k
		}
		m.levels = append(m.levels, level{l, k, at.items})
	}
	for _, name := range m.match.Rules {
		m.rules = append(m.rules, part(r.rules, name))
	}
	return m
}

func (r *rulesReplay) see(at time.Time, of *sim.LoggedRequest, beside string, cost int64) {
	r.clock.now = limiter.Instant(at.UnixNano())
	r.out.Requests++
	m := r.match(of)
	err := m.err
	if err == nil && len(m.decisions) > 0 {
		for i := range m.request.Items {
			m.request.Items[i].Cost = cost
		}
		err = r.node.Check(m.request, m.decisions)
	}
	denied := err == nil && m.deny()
	r.wrong = cmp.Or(r.wrong, r.out.Changed.count(at, beside, cost, denied))
	if err != nil {
		r.out.InError++
		r.out.Error = cmp.Or(r.out.Error, err.Error())
		r.line.count(at, ruling{refuses: "error"})
		return
	}
	r.tally(at, m)
}

// tally counts a request that was decided.
func (r *rulesReplay) tally(at time.Time, m *loggedMatch) {
	all := told{}
	for i := range m.decisions {
		all.add(&m.decisions[i])
	}
	delay := all.delay.Milliseconds()
	switch {
	case all.refused:
		r.out.Denied++
	case len(m.match.Rules) == 0:
		r.out.Unmatched++
		r.out.Allowed++
	case m.match.Unlimited:
		r.out.Unlimited++
		r.out.Allowed++
	default:
		r.out.Allowed++
	}
	if !all.refused && all.delay > 0 {
		r.out.Delayed++
		r.out.Longest = max(r.out.Longest, delay)
	}
	r.line.count(at, all.ruling())
	for i := range m.levels {
		l := &m.levels[i]
		here := told{}
		for _, k := range l.items {
			if d := &m.decisions[k]; d.Rule.Name == l.limit.Name {
				here.add(d)
			}
		}
		if l.key.count(!all.refused, here) {
			l.limit.Keys++
		}
		l.limit.count(!all.refused, here)
	}
	for _, p := range m.rules {
		p.count(!all.refused, all)
	}
}

// told is what decisions tell the caller together.
type told struct {
	refused, shadowed bool
	delay             time.Duration // the longest
}

func (t *told) add(d *cluster.Decision) {
	t.refused = t.refused || !d.Allowed
	t.shadowed = t.shadowed || d.Shadow
	if d.Allowed {
		t.delay = max(t.delay, d.Delay)
	}
}

func (t *told) ruling() ruling {
	if t.refused {
		return ruling{refuses: "a limit"}
	}
	return ruling{delay: t.delay}
}

func part(of map[string]*replayedPart, name string) *replayedPart {
	p := of[name]
	if p == nil {
		p = &replayedPart{Name: name}
		of[name] = p
	}
	return p
}

func (p *replayedPart) count(allowed bool, by told) {
	p.Requests++
	if !allowed {
		p.Denied++
	} else if p.Allowed++; by.delay > 0 {
		p.Delayed++
	}
	if by.refused {
		p.Refused++
	}
	if by.shadowed {
		p.Shadowed++
	}
}

// count reports whether it is the first request of the key.
func (k *replayedKey) count(allowed bool, by told) (first bool) {
	first = !k.seen
	k.seen = true
	switch {
	case by.refused:
		k.Refused++
	case allowed:
		if k.Allowed++; by.delay > 0 {
			k.Delayed++
		}
	}
	return first
}

// sum is the report, the busiest limits and rules in front.
func (r *rulesReplay) sum() *replayedRules {
	out := &r.out
	out.Limits, out.Rules, out.Most = sorted(r.limits), sorted(r.rules), []replayedKey{}
	out.Lacks = append([]string{}, out.Lacks...)
	for _, k := range r.keys {
		if k.Refused+k.Delayed > 0 {
			out.Most = append(out.Most, *k)
		}
	}
	slices.SortFunc(out.Most, func(a, b replayedKey) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Delayed, a.Delayed),
			cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Key, b.Key))
	})
	out.Most = out.Most[:min(10, len(out.Most))]
	return out
}

func sorted(parts map[string]*replayedPart) []replayedPart {
	list := []replayedPart{}
	for _, p := range parts {
		if p.Requests > 0 { // else each of them was in error
			list = append(list, *p)
		}
	}
	slices.SortFunc(list, func(a, b replayedPart) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name))
	})
	return list
}

func (r *replayedRules) write(w io.Writer) error {
	fmt.Fprintln(w, r.headline())
	r.Changed.write(w)
	if r.Unmatched+r.Unlimited > 0 {
		fmt.Fprintf(w, "of those allowed, no rule matches %s, and %s fall under an "+
			"unlimited rule\n", thousands(r.Unmatched), thousands(r.Unlimited))
	}
	writeDelayed(w, r.Delayed, r.Longest)
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
	for _, rows := range r.tables() {
		fmt.Fprintln(w)
		if err := columns(w, rows); err != nil {
			return err
		}
	}
	return nil
}

func (r *replayedRules) headline() string {
	return fmt.Sprintf("%s requests: %s allowed, %s denied", thousands(r.Requests),
		thousands(r.Allowed), thousands(r.Denied))
}

// tables are the limits, the rules and the keys, without those that are empty. A column for delays
// is there if there are any.
func (r *replayedRules) tables() (all [][][]string) {
	for _, t := range []struct {
		head  string
		parts []replayedPart
	}{{"LIMIT", r.Limits}, {"RULE", r.Rules}} {
		rows := [][]string{
			{t.head, "REQUESTS", "ALLOWED", "DELAYED", "DENIED", "REFUSED", "SHADOWED"},
		}
		for _, p := range t.parts {
			rows = append(rows, []string{
				p.Name, thousands(p.Requests), thousands(p.Allowed), thousands(p.Delayed),
				thousands(p.Denied), thousands(p.Refused), thousands(p.Shadowed),
			})
		}
		if len(rows) > 1 {
			all = append(all, withoutColumn(rows, 3, r.Delayed == 0))
		}
	}
	rows := [][]string{{"REFUSED", "DELAYED", "ALLOWED", "LIMIT", "KEY"}}
	for _, k := range r.Most {
		rows = append(rows, []string{
			thousands(k.Refused), thousands(k.Delayed), thousands(k.Allowed),
			k.Limit, shown(k.Key),
		})
	}
	if len(rows) > 1 {
		all = append(all, withoutColumn(rows, 1, r.Delayed == 0))
	}
	return all
}
