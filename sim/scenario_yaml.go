package sim

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"penstock/limiter"
	"penstock/limiter/policy"
)

// ReadScenario reads a scenario that is in memory. name is what faults call it; open opens the logs
// that it names. The error is policy.Faults, each with line and column, or a *LogError.
func ReadScenario(name string, data []byte, open func(path string) (io.ReadCloser, error)) (
	*Scenario, error,
) {
	d := newDraft(open)
	_, err := policy.Read(name, data, func(p *policy.Page, body ast.Node) {
		d.page = p
		d.read(body)
	})
	if err != nil {
		return nil, err
	}
	if d.page == nil {
		return nil, fmt.Errorf(
			"%s: is empty; a scenario has at least nodes, duration, limits and traffic", name)
	}
	return d.scenario, nil
}

// draft is a scenario while it is read.
type draft struct {
	page     *policy.Page
	open     func(string) (io.ReadCloser, error)
	scenario *Scenario
	plan     *plan
	limits   []string            // names, as they were written
	seen     map[string]ast.Node // where the scenario's fields stand
	owned    bool                // something in the file depends on the owner of a key
	struck   []struck            // the faults, in the order of the file
}

func newDraft(open func(string) (io.ReadCloser, error)) *draft {
	p := &plan{
		seed: 1, strict: true, sweepEvery: 5 * time.Second,
		gossip: pace{
			spread: 300 * time.Millisecond, detect: 2500 * time.Millisecond,
			doubt: 1500 * time.Millisecond, settle: time.Second,
		},
		weather: weather{
			near: 250 * time.Microsecond, mean: 50 * time.Microsecond, far: calmDelay,
			inOrder: true,
		},
	}
	return &draft{open: open, scenario: &Scenario{plan: p}, plan: p}
}

// field is something that a mapping may have, and what becomes of its value.
type field[T any] struct {
	name string
	read func(d *draft, n ast.Node, into *T) error
}

// fields reads a mapping, field by field, in the order of known and not in that of the file: what
// comes later may refer to what came before. It returns where each stands. Errors that are wrong
// gives are faults of the field's value.
func fields[T any](d *draft, n ast.Node, what string, known []field[T],
	into *T,
) map[string]ast.Node {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.page.Fault(n, "", fmt.Sprintf("%s must be a mapping of fields, not %s", what,
			policy.Describe(n)))
		return nil
	}
	places := make(map[string]ast.Node)
	for _, v := range m.Values {
		name := policy.FieldName(v.Key)
		if !slices.ContainsFunc(known, func(f field[T]) bool { return f.name == name }) {
			d.page.Fault(v.Key, name, fmt.Sprintf("is unknown; %s has: %s", what,
				fieldNames(known)))
			continue
		}
		places[name] = v.Value
	}
	for _, f := range known {
		if at := places[f.name]; at != nil {
			if err := f.read(d, at, into); err != nil {
				d.page.Fault(at, f.name, err.Error())
			}
		}
	}
	return places
}

func fieldNames[T any](known []field[T]) string {
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// items reads a list, item by item.
func (d *draft) items(n ast.Node, item func(ast.Node)) error {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		return fmt.Errorf("must be a list, not %s", policy.Describe(n))
	}
	for _, v := range list.Values {
		item(v)
	}
	return nil
}

// scenarioFields are what a scenario may say.
var scenarioFields = []field[Scenario]{
	{"name", sets(oneLine, func(s *Scenario) *string { return &s.Name })},
	{"about", func(_ *draft, n ast.Node, s *Scenario) (err error) {
		s.About, err = policy.Text(n)
		s.About = strings.TrimSpace(s.About)
		return err
	}},
	{"seed", func(_ *draft, n ast.Node, s *Scenario) error {
		digits := n.GetToken().Value
		seed, err := strconv.ParseUint(digits, 10, 64)
		if _, whole := n.(*ast.IntegerNode); !whole || err != nil {
			return fmt.Errorf("must be a whole number from 0 to %d", uint64(math.MaxUint64))
		}
		s.plan.seed = seed
		return nil
	}},
	{"duration", sets(spanOf(time.Millisecond, maxDuration), func(s *Scenario) *time.Duration {
		return &s.plan.length
	})},
	{"nodes", func(_ *draft, n ast.Node, s *Scenario) error {
		count, err := between(n, 1, maxNodes)
		if err == nil {
			s.plan.machines = make([]machinePlan, count)
			for i := range s.plan.machines {
				s.plan.machines[i].clock.start = scenarioStart
			}
		}
		return err
	}},
	{"agents", func(d *draft, n ast.Node, s *Scenario) error {
		who, err := d.nodesOf(n)
		for _, i := range who {
			s.plan.machines[i].agent = true
		}
		if err == nil && len(who) == len(s.plan.machines) {
			err = errors.New("are all nodes; somebody has to own the keys")
		}
		return err
	}},
	{"disks", func(d *draft, n ast.Node, s *Scenario) error {
		who, err := d.nodesOf(n)
		for _, i := range who {
			s.plan.machines[i].disk = true
		}
		return err
	}},
	{"copies", (*draft).copies},
	{"zones", (*draft).zones},
	{"save_every", sets(spanOf(time.Millisecond, time.Hour), func(s *Scenario) *time.Duration {
		return &s.plan.saveEvery
	})},
	{"table", (*draft).table},
	{"start", (*draft).start},
	{"clocks", (*draft).clocks},
	{"links", func(d *draft, n ast.Node, s *Scenario) error {
		x := &s.plan.weather
		places := fields(d, n, "links", linkFields, x)
		if x.near > x.far {
			d.page.Fault(cmpNode(places["delay"], places["at_most"]), "delay",
				fmt.Sprintf("is %v, which is more than at_most, %v", x.near, x.far))
		}
		return nil
	}},
	{"distances", func(d *draft, n ast.Node, s *Scenario) error { return d.items(n, d.distance) }},
	{"gossip", func(d *draft, n ast.Node, s *Scenario) error {
		fields(d, n, "gossip", gossipFields, &s.plan.gossip)
		return nil
	}},
	{"limits", (*draft).limitList},
	{"inline", (*draft).inline},
	{"traffic", func(d *draft, n ast.Node, s *Scenario) error { return d.items(n, d.traffic) }},
	{"faults", func(d *draft, n ast.Node, s *Scenario) error {
		if err := d.items(n, d.newcomers); err != nil {
			return err
		}
		return d.items(n, d.fault)
	}},
	{"sweep_every", sets(spanOf(time.Millisecond, time.Hour), func(s *Scenario) *time.Duration {
		return &s.plan.sweepEvery
	})},
}

// read reads the whole document.
func (d *draft) read(n ast.Node) {
	before := d.page.Faults()
	d.seen = fields(d, n, "a scenario", scenarioFields, d.scenario)
	for _, name := range []string{"nodes", "limits", "traffic"} {
		if d.seen != nil && d.seen[name] == nil {
			d.page.Fault(n, name, "is missing")
		}
	}
	if d.page.Faults() > before {
		return
	}
	d.finish(n)
}

// finish looks at what the fields say together.
func (d *draft) finish(n ast.Node) {
	p := d.plan
	if p.saveEvery == 0 {
		p.saveEvery = 5 * time.Second // as penstock --data-dir
	}
	if p.length == 0 {
		if len(p.demands) > 0 {
			d.page.Fault(n, "duration", "is missing")
			return
		}
		for _, a := range p.script {
			p.length = max(p.length, a.at+1)
		}
		for i := range p.replays {
			p.length = max(p.length, p.replays[i].at(len(p.replays[i].logged)-1)+1)
		}
		if p.length == 0 {
			d.page.Fault(n, "duration",
				"is missing, and there is no traffic that says how long the world lasts; give "+
					"one of the two")
			return
		}
	}
	// windows that are aligned to the clock begin as they did
	if len(p.replays) > 0 && d.seen["start"] == nil {
		for i := range p.machines {
			p.machines[i].clock.start += p.replays[0].first - scenarioStart
		}
	}
	total := float64(len(p.script))
	for i := range p.replays {
		total += float64(len(p.replays[i].logged))
	}
	for i := range p.demands {
		s := &p.demands[i]
		if s.until == 0 {
			s.until = p.length
		}
		total += s.requests()
	}
	if total > maxRequests {
		d.page.Fault(d.seen["traffic"], "traffic",
			fmt.Sprintf("comes to %.0f requests; at most %d are accepted", total, maxRequests))
	}
	slices.SortStableFunc(p.script, func(a, b arrival) int { return int(a.at - b.at) })
	d.strikes()
	p.sky = skyOf(p)
}

func (d *draft) start(n ast.Node, s *Scenario) error {
	text, err := policy.Text(n)
	if err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() < 1971 || t.Year() > 2200 {
		return fmt.Errorf(
			"%.40q is not an instant; write one like 2026-01-01T00:00:00Z, from 1971 to 2200", text)
	}
	for i := range s.plan.machines {
		s.plan.machines[i].clock.start = limiter.Instant(t.UnixNano())
	}
	return nil
}

// clocks reads which nodes' clocks are wrong.
func (d *draft) clocks(n ast.Node, _ *Scenario) error {
	values, err := mapped(n, "nodes to clocks")
	for _, v := range values {
		who, err := d.nodes(policy.FieldName(v.Key))
		if err != nil {
			d.page.Fault(v.Key, "", err.Error())
			continue
		}
		var c clock
		fields(d, v.Value, "a clock", clockFields, &c)
		for _, i := range who {
			d.plan.machines[i].clock.start += c.start
			d.plan.machines[i].clock.drift = c.drift
		}
	}
	return err
}

var clockFields = []field[clock]{
	{"ahead", func(_ *draft, n ast.Node, c *clock) error {
		by, err := duration(n, -maxDuration, maxDuration)
		c.start = limiter.Instant(by)
		return err
	}},
	{"drift_ppm", sets(countOf(-1000, 1000), func(c *clock) *int64 { return &c.drift })},
}

var linkFields = []field[weather]{
	{"delay", sets(spanOf(0, 10*time.Second), func(x *weather) *time.Duration { return &x.near })},
	{"jitter", sets(spanOf(0, 10*time.Second), func(x *weather) *time.Duration { return &x.mean })},
	{"at_most", sets(spanOf(0, 10*time.Second), func(x *weather) *time.Duration { return &x.far })},
	{"loss", sets(fraction, func(x *weather) *float64 { return &x.loss })},
	{"duplicates", sets(fraction, func(x *weather) *float64 { return &x.twice })},
	{"in_order", sets(policy.Flag, func(x *weather) *bool { return &x.inOrder })},
}

var gossipFields = []field[pace]{
	{"spread", sets(spanOf(0, time.Minute), func(g *pace) *time.Duration { return &g.spread })},
	{"detect", sets(spanOf(0, time.Hour), func(g *pace) *time.Duration { return &g.detect })},
	{"doubt", sets(spanOf(0, time.Hour), func(g *pace) *time.Duration { return &g.doubt })},
	{"settle", sets(spanOf(0, time.Hour), func(g *pace) *time.Duration { return &g.settle })},
}

// limitList reads the limits as they are written everywhere, and keeps their order.
func (d *draft) limitList(n ast.Node, s *Scenario) error {
	before := d.page.Faults()
	d.page.Limits(n)
	list, _ := n.(*ast.SequenceNode)
	if list == nil {
		if d.page.Faults() == before { // it is nothing at all, or a comment
			return errors.New("is empty; give at least one limit")
		}
		return nil
	}
	for _, item := range list.Values {
		m, _ := item.(*ast.MappingNode)
		if m == nil {
			continue
		}
		for _, v := range m.Values {
			if policy.FieldName(v.Key) != "name" {
				continue
			}
			name, _ := policy.Text(v.Value)
			l := d.page.Limit(name)
			if l == nil || slices.Contains(d.limits, name) {
				continue
			}
			if what := unknown(l); what != "" {
				d.page.Fault(v.Value, "name",
					"the simulator does not know "+what+" yet; leave the limit out")
			}
			d.limits = append(d.limits, name)
			s.plan.limits = append(s.plan.limits, rule{Spec: l.Spec})
			if list := l.Overrides(); len(list) > 0 {
				if s.plan.except == nil {
					s.plan.except = make(map[string][]limiter.Override)
				}
				s.plan.except[name] = list
			}
		}
	}
	if len(list.Values) == 0 {
		return errors.New("is empty; give at least one limit")
	}
	return nil
}

// inline reads the names of limits that clients bring along.
func (d *draft) inline(n ast.Node, s *Scenario) error {
	return d.items(n, func(n ast.Node) {
		name, err := d.limitName(n)
		if err != nil {
			d.page.Fault(n, "inline", err.Error())
			return
		}
		s.plan.limits[slices.Index(d.limits, name)].inline = true
	})
}

// limitName reads the name of a limit of the scenario.
func (d *draft) limitName(n ast.Node) (string, error) {
	name, err := policy.Text(n)
	if err == nil && !slices.Contains(d.limits, name) {
		err = fmt.Errorf("there is no limit %.40q; there is: %s", name,
			strings.Join(d.limits, ", "))
	}
	return name, err
}
