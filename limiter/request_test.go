package limiter_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
)

// asking is a request in a transcript, and what remains after it.
type asking struct {
	at   time.Duration // on the table's clock
	r    limiter.Request
	yes  bool
	left int64
}

func askAll(t *testing.T, l *limiter.Limit, rows []asking) (last limiter.Decision) {
	t.Helper()
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	for i, row := range rows {
		last = table.Do(limiter.Instant(row.at), l, "k", 1, row.r)
		if last.Allowed != row.yes || last.Remaining != row.left {
			t.Errorf("row %d, at %v, %+v: %+v; want allowed %v with %d left", i, row.at, row.r,
				last, row.yes, row.left)
		}
	}
	return last
}

// TestReport: what was spent already is charged beyond what there is, as far as the limit lets a
// key owe, and a key that owes is refused until it has paid.
func TestReport(t *testing.T) {
	report := func(n int64) limiter.Request { return limiter.Request{Cost: n, Report: true} }
	take := func(n int64) limiter.Request { return limiter.Request{Cost: n} }
	const s = time.Second
	for _, spec := range []limiter.Spec{
		{Algorithm: limiter.GCRA, Limit: 10, Per: 10 * s, MaxDebt: 5},
		{
			Algorithm: limiter.TokenBucket, Limit: 10, Refill: 1, Per: s, MaxDebt: 5,
			Anchor: limiter.FirstHit,
		},
		{Algorithm: limiter.LeakyBucket, Limit: 10, Burst: 9, Per: 10 * s, MaxDebt: 5},
	} {
		spec.Name = "paid"
		d := askAll(t, mustNew(t, spec), []asking{
			{100 * s, take(7), true, 3},
			{100 * s, report(2), true, 1},
			{100 * s, report(4), true, 0},       // owes 3
			{102 * s, take(1), false, 0},        // owes 1
			{104 * s, take(2), false, 1},        // has 1
			{104 * s, report(1 << 60), true, 0}, // owes 5, and no more
			{109 * s, take(1), false, 0},
			{110 * s, take(1), true, 0},
			{110 * s, report(3), true, 0},
			{110 * s, take(-1 << 60), true, 10}, // all is forgiven
			{110 * s, report(20), true, 0},
			{110 * s, take(10), false, 0},
		})
		if d.RetryAfter != 15*s {
			t.Errorf("%v: ten units after a debt of 5 come in %v, want 15s", spec.Algorithm,
				d.RetryAfter)
		}
	}
	// A window owes what it has counted beyond its limit, as long as it counts it.
	askAll(t, mustNew(t, limiter.Spec{
		Name: "window", Algorithm: limiter.FixedWindow, Limit: 10,
		Per: 10 * s, MaxDebt: 5,
	}), []asking{
		{100 * s, report(12), true, 0},
		{100 * s, take(-2), true, 0},
		{100 * s, take(-1), true, 1},
		{110 * s, take(10), true, 0},
	})
	askAll(t, mustNew(t, limiter.Spec{
		Name: "sliding", Algorithm: limiter.SlidingWindow, Limit: 10,
		Per: 10 * s, MaxDebt: 10,
	}), []asking{
		{100 * s, report(99), true, 0}, // 20
		{115 * s, take(1), false, 0},   // 10 of them count
		{116 * s, take(2), true, 0},    // 8
	})
	// Without a debt a report takes what there is, and a log has no gap for it.
	askAll(t, mustNew(t, limiter.Spec{
		Name: "log", Algorithm: limiter.SlidingLog, Limit: 3,
		Per: 10 * s, MinGap: s,
	}), []asking{
		{100 * s, take(1), true, 2},
		{100 * s, take(1), false, 2},
		{100 * s, report(1), true, 1},
		{100 * s, report(7), true, 0},
		{111 * s, take(1), true, 2},
	})
}

// TestSession: a session goes on as long as its key asks more often than the bucket refills, and
// each decision says when it began.
func TestSession(t *testing.T) {
	const s = time.Second
	l := mustNew(t, limiter.Spec{
		Name: "visit", Algorithm: limiter.TokenBucket, Limit: 1, Per: 1800 * s,
		Anchor: limiter.FirstHit, Sessions: true, ClientTime: true,
	})
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	for _, row := range []struct {
		at   time.Duration
		cost int64
		yes  bool
		want time.Duration
	}{
		{1000 * s, 0, true, 1000 * s}, // would begin now
		{2000 * s, 1, true, 2000 * s},
		{3000 * s, 1, false, 2000 * s},
		{4700 * s, 1, false, 2000 * s},
		{4800 * s, 0, true, 2000 * s},
		{4800 * s, 5, false, 2000 * s},
		{6600 * s, 1, true, 6600 * s},
		{6601 * s, -1, true, 6600 * s},
		{6602 * s, 1, true, 6602 * s},
	} {
		d := table.Do(limiter.Instant(row.at), l, "k", 1,
			limiter.Request{Cost: row.cost, Drain: true})
		if d.Allowed != row.yes || time.Duration(d.Session)*time.Millisecond != row.want {
			t.Errorf("at %v, cost %d: %+v; want allowed %v in the session of %v", row.at, row.cost,
				d, row.yes, row.want)
		}
	}
}

// TestClientTime: a bucket goes by the time that its clients say, wherever that is, and is
// forgotten by the table's.
func TestClientTime(t *testing.T) {
	const s = time.Second
	l := mustNew(t, limiter.Spec{
		Name: "smyte", Algorithm: limiter.TokenBucket, Limit: 2,
		Per: 10 * s, Anchor: limiter.FirstHit, ClientTime: true,
	})
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	ask := func(now, at time.Duration, want bool) {
		t.Helper()
		r := limiter.Request{Cost: 1, At: limiter.Millis(at.Milliseconds()), Timed: true}
		if d := table.Do(start.Add(now), l, "k", 1, r); d.Allowed != want {
			t.Errorf("at %v, which is %v here: %+v", at, now, d)
		}
		table.Sweep(start.Add(now), 1<<10)
	}
	ask(0, 0, true)
	ask(0, 0, true)
	ask(0, 10*s-time.Millisecond, false)
	ask(9*s, 10*s, true)
	ask(10*s, 9*s, true)
	ask(11*s, 9*s, false)
	// A clock far ahead freezes the bucket for all others, until nobody has asking for as long as
	// it takes to fill.
	ask(12*s, 1_000_000*s, true)
	ask(13*s, 1_000_000*s, true)
	ask(14*s, 30*s, false)
	table.Sweep(start.Add(24*s-1), 1<<10)
	ask(24*s-1, 30*s, false)
	table.Sweep(start.Add(34*s-1), 1<<10)
	ask(34*s-1, 30*s, true)
	if d := table.Do(start, mustNew(t, limiter.Spec{
		Name: "own", Algorithm: limiter.GCRA, Limit: 1,
		Per: s,
	}), "k", 1,
		limiter.Request{Cost: 1, At: 5, Timed: true, Strict: true}); !d.Allowed ||
		d.ResetAfter != s {
		t.Errorf("a limit that goes by its own clock: %+v", d)
	}
}

// TestDrained: a refused request with Drain takes along what there was, under any algorithm, and
// says how much.
func TestDrained(t *testing.T) {
	for _, spec := range everyKind {
		spec.Limit, spec.Burst, spec.Drain, spec.Strict, spec.Refill = 5, 0, false, false, 0
		if spec.Algorithm == limiter.LeakyBucket {
			spec.Burst = 4
		}
		l := mustNew(t, spec)
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		table.Take(start, l, "k", 1, 2)
		d := table.Do(start, l, "k", 1, limiter.Request{Cost: 4, Drain: true})
		if spec.CountRejected {
			if d.Drained != 0 || l.Accepts(&limiter.Request{Drain: true}) == nil {
				t.Errorf("%s: %+v", spec.Name, d)
			}
			continue
		}
		alone := table.Peek(start, l, "k", 1, 4)
		if d.Allowed || d.Drained != 3 || d.Remaining != 0 || d.RetryAfter != alone.RetryAfter ||
			d.RetryAfter <= 0 {
			t.Errorf("%s: %+v, and then %+v", spec.Name, d, alone)
		}
		if d := table.Do(start, l, "new", 2, limiter.Request{
			Cost:  6,
			Drain: true,
		}); d.Drained != 5 || d.RetryAfter != limiter.Never {
			t.Errorf("%s: six of five: %+v", spec.Name, d)
		}
		if d := table.Take(start, l, "new", 2, 1); d.Allowed {
			t.Errorf("%s: after that: %+v", spec.Name, d)
		}
	}
}

// TestAccepts: what a limit does not have is said with the field's name.
func TestAccepts(t *testing.T) {
	plain := limiter.Spec{Name: "x", Algorithm: limiter.GCRA, Limit: 5, Per: time.Minute}
	tokens := limiter.Spec{
		Name: "x", Algorithm: limiter.TokenBucket, Limit: 5, Per: time.Minute,
		Anchor: limiter.FirstHit, ClientTime: true,
	}
	for _, c := range []struct {
		spec  limiter.Spec
		r     limiter.Request
		field string
	}{
		{plain, limiter.Request{Cost: -1, Report: true, Drain: true}, ""},
		{plain, limiter.Request{Strict: true}, "strict"},
		{plain, limiter.Request{Timed: true}, "at_ms"},
		{tokens, limiter.Request{Strict: true, Timed: true, Drain: true}, ""},
	} {
		err := mustNew(t, c.spec).Accepts(&c.r)
		var bad *limiter.SpecError
		if c.field == "" && err != nil || c.field != "" &&
			(!errors.As(err, &bad) || bad.Field != c.field || strings.Contains(bad.Reason, "%!")) {
			t.Errorf("%+v: %v, want a fault of %q", c.r, err, c.field)
		}
	}
}

// TestTogether: the one answer of several limits.
func TestTogether(t *testing.T) {
	yes := limiter.Decision{
		Allowed: true, Limit: 10, Remaining: 4, RetryAfter: limiter.Never,
		ResetAfter: 5, Delay: 2,
	}
	no := limiter.Decision{Limit: 3, Remaining: 1, RetryAfter: 7, ResetAfter: 9}
	later := limiter.Decision{Limit: 8, Remaining: 2, RetryAfter: 8, ResetAfter: 8}
	never := limiter.Decision{Limit: 1, Remaining: 1, RetryAfter: limiter.Never}
	for _, c := range []struct {
		ds   []limiter.Decision
		want limiter.Decision
	}{
		{[]limiter.Decision{yes}, yes},
		{[]limiter.Decision{yes, yes}, yes},
		{[]limiter.Decision{yes, no}, limiter.Decision{
			Limit: 3, Remaining: 1, RetryAfter: 7,
			ResetAfter: 9, Delay: 2,
		}},
		{[]limiter.Decision{no, yes, later}, limiter.Decision{
			Limit: 3, Remaining: 1, RetryAfter: 8,
			ResetAfter: 9, Delay: 2,
		}},
		{
			[]limiter.Decision{later, never, no},
			limiter.Decision{Limit: 1, Remaining: 1, RetryAfter: limiter.Never, ResetAfter: 9},
		},
	} {
		if got := limiter.Together(c.ds); got != c.want {
			t.Errorf("%+v together are %+v, want %+v", c.ds, got, c.want)
		}
	}
}
