package sim

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/policy"
)

// ReadScenario reads a scenario that is in memory. name is what faults call it; open opens the logs that it names. The
// error is policy.Faults, each with line and column, or a *LogError.
func ReadScenario(name string, data []byte, open func(path string) (io.ReadCloser, error)) (*Scenario, error) {
	d := newDraft(open)
	_, err := policy.Read(name, data, func(p *policy.Page, body ast.Node) {
		d.page = p
		d.read(body)
	})
	if err != nil {
		return nil, err
	}
	if d.page == nil {
		return nil, fmt.Errorf("%s: is empty; a scenario has at least nodes, duration, limits and traffic", name)
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
	owned    bool                // somebody has asked who owns a key
	struck   []struck            // the faults, in the order of the file
}

func newDraft(open func(string) (io.ReadCloser, error)) *draft {
	p := &plan{
		seed: 1, sweepEvery: 5 * time.Second,
		gossip:  gossip{spread: 300 * time.Millisecond, detect: 2500 * time.Millisecond, doubt: 1500 * time.Millisecond, settle: time.Second},
		weather: weather{near: 250 * time.Microsecond, mean: 50 * time.Microsecond, far: calmDelay, inOrder: true},
	}
	return &draft{open: open, scenario: &Scenario{plan: p}, plan: p}
}

// field is something that a mapping may have, and what becomes of its value.
type field[T any] struct {
	name string
	read func(d *draft, n ast.Node, into *T) error
}

// fields reads a mapping, field by field, in the order of known and not in that of the file: what comes later may
// refer to what came before. It returns where each stands. Errors that are wrong gives are faults of the field's value.
func fields[T any](d *draft, n ast.Node, what string, known []field[T], into *T) map[string]ast.Node {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.page.Fault(n, "", fmt.Sprintf("%s must be a mapping of fields, not %s", what, policy.Describe(n)))
		return nil
	}
	places := make(map[string]ast.Node)
	for _, v := range m.Values {
		name := v.Key.String()
		if !slices.ContainsFunc(known, func(f field[T]) bool { return f.name == name }) {
			d.page.Fault(v.Key, name, fmt.Sprintf("is unknown; %s has: %s", what, fieldNames(known)))
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
	{"name", func(_ *draft, n ast.Node, s *Scenario) (err error) { s.Name, err = oneLine(n); return err }},
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
	{"duration", func(_ *draft, n ast.Node, s *Scenario) (err error) {
		s.plan.length, err = duration(n, time.Millisecond, maxDuration)
		return err
	}},
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
	{"start", (*draft).start},
	{"clocks", (*draft).clocks},
	{"links", func(d *draft, n ast.Node, s *Scenario) error {
		x := &s.plan.weather
		places := fields(d, n, "links", linkFields, x)
		if x.near > x.far {
			d.page.Fault(cmpNode(places["delay"], places["at_most"]), "delay", fmt.Sprintf("is %v, which is more than at_most, %v", x.near, x.far))
		}
		return nil
	}},
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
	{"sweep_every", func(_ *draft, n ast.Node, s *Scenario) (err error) {
		s.plan.sweepEvery, err = duration(n, time.Millisecond, time.Hour)
		return err
	}},
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
	}
	if len(p.replays) > 0 && d.seen["start"] == nil { // windows that are aligned to the clock begin as they did
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
		d.page.Fault(d.seen["traffic"], "traffic", fmt.Sprintf("comes to %.0f requests; at most %d are accepted", total, maxRequests))
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
		return fmt.Errorf("%.40q is no instant; write one like 2026-01-01T00:00:00Z, from 1971 to 2200", text)
	}
	for i := range s.plan.machines {
		s.plan.machines[i].clock.start = limiter.Instant(t.UnixNano())
	}
	return nil
}

// clocks reads which nodes' clocks are wrong.
func (d *draft) clocks(n ast.Node, _ *Scenario) error {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return fmt.Errorf("must be a mapping from nodes to clocks, not %s", policy.Describe(n))
	}
	for _, v := range m.Values {
		who, err := d.nodes(v.Key.String())
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
	return nil
}

var clockFields = []field[clock]{
	{"ahead", func(_ *draft, n ast.Node, c *clock) error {
		by, err := duration(n, -maxDuration, maxDuration)
		c.start = limiter.Instant(by)
		return err
	}},
	{"drift_ppm", func(_ *draft, n ast.Node, c *clock) (err error) {
		c.drift, err = between(n, -1000, 1000)
		return err
	}},
}

var linkFields = []field[weather]{
	{"delay", func(_ *draft, n ast.Node, x *weather) (err error) {
		x.near, err = duration(n, 0, 10*time.Second)
		return err
	}},
	{"jitter", func(_ *draft, n ast.Node, x *weather) (err error) {
		x.mean, err = duration(n, 0, 10*time.Second)
		return err
	}},
	{"at_most", func(_ *draft, n ast.Node, x *weather) (err error) {
		x.far, err = duration(n, 0, 10*time.Second)
		return err
	}},
	{"loss", func(_ *draft, n ast.Node, x *weather) (err error) { x.loss, err = fraction(n); return err }},
	{"duplicates", func(_ *draft, n ast.Node, x *weather) (err error) { x.twice, err = fraction(n); return err }},
	{"in_order", func(_ *draft, n ast.Node, x *weather) (err error) { x.inOrder, err = policy.Flag(n); return err }},
}

var gossipFields = []field[gossip]{
	{"spread", func(_ *draft, n ast.Node, g *gossip) (err error) {
		g.spread, err = duration(n, 0, time.Minute)
		return err
	}},
	{"detect", func(_ *draft, n ast.Node, g *gossip) (err error) {
		g.detect, err = duration(n, 0, time.Hour)
		return err
	}},
	{"doubt", func(_ *draft, n ast.Node, g *gossip) (err error) {
		g.doubt, err = duration(n, 0, time.Hour)
		return err
	}},
	{"settle", func(_ *draft, n ast.Node, g *gossip) (err error) {
		g.settle, err = duration(n, 0, time.Hour)
		return err
	}},
}

// limitList reads the limits as they are written everywhere, and keeps their order.
func (d *draft) limitList(n ast.Node, s *Scenario) error {
	d.page.Limits(n)
	list, _ := n.(*ast.SequenceNode)
	if list == nil {
		return nil
	}
	for _, item := range list.Values {
		m, _ := item.(*ast.MappingNode)
		if m == nil {
			continue
		}
		for _, v := range m.Values {
			if v.Key.String() != "name" {
				continue
			}
			name, _ := policy.Text(v.Value)
			l := d.page.Limit(name)
			if l == nil || slices.Contains(d.limits, name) {
				continue
			}
			if what := unknown(&l.Spec); what != "" {
				d.page.Fault(v.Value, "name", "the simulator does not know "+what+" yet; leave the limit out")
			}
			d.limits = append(d.limits, name)
			s.plan.limits = append(s.plan.limits, rule{Spec: l.Spec})
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
		err = fmt.Errorf("there is no limit %.40q; there is: %s", name, strings.Join(d.limits, ", "))
	}
	return name, err
}

// traffic reads one entry of the traffic: requests at some rate, a log, or one request.
func (d *draft) traffic(n ast.Node) {
	m, ok := n.(*ast.MappingNode)
	has := func(name string) bool {
		return ok && slices.ContainsFunc(m.Values, func(v *ast.MappingValueNode) bool { return v.Key.String() == name })
	}
	switch {
	case ok && has("rate") && !has("log") && !has("at"):
		d.demand(n)
	case ok && has("log") && !has("rate") && !has("at"):
		d.log(n)
	case ok && has("at") && !has("rate") && !has("log"):
		d.request(n)
	default:
		d.page.Fault(n, "traffic", "an entry has one of: rate (requests at random), log (requests of a file), at (a single request)")
	}
}

// demand reads requests that come at some rate.
func (d *draft) demand(n ast.Node) {
	before := d.page.Faults()
	s := demand{keys: 1, spread: "uniform", cost: 1, patience: cluster.DefaultDeadline}
	places := fields(d, n, "traffic at some rate", demandFields, &s)
	if d.page.Faults() > before {
		return
	}
	switch {
	case len(s.limits) == 0:
		d.page.Fault(n, "limit", "is missing")
	case s.until != 0 && s.until <= s.from:
		d.page.Fault(places["until"], "until", fmt.Sprintf("is %v, but it begins at %v", s.until, s.from))
	case s.until == 0 && d.plan.length != 0 && s.from >= d.plan.length:
		d.page.Fault(places["from"], "from", fmt.Sprintf("is %v, but the scenario lasts %v", s.from, d.plan.length))
	case s.until > d.plan.length && d.plan.length != 0:
		d.page.Fault(places["until"], "until", fmt.Sprintf("is %v, but the scenario lasts %v", s.until, d.plan.length))
	case places["swell"] != nil && places["bursts"] != nil:
		d.page.Fault(places["bursts"], "bursts", "and swell exclude each other: give one, or write two entries")
	case s.wave.peak != 0 && s.wave.peak < s.rate:
		d.page.Fault(n, "peak", "is less than rate; rate is the lowest")
	}
	if s.name == "" && len(s.limits) > 0 {
		s.name = s.limits[0]
	}
	d.plan.demands = append(d.plan.demands, s)
}

var demandFields = []field[demand]{
	{"limit", func(d *draft, n ast.Node, s *demand) error { return d.limitOf(n, &s.limits) }},
	{"limits", func(d *draft, n ast.Node, s *demand) error { return d.limitsOf(n, &s.limits) }},
	{"key", func(_ *draft, n ast.Node, s *demand) (err error) {
		if s.name, err = oneLine(n); err == nil && len(s.name) > cluster.MaxKey-10 {
			err = fmt.Errorf("has %d bytes; at most %d are accepted", len(s.name), cluster.MaxKey-10)
		}
		return err
	}},
	{"keys", func(_ *draft, n ast.Node, s *demand) error {
		count, err := between(n, 1, 1_000_000)
		s.keys = int(count)
		return err
	}},
	{"spread", func(_ *draft, n ast.Node, s *demand) (err error) {
		s.spread, err = word(n, "uniform", "zipf", "hot")
		return err
	}},
	{"rate", func(_ *draft, n ast.Node, s *demand) (err error) { s.rate, err = rate(n); return err }},
	{"swell", func(d *draft, n ast.Node, s *demand) error {
		return d.wave(n, s, "a swell", swellFields, "peak", "period")
	}},
	{"bursts", func(d *draft, n ast.Node, s *demand) error {
		return d.wave(n, s, "bursts", burstFields, "rate", "every", "for")
	}},
	{"from", func(_ *draft, n ast.Node, s *demand) (err error) {
		s.from, err = duration(n, 0, maxDuration)
		return err
	}},
	{"until", func(_ *draft, n ast.Node, s *demand) (err error) {
		s.until, err = duration(n, 1, maxDuration)
		return err
	}},
	{"cost", func(_ *draft, n ast.Node, s *demand) (err error) {
		s.cost, err = between(n, 1, limiter.MaxLimit)
		return err
	}},
	{"patience", func(_ *draft, n ast.Node, s *demand) (err error) {
		s.patience, err = duration(n, time.Millisecond, time.Minute)
		return err
	}},
	{"retry", func(d *draft, n ast.Node, s *demand) error {
		places := fields(d, n, "retry", retryFields, &s.retry)
		if s.retry.times == 0 || s.retry.after == 0 {
			return errors.New("needs times and after")
		}
		if worst := time.Duration(s.retry.times) * s.retry.after; worst > restAfter/2 {
			d.page.Fault(places["after"], "after", fmt.Sprintf("%d times %v goes on for %v; at most %v are accepted", s.retry.times, s.retry.after, worst, restAfter/2))
		}
		return nil
	}},
}

// logEntry is an entry of the traffic that names a log, while it is read.
type logEntry struct {
	replay
	format, time string
	key, cost    ast.Node
	skip         bool
}

// log reads the requests of a file.
func (d *draft) log(n ast.Node) {
	before := d.page.Faults()
	e := logEntry{replay: replay{speed: 1, patience: cluster.DefaultDeadline}, format: "common"}
	places := fields(d, n, "a log", logFields, &e)
	if len(e.limits) == 0 && d.page.Faults() == before {
		d.page.Fault(n, "limit", "is missing")
	}
	if places["time"] != nil && e.format != "json" {
		d.page.Fault(places["time"], "time", "belongs to format json; other logs have it at one place")
	}
	known, read := commonFields, logFormat(commonLog)
	if e.format == "json" {
		known, read = nil, jsonLog(cmp.Or(e.time, "time"))
	}
	key, cost := d.pattern(e.key, "key", "{ip}", known), d.pattern(e.cost, "cost", "1", known)
	if e.format == "json" && e.key == nil {
		d.page.Fault(n, "key", "is missing")
	}
	if d.page.Faults() > before {
		return
	}
	file, err := d.open(e.file)
	if err != nil {
		d.page.Fault(places["log"], "log", err.Error())
		return
	}
	defer file.Close()
	if e.logged, e.skipped, err = readLog(e.file, file, read, key, cost, e.skip); err != nil {
		d.page.Fault(places["log"], "log", err.Error())
		return
	}
	e.first = limiter.Instant(e.logged[0].at)
	if e.format == "common" {
		spreadSeconds(e.logged)
	}
	d.plan.replays = append(d.plan.replays, e.replay)
}

func (d *draft) pattern(n ast.Node, field, usual string, known []string) *pattern {
	text := usual
	if n != nil {
		text = n.GetToken().Value
		if _, number := n.(*ast.IntegerNode); !number {
			var err error
			if text, err = policy.Text(n); err != nil {
				d.page.Fault(n, field, err.Error())
				return nil
			}
		}
	}
	t, err := parsePattern(text, known)
	if err != nil {
		d.page.Fault(n, field, err.Error())
	}
	return t
}

var logFields = []field[logEntry]{
	{"log", func(_ *draft, n ast.Node, e *logEntry) (err error) { e.file, err = oneLine(n); return err }},
	{"format", func(_ *draft, n ast.Node, e *logEntry) (err error) {
		e.format, err = word(n, "common", "json")
		return err
	}},
	{"time", func(_ *draft, n ast.Node, e *logEntry) (err error) { e.time, err = oneLine(n); return err }},
	{"key", func(_ *draft, n ast.Node, e *logEntry) error { e.key = n; return nil }},
	{"cost", func(_ *draft, n ast.Node, e *logEntry) error { e.cost = n; return nil }},
	{"limit", func(d *draft, n ast.Node, e *logEntry) error { return d.limitOf(n, &e.limits) }},
	{"limits", func(d *draft, n ast.Node, e *logEntry) error { return d.limitsOf(n, &e.limits) }},
	{"speed", func(_ *draft, n ast.Node, e *logEntry) (err error) {
		e.speed, err = strconv.ParseFloat(n.GetToken().Value, 64)
		if err != nil || !(e.speed >= 0.001 && e.speed <= 1e6) {
			err = errors.New("must be a number from 0.001 to 1000000: how many times as fast the log goes by")
		}
		return err
	}},
	{"from", func(_ *draft, n ast.Node, e *logEntry) (err error) {
		e.from, err = duration(n, 0, maxDuration)
		return err
	}},
	{"patience", func(_ *draft, n ast.Node, e *logEntry) (err error) {
		e.patience, err = duration(n, time.Millisecond, time.Minute)
		return err
	}},
	{"skip_bad_lines", func(_ *draft, n ast.Node, e *logEntry) (err error) { e.skip, err = policy.Flag(n); return err }},
}

// limitOf reads the one limit of an entry of the traffic.
func (d *draft) limitOf(n ast.Node, into *[]string) error {
	name, err := d.limitName(n)
	*into = append(*into, name)
	return err
}

// limitsOf reads the limits of an entry of the traffic, which stand or fall together.
func (d *draft) limitsOf(n ast.Node, into *[]string) error {
	if len(*into) > 0 {
		return errors.New("and limit exclude each other")
	}
	return d.items(n, func(n ast.Node) {
		name, err := d.limitName(n)
		if err == nil && slices.Contains(*into, name) {
			err = fmt.Errorf("%q is there twice", name)
		}
		if err != nil {
			d.page.Fault(n, "limits", err.Error())
		}
		*into = append(*into, name)
	})
}

// request reads a single request, of which everything is known.
func (d *draft) request(n ast.Node) {
	before := d.page.Faults()
	a := arrival{patience: cluster.DefaultDeadline, calls: []calling{{}}}
	places := fields(d, n, "a single request", requestFields, &a)
	if d.page.Faults() > before {
		return
	}
	if places["items"] == nil {
		d.page.Fault(n, "items", "is missing")
		return
	}
	d.plan.script = append(d.plan.script, a)
}

var requestFields = []field[arrival]{
	{"at", func(_ *draft, n ast.Node, a *arrival) (err error) {
		a.at, err = duration(n, 0, maxDuration)
		return err
	}},
	{"to", func(d *draft, n ast.Node, a *arrival) error {
		text, err := policy.Text(n)
		if err != nil {
			return err
		}
		a.calls = nil
		for _, word := range strings.Fields(text) {
			name, later, repeated := strings.Cut(word, "+")
			c := calling{node: d.index(name)}
			if c.node < 0 {
				return fmt.Errorf("%.40q is no node; there are n1 to n%d", name, len(d.plan.machines))
			}
			if repeated {
				if c.after, err = time.ParseDuration(later); err != nil || c.after < 0 || c.after > restAfter/2 {
					return fmt.Errorf("%.40q must be a node and how much later it is asked again, up to %v, like n2+300ms", word, restAfter/2)
				}
			}
			a.calls = append(a.calls, c)
		}
		if len(a.calls) == 0 {
			return errors.New("names no node")
		}
		return nil
	}},
	{"atomic", func(_ *draft, n ast.Node, a *arrival) (err error) { a.atomic, err = policy.Flag(n); return err }},
	{"refused", func(_ *draft, n ast.Node, a *arrival) (err error) { a.broken, err = policy.Flag(n); return err }},
	{"patience", func(_ *draft, n ast.Node, a *arrival) (err error) {
		a.patience, err = duration(n, 1, time.Minute)
		return err
	}},
	{"items", func(d *draft, n ast.Node, a *arrival) error {
		return d.items(n, func(n ast.Node) {
			it := requestItem{Item: cluster.Item{Cost: 1}, times: 1, broken: a.broken}
			places := fields(d, n, "an item", itemFields, &it)
			if it.brought {
				it.Limit = ""
			}
			if it.Key == "" && !a.broken && places["key"] == nil {
				d.page.Fault(n, "key", "is missing")
			}
			for range it.times {
				a.items = append(a.items, it.Item)
			}
		})
	}},
}

// requestItem is an item while it is read.
type requestItem struct {
	cluster.Item
	brought bool // the client brings the limit along
	times   int64
	broken  bool // of a request that has to be refused
}

var itemFields = []field[requestItem]{
	{"limit", func(d *draft, n ast.Node, it *requestItem) (err error) {
		if it.broken {
			it.Limit, err = policy.Text(n)
			return err
		}
		it.Limit, err = d.limitName(n)
		return err
	}},
	{"brought", func(d *draft, n ast.Node, it *requestItem) (err error) {
		if it.brought, err = policy.Flag(n); err != nil || !it.brought {
			return err
		}
		l := d.page.Limit(it.Limit)
		if l == nil {
			return errors.New("goes with the name of a limit of the scenario")
		}
		it.Inline = mustLimit(l.Spec)
		return nil
	}},
	{"key", func(_ *draft, n ast.Node, it *requestItem) error {
		key, err := policy.Text(n)
		if it.Key = key; err == nil && !it.broken && (len(key) < cluster.MinKey || len(key) > cluster.MaxKey) {
			err = fmt.Errorf("has %d bytes; %d to %d are accepted", len(key), cluster.MinKey, cluster.MaxKey)
		}
		return err
	}},
	{"key_hex", func(_ *draft, n ast.Node, it *requestItem) error {
		key, err := hex.DecodeString(n.GetToken().Value)
		if it.Key = string(key); err != nil || len(key) < cluster.MinKey || len(key) > cluster.MaxKey {
			return fmt.Errorf("must be the bytes of a key in hexadecimal digits, %d to %d bytes", cluster.MinKey, cluster.MaxKey)
		}
		return nil
	}},
	{"cost", func(_ *draft, n ast.Node, it *requestItem) error {
		cost, err := strconv.ParseInt(n.GetToken().Value, 10, 64)
		if it.Cost = cost; err != nil {
			return errors.New("must be a whole number of 64 bits")
		}
		return nil
	}},
	{"op", func(_ *draft, n ast.Node, it *requestItem) error {
		text, err := word(n, opNames[:]...)
		it.Op = cluster.Op(slices.Index(opNames[:], text))
		return err
	}},
	{"id", func(_ *draft, n ast.Node, it *requestItem) error {
		sequence, err := strconv.ParseUint(n.GetToken().Value, 10, 40)
		if it.ID = (cluster.ID{Origin: clientOrigin, Sequence: sequence}); err != nil || sequence == 0 {
			return errors.New("must be a whole number from 1 on")
		}
		return nil
	}},
	{"times", func(_ *draft, n ast.Node, it *requestItem) (err error) {
		it.times, err = between(n, 1, cluster.MaxItems+1)
		return err
	}},
}

var opNames = [...]string{cluster.OpTake: "take", cluster.OpPeek: "peek", cluster.OpReset: "reset"}

// wave reads how a rate changes. All the fields named must be there.
func (d *draft) wave(n ast.Node, s *demand, what string, known []field[wave], needed ...string) error {
	before := d.page.Faults()
	places := fields(d, n, what, known, &s.wave)
	for _, name := range needed {
		if places != nil && places[name] == nil {
			return fmt.Errorf("needs %s", strings.Join(needed, ", "))
		}
	}
	if d.page.Faults() == before && s.wave.top >= s.wave.period {
		d.page.Fault(places["for"], "for", fmt.Sprintf("is %v, as long as the pause from one burst to the next", s.wave.top))
	}
	return nil
}

var swellFields = []field[wave]{
	{"peak", func(_ *draft, n ast.Node, x *wave) (err error) { x.peak, err = rate(n); return err }},
	{"period", func(_ *draft, n ast.Node, x *wave) (err error) {
		x.period, err = duration(n, time.Millisecond, maxDuration)
		return err
	}},
}

var burstFields = []field[wave]{
	{"rate", func(_ *draft, n ast.Node, x *wave) (err error) { x.peak, err = rate(n); return err }},
	{"every", func(_ *draft, n ast.Node, x *wave) (err error) {
		x.period, err = duration(n, time.Millisecond, maxDuration)
		return err
	}},
	{"for", func(_ *draft, n ast.Node, x *wave) (err error) {
		x.top, err = duration(n, time.Millisecond, maxDuration)
		return err
	}},
}

var retryFields = []field[retry]{
	{"times", func(_ *draft, n ast.Node, r *retry) error {
		times, err := between(n, 1, 100)
		r.times = int(times)
		return err
	}},
	{"after", func(_ *draft, n ast.Node, r *retry) (err error) {
		r.after, err = duration(n, time.Millisecond, restAfter)
		return err
	}},
}

// nodes reads a set of nodes: n1 n2, n3..n7, all, or owner(key), which is the node that owns a key when the world begins.
func (d *draft) nodes(text string) (who []int, err error) {
	for _, word := range strings.Fields(text) {
		first, last, isRange := strings.Cut(word, "..")
		switch {
		case word == "all":
			for i := range d.plan.machines {
				who = append(who, i)
			}
		case strings.HasPrefix(word, "owner(") && strings.HasSuffix(word, ")"):
			if len(d.plan.machines) == 0 {
				return nil, errors.New("nobody owns a key: there are no nodes")
			}
			d.owned = true
			key := word[len("owner(") : len(word)-1]
			who = append(who, d.index(d.plan.firstOwner(key)))
		default:
			if !isRange {
				last = first
			}
			from, to := d.index(first), d.index(last)
			if from < 0 || to < from {
				return nil, fmt.Errorf("%.40q is no node; there are n1 to n%d, ranges like n1..n3, all, and owner(key)", word, len(d.plan.machines))
			}
			for i := from; i <= to; i++ {
				who = append(who, i)
			}
		}
	}
	slices.Sort(who)
	if len(who) == 0 {
		return nil, errors.New("names no node")
	}
	return slices.Compact(who), nil
}

// index is the number of a node, or -1.
func (d *draft) index(name string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "n"))
	if err != nil || n < 1 || n > len(d.plan.machines) || machineID(n-1) != name {
		return -1
	}
	return n - 1
}

// oneLine reads a text of one line.
func oneLine(n ast.Node) (string, error) {
	text, err := policy.Text(n)
	if err == nil && (text == "" || strings.ContainsAny(text, "\r\n")) {
		err = errors.New("must be a line of text")
	}
	return text, err
}

// duration reads a span of time, like 250us, 1.5s, 10m or 2d12h.
func duration(n ast.Node, least, most time.Duration) (time.Duration, error) {
	const forms = "write 250us, 1.5s, 10m, 2h or 3d"
	if _, bare := n.(*ast.IntegerNode); bare && n.GetToken().Value != "0" {
		return 0, errors.New("has no unit; " + forms)
	}
	text := n.GetToken().Value
	if text != "0" {
		var err error
		if text, err = policy.Text(n); err != nil {
			return 0, err
		}
	}
	d, rest := time.Duration(0), text
	if days, after, found := strings.Cut(text, "d"); found {
		count, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%.40q is no span of time; %s", text, forms)
		}
		d, rest = time.Duration(count)*24*time.Hour, after
	}
	if rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil {
			return 0, fmt.Errorf("%.40q is no span of time; %s", text, forms)
		}
		d += more
	}
	if d < least || d > most {
		return 0, fmt.Errorf("is %v; %v to %v are accepted", d, least, most)
	}
	return d, nil
}

// rate reads how many requests come in which time: 200/s, 5/m, 1/h.
func rate(n ast.Node) (float64, error) {
	text, err := policy.Text(n)
	if err != nil {
		return 0, fmt.Errorf("is %s; write requests per time: 200/s, 30/m or 5/h", policy.Describe(n))
	}
	count, unit, _ := strings.Cut(text, "/")
	per := map[string]float64{"s": 1, "m": 60, "h": 3600}[unit]
	x, err := strconv.ParseFloat(count, 64)
	if err != nil || per == 0 || !(x > 0) || x/per > 1e7 {
		return 0, fmt.Errorf("%.40q is no rate up to 10000000/s; write 200/s, 30/m or 5/h", text)
	}
	return x / per, nil
}

// fraction reads a share of a whole: 1%, or 0.01.
func fraction(n ast.Node) (float64, error) {
	text := n.GetToken().Value
	number, percent := strings.CutSuffix(text, "%")
	x, err := strconv.ParseFloat(number, 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x >= 0 && x <= 1) {
		return 0, fmt.Errorf("%.40q is no part of a whole; write 1%% or 0.01, up to 100%%", text)
	}
	return x, nil
}

// between reads a whole number within bounds.
func between(n ast.Node, least, most int64) (int64, error) {
	x, err := policy.Number(n)
	if err == nil && (x < least || x > most) {
		err = fmt.Errorf("is %d; %d to %d are accepted", x, least, most)
	}
	return x, err
}

// word reads one of several words.
func word(n ast.Node, words ...string) (string, error) {
	text, err := policy.Text(n)
	if err == nil && !slices.Contains(words, text) {
		err = fmt.Errorf("%.40q is unknown; there is: %s", text, strings.Join(words, ", "))
	}
	return text, err
}

// cmpNode is the first of the nodes that is there.
func cmpNode(nodes ...ast.Node) ast.Node {
	return nodes[slices.IndexFunc(nodes, func(n ast.Node) bool { return n != nil })]
}

// unknown is what the reference does not know about a limit, so that nobody could judge it; empty if there is nothing.
func unknown(s *limiter.Spec) string {
	switch {
	case s.Algorithm == limiter.StatedWindow, s.Algorithm == limiter.StatedBucket, s.Algorithm == limiter.Concurrency:
		return s.Algorithm.String()
	case s.Calendar != 0:
		return "windows of a calendar"
	case s.Drain && s.Algorithm != limiter.TokenBucket:
		return "drain of a " + s.Algorithm.String()
	case s.Sessions:
		return "sessions"
	case s.ClientTime:
		return "clients' time"
	}
	return ""
}
