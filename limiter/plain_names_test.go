package limiter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// Promise: no limit of files or of PUT has a name that a door gives to limits of its own, or that
// counters of a candidate have; those of doors a request may bring along.
func TestTakenNamesInPlainWords(t *testing.T) {
	for _, begin := range []string{"", "inline", "cl.throttle", "envoy/", "envoy", "a"} {
		for _, end := range []string{"", "x", "/", " (candidate)", "(candidate)", " (candidate)x"} {
			name, why := begin+end, ""
			domain, envoys := EnvoyDomain(name)
			candidate := IsCandidateName(name)
			if want := strings.HasPrefix(name, "envoy/"); envoys != want ||
				want && (domain != name[6:] || EnvoyName(domain) != name) {
				t.Errorf("%q is of the domain %q: %t", name, domain, envoys)
			}
			switch {
			case envoys:
				why = "Envoy"
			case end == " (candidate)":
				why = "candidate"
			case name == "inline":
				why = "without a name"
			case name == "cl.throttle":
				why = "Redis"
			}
			if got := Taken(name); (got != "") != (why != "") || !strings.Contains(got, why) {
				t.Errorf("%q is taken: %q, want %q", name, got, why)
			}
			if candidate != (why == "candidate") || (TakenInline(name) != "") != candidate {
				t.Errorf("%q is a candidate's: %t, %q", name, candidate, TakenInline(name))
			}
		}
	}
}

// Promise: an answer is refused by the name of a field that is out of bounds, or that what happens
// beyond the limit has no use for.
func TestBoundsOfAnswers(t *testing.T) {
	types := map[string]bool{
		"text/html": true, "text/html; charset=utf-8": true,
		"text/" + strings.Repeat("x", 123): true,
		"text":                             false, "text/": false, "/": false, "text/ä": false,
		"text/" + strings.Repeat("x", 124): false, "text/html; a=\"\x1f\"": false,
	}
	tags := map[string]bool{
		"x": true, "!~": true, strings.Repeat("x", 64): true,
		strings.Repeat("x", 65): false, "a b": false, "a\x1f": false, "\x7f": false, "ä": false,
	}
	of := func(draw *rand.Rand, texts map[string]bool) string {
		var list []string
		for text := range texts {
			list = append(list, text)
		}
		slices.Sort(list)
		return maybe(draw, list...)
	}
	alone := map[string]int{}
	for seed := range uint64(20000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		on := OnDeny(draw.IntN(int(DenyDelay) + 1))
		a := Answers{
			Spread: maybe(draw, -1, 1, 100, 101), Tier: maybe(draw, -1, 1, 9, 10),
			Status: maybe(draw, -1, 1, 399, 400, 599, 600),
			Body: maybe(draw, "no", strings.Repeat("x", 4096), strings.Repeat("x", 4097),
				"\xff"),
			ContentType: of(draw, types), Tag: of(draw, tags),
		}
		if a.ContentType != "" && draw.IntN(2) == 0 {
			a.Body = "no"
		}
		denies := on == DenyReject || on == DenyDelay
		wrong := map[string]bool{
			"spread":       a.Spread < 0 || a.Spread > 100 || a.Spread != 0 && !denies,
			"status":       a.Status != 0 && (a.Status < 400 || a.Status > 599 || !denies),
			"body":         len(a.Body) > 4096 || a.Body == "\xff" || a.Body != "" && !denies,
			"content_type": a.ContentType != "" && (!types[a.ContentType] || a.Body == ""),
			"tag":          a.Tag != "" && (!tags[a.Tag] || on != DenyTag),
			"tier":         a.Tier < 0 || a.Tier > 9 || a.Tier != 0 && on != DenyDeprioritize,
		}
		var fields []string
		for field, is := range wrong {
			if is {
				fields = append(fields, field)
			}
		}
		err := a.check(on)
		var bad *SpecError
		if (err == nil) != (len(fields) == 0) ||
			err != nil && (!errors.As(err, &bad) || !wrong[bad.Field]) {
			t.Fatalf("seed %d: %+v with %v: %v, want one of %v", seed, a, on, err, fields)
		}
		if len(fields) == 1 {
			alone[fields[0]]++
		}
	}
	if len(alone) < 6 {
		t.Errorf("refused for one reason alone: %v; that proves little", alone)
	}
}

// Promise: a candidate counts as it is said to, under the name of its limit with a mark; where that
// is done, and whether callers wait, is its limit's. Promoted, it has the name and the answers of
// its limit. What counts permits neither has one nor is one.
func TestCandidatesInPlainWords(t *testing.T) {
	made, refused := 0, 0
	for seed := range uint64(60000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		of, s := drawnFields(draw), drawnFields(draw)
		of.Name = oneOf(draw, "l", strings.Repeat("x", 244), strings.Repeat("x", 245))
		l, err := New(of)
		if err != nil {
			continue
		}
		want := s
		want.Name = l.Name + " (candidate)"
		want.Consistency, want.Sync, want.Parent = l.Consistency, l.Sync, ""
		want.OnError, want.OnPartition, want.Unsettled = l.OnError, l.OnPartition, l.Unsettled
		want.OnDeny, want.MaxDelay, want.DryRun, want.Answers = 0, 0, false, Answers{}
		if l.OnDeny == DenyDelay {
			want.OnDeny, want.MaxDelay = DenyDelay, l.MaxDelay
		}
		c, bad := New(want)
		permits := l.Algorithm == Concurrency || s.Algorithm == Concurrency
		with, err := l.WithCandidate(s)
		if (err == nil) != (bad == nil && !permits) {
			t.Fatalf("seed %d: %+v beside %+v: %v, %v", seed, s, l.Spec, err, bad)
		}
		if got, err := l.Promoted(); got != nil || err != nil || l.Candidate() != nil {
			t.Fatalf("without a candidate %+v, %v is promoted", got, err)
		}
		if err != nil {
			refused++
			continue
		}
		made++
		if with.Candidate().Spec != c.Spec || with.Spec != l.Spec || with.SameAs(l) ||
			Given(with) != of {
			t.Fatalf("seed %d: %+v beside\n%+v is\n%+v, want\n%+v", seed, s, with.Spec,
				with.Candidate().Spec, c.Spec)
		}
		next := c.Spec
		next.Name, next.OnDeny, next.DryRun, next.Answers = l.Name, l.OnDeny, l.DryRun, l.Answers
		next.MaxDelay, next.Parent = l.MaxDelay, l.Parent
		after, bad := New(next)
		if got, err := with.Promoted(); (err == nil) != (bad == nil) ||
			err == nil && got.Spec != after.Spec {
			t.Fatalf("seed %d: %+v, %v is promoted, want %+v, %v", seed, got, err, after, bad)
		}
	}
	if made < 300 || refused < 300 {
		t.Errorf("%d are made, %d refused; that proves little", made, refused)
	}
}

// Promise: a hold is refused of what one node does not decide by its own clock, and of a cost, a
// holder or a time out of bounds, by the name of a field; four states say that there are too many.
func TestBoundsOfHolds(t *testing.T) {
	var limits []*Limit
	for _, s := range []Spec{
		{Algorithm: GCRA, Limit: 5, Burst: 7},
		{Algorithm: LeakyBucket, Limit: 5, Burst: 7},
		{Algorithm: GCRA, Limit: 5, Consistency: Replicated},
		{Algorithm: TokenBucket, Limit: 5, ClientTime: true},
	} {
		s.Name, s.Per = fmt.Sprint("l", len(limits)), time.Hour
		limits = append(limits, mustBe(New(s)))
	}
	for i := range 4 * 9 * 4 * 3 {
		l, units := limits[i%4], int64(i/4%9)-1
		ttl := []time.Duration{1e8 - 1, 1e8, 24 * time.Hour, 24*time.Hour + 1}[i/36%4]
		holder := []int{0, 128, 129}[i/144]
		wrong := map[string]bool{
			"limit": i%4 > 1, "cost": units < 1 || units > []int64{7, 8, 5, 5}[i%4],
			"holder": holder > 128, "ttl_ms": ttl < time.Second/10 || ttl > 24*time.Hour,
		}
		r := HoldRequest{Limit: l, Units: units, TTL: ttl, Holder: strings.Repeat("h", holder)}
		err := r.Check()
		var bad *SpecError
		none := !wrong["limit"] && !wrong["cost"] && !wrong["holder"] && !wrong["ttl_ms"]
		if (err == nil) != none || err != nil && (!errors.As(err, &bad) || !wrong[bad.Field]) {
			t.Fatalf("%d units of %s for %v by %d bytes: %v", units, l.Name, ttl, holder, err)
		}
	}
	for state, want := range map[HoldState]bool{
		HoldNone: false, HoldOpen: false, HoldSettled: false, HoldRanOut: false,
		HoldUnknown: false, HoldOther: false, HoldForeign: false, HoldInTheWay: false,
		HoldsOfLimit: true, HoldsOfHolder: true, HoldsOfNode: true, HoldsOfClient: true,
	} {
		if state.TooMany() != want {
			t.Errorf("state %d: %t", state, !want)
		}
	}
}

// Promise: which requests are told by a mark, what a calendar's window is called, and for which
// plan a limit is, is as it is written.
func TestWordsOfLimits(t *testing.T) {
	for on := DenyReject; on <= DenyDelay; on++ {
		if want := on == DenyTag || on == DenyDeprioritize; on.Marks() != want {
			t.Errorf("%v marks: %t", on, !want)
		}
	}
	names := []string{"", "minute", "hour", "day", "week", "month", "year", "unknown"}
	for c := range Years + 2 {
		known, found := CalendarNamed(names[c])
		if is := c > 0 && c <= Years; c.String() != names[c] || found != is || is && known != c {
			t.Errorf("window %d is %q, and %q is window %d", c, c, names[c], known)
		}
	}
	for _, s := range []Spec{{}, {Override: "a*"}, {Override: "plan pro"}} {
		s.Name, s.Algorithm, s.Limit, s.Per = "l", GCRA, 5, time.Hour
		for _, s.Planned = range []bool{false, true} {
			if l, err := New(s); (err == nil) == (s.Planned && s.Override != "plan pro") ||
				err == nil && (l.Plan() == "pro") != s.Planned || err == nil && !s.Planned &&
				l.Plan() != "" {
				t.Errorf("%+v: %v", s, err)
			}
		}
	}
}
