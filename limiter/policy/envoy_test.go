package policy

import (
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/limiter"
)

func mustParseEnvoy(t testing.TB, text string) *Envoy {
	t.Helper()
	e, err := ParseEnvoy("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// entries makes "a=b,c" of two entries.
func entries(text string) (list []Entry) {
	for step := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(step, "=")
		list = append(list, Entry{key, value})
	}
	return list
}

// The examples of envoyproxy/ratelimit's README.md, with what it says about them.
const messaging = `
domain: messaging
descriptors:
  # Only allow 5 marketing messages a day
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit:
          unit: day
          requests_per_unit: 5

  # Only allow 100 messages a day to any unique phone number
  - key: to_number
    rate_limit:
      unit: day
      requests_per_unit: 100
  - key: remote_address
    rate_limit: {unit: SECOND, requests_per_unit: 10}
  - key: remote_address
    value: 50.0.0.5
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: path
    value: /a*/x*
    rate_limit: {unit: week, requests_per_unit: 1}
  - key: path
    value: /a/b
    rate_limit: {unit: month, requests_per_unit: 2}
  - key: path
    value: "*"
    share_threshold: true
    rate_limit: {unit: year, requests_per_unit: 3}
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 4}
  - key: group
    value: g*
    share_threshold: true
    value_to_metric: true
    descriptors:
      - key: user
        value_to_metric: true
        descriptors:
          - key: verb
            rate_limit: {unit: minute, requests_per_unit: 7}
          - key: verb
            value: post
            detailed_metric: true
            rate_limit: {unit: minute, requests_per_unit: 8}
  - key: ldap
    rate_limit: {unlimited: true}
  - key: whitelisted
`

func TestEnvoyMatch(t *testing.T) {
	d := mustParseEnvoy(t, messaging).Domain("messaging")
	for _, c := range []struct {
		descriptor string
		requests   uint32
		unit       string
		key        string
		metric     string
	}{
		{
			"message_type=marketing,to_number=1", 5, "day", "message_type=marketing,to_number=1",
			"message_type_marketing.to_number",
		},
		{"message_type=marketing", 0, "", "", ""},
		{"message_type=other,to_number=1", 0, "", "", ""},
		{"to_number=1", 100, "day", "to_number=1", "to_number"},
		{"to_number=1,message_type=marketing", 0, "", "", ""}, // deeper than the file
		{"remote_address=50.0.0.1", 10, "second", "remote_address=50.0.0.1", "remote_address"},
		{
			"remote_address=50.0.0.5", 0, "second", "remote_address=50.0.0.5",
			"remote_address_50.0.0.5",
		},
		{"path=/a/b", 2, "month", "path=/a/b", "path_/a/b"}, // exact before the first pattern
		{"path=/a/x", 1, "week", "path=/a/x", "path_/a*/x*"},
		{"path=/ab/c/xy", 1, "week", "path=/ab/c/xy", "path_/a*/x*"},
		{"path=/ab/y", 3, "year", "path=*", "path_*"}, // all of them are one
		// * is also nothing, and goes before the bare key
		{"path=", 3, "year", "path=*", "path_*"},
		{
			"group=g1,user=u,verb=get", 7, "minute", "group=g*,user=u,verb=get",
			"group_g*.user_u.verb",
		},
		{
			"group=g2,user=u,verb=post", 8, "minute", "group=g*,user=u,verb=post",
			"group_g*.user_u.verb_post",
		},
		{"ldap=x", 0, "", "ldap=x", "ldap"},
		{"whitelisted=1", 0, "", "", ""},
		{"unknown=1", 0, "", "", ""},
	} {
		m := d.Match(entries(c.descriptor))
		if c.key == "" {
			if m.Rule != nil {
				t.Errorf("%s: met %+v, want nothing", c.descriptor, m.Rule)
			}
			continue
		}
		if m.Rule == nil {
			t.Errorf("%s: met nothing", c.descriptor)
			continue
		}
		if m.Rule.Requests != c.requests || m.Rule.Unit != c.unit || m.Key != c.key ||
			m.Metric != c.metric || m.Rule.Unlimited != (c.unit == "") {
			t.Errorf("%s: %+v, key %q, metric %q", c.descriptor, m.Rule, m.Key, m.Metric)
		}
		if per, _ := EnvoyUnit(c.unit); c.requests > 0 && m.Rule.Limit.Spec != (limiter.Spec{
			Name: "envoy/messaging", Algorithm: limiter.FixedWindow, Limit: int64(c.requests),
			Per: per, Drain: true,
		}) {
			t.Errorf("%s: %+v", c.descriptor, m.Rule.Limit.Spec)
		}
	}
	if m := d.Match(nil); m.Rule != nil {
		t.Errorf("a descriptor without entries: %+v", m)
	}
}

func TestEnvoyFields(t *testing.T) {
	e := mustParseEnvoy(t, `
"domain": 404
atomic: yes
on_error: deny
response_headers: true
response_metadata: true
descriptors:
  - &base
    key: a
    value: 1.50
    shadow_mode: true
    rate_limit: &limit
      unit: Hour
      requests_per_unit: 0x10
      name: first
    metadata: {route: {to: b, weight: 3, on: true, list: [1, x, null]}}
  - <<: *base
    value: true
    quota_mode: on
    shadow_mode:
    rate_limit:
      <<: *limit
      name: second
      replaces: [{name: first}, {name: third}]
`)
	d := e.Domain("404")
	if d == nil || !d.Atomic || d.OnError != limiter.ErrorDeny || !d.ResponseHeaders ||
		!d.ResponseMetadata {
		t.Fatalf("%+v", d)
	}
	metadata := map[string]any{"route": map[string]any{
		"to": "b", "weight": 3.0, "on": true,
		"list": []any{1.0, "x", nil},
	}}
	for i, want := range []Rule{
		{Path: "a_1.50", Name: "first", Shadow: true},
		{Path: "a_true", Name: "second", Quota: true, Replaces: []string{"first", "third"}},
	} {
		got := *e.Rules()[i]
		if got.Limit == nil || got.Limit.OnDeny != limiter.DenyShadow ||
			got.Limit.OnError != limiter.ErrorDeny {
			t.Errorf("%d: %+v", i, got.Limit)
		}
		want.Number, want.Domain, want.Requests, want.Unit, want.Metadata, want.Limit = i, "404",
			16, "hour", metadata, got.Limit
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
}

// Promise: unknown keys and bad values are errors with file, line and column.
func TestEveryEnvoyFaultIsSaidWhereItStands(t *testing.T) {
	const good = "domain: d\ndescriptors:\n  - key: k\n    value: v*\n    rate_limit: {unit: " +
		"minute, requests_per_unit: 5}\n"
	with := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	mustParseEnvoy(t, good)
	for _, c := range []struct{ text, want string }{
		{"", "f:1:1: domain: is missing"},
		{"- a\n", "f:1:1: the file must be a mapping of fields, not a list"},
		{with("domain: d", "domain:"), "f:1:1: domain: is missing or empty"},
		{with("domain: d", "domain: [d]"), "f:1:9: domain: must be a text, not a list"},
		{
			with("domain: d", `domain: "d\n"`),
			`f:1:9: domain: "envoy/d\n" is not UTF-8 text without control characters`,
		},
		{
			with("domain: d", "domain: "+strings.Repeat("d", 251)),
			"f:1:9: domain: has 251 bytes; at most 250",
		},
		{good + "desc: 1\n", "f:6:1: desc: is unknown; the file has: domain, descriptors"},
		{good + "---\n" + good, "f:7:1: a second document begins here"},
		{good + "atomic: perhaps\n", "f:6:9: atomic: must be true or false, not a text"},
		{good + "atomic: 'yes'\n", "f:6:9: atomic: must be true or false, not a text"},
		{
			good + "on_error: shrug\n",
			`f:6:11: on_error: "shrug" is unknown; there is: local, allow, deny`,
		},
		{"domain: d\ndescriptors: k\n", "f:2:14: descriptors: must be a list, not a text"},
		{
			"domain: d\ndescriptors: [k]\n",
			"f:2:15: a descriptor must be a mapping of fields, not a text",
		},
		{with("key: k", "kee: k"), "f:3:5: kee: is unknown; a descriptor has: key, value"},
		{with("key: k", "key: ''"), "f:3:5: key: is missing or empty"},
		{with("key: k\n    ", ""), "f:3:5: key: is missing or empty"},
		{
			good + good[strings.Index(good, "  - key"):],
			`f:6:5: key: "k_v*" is given twice at this depth`,
		},
		{
			with("v*", "v\n    share_threshold: true"),
			"f:5:22: share_threshold: is for values with a *",
		},
		{
			with("v*", "v\n    shadow_mode: 1"),
			"f:5:18: shadow_mode: must be true or false, not a number",
		},
		{with("v*", "v\n    metadata: 1"), "f:5:15: metadata: must be a mapping, not a number"},
		{with("{unit", "{unlimited: true, unit"), "f:5:41: unit: is given beside unlimited"},
		{with("unit: minute, ", ""), "f:5:17: unit: is missing; second, minute"},
		{with("minute", "fortnight"), `f:5:24: unit: "fortnight" is unknown; second, minute`},
		{
			with(", requests_per_unit: 5", ""),
			"f:5:17: requests_per_unit: is missing; 0 denies everything",
		},
		{
			with("unit: 5", "unit: 5, burst: 9"),
			"f:5:54: burst: is unknown; a rate_limit has: unit, requests_per_unit",
		},
		{with("unit: 5", "unit: -5"), "f:5:51: requests_per_unit: is -5; 0 to 4294967295"},
		{with("unit: 5", "unit: 4294967296"), "f:5:51: requests_per_unit: is 4294967296; 0 to"},
		{
			with("unit: 5", "unit: '5'"),
			"f:5:51: requests_per_unit: must be a whole number, not a text",
		},
		{
			with("unit: 5", "unit: 1.5"),
			"f:5:51: requests_per_unit: must be a whole number, not a number with",
		},
		{
			with("unit: 5", "unit: 5, replaces: [{nam: x}]"),
			"f:5:66: nam: is unknown; an entry of replaces has: name",
		},
		{
			with("unit: 5", "unit: 5, replaces: [{name: }]"),
			"f:5:65: replaces: has an entry without a name",
		},
		{
			with("unit: 5", "unit: 5, name: a, replaces: [{name: a}]"),
			"f:5:74: replaces: names the limit itself",
		},
		{with("key: k", "key: *k"), `f:3:10: no anchor is named "k" before this`},
		{"domain: d\ndescriptors: &d [{key: a, descriptors: *d }]\n", "go deeper than 64"},
	} {
		e, err := ParseEnvoy("f", []byte(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) &&
			!(c.want[1] != ':' && strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s\ngot:  %v\nwant: %s (%v)", c.text, err, c.want, e)
		}
	}
}

// Promise: bounded memory. Nine lines of aliases would stand for 10^9 descriptors.
func TestAliasesAreBounded(t *testing.T) {
	text := "domain: d\ndescriptors:\n  - {key: a0, descriptors: &a0 [{key: x}]}\n"
	for i := range 9 {
		below := strings.Repeat(",{key: K, descriptors: *a"+string(rune('0'+i))+" }", 10)
		for k := range 10 {
			below = strings.Replace(below, "K", "k"+string(rune('a'+k)), 1)
		}
		text += "  - {key: a" + string(rune('1'+i)) + ", descriptors: &a" + string(rune('1'+i)) +
			" [" + below[1:] + "]}\n"
	}
	if _, err := ParseEnvoy("f", []byte(text)); err == nil ||
		!strings.Contains(err.Error(), "more than 100000 values") {
		t.Errorf("%v", err)
	}
}

func TestEnvoyDirectory(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.yaml"), "domain: a\n")
	put(t, filepath.Join(dir, "b.yaml"), "domain: b\ndescriptors: [{key: k, rate_limit: "+
		"{unlimited: true}}]\n")
	e, err := LoadEnvoy(dir)
	if err != nil || e.Domain("a") == nil || e.Domain("b") == nil || e.Domain("c") != nil ||
		len(e.Rules()) != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	put(t, filepath.Join(dir, "c.yaml"), "domain: a\n")
	if _, err := LoadEnvoy(dir); err == nil ||
		!strings.Contains(err.Error(), `c.yaml:1:9: domain: "a" is also the domain of `) {
		t.Errorf("a domain in two files: %v", err)
	}
	put(t, filepath.Join(dir, "c.yaml"), "dom: a\n")
	put(t, filepath.Join(dir, "d.yaml"), "domain: d\ndescriptors: [{key: }]\n")
	if _, err := LoadEnvoy(dir); err == nil || !strings.Contains(err.Error(), "c.yaml:1:1: dom") ||
		!strings.Contains(err.Error(), "d.yaml:2:") {
		t.Errorf("want the faults of both files, got %v", err)
	}
}

// Promise: files are watched, reloaded as a whole, and a bad one never replaces a good one.
func TestWatchEnvoy(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	put(t, file, "domain: first\n")
	var force atomic.Pointer[Envoy]
	var applied atomic.Int64
	logged := new(logBuffer)
	w, err := WatchEnvoy(dir, slog.New(slog.NewTextHandler(logged, nil)), func(e *Envoy) {
		applied.Add(1)
		force.Store(e)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	put(t, filepath.Join(dir, "b.yaml"), "domain: second\nburst: 5\n")
	until(t, "the fault is logged", func() bool {
		return strings.Contains(logged.String(), "burst: is unknown")
	})
	put(t, filepath.Join(dir, "notes.txt"), "x")
	if force.Load().Domain("first") == nil || applied.Load() != 1 {
		t.Fatal("a bad file changed what is in force")
	}
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	put(t, file, "domain: third\n")
	until(t, "the next good file is in force", func() bool {
		e := force.Load()
		return e.Domain("third") != nil && e.Domain("first") == nil
	})
}

// TestFits compares with a regular expression.
func TestFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*]{0,6}`).Draw(t, "pattern")
		s := rapid.StringMatching(`[ab]{0,8}`).Draw(t, "s")
		parts := strings.Split(pattern, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		want := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(s)
		if got := fits(pattern, s); got != want {
			t.Fatalf("fits(%q, %q) is %v", pattern, s, got)
		}
	})
}

// Promise: two keys are never confused.
func TestDescriptorsHaveKeysOfTheirOwn(t *testing.T) {
	descriptor := rapid.Custom(func(t *rapid.T) []Entry {
		text := rapid.SampledFrom([]string{
			"", "a", ",", "%", "=", "%2C", "%25", "%3D", "a=", "=a",
			strings.Repeat("x", 1100),
		})
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Entry {
			return Entry{text.Draw(t, "key"), text.Draw(t, "value")}
		}), 1, 2).Draw(t, "entries")
	})
	d := &Domain{}
	rapid.Check(t, func(t *rapid.T) {
		a, b := descriptor.Draw(t, "a"), descriptor.Draw(t, "b")
		if (d.Key(a) == d.Key(b)) != reflect.DeepEqual(a, b) {
			t.Fatalf("%q and %q have the keys %q and %q", a, b, d.Key(a), d.Key(b))
		}
		if n := len(d.Key(a)); n < 1 || n > limiter.MaxKey {
			t.Fatalf("%d bytes", n)
		}
	})
	// A known long key can be written down, but not sent as a descriptor.
	long := d.Key([]Entry{{"k", strings.Repeat("x", 2000)}})
	key, value, _ := strings.Cut(long, "=")
	if again := d.Key([]Entry{{key, value}}); again == long {
		t.Errorf("%q is the key of two descriptors", long)
	}
}

func TestEnvoyUnits(t *testing.T) {
	for name, want := range map[string]time.Duration{
		"second": 1, "minute": 60, "hour": 3600,
		"day": 86400, "week": 7 * 86400, "month": 30 * 86400, "year": 365 * 86400,
	} {
		if got, known := EnvoyUnit(name); got != want*time.Second || !known {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzParseEnvoy(f *testing.F) {
	// Long seeds are slow: by default the fuzzer spends up to a minute on making a long input
	// shorter, with a try for each pair of its bytes, and mutates nothing meanwhile. The flag goes
	// before it.
	if tries := flag.Lookup("test.fuzzminimizetime"); tries.Value.String() == tries.DefValue {
		tries.Value.Set("50x")
	}
	for _, part := range strings.Split(messaging, "\n  - key:")[1:] {
		f.Add([]byte("domain: d\ndescriptors:\n  - key:"+part), "path=/ab/y")
	}
	f.Add([]byte("domain: d\ndescriptors: &d [{key: a, descriptors: *d }]\n"), "a=b")
	f.Add(
		[]byte("domain: d\ndescriptors:\n  - &x {key: a, metadata: {<<: *x}}\n  - <<: [*x, *x]\n"),
		"a")
	f.Add([]byte("{\"domain\": 1, \"descriptors\": [{\"key\": \"k\", \"rate_limit\": {\"unit\": "+
		"\"day\", \"requests_per_unit\": 0o7}}]}"), "k=")
	f.Fuzz(func(t *testing.T, data []byte, descriptor string) {
		e, err := ParseEnvoy("f", data)
		if (e == nil) == (err == nil) {
			t.Fatalf("%v, error %v", e, err)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Fatalf("an error without a place: %v", err)
			}
			return
		}
		for i, r := range e.Rules() {
			if r.Number != i || e.Domain(r.Domain) == nil ||
				(r.Limit == nil) != (r.Unlimited || r.Requests == 0) {
				t.Fatalf("%+v", r)
			}
			e.Domain(r.Domain).Match(entries(descriptor))
		}
	})
}
