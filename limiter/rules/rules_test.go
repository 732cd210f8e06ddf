package rules

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
)

func limits(t testing.TB) map[string]*limiter.Limit {
	t.Helper()
	all := map[string]*limiter.Limit{}
	for _, s := range []limiter.Spec{
		{Name: "login", Algorithm: limiter.FixedWindow, Limit: 5, Per: time.Minute},
		{Name: "per-ip", Algorithm: limiter.GCRA, Limit: 5, Per: time.Minute},
		{Name: "jobs", Algorithm: limiter.Concurrency, Limit: 5, Per: time.Minute},
		{
			Name: "theirs", Algorithm: limiter.TokenBucket, Limit: 5, Per: time.Minute,
			ClientTime: true,
		},
	} {
		l, err := limiter.New(s)
		if err != nil {
			t.Fatal(err)
		}
		all[s.Name] = l
	}
	return all
}

func made(t testing.TB, list ...Rule) *Set {
	t.Helper()
	for i := range list {
		if list[i].Name == "" {
			list[i].Name = fmt.Sprint(i)
		}
		if list[i].Apply == nil && !list[i].Unlimited {
			list[i].Apply = []Apply{{Limit: "login", Key: "all"}}
		}
	}
	s, err := New(list, limits(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// attributes are written as "path=/a method=POST".
func attributes(text string) map[string]string {
	all := map[string]string{}
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		all[name] = value
	}
	return all
}

// Promise: a rule matches if for each of its attributes a pattern does, and all rules that match
// count.
func TestWhichRulesMatch(t *testing.T) {
	one := func(text string) map[string][]string {
		all := map[string][]string{}
		for name, value := range attributes(text) {
			all[name] = strings.Split(value, "|")
		}
		return all
	}
	s := made(t,
		Rule{Name: "every"},
		Rule{Name: "api", Match: one("path=/api/*")},
		Rule{Name: "post", Match: one("path=/api/* method=POST|PUT")},
		Rule{Name: "v1", Match: one("path=/api/v1/*")},
		Rule{Name: "exact", Match: one("path=/api/v1/login")},
		Rule{Name: "tail", Match: one("path=*.gif")},
		Rule{Name: "net", Match: one("ip=10.0.0.0/8|2001:db8::/32")},
		Rule{Name: "named", Match: one("user=*")},
		Rule{Name: "header", Match: one("header:X-Plan=pro*")},
	)
	for _, row := range []struct{ request, want string }{
		{"", "every"},
		{"path=/", "every"},
		{"path=/api", "every"},
		{"path=/api/", "every api"},
		{"path=/api/v1/login", "every api v1 exact"},
		{"path=/api/v1/login method=PUT", "every api post v1 exact"},
		{"path=/api/v1/login method=GET", "every api v1 exact"},
		{"path=/api/v1/login/ method=post", "every api v1"},
		{"path=/api/a.gif", "every api tail"},
		{"ip=10.9.8.7", "every net"},
		{"ip=::ffff:10.9.8.7", "every net"},
		{"ip=2001:db8:1::1 user=ann", "every net named"},
		{"ip=11.0.0.1 user=", "every"},
		{"header:x-plan=pro-7", "every header"},
		{"header:X-PLAN=pro", "every header"},
		{"plan=pro", "every"},
	} {
		m, err := s.Match(attributes(row.request))
		if got := strings.Join(m.Rules, " "); err != nil || got != row.want {
			t.Errorf("%q matches %q, %v; want %q", row.request, got, err, row.want)
		}
	}
}

// Promise: keys come from templates; one limit with one key stands there once; what is unlimited is
// under nothing.
func TestWhatARequestFallsUnder(t *testing.T) {
	path := func(p string) map[string][]string { return map[string][]string{"path": {p}} }
	s := made(t,
		Rule{Name: "a", Match: path("/a*"), Apply: []Apply{
			{Limit: "login", Key: "{user}"},
			{Limit: "per-ip", Key: "{ip}"},
		}},
		Rule{Name: "b", Match: path("/ab*"), Apply: []Apply{
			{Limit: "per-ip", Key: "{ip}"},
			{Limit: "per-ip", Key: "net:{ip}"},
			{Limit: "login", Key: "{user}/{ip}"},
		}},
		Rule{Name: "c", Match: path("/abc*"), Unlimited: true},
	)
	for _, row := range []struct{ request, want string }{
		{"path=/b", "[] []"},
		{"path=/a user=ann ip=::1", "[a] [login ann, per-ip ::1]"},
		{
			"path=/ab user=ann ip=::1",
			"[a b] [login ann, per-ip ::1, per-ip net:::1, login ann/::1]",
		},
		{
			"path=/ab user=a/b%c ip=::1",
			"[a b] [login a/b%c, per-ip ::1, per-ip net:::1, login a%2Fb%25c/::1]",
		},
		{"path=/abc", "[a b c] [] unlimited"},
		{
			"path=/a ip=::1",
			`attributes.user: is missing; rule "a" needs it for the key of limit "login". Send ` +
				`it, or have the rule match user: "*"`,
		},
		{"path=/a user=ann ip=", "attributes.ip: is missing; rule"},
	} {
		m, err := s.Match(attributes(row.request))
		var items []string
		for _, it := range m.Items {
			items = append(items, it.Limit.Name+" "+it.Key)
		}
		got := fmt.Sprintf("%v [%s]", m.Rules, strings.Join(items, ", "))
		if m.Unlimited {
			got += " unlimited"
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, row.want) {
			t.Errorf("%q: %s\nwant %s", row.request, got, row.want)
		}
	}
	if got := strings.Join(s.Attributes(), " "); got != "ip path user" {
		t.Errorf("the rules ask for %s", got)
	}
}

// Promise: what a rule says wrong is an error that names the field.
func TestWrongRules(t *testing.T) {
	ok := []Apply{{Limit: "login", Key: "{user}"}}
	match := func(name string, patterns ...string) map[string][]string {
		return map[string][]string{name: patterns}
	}
	many := make([]string, MaxPatterns+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for _, row := range []struct {
		rule Rule
		want string
	}{
		{Rule{Name: "", Apply: ok}, "rules[0].name: "},
		{Rule{Name: "a\nb", Apply: ok}, "rules[0].name: "},
		{Rule{Name: "a"}, "rules[0].apply: has 0 limits; 1 to 16"},
		{Rule{Name: "a", Apply: ok, Unlimited: true}, "rules[0].unlimited: stands beside apply"},
		{
			Rule{Name: "a", Apply: []Apply{{Limit: "logn", Key: "k"}}},
			`rules[0].apply[0].limit: "logn" is the name of no limit here`,
		},
		{
			Rule{Name: "a", Apply: []Apply{{Limit: "", Key: "k"}}},
			"rules[0].apply[0].limit: is missing",
		},
		{
			Rule{Name: "a", Apply: []Apply{{Limit: "jobs", Key: "k"}}},
			`rules[0].apply[0].limit: "jobs" counts permits`,
		},
		{
			Rule{Name: "a", Apply: []Apply{{Limit: "theirs", Key: "k"}}},
			`rules[0].apply[0].limit: "theirs" goes by its clients' clocks`,
		},
		{Rule{Name: "a", Apply: []Apply{ok[0], ok[0]}}, "rules[0].apply[1]: stands twice"},
		{
			Rule{Name: "a", Apply: []Apply{{Limit: "login", Key: ""}}},
			"rules[0].apply[0].key: has 0 bytes",
		},
		{
			Rule{Name: "a", Apply: []Apply{{Limit: "login", Key: "{user"}}},
			`rules[0].apply[0].key: "{user" has a { without a }`,
		},
		{
			Rule{Name: "a", Apply: []Apply{{Limit: "login", Key: "user}"}}},
			`rules[0].apply[0].key: "user}" has a } without a {`,
		},
		{
			Rule{Name: "a", Apply: []Apply{{Limit: "login", Key: "{a{b}}"}}},
			`rules[0].apply[0].key: "{a{b}}" has a { without a }`,
		},
		{
			Rule{Name: "a", Apply: []Apply{{Limit: "login", Key: "{a}{b}"}}},
			`rules[0].apply[0].key: "{a}{b}" has two placeholders side by side`,
		},
		{
			Rule{Name: "a", Apply: []Apply{{Limit: "login", Key: "{}"}}},
			"rules[0].apply[0].key: {} is not an attribute's name",
		},
		{
			Rule{Name: "a", Apply: []Apply{{Limit: "login", Key: "{a b}"}}},
			"rules[0].apply[0].key: {a b} is not an attribute's name",
		},
		{
			Rule{Name: "a", Apply: ok, Match: match("a b", "x")},
			"rules[0].match.a b: is not an attribute's name",
		},
		{Rule{Name: "a", Apply: ok, Match: match("a")}, "rules[0].match.a: has 0 patterns"},
		{
			Rule{Name: "a", Apply: ok, Match: match("a", many...)},
			"rules[0].match.a: has 65 patterns",
		},
		{Rule{Name: "a", Apply: ok, Match: match("a", "")}, "rules[0].match.a[0]: is empty"},
		{
			Rule{Name: "a", Apply: ok, Match: match("a", "/x*", "/xy")},
			`rules[0].match.a[1]: "/xy" is needless: "/x*" comes first`,
		},
		{
			Rule{Name: "a", Apply: ok, Match: match("ip", "10.0.0.1/8")},
			`rules[0].match.ip[0]: "10.0.0.1/8" has bits behind`,
		},
		{Rule{Name: "a", Apply: ok, Match: map[string][]string{
			"header:A": {"1"},
			"header:a": {"2"},
		}}, "rules[0].match.header:a: is given twice"},
	} {
		if _, err := New([]Rule{row.rule}, limits(t)); err == nil ||
			!strings.HasPrefix(err.Error(), row.want) {
			t.Errorf("%+v: %v\nwant %s", row.rule, err, row.want)
		}
	}
	if _, err := New([]Rule{{Name: "a", Apply: ok}, {Name: "a", Apply: ok}},
		limits(t)); err == nil || !strings.HasPrefix(err.Error(), "rules[1].name: ") {
		t.Error(err)
	}
}

// drawn makes rules and requests of few words, so that they meet.
func drawn(r *rand.Rand) ([]Rule, map[string]string) {
	words := []string{
		"/", "/a", "/a/", "/a/b", "/b", "/ab", "/a*", "/a/*", "*", "*b", "/*/b",
		"/a/b*", "10.0.0.1", "10.0.0.0/8", "b",
	}
	names := []string{"path", "method", "user"}
	list := make([]Rule, 1+r.IntN(12))
	for i := range list {
		list[i] = Rule{
			Name: fmt.Sprint(i), Match: map[string][]string{},
			Apply: []Apply{{Limit: "login", Key: fmt.Sprint(i)}},
		}
		for range r.IntN(3) {
			name := names[r.IntN(len(names))]
			list[i].Match[name] = append(list[i].Match[name], words[r.IntN(len(words))])
		}
		for name, patterns := range list[i].Match { // what New would call needless
			slices.Sort(patterns)
			list[i].Match[name] = slices.Compact(patterns)[:1]
			if r.IntN(2) == 0 {
				list[i].Match[name] = []string{"/a/b", "/b*"}
			}
		}
	}
	request := map[string]string{}
	for _, name := range names {
		if r.IntN(4) > 0 {
			request[name] = strings.NewReplacer("*", "x", "/8",
				"").Replace(words[r.IntN(len(words))])
		}
	}
	return list, request
}

// naive looks at every rule.
func naive(list []Rule, request map[string]string) (names []string) {
next:
	for _, r := range list {
		for name, patterns := range r.Match {
			if request[name] == "" || !slices.ContainsFunc(patterns, func(text string) bool {
				p, err := limiter.ParsePattern(text)
				return err == nil && p.Matches(request[name])
			}) {
				continue next
			}
		}
		names = append(names, r.Name)
	}
	return names
}

// Promise: the index finds what a look at every rule finds.
func TestIndexEqualsNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		list, request := drawn(r)
		s := made(t, list...)
		m, err := s.Match(request)
		if err != nil {
			t.Fatal(err)
		}
		if want := naive(list, request); !slices.Equal(m.Rules, want) {
			t.Fatalf("%v\nby %+v: %v, want %v", request, list, m.Rules, want)
		}
	}
}

// FuzzMatch: for any rules and requests, the index finds what a look at every rule finds, or both
// are refused.
func FuzzMatch(f *testing.F) {
	f.Add("/a/*", "/a/b*", "*x", "/a/b/x", "{path}/{user}", "ann")
	f.Add("10.0.0.0/8", "::1", "\\*", "10.1.2.3", "{user}", "")
	f.Add("a", "ab*", "abc*", "abcd", "k", "%")
	f.Fuzz(func(t *testing.T, p1, p2, p3, path, key, user string) {
		list := []Rule{
			{
				Name: "1", Match: map[string][]string{"path": {p1}},
				Apply: []Apply{{Limit: "login", Key: key}},
			},
			{
				Name: "2", Match: map[string][]string{"path": {p2, p3}},
				Apply: []Apply{{Limit: "login", Key: key}},
			},
			{
				Name: "3", Match: map[string][]string{"user": {p2}, "path": {p3}},
				Apply: []Apply{{Limit: "per-ip", Key: key}},
			},
			{
				Name: "4", Match: map[string][]string{"path": {p3}},
				Apply: []Apply{{Limit: "login", Key: "all"}},
			},
		}
		s, err := New(list, limits(t))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "rules[") {
				t.Fatalf("an error without a place: %v", err)
			}
			return
		}
		request := map[string]string{"path": path, "user": user}
		m, err := s.Match(request)
		if err != nil {
			return
		}
		if want := naive(list, request); !slices.Equal(m.Rules, want) {
			t.Fatalf("%v\nby %+v: %v, want %v", request, list, m.Rules, want)
		}
	})
}

// BenchmarkMatch: a request among so many rules that differ in a path's beginning and a method, and
// among so many that differ in what no index knows.
func BenchmarkMatch(b *testing.B) {
	for _, kind := range []struct {
		name string
		rule func(i int) map[string][]string
	}{
		{"path", func(i int) map[string][]string {
			return map[string][]string{
				"path":   {fmt.Sprintf("/api/v%d/service-%d/*", i%3, i)},
				"method": {[]string{"GET", "POST"}[i%2]},
			}
		}},
		{"network", func(i int) map[string][]string {
			return map[string][]string{"ip": {fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)}}
		}},
	} {
		for _, n := range []int{10, 1000, 10_000} {
			list := make([]Rule, n)
			for i := range list {
				list[i] = Rule{
					Match: kind.rule(i),
					Apply: []Apply{{Limit: "login", Key: "{user}"}, {Limit: "per-ip", Key: "{ip}"}},
				}
			}
			s := made(b, list...)
			at := n / 2
			request := map[string]string{
				"path":   fmt.Sprintf("/api/v%d/service-%d/items/7", at%3, at),
				"method": []string{"GET", "POST"}[at%2],
				"user":   "ann", "ip": fmt.Sprintf("10.%d.%d.9", at/256, at%256),
			}
			b.Run(fmt.Sprintf("%s/%d", kind.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if m, err := s.Match(request); err != nil || len(m.Rules) != 1 {
						b.Fatal(m, err)
					}
				}
			})
		}
	}
}
