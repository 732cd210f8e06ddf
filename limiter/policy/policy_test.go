package policy

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml/ast"
	"go.uber.org/goleak"

	"penstock/limiter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryFieldArrives(t *testing.T) {
	set, err := Parse("limits.yaml", []byte(`
limits:
  - {name: plain, algorithm: gcra, limit: 10, per: 1m}
  - name: login
    algorithm: gcra
    limit: 10
    per: 1m
    burst: 20
    on_error: deny
    on_deny: shadow
    dry_run: true
    consistency: exact
    replication: async
    on_partition: proportional
  - name: "günther's"
    algorithm: fixed_window
    limit: 5
    per: 1d
    anchor: first_hit
    count_rejected: true
    on_error: allow
  - {name: sliding, algorithm: sliding_window, limit: 7, per: week}
  - {name: log, algorithm: sliding_log, limit: 10, per: 1m, min_gap: 2s, count_rejected: true}
  - {name: smyte, algorithm: token_bucket, limit: 10, per: 1h, refill: 1, strict: true, drain: true}
  - {name: aligned, algorithm: token_bucket, limit: 3, per: 1m, anchor: epoch}
  - {name: queue, algorithm: leaky_bucket, limit: 10, per: 1s, burst: 0}
  - {name: visit, algorithm: token_bucket, limit: 1, per: 30m, client_time: true, sessions: true,
     max_debt: 3}
  - {name: month, algorithm: fixed_window, limit: 10, per: month, time_zone: Europe/Berlin}
  - {name: week, algorithm: fixed_window, limit: 10, per: week}
  - {name: day, algorithm: fixed_window, limit: 10, per: day, time_zone: UTC}
  - {name: plain day, algorithm: fixed_window, limit: 10, per: day}
  - {name: seven days, algorithm: fixed_window, limit: 10, per: week, anchor: first_hit}
  - {name: jobs, algorithm: concurrency, limit: 10, per: 30s}
  - {name: figma, algorithm: sliding_counter, limit: 500, per: 1h, buckets: 30, lenient: true}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []limiter.Spec{
		{Name: "plain", Algorithm: limiter.GCRA, Limit: 10, Per: time.Minute, Burst: 10},
		{
			Name: "login", Algorithm: limiter.GCRA, Limit: 10, Per: time.Minute, Burst: 20,
			OnError: limiter.ErrorDeny, OnDeny: limiter.DenyShadow, DryRun: true,
		},
		{
			Name: "günther's", Algorithm: limiter.FixedWindow, Limit: 5, Per: 24 * time.Hour,
			Anchor: limiter.FirstHit, CountRejected: true, OnError: limiter.ErrorAllow,
		},
		{Name: "sliding", Algorithm: limiter.SlidingWindow, Limit: 7, Per: 7 * 24 * time.Hour},
		{
			Name: "log", Algorithm: limiter.SlidingLog, Limit: 10, Per: time.Minute,
			MinGap: 2 * time.Second, CountRejected: true,
		},
		{
			Name: "smyte", Algorithm: limiter.TokenBucket, Limit: 10, Per: time.Hour, Refill: 1,
			Anchor: limiter.FirstHit, Strict: true, Drain: true,
		},
		{
			Name: "aligned", Algorithm: limiter.TokenBucket, Limit: 3, Per: time.Minute, Refill: 3,
			Anchor: limiter.Epoch,
		},
		{Name: "queue", Algorithm: limiter.LeakyBucket, Limit: 10, Per: time.Second},
		{
			Name: "visit", Algorithm: limiter.TokenBucket, Limit: 1, Per: 30 * time.Minute,
			Refill: 1,
			Anchor: limiter.FirstHit, ClientTime: true, Sessions: true, Strict: true, MaxDebt: 3,
		},
		{
			Name: "month", Algorithm: limiter.FixedWindow, Limit: 10, Per: 31 * 24 * time.Hour,
			Calendar: limiter.Months, TimeZone: "Europe/Berlin",
		},
		{
			Name: "week", Algorithm: limiter.FixedWindow, Limit: 10, Per: 7 * 24 * time.Hour,
			Calendar: limiter.Weeks, TimeZone: "UTC",
		},
		{
			Name: "day", Algorithm: limiter.FixedWindow, Limit: 10, Per: 24 * time.Hour,
			Calendar: limiter.Days, TimeZone: "UTC",
		},
		{Name: "plain day", Algorithm: limiter.FixedWindow, Limit: 10, Per: 24 * time.Hour},
		{
			Name: "seven days", Algorithm: limiter.FixedWindow, Limit: 10, Per: 7 * 24 * time.Hour,
			Anchor: limiter.FirstHit,
		},
		{
			Name: "jobs", Algorithm: limiter.Concurrency, Limit: 10, Per: 30 * time.Second,
			Buckets: 16,
		},
		{
			Name: "figma", Algorithm: limiter.SlidingCounter, Limit: 500, Per: time.Hour,
			Buckets: 30,
			Lenient: true,
		},
	} {
		if l := set.Limits[want.Name]; l == nil || l.Spec != want {
			t.Errorf("%s: got %+v, want %+v", want.Name, l, want)
		}
	}
	if len(set.Limits) != 16 {
		t.Errorf("%d limits, want 16", len(set.Limits))
	}
}

// Promise: an empty file is refused like a broken one; "limits: []" says that there are to be none.
func TestAnEmptyFileIsAFault(t *testing.T) {
	for _, text := range []string{
		"limits: []\n", "limits: []", "rules: []\n",
		"# none\nlimits: []\nrules: []\n",
	} {
		if set, err := Parse("f", []byte(text)); err != nil || len(set.Limits) != 0 {
			t.Errorf("%q: %v, %v", text, set, err)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"", "f:1:1: the file says nothing about limits; write \"limits: []\""},
		{" \n\n\t\n", "f:"},
		{"# nothing yet\n", "f:1:1: the file says nothing"},
		{"---\n", "f:1:"},
		{"null\n", "f:1:1: the file must be a mapping"},
		{"{}\n", "f:1:1: the file says nothing"},
		{"limits:\n", "limits: is empty; write \"limits: []\""},
		{"limits: []\nrules:\n", "rules: is empty; write \"rules: []\""},
	} {
		if _, err := Parse("f", []byte(c.text)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

// Promise: a file that changes while it is read is not taken for a whole one.
func TestAFileThatIsBeingWrittenIsNotRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	put(t, file, one("a"))
	reads, changes := 0, 2
	top := func(p *page, n ast.Node) {
		if reads++; reads <= changes {
			put(t, file, one("a")+strings.Repeat("# more to come\n", reads))
		}
		p.top(n)
	}
	if b, err := load(file, top); err != nil || b.limits["a"] == nil || reads != 3 {
		t.Errorf("left alone after the second of %d readings: %v", reads, err)
	}
	reads, changes = 0, 3
	if _, err := load(file, top); err == nil || !strings.Contains(err.Error(), "is being written") {
		t.Errorf("written during all of %d readings: %v", reads, err)
	}
}

// Promise: unknown fields, contradictions and bad values are errors with file, line and column.
func TestEveryFaultIsSaidWhereItStands(t *testing.T) {
	const good = "limits:\n  - name: a\n    algorithm: gcra\n    limit: 1\n    per: 1m\n"
	for _, c := range []struct{ text, want string }{
		{"limits: [", "f:1:"},
		{"limit: 1\n", "f:1:1: limit: is unknown; the file has: limits, rules"},
		{"- a\n", "f:1:1: the file must be a mapping of fields, not a list"},
		{"limits: 3\n", "f:1:9: limits: must be a list"},
		{"limits:\n  - 3\n", "f:2:5: a limit must be a mapping of fields, not a number"},
		{good + "    windw: 2\n", "f:6:5: windw: is unknown; a limit has: name, algorithm"},
		{good + "    burst: 0\n", "f:6:12: burst: must be at least 1"},
		{good + "    burst: -1\n", "f:6:12: burst: must be at least 1; leave it out to have"},
		{
			strings.Replace(good, "gcra", "token_bucket", 1) + "    refill: -1\n",
			"f:6:13: refill: must be at least 1; leave it out to have",
		},
		{"limits: [{algorithm: gcra}]", "f:1:10: name: is missing; give the limit a name"},
		{"limits: [{name: a}]", "f:1:10: algorithm: is missing; there is: gcra, fixed_window"},
		{
			strings.Replace(good, "    limit: 1\n", "", 1),
			"f:2:5: limit: is missing; write how many units each per has",
		},
		{strings.Replace(good, "    per: 1m\n", "", 1), "f:2:5: per: is missing; write 10s, 5m"},
		{good + "    burst: many\n", "f:6:12: burst: must be a whole number, not a text"},
		{good + "    burst: 99999999999999999999\n", "f:6:12: burst: "},
		{good + "    burst: 9000000000000000000\n", "f:6:12: burst: is 9000000000000000000; 1 to"},
		{good + "    anchor: first_hit\n", "f:6:13: anchor: a gcra has none"},
		{good + "    dry_run: maybe\n", "f:6:14: dry_run: must be true or false, not a text"},
		{
			good + "    on_error: shrug\n",
			`f:6:15: on_error: "shrug" is unknown; there is: local, allow, deny`,
		},
		{
			good + "    on_deny: wait\n",
			`f:6:14: on_deny: "wait" is unknown; there is: reject, shadow, tag, deprioritize, ` +
				"delay",
		},
		{
			good + "    overrides: [{plan: pro, key: a, limit: 2}]\n",
			"f:6:24: overrides[0].plan: stands beside a key; give one of the two",
		},
		{
			good + "    overrides: [{plan: pro}]\n",
			`f:6:24: overrides[0].plan: "pro" is given nothing; write limit, burst, refill`,
		},
		{
			good + "    overrides: [{plan: '', limit: 2}]\n",
			"f:6:24: overrides[0].plan: is empty; name one",
		},
		{
			good + "rules: [{apply: [{limit: a, key: x, plan: '{plan}'}]}]\n",
			`f:6:43: apply[0].plan: limit "a" has no plans; write them into its overrides`,
		},
		{good + "    max_delay: 1s\n", "f:6:16: max_delay: is for on_deny: delay"},
		{
			good + "    on_deny: delay\n    max_delay: 0s\n",
			"f:7:16: max_delay: is 0s; 1ms to 1h0m0s are accepted",
		},
		{
			good + "    on_deny: delay\n    max_delay: 2h\n",
			"f:7:16: max_delay: is 2h0m0s; 1ms to 1h0m0s are accepted",
		},
		{
			good + "    on_deny: delay\n    consistency: leased\n",
			"f:6:14: on_deny: delay needs the one node that decides for a key",
		},
		{
			good + "    on_deny: delay\n    candidate: {algorithm: fixed_window}\n",
			"f:7:16: candidate.on_deny: delay is for gcra and token_bucket",
		},
		{good + "    spread: 10\n", "f:6:13: spread: has no unit; shares like 10% are accepted"},
		{good + "    spread: 101%\n", `f:6:13: spread: "101%" is not a share`},
		{good + "    spread: 1.5%\n", `f:6:13: spread: "1.5%" is not a share`},
		{good + "    status: 200\n", "f:6:13: status: is 200; 400 to 599 are accepted"},
		{good + "    status: '503'\n", "f:6:13: status: must be a whole number, not a text"},
		{good + "    body: ''\n", "f:6:11: body: is empty; leave it out"},
		{
			good + "    body: >\n" + strings.Repeat("      "+strings.Repeat("x", 1000)+"\n", 5),
			"f:6:11: body: has 5005 bytes; at most 4096",
		},
		{
			good + "    content_type: text/html\n",
			"f:6:19: content_type: is that of a body; give a body",
		},
		{
			good + "    body: x\n    content_type: html\n",
			`f:7:19: content_type: "html" is not a media type up to 128 bytes`,
		},
		{good + "    tag: bot\n", "f:6:10: tag: is for on_deny: tag"},
		{
			good + "    on_deny: tag\n    tag: a b\n",
			`f:7:10: tag: "a b" is not 1 to 64 printable ASCII`,
		},
		{good + "    tier: 2\n", "f:6:11: tier: is for on_deny: deprioritize"},
		{
			good + "    on_deny: deprioritize\n    tier: 10\n",
			"f:7:11: tier: is 10; 1 to 9 are accepted",
		},
		{
			good + "    on_deny: shadow\n    status: 503\n",
			"f:7:13: status: is part of a denial, and on_deny says that nothing is denied",
		},
		{good + "    overrides: 3\n", "f:6:16: overrides: must be a list, not a number"},
		{
			good + "    overrides: [3]\n",
			"f:6:17: overrides[0]: must be a mapping of fields, not a number",
		},
		{
			good + "    overrides: [{key: a, limit: 2}, {limit: 3}]\n",
			"f:6:37: overrides[1].key: is empty; give a pattern",
		},
		{
			good + "    overrides: [{key: a, limit: 2}, {key: a, burst: 3}]\n",
			`f:6:43: overrides[1].key: "a" is never reached: overrides[0], "a", comes first`,
		},
		{
			good + "    overrides: [{key: 10.0.0.0/40, limit: 3}]\n",
			`f:6:23: overrides[0].key: "10.0.0.0/40" is not a network; 0 to 32 bits`,
		},
		{
			good + "    overrides: [{key: 10.0.0.1/8, unlimited: true}]\n",
			`f:6:23: overrides[0].key: "10.0.0.1/8" has bits behind the first 8; write 10.0.0.0/8`,
		},
		{
			good + "    overrides: [{key: 'a\\b', limit: 3}]\n",
			`f:6:23: overrides[0].key: "a\\b" has a backslash before neither`,
		},
		{
			good + "    overrides: [{key: 7, limit: 3}]\n",
			"f:6:23: overrides[0].key: must be a text, not a number; put it in quotes",
		},
		{
			good + "    overrides: [{key: a}]\n",
			`f:6:23: overrides[0].key: "a" is given nothing; write limit`,
		},
		{
			good + "    overrides: [{key: a, limit: 0}]\n",
			"f:6:33: overrides[0].limit: is 0; 1 to 1099511627776",
		},
		{
			good + "    overrides: [{key: a, limit: -3}]\n",
			"f:6:33: overrides[0].limit: is -3; 1 to 1099511627776",
		},
		{
			good + "    overrides: [{key: a, refill: 3}]\n",
			"f:6:34: overrides[0].refill: a gcra has none",
		},
		{
			good + "    overrides: [{key: a, per: 1h}]\n",
			"f:6:26: overrides[0].per: is unknown; an override has: key, plan, limit, burst, " +
				"refill, " +
				"unlimited",
		},
		{
			good + "    overrides: [{key: a, unlimited: false}]\n",
			"f:6:37: overrides[0].unlimited: is false; leave it out",
		},
		{
			good + "    overrides: [{key: a, unlimited: true, limit: 2}]\n",
			"f:6:37: overrides[0].unlimited: stands beside a limit",
		},
		{
			good +
				"    overrides:\n      - {key: a, limit: 2}\n      - key: b\n        burst: " +
				"99999999999999\n",
			"f:9:16: overrides[1].burst: is 99999999999999; 1 to 1099511627776",
		},
		{
			good + "    consistency: leased\n    unsettled: release\n",
			"f:7:16: unsettled: release would give back",
		},
		{
			"limits:\n  - name: a\n    algorithm: concurrency\n    limit: 1\n    per: 1m\n    " +
				"consistency: leased\n", "f:6:18: consistency: leased units of a concurrency",
		},
		{good + "    name: b\n", "f:6:5: is not YAML: "},
		{
			good + "  - {name: a, algorithm: gcra, limit: 1, per: 1m}\n",
			`f:6:12: name: "a" is the name of another limit of this file`,
		},
		{good + "---\n" + good, "f:7:1: a second document begins here"},
		{
			strings.Replace(good, "gcra", "tokens", 1),
			`f:3:16: algorithm: "tokens" is unknown; gcra, fixed_window, sliding_window, ` +
				`sliding_log, token_bucket, leaky_bucket, sliding_counter, stated_window, ` +
				`stated_bucket, concurrency are accepted`,
		},
		{
			strings.Replace(good, "gcra", "concurrency", 1) + "    burst: 2\n",
			"f:6:12: burst: a concurrency has none",
		},
		{strings.Replace(good, "limit: 1\n", "limit: 0\n", 1), "f:4:12: limit: is 0; 1 to"},
		{
			strings.Replace(good, "limit: 1\n", "limit: 1.5\n", 1),
			"f:4:12: limit: must be a whole number, not a number with a fraction",
		},
		{strings.Replace(good, "1m", "60", 1), "f:5:10: per: has no unit; write 10s"},
		{strings.Replace(good, "1m", "soon", 1), `f:5:10: per: "soon" is not a period`},
		{
			strings.Replace(good, "1m", "400d", 1),
			`f:5:10: per: "400d" is not a period up to 366 days`,
		},
		{
			strings.Replace(good, "1m", "month", 1),
			"f:5:10: per: months differ in length, and only a fixed_window anchored at the epoch " +
				"counts by them",
		},
		{good + "    time_zone: UTC\n", "f:6:16: time_zone: is for windows of a calendar"},
		{good + "    time_zone: 7\n", "f:6:16: time_zone: must be a text"},
		{good + "    time_zone: \"\"\n", "f:6:16: time_zone: is empty"},
		{
			strings.Replace(strings.Replace(good, "gcra", "fixed_window", 1), "1m", "year", 1) +
				"    time_zone: Mars/Olympus\n",
			`f:6:16: time_zone: "Mars/Olympus" is unknown; names of the IANA`,
		},
		{strings.Replace(strings.Replace(good, "gcra", "fixed_window", 1), "1m", "year", 1) +
			"    anchor: first_hit\n", "f:5:10: per: years differ in length"},
		{good + "    max_debt: -1\n", "f:6:15: max_debt: is -1; 0 to"},
		{good + "    sessions: true\n", "f:6:15: sessions: a gcra has none"},
		{strings.Replace(good, "1m", "0s", 1), "f:5:10: per: is 0s; 1ms to"},
		{strings.Replace(good, "name: a", "name: \"\"", 1), "f:2:11: name: is empty"},
		{
			strings.Replace(good, "name: a", "name: 7", 1),
			"f:2:11: name: must be a text, not a number; put it in quotes",
		},
		{strings.Replace(good, "  - name: a\n    algo", "  - algo", 1), "f:2:5: name: is missing"},
	} {
		set, err := Parse("f", []byte(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) &&
			!(strings.HasPrefix(c.want, "name") && strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s\ngot:  %v\nwant: %s (set %v)", c.text, err, c.want, set)
		}
	}
}

// TestOverrides: the exceptions from a limit are those of the file, in its order, and a file in
// which only they differ is another.
func TestOverrides(t *testing.T) {
	const text = `
limits:
  - name: api
    algorithm: gcra
    limit: 10
    per: 1m
    overrides:
      - {key: "plan:pro/*", limit: 1000}
      - {key: "10.0.0.0/8", unlimited: true}
      - key: 2001:db8::/32
        burst: 3
`
	set, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	api := set.Limits["api"]
	for key, want := range map[string]string{
		"plan:pro/alice": "1000 1000 false", "10.9.8.7": "1099511627776 0 true",
		"2001:db8::7": "10 3 false", "bob": "10 10 false",
	} {
		if l := api.For(key); fmt.Sprint(l.Limit, l.Burst, l.Unlimited) != want {
			t.Errorf("%s: %+v, want %s", key, l.Spec, want)
		}
	}
	again, _ := Parse("f", []byte(text))
	other, _ := Parse("f", []byte(strings.Replace(text, "burst: 3", "burst: 4", 1)))
	if !set.equal(again) || set.equal(other) {
		t.Errorf("as equal count: itself %v, another %v", set.equal(again), set.equal(other))
	}
	if none, err := Parse("f", []byte(text[:strings.Index(text, "      -")])); err != nil ||
		len(none.Limits["api"].Overrides()) != 0 {
		t.Errorf("a list of nothing: %v", err)
	}
}

// TestOverridesCount: limits and overrides together are bounded.
func TestOverridesCount(t *testing.T) {
	var b strings.Builder
	b.WriteString("limits:\n")
	for i := range 100 {
		fmt.Fprintf(&b, "  - {name: l%d, algorithm: gcra, limit: 1, per: 1m, overrides: [{key: "+
			"k0, limit: 5}", i)
		for k := 1; k < 99; k++ {
			fmt.Fprintf(&b, ", {key: k%d, limit: 5}", k)
		}
		b.WriteString("]}\n")
	}
	if _, err := Parse("f", []byte(b.String())); err != nil {
		t.Fatal(err)
	}
	b.WriteString("  - {name: one, algorithm: gcra, limit: 1, per: 1m}\n")
	if _, err := Parse("f", []byte(b.String())); err == nil ||
		!strings.Contains(err.Error(), "f:102:12: this is one limit or override too many; 10000 "+
			"are accepted") {
		t.Errorf("10,001 were accepted: %v", err)
	}
}

func TestAllFaultsAreSaidAtOnce(t *testing.T) {
	_, err := Parse("f", []byte("limits:\n  - {name: a, algorithm: x, limit: y, per: z}\n  - "+
		"{nme: b}\n"))
	for _, want := range []string{
		"f:2:26: algorithm", "f:2:36: limit", "f:2:44: per",
		"f:3:6: nme",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s in:\n%v", want, err)
		}
	}
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(),
		"without .yaml or .yml files") {
		t.Errorf("an empty directory: %v", err)
	}
	write("a.yaml", one("a"))
	write("b.yml", one("b"))
	write("notes.txt", "not: [yaml")
	write(".hidden.yaml", "not: [yaml")
	if set, err := Load(dir); err != nil || len(set.Limits) != 2 {
		t.Errorf("%v, %v", set, err)
	}
	write("c.yaml", one("a"))
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(),
		`"a" is also a limit of `+filepath.Join(dir, "a.yaml")) {
		t.Errorf("a name in two files: %v", err)
	}
	if _, err := Load(filepath.Join(dir, "absent.yaml")); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func one(name string) string {
	return fmt.Sprintf("limits:\n  - {name: %s, algorithm: gcra, limit: 1, per: 1m}\n", name)
}

// Promise: a bad file never replaces a good one.
func TestWatch(t *testing.T) {
	// Kubernetes lays a ConfigMap out like this and swaps the link ..data to change all files at
	// once.
	dir := t.TempDir()
	version := func(v, text string) {
		if err := os.Mkdir(filepath.Join(dir, v), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(
			filepath.Join(dir, v, "limits.yaml"), []byte(text), 0o600,
		); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(v, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..v1", one("first"))
	if err := os.Symlink(
		filepath.Join("..data", "limits.yaml"), filepath.Join(dir, "limits.yaml"),
	); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "limits.yaml")} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			sets := make(chan *Set, 100)
			var logged logBuffer
			w, err := Watch(path, slog.New(slog.NewTextHandler(&logged, nil)), func(s *Set) {
				sets <- s
			})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			first := <-sets
			v := "..of-" + filepath.Base(path)
			version(v+"-bad", "limits: 7\n")
			until(t, "the fault is logged", func() bool {
				return strings.Contains(logged.String(), "must be a list")
			})
			if len(sets) != 0 {
				t.Fatal("a bad file replaced a good one")
			}
			version(v, one("next"))
			select {
			case s := <-sets:
				if s.Limits["next"] == nil || first.Limits["next"] != nil {
					t.Errorf("before %v, after %v", first.Limits, s.Limits)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the change was not seen")
			}
			if err := w.Reload(); err != nil || (<-sets).Limits["next"] == nil {
				t.Errorf("reload on demand: %v", err)
			}
			version(v+"-again", one("first"))
			<-sets
		})
	}
	if _, err := Watch(
		filepath.Join(dir, "absent"), slog.New(slog.DiscardHandler), func(*Set) {},
	); err == nil {
		t.Error("watching a file that is not there succeeded")
	}
}

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(10 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited 10 s: %s", what)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(one("a")))
	f.Add([]byte("limits:\n  - &x {name: a}\n  - *x\n  - <<: *x\n"))
	f.Add([]byte("limits: !!map [\n"))
	f.Add([]byte("? [a]\n: b\n"))
	f.Add([]byte(twoLimits + "rules:\n  - {match: {path: [/a/*, /b]}, apply: [{limit: login, " +
		"key: '{user}/{ip}'}]}\n  - {unlimited: true}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := Parse("f", data)
		if (set == nil) == (err == nil) {
			t.Fatalf("set %v, error %v", set, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "f") {
			t.Fatalf("an error without a place: %v", err)
		}
	})
}
