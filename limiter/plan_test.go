package limiter_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
)

// planned has two plans, an exception for keys between them, and itself.
func planned(t *testing.T, a limiter.Algorithm) *limiter.Limit {
	t.Helper()
	l, err := limiter.New(limiter.Spec{Name: "x", Algorithm: a, Limit: 2, Per: time.Hour},
		limiter.Override{Plan: "free", Limit: 3}, limiter.Override{Key: "vip/*", Limit: 50},
		limiter.Override{Plan: "pro", Limit: 10}, limiter.Override{Plan: "own", Unlimited: true})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestPlans: a request is under the plan that it names, whatever its key; of overrides for the plan
// and for the key, the first one counts; a plan that the limit does not have is an error that names
// those that there are.
func TestPlans(t *testing.T) {
	l := planned(t, limiter.GCRA)
	for _, c := range []struct {
		plan, key string
		limit     int64
		override  string
	}{
		{"", "a", 2, ""},
		{"", "vip/a", 50, "vip/*"},
		{"free", "a", 3, "plan free"},
		{"free", "vip/a", 3, "plan free"},
		{"pro", "a", 10, "plan pro"},
		{"pro", "vip/a", 50, "vip/*"},
		{"own", "a", limiter.MaxLimit, "plan own"},
	} {
		got, err := l.Under(c.plan, c.key)
		if err != nil || got.Limit != c.limit || got.Override != c.override {
			t.Errorf("plan %q, key %q: %+v, %v", c.plan, c.key, got, err)
		}
	}
	for name, of := range map[string]*limiter.Limit{
		`"gold" is none of limit "x"; there is: free, pro, own`: l,
		`is "gold", and limit "y" has no plans`: mustNew(t, limiter.Spec{
			Name: "y", Algorithm: limiter.GCRA, Limit: 2, Per: time.Hour,
		}),
	} {
		for _, key := range []string{"a", "vip/a"} {
			got, err := of.Under("gold", key)
			var bad *limiter.SpecError
			if got != nil || !errors.As(err, &bad) || bad.Field != "plan" ||
				!strings.Contains(bad.Reason, name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestPlanChangeKeepsCounters: what a key has consumed counts under its next plan, and under none.
// (A bucket keeps it as time, as it does when its rate changes.)
func TestPlanChangeKeepsCounters(t *testing.T) {
	for _, a := range []limiter.Algorithm{
		limiter.FixedWindow, limiter.SlidingWindow, limiter.SlidingLog, limiter.SlidingCounter,
	} {
		l := planned(t, a)
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		take := func(plan string, cost int64) bool {
			under, err := l.Under(plan, "k")
			if err != nil {
				t.Fatal(err)
			}
			return table.Take(start, under, "k", limiter.Hash("k"), cost).Allowed
		}
		for i, c := range []struct {
			plan string
			cost int64
			want bool
		}{
			{"free", 3, true},
			{"free", 1, false},
			{"", 1, false},
			{"pro", 7, true},
			{"pro", 1, false},
			{"free", 1, false},
			{"own", 100, true},
			{"pro", 1, false},
		} {
			if got := take(c.plan, c.cost); got != c.want {
				t.Errorf("%v, request %d: %v", a, i, got)
			}
		}
	}
}

// TestPlansRefuse: bad plans are refused with the field and what it accepts.
func TestPlansRefuse(t *testing.T) {
	s := limiter.Spec{Name: "x", Algorithm: limiter.GCRA, Limit: 2, Per: time.Hour}
	for want, list := range map[string][]limiter.Override{
		"overrides[0].plan: stands beside a key":    {{Plan: "a", Key: "b", Limit: 1}},
		`overrides[1].plan: "a" stands twice`:       {{Plan: "a", Limit: 1}, {Plan: "a", Limit: 2}},
		"overrides[0].plan: \"a\" is given nothing": {{Plan: "a"}},
		"is not 1 to 64 bytes":                      {{Plan: strings.Repeat("a", 65), Limit: 1}},
		"without control characters":                {{Plan: "a\x00", Limit: 1}},
		"overrides[0].key: is empty":                {{Limit: 1}},
	} {
		if _, err := limiter.New(s, list...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", want, err)
		}
	}
	s.Planned = true
	if _, err := limiter.New(s); err == nil {
		t.Error("a plan without an override is accepted")
	}
}
