package sim

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// replay is a log of requests that happen once more: the pauses between them are those of the log.
type replay struct {
	file     string
	limits   []string
	logged   []logged // by time
	first    limiter.Instant
	skipped  int // lines that could not be read
	speed    float64
	from     time.Duration
	patience time.Duration
}

// logged is one request of a log.
type logged struct {
	at   int64 // ns since 1970
	key  string
	cost int64
}

// Bounds of a log.
const (
	maxLogged  = 5_000_000 // requests
	maxLogLine = 64 << 10  // bytes
)

// LogError says what is wrong with a line of a request log.
type LogError struct {
	File   string
	Line   int // from 1
	Reason string
}

func (e *LogError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason) }

// logFormat is how a line of a log is read. It returns when the request came, and a function that
// knows its fields.
type logFormat func(line []byte) (at time.Time, fields func(name string) (string, error), err error)

// readLog reads a whole log. A line that cannot be read ends it, or is counted and passed over.
func readLog(file string, r io.Reader, read logFormat, key keyOf, cost *pattern, skip bool) (all []logged, skipped int, err error) {
	lines := bufio.NewReaderSize(r, maxLogLine)
	known := make(map[string]string) // a log has far fewer keys than lines
	for n := 1; ; n++ {
		line, err := lines.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, fmt.Errorf("%s: %w", file, err)
		}
		over := err != nil
		line = bytes.TrimSpace(line)
		if len(line) > 0 {
			var l logged
			fault := fmt.Errorf("has more than %d bytes", maxLogLine)
			if !long {
				l, fault = readLogged(line, read, key, cost)
			}
			switch {
			case fault != nil && !skip:
				return nil, 0, &LogError{file, n, fault.Error()}
			case fault != nil:
				skipped++
			case len(all) == maxLogged:
				return nil, 0, &LogError{file, n, fmt.Sprintf("is one request too many; %d are accepted: replay a part of the log", maxLogged)}
			default:
				if k, found := known[l.key]; found {
					l.key = k
				} else {
					known[l.key] = l.key
				}
				all = append(all, l)
			}
		}
		if over {
			break
		}
	}
	if len(all) == 0 {
		return nil, 0, fmt.Errorf("%s: has no request in it (%d bad lines)", file, skipped)
	}
	slices.SortStableFunc(all, func(a, b logged) int { return cmp.Compare(a.at, b.at) })
	return all, skipped, nil
}

func readLogged(line []byte, read logFormat, key keyOf, cost *pattern) (l logged, err error) {
	at, fields, err := read(line)
	if err != nil {
		return l, err
	}
	if at.Year() < 1971 || at.Year() > 2200 {
		return l, fmt.Errorf("its time, %s, is not from 1971 to 2200", at.UTC().Format(time.RFC3339))
	}
	l.at = at.UnixNano()
	if l.key, err = key(fields); err != nil {
		return l, err
	}
	text, err := cost.fill(fields)
	if err != nil {
		return l, err
	}
	if l.cost, err = strconv.ParseInt(text, 10, 64); err != nil || l.cost < 0 || l.cost > limiter.MaxLimit {
		return l, fmt.Errorf("its cost, %.40q, is no whole number from 0 to %d", text, int64(limiter.MaxLimit))
	}
	return l, nil
}

// keyOf makes of the fields of a line what is kept of it.
type keyOf func(fields func(string) (string, error)) (string, error)

// key is a pattern that makes keys of limits.
func (t *pattern) key(fields func(string) (string, error)) (string, error) {
	key, err := t.fill(fields)
	if err == nil && (len(key) < cluster.MinKey || len(key) > cluster.MaxKey) {
		err = fmt.Errorf("its key has %d bytes; %d to %d are accepted", len(key), cluster.MinKey, cluster.MaxKey)
	}
	return key, err
}

// spreadSeconds puts requests of which only the second is known evenly into it.
func spreadSeconds(all []logged) {
	for i := 0; i < len(all); {
		k := i
		for k < len(all) && all[k].at == all[i].at {
			k++
		}
		second := all[i].at
		for n := i; n < k; n++ {
			all[n].at = second + int64(time.Second)*(2*int64(n-i)+1)/(2*int64(k-i))
		}
		i = k
	}
}

// commonLog reads a line as most web servers write it: the Common Log Format, and the Combined one,
// which has two fields more.
//
//	203.0.113.9 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326 "referer" "agent"
func commonLog(line []byte) (at time.Time, fields func(string) (string, error), err error) {
	const form = `must be like: 203.0.113.9 - frank [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 2326`
	text := string(line)
	who, rest, opened := strings.Cut(text, " [")
	when, rest, closed := strings.Cut(rest, "] ")
	ip, who, _ := strings.Cut(who, " ")
	_, user, _ := strings.Cut(who, " ")
	if !opened || !closed || ip == "" || user == "" {
		return at, nil, errors.New(form)
	}
	if at, err = time.Parse("02/Jan/2006:15:04:05 -0700", when); err != nil {
		return at, nil, fmt.Errorf("its time, %.40q, must be like 10/Oct/2000:13:55:36 -0700", when)
	}
	request, rest, quoted := cutQuoted(rest)
	numbers := strings.Fields(rest)
	if !quoted || len(numbers) < 2 {
		return at, nil, errors.New(form)
	}
	if status, err := strconv.Atoi(numbers[0]); err != nil || status < 0 || status > 999 {
		return at, nil, fmt.Errorf("its status, %.40q, is no number", numbers[0])
	}
	rest = strings.TrimLeft(rest, " ")[len(numbers[0]):]
	rest = strings.TrimLeft(rest, " ")[len(numbers[1]):]
	referer, rest, _ := cutQuoted(strings.TrimLeft(rest, " "))
	agent, _, _ := cutQuoted(strings.TrimLeft(rest, " "))
	method, target, _ := strings.Cut(request, " ")
	target, protocol, _ := strings.Cut(target, " ")
	path, query, _ := strings.Cut(target, "?")
	return at, func(name string) (string, error) {
		switch name {
		case "ip":
			return ip, nil
		case "user":
			return user, nil
		case "request":
			return request, nil
		case "method":
			return method, nil
		case "path":
			return path, nil
		case "query":
			return query, nil
		case "protocol":
			return protocol, nil
		case "status":
			return numbers[0], nil
		case "bytes":
			if numbers[1] == "-" {
				return "0", nil
			}
			return numbers[1], nil
		case "referer":
			return referer, nil
		case "agent":
			return agent, nil
		}
		return "", fmt.Errorf("has no field {%.40s}", name)
	}, nil
}

// commonFields are the fields of commonLog.
var commonFields = []string{"ip", "user", "request", "method", "path", "query", "protocol", "status", "bytes", "referer", "agent"}

// cutQuoted takes a text in quotes off the front of s. Quotes inside are escaped by a backslash.
func cutQuoted(s string) (text, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		return "", s, false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return strings.ReplaceAll(s[1:i], `\"`, `"`), s[i+1:], true
		}
	}
	return "", s, false
}

// jsonLog reads a line that is a JSON object; timeField is where its time stands: a text like
// 2026-01-31T12:00:00.5Z, or a number of seconds, ms, µs or ns since 1970, told apart by its size.
// Fields of objects within are joined by dots.
func jsonLog(timeField string) logFormat {
	return func(line []byte) (at time.Time, fields func(string) (string, error), err error) {
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		var object map[string]any
		if err := d.Decode(&object); err != nil || object == nil {
			return at, nil, errors.New("must be a JSON object")
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return at, nil, errors.New("must be one JSON object, with nothing after it")
		}
		fields = func(name string) (string, error) { return jsonField(object, name) }
		text, err := fields(timeField)
		if err != nil {
			return at, nil, err
		}
		if at, err = time.Parse(time.RFC3339Nano, text); err == nil {
			return at, fields, nil
		}
		at, err = sinceEpoch(text)
		return at, fields, err
	}
}

func jsonField(object map[string]any, name string) (string, error) {
	var value any = object
	for rest, more := name, true; more; {
		var step string
		within, _ := value.(map[string]any)      // of what is no object nothing is found
		if whole, found := within[rest]; found { // a name may have dots of its own
			value, more = whole, false
			continue
		}
		step, rest, more = strings.Cut(rest, ".")
		var ok bool
		if value, ok = within[step]; !ok {
			return "", fmt.Errorf("has no field %.40q", name)
		}
	}
	switch v := value.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", fmt.Errorf("its field %.40q is no text, number or truth value", name)
}

// sinceEpoch reads a number of seconds since 1970, or of smaller units if it is too large for that.
func sinceEpoch(text string) (time.Time, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(x) || x < 0 || x > 1e19 {
		return time.Time{}, fmt.Errorf("its time, %.40q, is neither like 2026-01-31T12:00:00Z nor a number since 1970", text)
	}
	for x >= 1e11 { // as seconds, that would be after the year 5000
		x /= 1000
	}
	whole := math.Floor(x)
	return time.Unix(int64(whole), int64(math.Round((x-whole)*1e9))), nil
}

// pattern is a text with names of fields in braces: "{user}:{path}".
type pattern struct {
	texts []string // one more than names: what stands before, between and after
	names []string
}

// parsePattern reads a pattern; it may only name the fields given, or any if there are none given.
func parsePattern(text string, known []string) (*pattern, error) {
	t := &pattern{}
	rest := text
	for {
		before, after, opened := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return nil, fmt.Errorf("%.40q: a } without a { before it", text)
		}
		t.texts = append(t.texts, before)
		if !opened {
			return t, nil
		}
		name, left, closed := strings.Cut(after, "}")
		switch {
		case !closed:
			return nil, fmt.Errorf("%.40q: a { without a }", text)
		case name == "" || strings.Contains(name, "{"):
			return nil, fmt.Errorf("%.40q: between { and } stands the name of a field", text)
		case known != nil && !slices.Contains(known, name):
			return nil, fmt.Errorf("there is no field {%.40s}; there are: %s", name, strings.Join(known, ", "))
		}
		t.names = append(t.names, name)
		rest = left
	}
}

func (t *pattern) fill(fields func(string) (string, error)) (string, error) {
	if len(t.names) == 1 && t.texts[0] == "" && t.texts[1] == "" {
		return fields(t.names[0])
	}
	var b strings.Builder
	for i, text := range t.texts {
		b.WriteString(text)
		if i < len(t.names) {
			value, err := fields(t.names[i])
			if err != nil {
				return "", err
			}
			b.WriteString(value)
		}
	}
	return b.String(), nil
}

// at is when the i-th request comes.
func (r *replay) at(i int) time.Duration {
	return r.from + time.Duration(float64(r.logged[i].at-int64(r.first))/r.speed)
}

// player has the requests of a log come once more.
type player struct {
	*replay
	world *world
	dice  *rand.Rand
	done  int
}

func (p *player) next(a *arrival) bool {
	if p.done == len(p.logged) || p.at(p.done) > p.world.plan.length {
		return false
	}
	l := &p.logged[p.done]
	*a = arrival{at: p.at(p.done), atomic: len(p.limits) > 1, patience: p.patience, roams: true}
	if a.lone(p.world); len(p.limits) > 1 {
		a.items = make([]cluster.Item, len(p.limits))
	}
	for i, name := range p.limits {
		a.items[i] = cluster.Item{Limit: name, Key: l.key, Cost: l.cost}
	}
	a.calls[0] = calling{node: p.dice.IntN(len(p.world.machines))}
	p.done++
	return true
}

// Log says how the log of a server is read, with the words of a scenario's traffic.
type Log struct {
	Format    string // common, also for the combined format; or json, one object in a line
	Time      string // json: the field with the time; default time
	Key, Cost string // what a request counts for, and costs: texts with fields in braces, as in "{ip}"; Cost defaults to 1
	Skip      bool   // lines that cannot be read are passed over, and counted
}

// Read calls see with each request of a log, in order of time. An error names the line; what is
// wrong with l itself is an error too.
func (l Log) Read(file string, r io.Reader, see func(at time.Time, key string, cost int64)) (skipped int, err error) {
	known, format, err := l.format()
	if err != nil {
		return 0, err
	}
	key, err := parsePattern(l.Key, known)
	if err != nil {
		return 0, fmt.Errorf("key: %w", err)
	}
	return l.read(file, r, known, format, key.key, see)
}

func (l Log) format() (known []string, format logFormat, err error) {
	switch {
	case l.Format == "json":
		return nil, jsonLog(cmp.Or(l.Time, "time")), nil
	case l.Format != "common":
		return nil, nil, fmt.Errorf("format %.40q is unknown; there is: common, json", l.Format)
	case l.Time != "":
		return nil, nil, errors.New("a field for the time belongs to format json; other logs have it at one place")
	}
	return commonFields, commonLog, nil
}

func (l Log) read(file string, r io.Reader, known []string, format logFormat, key keyOf, see func(time.Time, string, int64)) (skipped int, err error) {
	cost, err := parsePattern(cmp.Or(l.Cost, "1"), known)
	if err != nil {
		return 0, fmt.Errorf("cost: %w", err)
	}
	all, skipped, err := readLog(file, r, format, key, cost, l.Skip)
	if err != nil {
		return skipped, err
	}
	if l.Format == "common" {
		spreadSeconds(all)
	}
	for i := range all {
		see(time.Unix(0, all[i].at), all[i].key, all[i].cost)
	}
	return skipped, nil
}
