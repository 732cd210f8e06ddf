package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

const accessLog = `203.0.113.9 - frank [10/Oct/2025:13:55:36 -0700] ` +
	`"GET /a.gif?x=1 HTTP/1.0" 200 2326
2001:db8::7 - - [10/Oct/2025:13:55:36 -0700] "POST /login HTTP/1.1" 401 - ` +
	`"https://example.org/\"q\"" "curl/8 \"x\" y"

203.0.113.9 - Jane Doe [10/Oct/2025:22:55:38 +0200] "-" 408 0
198.51.100.1 - - [10/Oct/2025:13:55:37 -0700] "GET / HTTP/1.1" 200 17
`

func reads(t *testing.T, text string, format logFormat, key string, skip bool) ([]logged, int,
	error,
) {
	t.Helper()
	k, err := parsePattern(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := parsePattern("1", nil)
	r := logReader{format: format, key: k.key, cost: one, skip: skip}
	return r.readAll("access.log", strings.NewReader(text))
}

func TestCommonLogIsRead(t *testing.T) {
	all, _, err := reads(t, accessLog, &commonLog{},
		"{ip} {user} {method} {path} {query} {status} {bytes} {referer} {agent}", false)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2025, 10, 10, 20, 55, 36, 0, time.UTC).UnixNano()
	want := []logged{
		{start, "203.0.113.9 frank GET /a.gif x=1 200 2326  ", 1},
		{start, `2001:db8::7 - POST /login  401 0 https://example.org/"q" curl/8 "x" y`, 1},
		// it stands in the log after one that came later
		{start + 1e9, "198.51.100.1 - GET /  200 17  ", 1},
		{start + 2e9, "203.0.113.9 Jane Doe -   408 0  ", 1},
	}
	if !slices.Equal(all, want) {
		t.Errorf("got\n%v\nwant\n%v", all, want)
	}
	spreadSeconds(all)
	for i, ns := range []int64{start + 250e6, start + 750e6, start + 1500e6, start + 2500e6} {
		if all[i].at != ns {
			t.Errorf("request %d comes at %d, want %d: requests of one second are spread over it",
				i, all[i].at-start, ns-start)
		}
	}
}

func TestJSONLinesAreRead(t *testing.T) {
	text := `{"ts":"2026-01-31T12:00:00.5Z","user":{"id":7},"a.b":true,"n":3}
{"ts":1769860801.25,"user":{"id":"seven"},"a.b":"x","n":1}
{"ts":1769860802250,"user":{"id":7.5},"a.b":"x","n":1}
`
	all, _, err := reads(t, text, &jsonLog{timeField: "ts"}, "{user.id}/{a.b}", false)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC).UnixNano()
	want := []logged{
		{start + 500e6, "7/true", 1},
		{start + 1250e6, "seven/x", 1},
		{start + 2250e6, "7.5/x", 1},
	}
	if !slices.Equal(all, want) {
		t.Errorf("got %v, want %v", all, want)
	}
}

// Promise: bad input is a clear error with the line, or is counted.
func TestBadLinesAreSaid(t *testing.T) {
	const fine = "203.0.113.9 - - [10/Oct/2025:13:55:36 -0700] \"GET / HTTP/1.0\" 200 1\n"
	for _, c := range []struct {
		line, want string
		format     logFormat
	}{
		{"hello", "access.log:2: must be like", &commonLog{}},
		{
			`1.2.3.4 - - [yesterday] "GET / HTTP/1.0" 200 1`, `access.log:2: its time, "yesterday"`,
			&commonLog{},
		},
		{
			`1.2.3.4 - - [10/Oct/2025:13:55:36 -0700] "GET / HTTP/1.0 200 1`,
			"access.log:2: must be like", &commonLog{},
		},
		{
			`1.2.3.4 - - [10/Oct/2025:13:55:36 -0700] "GET / HTTP/1.0" OK 1`,
			`access.log:2: its status, "OK", is not a number`, &commonLog{},
		},
		{
			`1.2.3.4 - - [10/Oct/1955:13:55:36 -0700] "GET / HTTP/1.0" 200 1`,
			"access.log:2: its time, 1955-10-10T20:55:36Z, is not from 1971", &commonLog{},
		},
		{
			strings.Repeat("x", maxLogLine+10), "access.log:2: has more than 65536 bytes",
			&commonLog{},
		},
		{`[]`, "access.log:2: must be a JSON object", &jsonLog{timeField: "ts"}},
		{`{"ts":1} {}`, "access.log:2: must be one JSON object", &jsonLog{timeField: "ts"}},
		{`{"time":1}`, `access.log:2: has no field "ts"`, &jsonLog{timeField: "ts"}},
		{
			`{"ts":"noon","ip":"x"}`, `access.log:2: its time, "noon", is neither`,
			&jsonLog{timeField: "ts"},
		},
		{`{"ts":1700000000}`, `access.log:2: has no field "ip"`, &jsonLog{timeField: "ts"}},
		{
			`{"ts":1700000000,"ip":["a"]}`, `access.log:2: its field "ip" is no text`,
			&jsonLog{timeField: "ts"},
		},
		{
			`{"ts":1700000000,"ip":""}`, "access.log:2: its key has 0 bytes",
			&jsonLog{timeField: "ts"},
		},
	} {
		first := fine
		if c.line[0] == '{' || c.line[0] == '[' {
			first = "{\"ts\":1700000000,\"ip\":\"x\"}\n"
		}
		_, _, err := reads(t, first+c.line+"\n"+first, c.format, "{ip}", false)
		var at *LogError
		if !errors.As(err, &at) || at.Line != 2 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s\ngot:  %v\nwant: %s", c.line, err, c.want)
		}
		if all, skipped, err := reads(t, first+c.line+"\n"+first, c.format, "{ip}", true); err !=
			nil || len(all) != 2 || skipped != 1 {
			t.Errorf("%.80s: asked to skip: %d read, %d skipped, %v", c.line, len(all), skipped,
				err)
		}
	}
	if _, _, err := reads(t, "", &commonLog{}, "{ip}", true); err == nil {
		t.Error("a log without a request is no error")
	}
}

// Promise: a million lines a second. A line of a web server's log costs no memory of its own but
// its place in the list, whichever fields are asked for.
func TestLogLinesNeedNoMemory(t *testing.T) {
	const lines = 20_000
	line, _, _ := strings.Cut(accessLog, "\n")
	text := strings.Repeat(line+" \"https://example.org/\" \"curl\"\n", lines)
	allocated := testing.AllocsPerRun(1, func() {
		all, _, err := reads(t, text, &commonLog{}, "{ip} {path} {agent} {status}", false)
		if err != nil || len(all) != lines {
			t.Fatal(len(all), err)
		}
	})
	if allocated > lines/100 {
		t.Errorf("%.0f allocations for %d lines", allocated, lines)
	}
}

// Times of one minute are read by their seconds alone; all others by package time.
func TestCommonTimes(t *testing.T) {
	var m commonMinute
	for _, text := range []string{
		"10/Oct/2025:13:55:36 -0700", "10/Oct/2025:13:55:59 -0700", "10/Oct/2025:13:55:00 -0700",
		"10/Oct/2025:13:55:00 +0200", "10/Oct/2025:13:56:01 +0200", "11/Oct/2025:13:56:01 +0200",
		"10/Oct/2025:13:55:60 -0700", "10/Oct/2025:13:55:0x -0700",
		"10/Oct/2025:13:55: 1 -0700", "",
		"10/Oct/2025:13:55:01 -07000",
	} {
		got, err := m.parse([]byte(text))
		want, fault := time.Parse(commonTime, text)
		if !got.Equal(want) || (err == nil) != (fault == nil) {
			t.Errorf("%q: %v, %v; want %v, %v", text, got, err, want, fault)
		}
	}
}

// wrapped is a line with each field's name as its value, between two texts.
type wrapped [2]string

func (w wrapped) field(name string) ([]byte, error) { return []byte(w[0] + name + w[1]), nil }

func TestPatterns(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "x": "x", "{ip}": "<ip>",
		"a{ip}b{user}": "a<ip>b<user>",
	} {
		p, err := parsePattern(text, commonFields)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := p.fill(nil, wrapped{"<", ">"}); string(got) != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"{": "a { without a }", "}": "a } without a {", "{}": "the name of a field",
		"{a{b}":    "the name of a field",
		"{colour}": "there is no field {colour}; there are: ip,",
	} {
		if _, err := parsePattern(text, commonFields); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A log is played at its own pace, or so many times as fast, and the windows of its limits begin
// where they did.
func TestLogIsReplayed(t *testing.T) {
	scenario := func(more string) *Scenario {
		text := fmt.Sprintf(
			"nodes: 3\nlimits: [{name: page, algorithm: fixed_window, limit: 1, per: 1m}]\n"+
				"traffic: [{log: access.log, limit: page, key: '{ip}'%s}]\n", more)
		s, err := ReadScenario("f", []byte(text), func(name string) (io.ReadCloser, error) {
			if name != "access.log" {
				t.Errorf("opens %q", name)
			}
			return io.NopCloser(strings.NewReader(accessLog)), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := scenario("")
	if want := 2500 * time.Millisecond; s.plan.length != want+1 {
		t.Errorf("lasts %v, want %v, as long as the log", s.plan.length, want)
	}
	if got := s.plan.machines[0].clock.start; int64(got) != time.Date(2025, 10, 10, 20, 55, 36, 0,
		time.UTC).UnixNano() {
		t.Errorf("clocks begin at %d, want the log's beginning", got)
	}
	r := s.Run()
	if sum := r.Limits[0].Sum; !r.OK() || sum.Asked != 4 || sum.Admitted != 3 || sum.Denied != 1 ||
		sum.Ideal != 3 {
		t.Errorf("%+v; want three of four admitted: one address asks twice within a minute", sum)
	}
	if s := scenario(", speed: 10"); s.plan.length != 250*time.Millisecond+1 {
		t.Errorf("ten times as fast, it lasts %v", s.plan.length)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil ||
		!strings.Contains(text.String(),
			"access.log: 4 requests, 0 bad lines skipped, 1 times as fast") {
		t.Error(text.String())
	}
}

func FuzzCommonLog(f *testing.F) {
	for line := range strings.Lines(accessLog) {
		f.Add([]byte(line))
	}
	f.Add([]byte(`a b c [10/Oct/2025:13:55:36 -0700] "\\" 1 2 "`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var l commonLog
		at, err := l.read(line)
		if err != nil {
			return
		}
		if at.IsZero() {
			t.Error("no time, and no error")
		}
		for _, name := range commonFields {
			value, err := l.field(name)
			if err != nil || len(value) >= len(line) || name == "ip" &&
				!bytes.HasPrefix(line, value) {
				t.Errorf("%s is %q in %q (%v)", name, value, line, err)
			}
		}
		if _, err := l.field("other"); err == nil {
			t.Error("an unknown field is no error")
		}
	})
}

func FuzzJSONLog(f *testing.F) {
	f.Add([]byte(`{"ts":"2026-01-31T12:00:00.5Z","user":{"id":7},"a.b":true,"n":3}`), "user.id")
	f.Add([]byte(`{"ts":1e300}`), "ts")
	f.Add([]byte(`{"ts":1769860802250}`), ".")
	f.Fuzz(func(t *testing.T, line []byte, name string) {
		l := jsonLog{timeField: "ts"}
		at, err := l.read(line)
		if err != nil {
			return
		}
		if at.UnixNano() == 0 && at.Unix() != 0 && at.Year() > 1970 && at.Year() < 2200 {
			t.Error("a time that cannot be told in nanoseconds")
		}
		if value, err := l.field(name); err == nil && len(value) == 0 &&
			!strings.Contains(string(line), `""`) {
			t.Errorf("%q is nothing", name)
		}
	})
}

// Whatever stands in a file, it is a scenario or faults that say where.
func FuzzScenario(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte(plain +
		"faults: [{at: 1s, partition: n1 | n2..n3, for: 1s}, {at: 5s, rolling_restart: all}, " +
		"{at: 6s, clock_step: n2, by: -1h}, {at: 7s, join: n3}]\n" +
		"clocks: {n2: {ahead: 3h, drift_ppm: -7}}\nlinks: {loss: 1%, delay: 1ms}\n" +
		"start: 2026-03-01T00:00:00Z\n"))
	f.Add([]byte("nodes: 1\nlimits: [{name: a, algorithm: gcra, limit: 1, per: 1s}]\n" +
		"inline: [a]\ntraffic: [{at: 1s, to: n1 n1+3ms, atomic: true, " +
		"items: [{limit: a, brought: true, key_hex: 00ff, " +
		"cost: -3, op: take, id: 3, times: 2}]}]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ReadScenario("f", text, noLogs)
		if err != nil {
			if !strings.Contains(err.Error(), "f:") {
				t.Errorf("an error that does not say where: %v", err)
			}
			return
		}
		if len(s.plan.machines) == 0 || s.plan.length <= 0 {
			t.Errorf("%d machines for %v", len(s.plan.machines), s.plan.length)
		}
	})
}

// A pattern is the texts and names that it is made of, or an error.
func FuzzPattern(f *testing.F) {
	for _, text := range []string{"{user}:{path}", "plain", "{}", "}{", "{a{b}}", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePattern(text, nil)
		if err != nil {
			return
		}
		again, err := p.fill(nil, wrapped{"{", "}"})
		if err != nil || string(again) != text {
			t.Fatalf("%q is filled as %q, %v", text, again, err)
		}
	})
}
