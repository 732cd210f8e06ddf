package sim

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// naiveJSON reads lines as package json does, and nothing else.
type naiveJSON struct {
	timeField string
	object    map[string]any
}

func (l *naiveJSON) another() logFormat { return &naiveJSON{timeField: l.timeField} }

func (l *naiveJSON) read(line []byte) (at time.Time, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	l.object = nil
	if err := d.Decode(&l.object); err != nil || l.object == nil {
		return at, errors.New("must be a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return at, errors.New("must be one JSON object, with nothing after it")
	}
	text, err := jsonField(l.object, l.timeField)
	if err != nil {
		return at, err
	}
	if at, err = time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	return sinceEpoch([]byte(text))
}

func (l *naiveJSON) field(name string) ([]byte, error) {
	text, err := jsonField(l.object, name)
	return []byte(text), err
}

// naiveReadAll reads a log line by line.
func naiveReadAll(r *logReader, file string, from io.Reader) (all []logged, skipped int,
	err error,
) {
	r.known = make(map[string]string)
	lines := bufio.NewReaderSize(from, r.longest)
	for n, over := 1, false; !over; n++ {
		line, err := lines.ReadSlice('\n')
		line = slices.Clone(line)
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if over = err != nil; over && !errors.Is(err, io.EOF) {
			return nil, 0, fmt.Errorf("%s: %w", file, err)
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var l logged
		fault := errLongLine
		if !long {
			l, fault = r.line(line)
		}
		switch {
		case fault != nil && !r.skip:
			return nil, 0, &LogError{file, n, fault.Error()}
		case fault != nil:
			skipped++
		default:
			all = append(all, l)
		}
	}
	if len(all) == 0 {
		return nil, 0, fmt.Errorf("%s: has no request in it (%d bad lines)", file, skipped)
	}
	slices.SortStableFunc(all, func(a, b logged) int { return cmp.Compare(a.at, b.at) })
	return all, skipped, nil
}

// sameAsNaive reads a log in both ways. A broken log ends with an error that is not its end.
func sameAsNaive(t *testing.T, text, format, key string, skip, broken bool, size int) {
	t.Helper()
	pattern, err := parsePattern(key, nil)
	if err != nil {
		t.Skip()
	}
	cost, _ := parsePattern("1", nil)
	r := logReader{key: pattern.key, cost: cost, skip: skip, longest: 64}
	slow := r
	r.format, slow.format = &commonLog{}, &commonLog{}
	if format == "json" {
		r.format, slow.format = &jsonLog{timeField: "ts"}, &naiveJSON{timeField: "ts"}
	}
	from := func() io.Reader {
		if broken {
			return io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrUnexpectedEOF))
		}
		return strings.NewReader(text)
	}
	all, skipped, err := r.parseAndSort("f", from(), size, 3)
	want, wantSkipped, wantErr := naiveReadAll(&slow, "f", from())
	if !slices.Equal(all, want) || skipped != wantSkipped || fmt.Sprint(err) !=
		fmt.Sprint(wantErr) {
		t.Errorf("%q by %q, parts of %d bytes:\n%v, %d, %v\nline by line:\n%v, %d, %v", text, key,
			size, all, skipped, err, want, wantSkipped, wantErr)
	}
}

const jsonLines = `{"ts":1769860800,"ip":"a"}
{"ts":1769860801,"ip":{"v":"b"}}

{"ts":1769860799,"ip":"c","ip":"d"}
{"ts":1769860802,"ip":"\u0065"}
{"ts":"x","ip":"e"}
{"ts":1769860803,"ip":"more than 64 bytes are too many for a line of this test"}
{"ts":1769860804,"ip":"f"}
{"ts":1769860805,"ip":1.5}`

// Promise: parts of a log that are parsed beside each other say the same as its lines one by one,
// whatever stands in it: the same requests, the same first bad line.
func TestPartsAreTheWhole(t *testing.T) {
	short := strings.ReplaceAll(accessLog, "203.0.113.9 - frank", "1 - f")
	late := strings.Repeat("{\"ts\":1769860800,\"ip\":\"a\"}\n\n", 9) + "bad\nworse\n"
	for _, text := range []string{
		late,
		jsonLines, short, "", "\n\n", " ", strings.Repeat("x", 63), strings.Repeat("x", 64),
		strings.Repeat("x", 300) + "\n" + jsonLines, jsonLines + strings.Repeat("x", 300),
	} {
		for _, format := range []string{"common", "json"} {
			for _, skip := range []bool{false, true} {
				for _, broken := range []bool{false, true} {
					for size := 66; size < 400; size += 7 {
						sameAsNaive(t, text, format, "{ip}", skip, broken, size)
					}
				}
			}
		}
	}
}

// Promise: of too many requests, the line with the first one beyond them is named, in whichever
// part it stands.
func TestTooManyRequests(t *testing.T) {
	key, _ := parsePattern("{ip}", nil)
	cost, _ := parsePattern("1", nil)
	r := logReader{
		format: &jsonLog{timeField: "ts"}, key: key.key, cost: cost, longest: maxLogLine,
	}
	text := strings.Repeat("{\"ts\":1769860800,\"ip\":\"a\"}\n\n", 10)
	for room := range 10 {
		p := r.another().parse([]byte(text), 5, room)
		if p.bad != 5+2*room || p.fault == nil || len(p.requests) != room {
			t.Errorf("room for %d: line %d, %v", room, p.bad, p.fault)
		}
	}
	if p := r.another().parse([]byte(text), 5, 10); p.fault != nil || len(p.requests) != 10 {
		t.Errorf("room for all: line %d, %v", p.bad, p.fault)
	}
	parts := make(chan *logPart, 3)
	for i := range 3 {
		part := &logPart{text: []byte(text), first: 1 + 20*i, done: make(chan struct{})}
		part.inPart = r.another().parse(part.text, part.first, 10)
		close(part.done)
		parts <- part
	}
	close(parts)
	_, _, err := r.gather("f", parts, 25)
	var at *LogError
	if !errors.As(err, &at) || at.Line != 51 ||
		!strings.Contains(at.Reason, "one request too many") {
		t.Errorf("%v, want line 51", err)
	}
}

// Promise: what the scan takes apart says the same as what package json makes of it.
func FuzzJSONScan(f *testing.F) {
	for line := range strings.Lines(jsonLines) {
		f.Add([]byte(line), "ip")
	}
	for _, line := range []string{
		`{"ts":"2026-01-31T12:00:00.5Z","user":{"id":7},"a.b":true,"n":3}`,
		`{"ts":"2026-01-31T1:00:00,5+01:00","a":{"b":{"c":null}, "b.c" : [ ] , "b":2}}`,
		`{"ts":-0.5e+7,"a":[1,{"b":[]},"x"],"b":{},"":{"":""}}`, `{ "ts" : 1e5 , "é" : "ü" }`,
		`{"ts":1,"a":"` + "\xff" + `"}`, `{"ts":01}`, `{"ts":1.}`, `{"ts":1,}`, `{"ts":nul}`,
		`{"ts":1 "a":2}`, `{"ts":1}}`, `{"ts":[1,]}`, `{"ts":.5}`, `{"ts":1e}`, `{"ts":-}`,
		"{\"ts\":\t1}", "{\"ts\":\"a\tb\"}", "{\"ts\":1\r}", `{}`, `{`, `{"`, `{"ts"`, `{"ts":`,
		`{"ts":"`, `{"ts":{"a":1}`, `{"ts":1,"a.b.c":1,"a":{"b.c":2,"b":{"c":3}}}`,
		strings.Repeat(`{"ts":`, 40) + "1" + strings.Repeat("}", 40),
	} {
		for _, name := range []string{"ts", "a.b.c", "a.b", "a", ".", "", "é"} {
			f.Add([]byte(line), name)
		}
	}
	f.Fuzz(func(t *testing.T, line []byte, name string) {
		line = bytes.TrimSpace(line)
		quick, naive := jsonLog{timeField: "ts"}, naiveJSON{timeField: "ts"}
		at, err := quick.read(line)
		want, wantErr := naive.read(line)
		if !at.Equal(want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("%q: %v, %v; package json says %v, %v", line, at, err, want, wantErr)
		}
		if err != nil {
			return
		}
		value, err := quick.field(name)
		wantValue, wantErr := naive.field(name)
		if string(value) != string(wantValue) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("%q of %q: %q, %v; package json says %q, %v", name, line, value, err,
				wantValue, wantErr)
		}
	})
}

// Promise: a usual line is not left to package json, and costs no memory of its own.
func TestUsualJSONIsScanned(t *testing.T) {
	l := jsonLog{timeField: "time"}
	for _, text := range []string{
		`{"time":"2026-10-10T13:55:36.123Z","ip":"10.0.0.1","status":200,"agent":"Mozilla/5.0"}`,
		`{"time":1769860801.25,"ip":{"v":{"6":["::1","ü"]},"4":"10.0.0.1"},"ok":true}`,
		`{"time": 1769860801, "ip": "", "list": [1, -2.5e3, {"a": null}], "empty": {}, "no": []}`,
	} {
		line := []byte(text)
		if allocated := testing.AllocsPerRun(100, func() {
			if _, err := l.read(line); err != nil || l.object != nil {
				t.Fatal(text, err)
			}
			if bytes.Contains(line, []byte(`"4"`)) {
				l.field("ip.4")
			} else {
				l.field("ip")
			}
		}); allocated > 0 {
			t.Errorf("%.1f allocations for %s", allocated, text)
		}
	}
}
