package main

import (
	"testing"
	"time"

	"penstock/limiter"
)

func mustLimit(t *testing.T, s limiter.Spec) *limiter.Limit {
	t.Helper()
	s.Name = "test"
	l, err := limiter.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The bound of a bench is what the arithmetic of the limit allows, no less and no more.
func TestAdmissionBound(t *testing.T) {
	minute := time.Unix(1_700_000_040, 0) // a full minute
	for _, c := range []struct {
		name   string
		spec   limiter.Spec
		first  time.Time
		run    time.Duration
		bound  int64
		single bool
	}{
		{
			"gcra at once",
			limiter.Spec{Algorithm: limiter.GCRA, Limit: 100, Per: time.Second},
			minute, 0, 100, false,
		},
		{
			"gcra refills",
			limiter.Spec{Algorithm: limiter.GCRA, Limit: 100, Per: time.Second},
			minute, 2550 * time.Millisecond, 355, false,
		},
		{"gcra rounds down", limiter.Spec{
			Algorithm: limiter.GCRA, Limit: 3, Per: time.Second,
			Burst: 1,
		}, minute, 999 * time.Millisecond, 3, false},
		{"gcra is never more than a run can ask", limiter.Spec{
			Algorithm: limiter.GCRA,
			Limit:     1 << 40, Per: time.Millisecond,
		}, minute, time.Hour, 1 << 40, false},
		{"fixed window inside one", limiter.Spec{
			Algorithm: limiter.FixedWindow, Limit: 7,
			Per: time.Minute,
		}, minute.Add(20 * time.Second), 10 * time.Second, 7, true},
		{"fixed window over a border", limiter.Spec{
			Algorithm: limiter.FixedWindow, Limit: 7,
			Per: time.Minute,
		}, minute.Add(55 * time.Second), 10 * time.Second, 14, false},
		{
			"fixed window near a border: clocks may differ",
			limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 7, Per: time.Minute},
			minute.Add(500 * time.Millisecond), 10 * time.Second, 14, false,
		},
		{"first hit inside one", limiter.Spec{
			Algorithm: limiter.FixedWindow,
			Anchor:    limiter.FirstHit, Limit: 7, Per: time.Minute,
		}, minute.Add(55 * time.Second), 10 * time.Second, 7, true},
		{"first hit over two", limiter.Spec{
			Algorithm: limiter.FixedWindow,
			Anchor:    limiter.FirstHit, Limit: 7, Per: 4 * time.Second,
		}, minute, 10 * time.Second, 21, false},
		{"sliding window", limiter.Spec{
			Algorithm: limiter.SlidingWindow, Limit: 7,
			Per: time.Minute,
		}, minute.Add(20 * time.Second), 10 * time.Second, 7, false},
	} {
		bound, single, _ := admissionBound(mustLimit(t, c.spec), c.first, c.first.Add(c.run))
		if bound != c.bound || single != c.single {
			t.Errorf("%s: bound %d, single window %v; want %d, %v", c.name, bound, single, c.bound,
				c.single)
		}
	}
}

// A bench says no if one key got one unit too many, and if a limiter that works would have admitted
// more.
func TestOracleJudges(t *testing.T) {
	l := mustLimit(t, limiter.Spec{
		Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 2, Per: time.Hour,
	})
	now := time.Unix(1_700_000_000, 0)
	ask := func(o *oracle, key int, answers ...bool) {
		for _, a := range answers {
			o.count(key, a)
		}
	}
	for _, c := range []struct {
		name    string
		run     func(*oracle)
		exact   bool
		extra   int64
		missing int64
	}{
		{"right", func(o *oracle) { ask(o, 0, true, true, false); ask(o, 1, true) }, true, 0, 0},
		{
			"one too many", func(o *oracle) { ask(o, 0, true, true, true); ask(o, 1, true) }, false,
			1,
			0,
		},
		{
			"one too few", func(o *oracle) { ask(o, 0, true, false, false); ask(o, 1, true) },
			false,
			0, 1,
		},
		{
			"too many of one key do not make up for too few of another",
			func(o *oracle) { ask(o, 0, true, true, true); ask(o, 1, true, false) }, false, 1, 1,
		},
	} {
		o := newOracle(l, 1, 3)
		c.run(o)
		v := o.judge(now, now.Add(time.Second), 0)
		if v.Exact != c.exact || v.Extra != c.extra || v.Missing != c.missing || v.Keys != 2 {
			t.Errorf("%s: %+v; want exact %v, extra %d, missing %d, 2 keys", c.name, v, c.exact,
				c.extra, c.missing)
		}
	}
}

// What is left of a window and too little for one more check is not missing, and neither is what
// unanswered checks may have taken.
func TestOracleDoesNotBlameTheInnocent(t *testing.T) {
	l := mustLimit(t, limiter.Spec{
		Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 10, Per: time.Hour,
	})
	now := time.Unix(1_700_000_000, 0)
	o := newOracle(l, 3, 1)
	for _, allowed := range []bool{true, true, true, false, false} {
		o.count(0, allowed)
	}
	if v := o.judge(now, now, 0); !v.Exact || v.Admitted != 9 || v.Bound != 9 {
		t.Errorf("cost 3, limit 10: %+v; want 9 of 9 and exact", v)
	}
	o = newOracle(l, 1, 1)
	for i := range 20 {
		o.count(0, i < 8)
	}
	if v := o.judge(now, now, 2); !v.Exact || v.Missing != -1 {
		t.Errorf("8 of 10 admitted and 2 unanswered: %+v; want missing unknown", v)
	}
	if v := o.judge(now, now, 0); v.Exact || v.Missing != 2 {
		t.Errorf("8 of 10 admitted: %+v; want 2 missing", v)
	}
}
