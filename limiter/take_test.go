package limiter_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/limiter"
)

func mustNew(t interface{ Fatal(...any) }, s limiter.Spec) *limiter.Limit {
	l, err := limiter.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start is a Tuesday afternoon, not at the beginning of any window.
const start = limiter.Instant(1_700_000_123_456_789_012)

var algorithms = []limiter.Algorithm{
	limiter.GCRA, limiter.FixedWindow, limiter.SlidingWindow,
	limiter.SlidingLog, limiter.TokenBucket, limiter.LeakyBucket, limiter.SlidingCounter,
	limiter.Concurrency,
}

func forEveryAlgorithm(t *testing.T, f func(*rapid.T, limiter.Algorithm)) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { f(t, a) }) })
	}
}

// drawShapeOf draws what counters belong to.
func drawShapeOf(t *rapid.T, a limiter.Algorithm) limiter.Spec {
	s := limiter.Spec{Name: "drawn", Algorithm: a}
	s.Per = rapid.OneOf(
		rapid.SampledFrom([]time.Duration{
			time.Millisecond, time.Second, time.Minute,
			limiter.MaxPer, 7 * time.Millisecond,
		}),
		rapid.Map(rapid.Int64Range(int64(limiter.MinPer), int64(time.Hour)),
			func(n int64) time.Duration {
				return time.Duration(n)
			}),
	).Draw(t, "per")
	switch s.Algorithm {
	case limiter.FixedWindow:
		s.Anchor = rapid.SampledFrom([]limiter.Anchor{limiter.Epoch, limiter.FirstHit}).Draw(t,
			"anchor")
		if s.Anchor == limiter.Epoch && rapid.Bool().Draw(t, "calendar?") {
			s.Calendar = limiter.Calendar(rapid.IntRange(1, int(limiter.Years)).Draw(t, "calendar"))
			s.TimeZone = rapid.SampledFrom([]string{
				"", "UTC", "Europe/Berlin", "America/New_York",
				"Asia/Kathmandu",
			}).Draw(t, "time_zone")
			s.Per = s.Calendar.Per()
		}
	case limiter.TokenBucket:
		s.Anchor = rapid.SampledFrom([]limiter.Anchor{limiter.Epoch, limiter.FirstHit}).Draw(t,
			"anchor")
		if s.ClientTime = rapid.Bool().Draw(t, "client_time"); s.ClientTime {
			s.Per = s.Per.Truncate(time.Millisecond)
		}
		s.Sessions = s.Anchor == limiter.FirstHit && rapid.Bool().Draw(t, "sessions")
	case limiter.SlidingCounter, limiter.Concurrency:
		s.Buckets = rapid.SampledFrom([]int{1, 2, 3, 5, 7, 60}).Draw(t, "buckets")
		if part := s.Per / time.Duration(s.Buckets); part < time.Millisecond ||
			part*time.Duration(s.Buckets) != s.Per {
			s.Buckets = 1
		}
	}
	return s
}

// drawParams draws what may change in place, of a shape.
func drawParams(t *rapid.T, s limiter.Spec) limiter.Spec {
	most := int64(limiter.MaxLimit)
	if s.ClientTime {
		most = math.MaxInt64
	}
	amount := rapid.OneOf(
		rapid.Int64Range(1, 10), rapid.Int64Range(1, 1000), rapid.Int64Range(1, most),
		// where sums and products of such numbers first overflow
		rapid.SampledFrom([]int64{
			most, most - 1, most/2 + 1, most/4 + 1, most/4 + 2,
			most>>20 + 2,
		}),
	)
	s.Limit = amount.Draw(t, "limit")
	switch s.Algorithm {
	case limiter.GCRA:
		s.Per = time.Duration(rapid.OneOf(rapid.Just(int64(s.Per)),
			rapid.Int64Range(int64(limiter.MinPer), int64(time.Hour))).Draw(t, "per"))
		s.Burst = amount.Draw(t, "burst")
		if _, err := limiter.New(s); err != nil {
			s.Burst = 0 // that much would take too long to refill
		}
	case limiter.LeakyBucket:
		s.Burst = amount.Draw(t, "burst") - 1
		if _, err := limiter.New(s); err != nil {
			s.Burst = 0
		}
	case limiter.TokenBucket:
		s.Refill = amount.Draw(t, "refill")
		if _, err := limiter.New(s); err != nil {
			s.Refill = 0
		}
		s.Drain = rapid.Bool().Draw(t, "drain")
		s.Strict = s.Anchor == limiter.FirstHit && rapid.Bool().Draw(t, "strict")
	case limiter.SlidingLog:
		s.Limit = min(s.Limit, limiter.MaxLog)
		s.MinGap = time.Duration(rapid.SampledFrom([]int64{
			0, 0, 1, int64(s.Per) / 10,
			int64(s.Per),
		}).Draw(t, "min_gap"))
		s.CountRejected = rapid.Bool().Draw(t, "count_rejected")
	case limiter.FixedWindow:
		s.CountRejected = rapid.Bool().Draw(t, "count_rejected")
		s.Drain = rapid.Bool().Draw(t, "drain")
	case limiter.SlidingCounter:
		s.CountRejected = rapid.Bool().Draw(t, "count_rejected")
		s.Lenient = rapid.Bool().Draw(t, "lenient")
	}
	s.MaxDebt = rapid.SampledFrom([]int64{
		0, 0, 1, s.Limit, limiter.MaxLog,
		limiter.MaxLimit,
	}).Draw(t, "max_debt")
	if _, err := limiter.New(s); err != nil {
		s.MaxDebt = 0
	}
	return drawDelay(t, s)
}

// drawStep draws how far the clock goes, often to where something happens, sometimes back.
func drawStep(t *rapid.T, s limiter.Spec, now limiter.Instant) limiter.Instant {
	per := int64(s.Per)
	edge := per - int64(now)%per // the next window that is aligned to the epoch
	return limiter.Instant(rapid.OneOf(
		rapid.Just(int64(0)), rapid.Int64Range(0, per/max(1, s.Limit)+1), rapid.Int64Range(0, per),
		rapid.Int64Range(0, 3*per),
		rapid.SampledFrom([]int64{
			per / s.Limit, per, per - 1, per + 1, 2 * per, edge, edge - 1,
			edge + 1, edge + per,
		}),
		rapid.Int64Range(-per, 0), rapid.Int64Range(-3*per, per),
	).Draw(t, "step"))
}

func drawCost(t *rapid.T, s limiter.Spec) int64 {
	c := capacity(s)
	return rapid.OneOf(
		rapid.Just(int64(1)), rapid.Int64Range(-3, 5), rapid.Int64Range(1, c),
		rapid.Int64Range(-c, c),
		rapid.SampledFrom([]int64{0, c, c + 1, c - 1, -c, 1 - c, -c - 1}),
		rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64, math.MinInt64 + 1}),
		rapid.Int64(),
	).Draw(t, "cost")
}

// drawRequest draws a request with all that it may ask for, also where the limit does not have it.
func drawRequest(t *rapid.T, s limiter.Spec, now limiter.Instant) limiter.Request {
	r := limiter.Request{Cost: drawCost(t, s)}
	if rapid.Bool().Draw(t, "plain?") {
		return r
	}
	r.Report = rapid.Bool().Draw(t, "report")
	r.Drain = rapid.Bool().Draw(t, "drain")
	r.Strict = rapid.Bool().Draw(t, "strict")
	if r.Bounded = rapid.Bool().Draw(t, "bounded"); r.Bounded {
		r.MaxDelay = time.Duration(rapid.OneOf(
			rapid.Just(int64(0)), rapid.Int64Range(0, 2*int64(s.Per)/s.Limit+1),
			rapid.Int64Range(0, int64(limiter.LongestDelay)),
		).Draw(t, "max_delay"))
	}
	if r.Timed = rapid.Bool().Draw(t, "timed"); r.Timed {
		r.At = rapid.OneOf(
			rapid.Just(now.Millis()), rapid.Just(limiter.Millis(0)),
			rapid.Map(rapid.Int64(), func(n int64) limiter.Millis {
				return limiter.Millis(n)
			}),
			rapid.Map(rapid.Int64Range(-int64(s.Per), int64(s.Per)), func(n int64) limiter.Millis {
				return (now + limiter.Instant(n)).Millis()
			}),
		).Draw(t, "at")
	}
	return r
}

// drawnKeys are kept in a slot, in a slot or a block depending on the limit's fraction, and in a
// block.
var drawnKeys = []string{"a", strings.Repeat("b", 36), strings.Repeat("c", 100)}

// TestTakeEqualsNaive: for any requests, clock jumps and limit changes, every field of every
// decision is that of the naive limiter, which finds waits by trying.
func TestTakeEqualsNaive(t *testing.T) {
	forEveryAlgorithm(t, func(t *rapid.T, a limiter.Algorithm) {
		shape := drawShapeOf(t, a)
		// Three limits to change between. A bucket with other parameters is another bucket, so
		// there are up to nine entries: too few for the table to grow. When it grows it forgets
		// what is as good as never seen, and then the clock may go back.
		specs := []limiter.Spec{drawParams(t, shape), drawParams(t, shape), drawParams(t, shape)}
		spec := specs[0]
		// In one shard, for all keys have room there even with the longest logs.
		table, believed := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20, Shards: 1}), naive{}
		now := start
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			if rapid.IntRange(0, 9).Draw(t, "change?") == 0 {
				spec = rapid.SampledFrom(specs).Draw(t, "spec")
			}
			now += drawStep(t, spec, now)
			key := rapid.SampledFrom(drawnKeys).Draw(t, "key")
			compare(t, table, believed, now, mustNew(t, spec), spec, key, drawRequest(t, spec, now),
				rapid.IntRange(0, 4).Draw(t, "peek?") == 0)
		}
	})
}

func compare(t interface {
	Helper()
	Fatalf(string, ...any)
}, table *limiter.Table, believed naive, now limiter.Instant, l *limiter.Limit, spec limiter.Spec,
	key string, r limiter.Request, peek bool,
) {
	t.Helper()
	var got limiter.Decision
	if peek {
		r = limiter.Request{Cost: r.Cost}
		got = table.Peek(now, l, key, limiter.Hash(key), r.Cost)
	} else {
		got = table.Do(now, l, key, limiter.Hash(key), r)
	}
	if spec.Algorithm == limiter.TokenBucket {
		// another limit is another bucket; when it says so, TestRestarted knows
		got.Restarted = false
	}
	if want := believed.do(now, spec, key, r, !peek); got != want {
		t.Fatalf("%+v at %d (peek %v) under %+v:\n got %+v\nwant %+v", r, now, peek, spec, got,
			want)
	}
}

// TestEndsOfTime: at the extremes of int64, and before the epoch, decisions are those of the naive
// limiter, and a clock beyond the bounds stands still instead of refilling.
func TestEndsOfTime(t *testing.T) {
	instants := []limiter.Instant{
		math.MinInt64, math.MinInt64 + 1, -1 << 62, -1 << 61, -1<<61 + 1, -60e9, -60e9 + 1, -1, 0,
		1, 60e9, 1 << 61, 1<<62 - 1,
		1 << 62, 1<<62 + 1, math.MaxInt64 - 1, math.MaxInt64,
	}
	if testing.Short() {
		instants = slices.DeleteFunc(instants, func(t limiter.Instant) bool {
			return t%2 != 0 && t != math.MaxInt64
		})
	}
	costs := []int64{1, 5, -1, 5, math.MaxInt64, math.MinInt64, 4, 0, 1}
	for _, s := range []limiter.Spec{
		{Algorithm: limiter.GCRA, Limit: 5, Per: time.Minute},
		{Algorithm: limiter.GCRA, Limit: 7, Per: time.Minute},
		{Algorithm: limiter.GCRA, Limit: 1, Burst: 1 << 6, Per: limiter.MaxPer},
		{Algorithm: limiter.FixedWindow, Limit: 5, Per: time.Minute},
		{Algorithm: limiter.FixedWindow, Limit: 5, Per: limiter.MaxPer, Anchor: limiter.FirstHit},
		{Algorithm: limiter.FixedWindow, Limit: 5, Calendar: limiter.Days},
		{Algorithm: limiter.FixedWindow, Limit: 5, Calendar: limiter.Years},
		{Algorithm: limiter.SlidingWindow, Limit: 5, Per: time.Minute},
		{Algorithm: limiter.SlidingWindow, Limit: limiter.MaxLimit, Per: limiter.MaxPer},
		{
			Algorithm: limiter.SlidingLog, Limit: 5, Per: limiter.MaxPer, MinGap: time.Minute,
			CountRejected: true,
		},
		{
			Algorithm: limiter.TokenBucket, Limit: 5, Per: limiter.MaxPer, Refill: 1,
			Anchor: limiter.FirstHit, Strict: true, Drain: true,
		},
		{
			Algorithm: limiter.TokenBucket, Limit: limiter.MaxLimit, Per: time.Minute,
			Refill: limiter.MaxLimit,
		},
		{Algorithm: limiter.LeakyBucket, Limit: 1, Burst: 1 << 6, Per: limiter.MaxPer},
		{
			Algorithm: limiter.SlidingCounter, Limit: 5, Per: time.Minute, Buckets: 3,
			CountRejected: true,
		},
		{
			Algorithm: limiter.SlidingCounter, Limit: 5, Per: limiter.MaxPer, Buckets: 2,
			Lenient: true,
		},
		{Algorithm: limiter.Concurrency, Limit: 5, Per: time.Minute},
	} {
		s.Name = fmt.Sprint(s)
		l := mustNew(t, s)
		for _, first := range instants {
			for _, second := range instants {
				table, believed := limiter.NewTable(limiter.TableConfig{Bytes: 1}), naive{}
				for i, cost := range costs {
					now := first
					if i >= 4 {
						now = second
					}
					got := table.Take(now, l, "k", limiter.Hash("k"), cost)
					want := believed.take(now, s, "k", cost, true)
					if got.Allowed != want.Allowed || got.Remaining != want.Remaining {
						t.Fatalf("%v, request %d, cost %d at %d after %d:\n got %+v\nwant %+v", s,
							i, cost, now, first, got, want)
					}
				}
			}
		}
	}
}

// lastInstant is where a table's clock stands still, in the year 2116. Buckets with client_time may
// take longer to fill.
const lastInstant limiter.Instant = 1 << 62

// TestRetryAfter: a refused request is admitted after RetryAfter and not a nanosecond earlier, and
// after ResetAfter the key is as good as new.
func TestRetryAfter(t *testing.T) {
	forEveryAlgorithm(t, func(t *rapid.T, a limiter.Algorithm) {
		spec := drawParams(t, drawShapeOf(t, a))
		l := mustNew(t, spec)
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		now := start
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			now += drawStep(t, spec, now)
			cost := drawCost(t, spec)
			d := table.Take(now, l, "k", 1, cost)
			if never := cost > l.Capacity(); d.Allowed == (never || d.RetryAfter != limiter.Never) {
				t.Fatalf("cost %d: %+v", cost, d)
			}
			if d.RetryAfter != limiter.Never && now.Add(d.RetryAfter) <= lastInstant {
				if !table.Peek(now.Add(d.RetryAfter), l, "k", 1, cost).Allowed {
					t.Fatalf("cost %d: refused after RetryAfter: %+v", cost, d)
				}
				if table.Peek(now.Add(d.RetryAfter-1), l, "k", 1, cost).Allowed {
					t.Fatalf("cost %d: admitted before RetryAfter: %+v", cost, d)
				}
			}
			if now.Add(d.ResetAfter) > lastInstant {
				continue
			}
			if r := table.Peek(now.Add(d.ResetAfter), l, "k", 1, 0); r.Remaining != d.Limit {
				t.Fatalf("after ResetAfter of %+v: %+v", d, r)
			}
		}
	})
}

// TestRatesAboveAMillion: what is admitted in ten seconds of greed is the burst and ten seconds'
// worth, to the unit, at rates where rounding the interval to nanoseconds would show.
func TestRatesAboveAMillion(t *testing.T) {
	for _, rate := range []int64{7, 700_001, 1_500_000, 3_000_000_000, 777_777_777_777} {
		s := limiter.Spec{Name: "fast", Algorithm: limiter.GCRA, Limit: rate, Per: time.Second}
		l := mustNew(t, s)
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		const steps = 5000
		var sum int64
		for i := range int64(steps + 1) {
			now := start + limiter.Instant(10e9*i/steps)
			left := table.Peek(now, l, "k", 1, 0).Remaining
			if left > 0 && !table.Take(now, l, "k", 1, left).Allowed {
				t.Fatalf("%d a second: %d remain and are refused", rate, left)
			}
			sum += left
		}
		if want := 11 * rate; sum != want {
			t.Errorf("%d a second: %d in ten seconds, want %d", rate, sum, want)
		}
	}
}
