package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/policy"
)

// traffic reads one entry of the traffic: requests at some rate, a log, or one request.
func (d *draft) traffic(n ast.Node) {
	m, ok := n.(*ast.MappingNode)
	has := func(name string) bool {
		return ok && slices.ContainsFunc(m.Values, func(v *ast.MappingValueNode) bool {
			return policy.FieldName(v.Key) == name
		})
	}
	switch {
	case ok && has("rate") && !has("log") && !has("at"):
		d.demand(n)
	case ok && has("log") && !has("rate") && !has("at"):
		d.log(n)
	case ok && has("at") && !has("rate") && !has("log"):
		d.request(n)
	default:
		d.page.Fault(n, "traffic",
			"an entry has one of: rate (requests at random), log (requests of a file), at (a "+
				"single request)")
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
	d.agrees(n, &s, places)
	if s.hold.ttl > 0 && s.retry.times > 0 {
		d.page.Fault(places["retry"], "retry",
			"and reserve exclude each other: a reservation that is refused is not tried again")
	}
	d.held(n, s.limits, s.hold.ttl > 0)
	if s.name == "" && len(s.limits) > 0 {
		s.name = s.limits[0]
	}
	d.plan.demands = append(d.plan.demands, s)
}

// agrees finds the first field of a demand that contradicts another one, or is missing.
func (d *draft) agrees(n ast.Node, s *demand, places map[string]ast.Node) {
	switch {
	case len(s.limits) == 0:
		d.page.Fault(n, "limit", "is missing")
	case s.until != 0 && s.until <= s.from:
		d.page.Fault(places["until"], "until", fmt.Sprintf("is %v, but it begins at %v", s.until,
			s.from))
	case s.until == 0 && d.plan.length != 0 && s.from >= d.plan.length:
		d.page.Fault(places["from"], "from", fmt.Sprintf("is %v, but the scenario lasts %v", s.from,
			d.plan.length))
	case s.until > d.plan.length && d.plan.length != 0:
		d.page.Fault(places["until"], "until", fmt.Sprintf("is %v, but the scenario lasts %v",
			s.until, d.plan.length))
	case places["swell"] != nil && places["bursts"] != nil:
		d.page.Fault(places["bursts"], "bursts",
			"and swell exclude each other: give one, or write two entries")
	case s.wave.peak != 0 && s.wave.peak < s.rate:
		d.page.Fault(n, "peak", "is less than rate; rate is the lowest")
	}
}

var demandFields = []field[demand]{
	{"limit", func(d *draft, n ast.Node, s *demand) error { return d.limitOf(n, &s.limits) }},
	{"limits", func(d *draft, n ast.Node, s *demand) error { return d.limitsOf(n, &s.limits) }},
	{"key", func(_ *draft, n ast.Node, s *demand) (err error) {
		if s.name, err = oneLine(n); err == nil && len(s.name) > cluster.MaxKey-10 {
			err = fmt.Errorf("has %d bytes; at most %d are accepted", len(s.name),
				cluster.MaxKey-10)
		}
		return err
	}},
	{"keys", func(_ *draft, n ast.Node, s *demand) error {
		count, err := between(n, 1, 1_000_000)
		s.keys = int(count)
		return err
	}},
	{"spread", sets(wordOf("uniform", "zipf", "hot"), func(s *demand) *string {
		return &s.spread
	})},
	{"rate", sets(rate, func(s *demand) *float64 { return &s.rate })},
	{"swell", func(d *draft, n ast.Node, s *demand) error {
		return d.wave(n, s, "a swell", swellFields, "peak", "period")
	}},
	{"bursts", func(d *draft, n ast.Node, s *demand) error {
		return d.wave(n, s, "bursts", burstFields, "rate", "every", "for")
	}},
	{"from", sets(spanOf(0, maxDuration), func(s *demand) *time.Duration { return &s.from })},
	{"until", sets(spanOf(1, maxDuration), func(s *demand) *time.Duration { return &s.until })},
	{"cost", sets(countOf(1, limiter.MaxLimit), func(s *demand) *int64 { return &s.cost })},
	{"patience", sets(spanOf(time.Millisecond, time.Minute), func(s *demand) *time.Duration {
		return &s.patience
	})},
	{"reserve", (*draft).reserve},
	{"retry", func(d *draft, n ast.Node, s *demand) error {
		places := fields(d, n, "retry", retryFields, &s.retry)
		if s.retry.times == 0 || s.retry.after == 0 {
			return errors.New("needs times and after")
		}
		if worst := time.Duration(s.retry.times) * s.retry.after; worst > restAfter/2 {
			d.page.Fault(places["after"], "after",
				fmt.Sprintf("%d times %v goes on for %v; at most %v are accepted", s.retry.times,
					s.retry.after, worst, restAfter/2))
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
		d.page.Fault(places["time"], "time",
			"belongs to format json; other logs have it at one place")
	}
	known, format := commonFields, logFormat(&commonLog{})
	if e.format == "json" {
		known, format = nil, &jsonLog{timeField: cmp.Or(e.time, "time")}
	}
	d.held(n, e.limits, false)
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
	r := logReader{format: format, key: key.key, cost: cost, skip: e.skip}
	if e.logged, e.skipped, err = r.readAll(e.file, file); err != nil {
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
	{"log", sets(oneLine, func(e *logEntry) *string { return &e.file })},
	{"format", sets(wordOf("common", "json"), func(e *logEntry) *string { return &e.format })},
	{"time", sets(oneLine, func(e *logEntry) *string { return &e.time })},
	{"key", func(_ *draft, n ast.Node, e *logEntry) error { e.key = n; return nil }},
	{"cost", func(_ *draft, n ast.Node, e *logEntry) error { e.cost = n; return nil }},
	{"limit", func(d *draft, n ast.Node, e *logEntry) error { return d.limitOf(n, &e.limits) }},
	{"limits", func(d *draft, n ast.Node, e *logEntry) error { return d.limitsOf(n, &e.limits) }},
	{"speed", func(_ *draft, n ast.Node, e *logEntry) (err error) {
		e.speed, err = strconv.ParseFloat(n.GetToken().Value, 64)
		if err != nil || !(e.speed >= 0.001 && e.speed <= 1e6) {
			err = errors.New(
				"must be a number from 0.001 to 1000000: how many times as fast the log goes by")
		}
		return err
	}},
	{"from", sets(spanOf(0, maxDuration), func(e *logEntry) *time.Duration { return &e.from })},
	{"patience", sets(spanOf(time.Millisecond, time.Minute), func(e *logEntry) *time.Duration {
		return &e.patience
	})},
	{"skip_bad_lines", sets(policy.Flag, func(e *logEntry) *bool { return &e.skip })},
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

// wave reads how a rate changes. All the fields named must be there.
func (d *draft) wave(n ast.Node, s *demand, what string, known []field[wave],
	needed ...string,
) error {
	before := d.page.Faults()
	places := fields(d, n, what, known, &s.wave)
	for _, name := range needed {
		if places != nil && places[name] == nil {
			return fmt.Errorf("needs %s", strings.Join(needed, ", "))
		}
	}
	if d.page.Faults() == before && s.wave.top >= s.wave.period {
		d.page.Fault(places["for"], "for",
			fmt.Sprintf("is %v, as long as the pause from one burst to the next", s.wave.top))
	}
	return nil
}

var swellFields = []field[wave]{
	{"peak", sets(rate, func(x *wave) *float64 { return &x.peak })},
	{"period", sets(spanOf(time.Millisecond, maxDuration), func(x *wave) *time.Duration {
		return &x.period
	})},
}

var burstFields = []field[wave]{
	{"rate", sets(rate, func(x *wave) *float64 { return &x.peak })},
	{"every", sets(spanOf(time.Millisecond, maxDuration), func(x *wave) *time.Duration {
		return &x.period
	})},
	{"for", sets(spanOf(time.Millisecond, maxDuration), func(x *wave) *time.Duration {
		return &x.top
	})},
}

var retryFields = []field[retry]{
	{"times", func(_ *draft, n ast.Node, r *retry) error {
		times, err := between(n, 1, 100)
		r.times = int(times)
		return err
	}},
	{"after", sets(spanOf(time.Millisecond, restAfter), func(r *retry) *time.Duration {
		return &r.after
	})},
}
