package sim

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Bounds of a log.
const (
	maxLogged  = 5_000_000 // requests
	maxLogLine = 64 << 10  // bytes
)

var (
	errLongLine = fmt.Errorf("has more than %d bytes", maxLogLine)
	// a line of a log that has other things in it than requests, as it should
	errPassedOver = errors.New("is not a request")
)

// LogError says what is wrong with a line of a request log.
type LogError struct {
	File   string
	Line   int // from 1
	Reason string
}

func (e *LogError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason) }

// logged is one request of a log.
type logged struct {
	at   int64 // ns since 1970
	key  string
	cost int64
}

// logFormat reads the lines of a log, one after the other.
type logFormat interface {
	// read takes a line apart, and returns when its request came.
	read(line []byte) (at time.Time, err error)
	logLine
	// another reads lines of the same log, beside this one.
	another() logFormat
}

// logLine is the line that was read last. What it returns is valid until the next line, and may be
// written over by another field.
type logLine interface {
	field(name string) ([]byte, error)
}

// keyOf makes of the fields of a line what is kept of it, appended to buf.
type keyOf func(buf []byte, line logLine) ([]byte, error)

// logReader is how the lines of a log become requests. Each goroutine that parses has its own.
type logReader struct {
	format logFormat
	key    keyOf
	cost   *pattern
	skip   bool // lines that cannot be read are counted, and passed over

	longest int               // bytes of a line, with its end
	known   map[string]string // a log has far fewer keys than lines
	buf     []byte
}

// readAll reads a whole log, and sorts it by time. A line that cannot be read ends it, or is
// counted and passed over.
func (r *logReader) readAll(file string, from io.Reader) (all []logged, skipped int, err error) {
	r.longest = maxLogLine
	return r.parseAndSort(file, from, partSize, runtime.GOMAXPROCS(0))
}

func (r *logReader) parseAndSort(
	file string, from io.Reader, size, parsers int,
) (all []logged, skipped int, err error) {
	if all, skipped, err = r.parseParts(file, from, size, parsers); err != nil {
		return nil, 0, err
	}
	if len(all) == 0 {
		return nil, 0, fmt.Errorf("%s: has no request in it (%d bad lines)", file, skipped)
	}
	byTime := func(a, b logged) int { return cmp.Compare(a.at, b.at) }
	if !slices.IsSortedFunc(all, byTime) {
		slices.SortStableFunc(all, byTime)
	}
	return all, skipped, nil
}

// Times of a log are of these years: nanoseconds of others do not fit, and a line of 1970 mostly
// has a time in a wrong unit.
var (
	firstLogged = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	lastLogged  = time.Date(2201, 1, 1, 0, 0, 0, 0, time.UTC).Unix() - 1
)

// line reads one line.
func (r *logReader) line(line []byte) (l logged, err error) {
	at, err := r.format.read(line)
	if err != nil {
		return l, err
	}
	if s := at.Unix(); s < firstLogged || s > lastLogged {
		return l, fmt.Errorf("its time, %s, is not from 1971 to 2200",
			at.UTC().Format(time.RFC3339))
	}
	l.at = at.UnixNano()
	if r.buf, err = r.key(r.buf[:0], r.format); err != nil {
		return l, err
	}
	l.key = r.kept(r.buf)
	l.cost, err = r.costOf()
	return l, err
}

// kept is text as a string: the same one for the same text.
func (r *logReader) kept(text []byte) string {
	if s, known := r.known[string(text)]; known {
		return s
	}
	s := string(text)
	r.known[s] = s
	return s
}

// costOf is what the line that was read last costs.
func (r *logReader) costOf() (cost int64, err error) {
	if n, always := r.cost.number(); always {
		return n, nil
	}
	if r.buf, err = r.cost.fill(r.buf[:0], r.format); err != nil {
		return 0, err
	}
	cost, err = strconv.ParseInt(string(r.buf), 10, 64)
	if err != nil || cost < 0 || cost > limiter.MaxLimit {
		return 0, fmt.Errorf("its cost, %.40q, is not a whole number from 0 to %d", r.buf,
			int64(limiter.MaxLimit))
	}
	return cost, nil
}

// key is a pattern that makes keys of limits.
func (t *pattern) key(buf []byte, line logLine) ([]byte, error) {
	key, err := t.fill(buf, line)
	if err == nil && (len(key) < cluster.MinKey || len(key) > cluster.MaxKey) {
		err = fmt.Errorf("its key has %d bytes; %d to %d are accepted", len(key), cluster.MinKey,
			cluster.MaxKey)
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

// Log says how the log of a server is read, with the words of a scenario's traffic.
type Log struct {
	// common, also for the combined format; json, one object in a line; envoy, its default text;
	// redis-cell or redis-incr, what MONITOR of a Redis prints.
	Format string
	Time   string // json: the field with the time; default time
	// What a request counts for, and costs: texts with fields in braces, as in "{ip}". Cost
	// defaults to 1, and to what the command says in logs of a Redis.
	Key, Cost string
	Beside    string // more of each line, for its reader; "": nothing
	Skip      bool   // lines that cannot be read are passed over, and counted
}

// Read calls see with each request of a log, in order of time. An error names the line; what is
// wrong with l itself is an error too.
func (l Log) Read(
	file string, r io.Reader, see func(at time.Time, key, beside string, cost int64),
) (skipped int, err error) {
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
	switch l.Format {
	case "json":
		return nil, &jsonLog{timeField: cmp.Or(l.Time, "time")}, nil
	case "common":
		known, format = commonFields, &commonLog{}
	case "envoy":
		known, format = envoyFields, &envoyLog{}
	case "redis-cell":
		known, format = cellFields, &monitorLog{cell: true}
	case "redis-incr":
		known, format = incrFields, &monitorLog{}
	default:
		return nil, nil, fmt.Errorf("format %.40q is unknown; there is: common, json, envoy, "+
			"redis-cell, redis-incr", l.Format)
	}
	if l.Time != "" {
		return nil, nil, errors.New(
			"a field for the time belongs to format json; other logs have it at one place")
	}
	return known, format, nil
}

func (l Log) read(
	file string, from io.Reader, known []string, format logFormat, key keyOf,
	see func(at time.Time, key, beside string, cost int64),
) (skipped int, err error) {
	usual := "1"
	if slices.Contains(known, "cost") {
		usual = "{cost}"
	}
	cost, err := parsePattern(cmp.Or(l.Cost, usual), known)
	if err != nil {
		return 0, fmt.Errorf("cost: %w", err)
	}
	if l.Beside != "" {
		beside, err := parsePattern(l.Beside, known)
		if err != nil {
			return 0, err
		}
		key = beside.after(key)
	}
	r := logReader{format: format, key: key, cost: cost, skip: l.Skip}
	all, skipped, err := r.readAll(file, from)
	if err != nil {
		return skipped, err
	}
	if l.Format == "common" {
		spreadSeconds(all)
	}
	for i := range all {
		key, beside := all[i].key, ""
		if l.Beside != "" {
			end := strings.LastIndexByte(key, separator)
			key, beside = key[:end], key[end+1:]
		}
		see(time.Unix(0, all[i].at), key, beside, all[i].cost)
	}
	return skipped, nil
}

// after keeps the text behind the key.
func (t *pattern) after(key keyOf) keyOf {
	return func(buf []byte, line logLine) ([]byte, error) {
		buf, err := key(buf, line)
		if err != nil {
			return buf, err
		}
		buf = append(buf, separator)
		from := len(buf)
		if buf, err = t.fill(buf, line); err == nil &&
			bytes.IndexByte(buf[from:], separator) >= 0 {
			err = fmt.Errorf("%.40q has a byte of 0 in it", buf[from:])
		}
		return buf, err
	}
}
