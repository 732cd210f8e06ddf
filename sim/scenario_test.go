package sim

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// shipped are the scenarios of examples/scenarios.
func shipped(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../examples/scenarios/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	return files
}

func readScenario(t *testing.T, path string) *Scenario {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ReadScenario(path, text, func(name string) (io.ReadCloser, error) {
		return os.Open(filepath.Join(filepath.Dir(path), name))
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// parsed is a scenario that a test wrote.
func parsed(t *testing.T, text string) *Scenario {
	t.Helper()
	s, err := ReadScenario("test.yaml", []byte(text), noLogs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func noLogs(string) (io.ReadCloser, error) { return nil, os.ErrNotExist }

type writer interface {
	WriteText(io.Writer) error
	WriteJSON(io.Writer) error
}

func bytesOf(t *testing.T, r writer) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Every scenario that ships holds every promise, tells about itself, fits into a terminal, and
// prints the same bytes twice.
func TestShippedScenarios(t *testing.T) {
	for _, path := range shipped(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			t.Parallel()
			s := readScenario(t, path)
			if testing.Short() && len(s.plan.machines) > 20 {
				t.Skip("too many nodes for a short test")
			}
			if s.Name == "" || s.About == "" {
				t.Error("it does not say what it shows: give name and about")
			}
			r := s.Run()
			if !r.OK() {
				t.Fatalf("%s: %s\n%s", r.Failure.Promise, r.Failure.Detail,
					strings.Join(r.Failure.Events, "\n"))
			}
			var text strings.Builder
			if err := r.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			for l := range strings.Lines(text.String()) {
				if n := utf8.RuneCountInString(strings.TrimRight(l, "\n")); n > 80 {
					t.Errorf("%d columns: %s", n, l)
				}
			}
			t.Log("\n" + text.String())
			if !testing.Short() && bytesOf(t, r) != bytesOf(t, readScenario(t, path).Run()) {
				t.Error("the second run printed something else")
			}
		})
	}
}

const plain = `
nodes: 3
duration: 10s
limits:
  - {name: api, algorithm: gcra, limit: 10, per: 1s}
traffic:
  - {limit: api, rate: 40/s}
`

// The figures of a report can be worked out by hand where nothing fails: one key, 10 a second and
// 10 at once.
func TestCourseCountsWhatHappens(t *testing.T) {
	r := parsed(t, plain).Run()
	sum := r.Limits[0].Sum
	if sum.Asked < 300 || sum.Asked > 500 {
		t.Errorf("asked %d, want about 400", sum.Asked)
	}
	if sum.Ideal < 100 || sum.Ideal > 110 {
		t.Errorf("ideal %d, want 10 at once and 10 a second: 109", sum.Ideal)
	}
	if diff := sum.Admitted - sum.Ideal; diff < -1 || diff > 1 {
		t.Errorf("admitted %d where one limiter admits %d", sum.Admitted, sum.Ideal)
	}
	if sum.Asked != sum.Admitted+sum.Denied || sum.Failed != 0 || sum.Extra != 0 ||
		sum.Degraded != 0 {
		t.Errorf("%+v does not add up, or something is wrong in a world without faults", sum)
	}
	if n := r.total().Messages; n == 0 || n > r.Messages.Sent ||
		r.Ticks[len(r.Ticks)-1].Messages > 3*n/len(r.Ticks) {
		t.Errorf("%d messages, of which %d at the end; the network says %d with all that came "+
			"after", n, r.Ticks[len(r.Ticks)-1].Messages, r.Messages.Sent)
	}
}

// A crash forgets what was counted, so what is admitted twice shows up as extra, at the crash that
// did it, and nowhere else.
func TestExtraIsAttributedToItsFault(t *testing.T) {
	r := parsed(t, plain+"faults:\n  - {at: 5s, crash: owner(api-1), for: 100ms}\n").Run()
	if r.Marks[0].Extra != 0 || r.Marks[1].Extra+r.Marks[2].Extra != r.Limits[0].Sum.Extra ||
		r.Limits[0].Sum.Extra == 0 {
		t.Errorf("extra %d: %+v", r.Limits[0].Sum.Extra, r.Marks)
	}
	if !r.OK() {
		t.Error(r.Failure.Detail)
	}
}

// Promise: unknown fields, contradictions and bad values are errors with file, line and column.
func TestScenarioFaultsAreSaidWhereTheyStand(t *testing.T) {
	const good = "nodes: 3\nduration: 10s\nlimits: [{name: a, algorithm: gcra, limit: 1, per: " +
		"1s}]\ntraffic: [{limit: a, rate: 5/s}]\n"
	parsed(t, good)
	for _, c := range []struct{ text, want string }{
		{"", "is empty"},
		{"- a", "f:1:1: a scenario must be a mapping"},
		{"nodes: 3\n", "f:1:1: limits: is missing"},
		{good + "colour: red\n", "f:5:1: colour: is unknown; a scenario has: name, about, seed"},
		{
			strings.Replace(good, "nodes: 3", "nodes: 0", 1),
			"f:1:8: nodes: is 0; 1 to 1000 are accepted",
		},
		{strings.Replace(good, "10s", "10", 1), "f:2:11: duration: has no unit"},
		{strings.Replace(good, "10s", "soon", 1), `f:2:11: duration: "soon" is no span of time`},
		{strings.Replace(good, "duration: 10s\n", "", 1), "f:1:1: duration: is missing"},
		{
			strings.Replace(good, "limit: 1,", "limit: x,", 1),
			"f:3:44: limit: must be a whole number",
		},
		{
			strings.Replace(good, "{limit: a", "{limit: b", 1),
			`f:4:19: limit: there is no limit "b"; there is: a`,
		},
		{
			strings.Replace(good, "5/s", "5", 1),
			"f:4:28: rate: is a number; write requests per time",
		},
		{strings.Replace(good, "5/s", "5/y", 1), `f:4:28: rate: "5/y" is no rate`},
		{
			strings.Replace(good, "5/s", "1000000/s, keys: 3, until: 20s", 1),
			"until: is 20s, but the scenario lasts 10s",
		},
		{
			strings.Replace(good, "5/s", "5000000/s", 1),
			"comes to 50000000 requests; at most 20000000",
		},
		{
			strings.Replace(good, "5/s", "5/s, spread: wide", 1),
			`spread: "wide" is unknown; there is: uniform, zipf, hot`,
		},
		{
			strings.Replace(good, "5/s", "5/s, bursts: {rate: 9/s, every: 1s, for: 1s}", 1),
			"for: is 1s, as long as the pause",
		},
		{
			strings.Replace(good, "5/s", "5/s, bursts: {rate: 9/s}", 1),
			"bursts: needs rate, every, for",
		},
		{
			strings.Replace(good, "5/s", "5/s, swell: {peak: 1/s, period: 1s}", 1),
			"peak: is less than rate",
		},
		{
			strings.Replace(good, "5/s", "5/s, retry: {times: 9, after: 9s}", 1),
			"after: 9 times 9s goes on for 1m21s",
		},
		{strings.Replace(good, "5/s", "5/s, reserve: {ttl: 9s}", 1), "reserve: needs for"},
		{
			strings.Replace(good, "5/s", "5/s, reserve: {for: 1s, ttl: 9ms}", 1),
			"ttl: is 9ms; 100ms to 24h0m0s are accepted",
		},
		{
			strings.Replace(good, "5/s", "5/s, reserve: {for: 1s, used: much}", 1),
			`used: "much" is no part of what was reserved`,
		},
		{
			strings.Replace(good, "5/s",
				"5/s, reserve: {for: 1s}, retry: {times: 1, after: 1s}", 1),
			"retry: and reserve exclude each other",
		},
		{
			strings.Replace(good, "gcra", "concurrency", 1),
			`limit: "a" counts permits, which are held for a while`,
		},
		{strings.Replace(strings.Replace(good, "1s}]\n", "1s, consistency: replicated}]\n", 1),
			"5/s", "5/s, reserve: {for: 1s}", 1), `"a" is replicated`},
		{strings.Replace(good, "rate: 5/s",
			"at: 1s, to: n1, items: [{limit: a, key: k, op: reserve, ttl: 1s}]", 1), "limit: "},
		{good + "links: {loss: 200%}\n", `f:5:15: loss: "200%" is no part of a whole`},
		{
			good + "links: {delay: 2s, at_most: 1s}\n",
			"f:5:16: delay: is 2s, which is more than at_most, 1s",
		},
		{good + "clocks: {n9: {ahead: 1h}}\n", `"n9" is not a node; there are n1 to n3`},
		{good + "faults: [{crash: n1}]\n", "at: is missing"},
		{good + "faults: [{at: 1s}]\n", "does nothing; a fault has: at, for"},
		{
			good + "faults: [{at: 1s, crash: n1, freeze: n2}]\n",
			"freeze: and crash exclude each other",
		},
		{
			good + "faults: [{at: 1s, crash: n4}]\n",
			`f:5:26: crash: "n4" is not a node; there are n1 to n3`,
		},
		{
			good + "faults: [{at: 11s, crash: n1}]\n",
			"at: ends 11s after the scenario begins, which lasts 10s",
		},
		{
			good + "faults: [{at: 1s, crash: n1}, {at: 2s, crash: n1}]\n",
			"f:5:47: crash: n1 is down already at 2s",
		},
		{good + "faults: [{at: 1s, start: n1}]\n", "start: n1 is up already"},
		{
			good + "faults: [{at: 1s, leave: n1}, {at: 2s, leave: n1}]\n",
			"leave: n1 is down and cannot leave at 2s",
		},
		{
			good + "faults: [{at: 1s, crash: n1}, {at: 2s, join: n1}, {at: 3s, join: n1}]\n",
			"join: n1 is up already at 3s",
		},
		{good + "faults: [{at: 1s, clock_step: n1}]\n", "by: goes with clock_step"},
		{good + "faults: [{at: 1s, join: all}]\n", "nodes: nobody is there in the beginning"},
		{
			good + "faults: [{at: 1s, crash: owner(a-1)}, {at: 2s, leave: n2}, {at: 3s, join: " +
				"n2}]\n",
			"join: together with owner()",
		},
		{good + "agents: all\n", "agents: are all nodes"},
		{
			good + "gossip: {speed: 1s}\n",
			"speed: is unknown; gossip has: spread, detect, doubt, settle",
		},
		{
			good + "faults: [{at: 1s, crash: n1}, {at: 2s, freeze: n1}]\n",
			"freeze: n1 is down and cannot freeze",
		},
		{good + "faults: [{at: 1s, start: n1, for: 1s}]\n", "for: start does not end by itself"},
		{good + "faults: [{at: 1s, crash: n1, by: 1s}]\n", "by: goes with clock_step"},
		{good + "faults: [{at: 1s, rolling_restart: n1}]\n", "is of all nodes"},
		{good + "faults: [{at: 1s, cut: n1}]\n", `must be like "n1 - n2"`},
		{good + "faults: [{at: 1s, cut: n1 > n1..n2}]\n", "n1 is on both sides"},
		{good + "faults: [{at: 1s, heal: n1 > n2}]\n", "n1 is not cut off from n2 at 1s"},
		{good + "faults: [{at: 1s, partition: n1 | n2}]\n", "names 2 of 3 nodes"},
		{good + "faults: [{at: 1s, partition: n1..n2 | n2..n3}]\n", "n2 is on two sides"},
	} {
		_, err := ReadScenario("f", []byte(c.text), noLogs)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngot:  %v\nwant: %s", c.text, err, c.want)
		}
	}
}

// What a rate is supposed to be, comes.
func TestDemandFollowsItsRate(t *testing.T) {
	count := func(traffic string, from, until time.Duration) int {
		s := parsed(t, "nodes: 1\nduration: 100s\nlimits: [{name: a, algorithm: gcra, limit: 1, "+
			"per: 1s}]\ntraffic: ["+traffic+"]\n")
		f, n := newFlow(newWorld(s.plan, nil), &s.plan.demands[0], 0), 0
		for {
			var a arrival
			if !f.next(&a) {
				return n
			}
			if a.at >= from && a.at < until {
				n++
			}
		}
	}
	for _, c := range []struct {
		traffic     string
		from, until time.Duration
		least, most int
	}{
		{"{limit: a, rate: 100/s}", 0, 100 * time.Second, 9600, 10400},
		{"{limit: a, rate: 100/s, from: 10s, until: 20s}", 0, 100 * time.Second, 850, 1150},
		{
			"{limit: a, rate: 100/s, from: 10s, until: 20s}", 10 * time.Second, 20 * time.Second,
			850,
			1150,
		},
		{
			"{limit: a, rate: 10/s, swell: {peak: 210/s, period: 100s}}", 45 * time.Second,
			55 * time.Second, 1900, 2200,
		},
		{"{limit: a, rate: 10/s, swell: {peak: 210/s, period: 100s}}", 0, 5 * time.Second, 30, 100},
		{
			"{limit: a, rate: 1/s, bursts: {rate: 500/s, every: 10s, for: 1s}}", 10 * time.Second,
			11 * time.Second, 400, 600,
		},
		{
			"{limit: a, rate: 1/s, bursts: {rate: 500/s, every: 10s, for: 1s}}", 11 * time.Second,
			20 * time.Second, 1, 25,
		},
	} {
		if n := count(c.traffic, c.from, c.until); n < c.least || n > c.most {
			t.Errorf("%s: %d from %v to %v, want %d to %d", c.traffic, n, c.from, c.until, c.least,
				c.most)
		}
	}
}

// What docs/simulator.md shows can be read.
func TestDocumentedScenariosAreRead(t *testing.T) {
	page, err := os.ReadFile("../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```yaml\n")[1:]
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		_, err := ReadScenario("docs/simulator.md", []byte(text),
			func(name string) (io.ReadCloser, error) {
				return os.Open(filepath.Join("../examples/scenarios", name))
			})
		if err != nil {
			t.Error(err)
		}
	}
	if len(blocks) != 2 {
		t.Errorf("%d scenarios, want 2: does this test still find them?", len(blocks))
	}
	for _, f := range slices.Concat(fieldsOf(scenarioFields), fieldsOf(demandFields),
		fieldsOf(logFields), fieldsOf(blowFields), fieldsOf(linkFields), fieldsOf(gossipFields)) {
		if !strings.Contains(string(page), "`"+f) && !strings.Contains(string(page), f+":") {
			t.Errorf("the page does not say what %s is", f)
		}
	}
}

func fieldsOf[T any](known []field[T]) []string { return strings.Split(fieldNames(known), ", ") }
