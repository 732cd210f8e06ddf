package limiter_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/limiter"
)

// TestNewRefuses: a bad Spec is refused with the name of the field that is wrong and what it
// accepts.
func TestNewRefuses(t *testing.T) {
	good := limiter.Spec{Name: "x", Algorithm: limiter.GCRA, Limit: 10, Per: time.Minute}
	window := good
	window.Algorithm = limiter.FixedWindow
	log, tokens, queue, parts := good, good, good, good
	log.Algorithm, tokens.Algorithm, queue.Algorithm, parts.Algorithm = limiter.SlidingLog,
		limiter.TokenBucket, limiter.LeakyBucket, limiter.SlidingCounter
	permits := good
	permits.Algorithm = limiter.Concurrency
	with := func(s limiter.Spec, change func(*limiter.Spec)) limiter.Spec { change(&s); return s }
	for _, c := range []struct {
		spec          limiter.Spec
		field, reason string
	}{
		{with(good, func(s *limiter.Spec) { s.Name = "" }), "name", "1 to 256"},
		{with(good, func(s *limiter.Spec) {
			s.Name = strings.Repeat("x", 257)
		}), "name", "1 to 256"},
		{with(good, func(s *limiter.Spec) { s.Name = "a\x00share" }), "name", "control"},
		{with(good, func(s *limiter.Spec) { s.Name = "a\xff" }), "name", "UTF-8"},
		{with(good, func(s *limiter.Spec) { s.Algorithm = 0 }), "algorithm", "gcra"},
		{with(good, func(s *limiter.Spec) { s.Algorithm = 99 }), "algorithm", "gcra"},
		{with(good, func(s *limiter.Spec) { s.Limit = 0 }), "limit", "1 to 1099511627776"},
		{with(good, func(s *limiter.Spec) { s.Limit = -1 }), "limit", "1 to 1099511627776"},
		{with(good, func(s *limiter.Spec) {
			s.Limit = limiter.MaxLimit + 1
		}), "limit", "1 to 1099511627776"},
		{with(good, func(s *limiter.Spec) { s.Limit = math.MinInt64 }), "limit", "1 to"},
		{with(good, func(s *limiter.Spec) { s.Per = 0 }), "per", "1ms to 8784h"},
		{with(good, func(s *limiter.Spec) { s.Per = -time.Second }), "per", "1ms to 8784h"},
		{with(good, func(s *limiter.Spec) { s.Per = limiter.MaxPer + 1 }), "per", "1ms to 8784h"},
		{with(good, func(s *limiter.Spec) { s.Per = time.Millisecond - 1 }), "per", "1ms to 8784h"},
		{with(good, func(s *limiter.Spec) { s.Burst = -1 }), "burst", "1 to 1099511627776"},
		{with(good, func(s *limiter.Spec) {
			s.Burst = limiter.MaxLimit + 1
		}), "burst", "1 to 1099511627776"},
		{with(good, func(s *limiter.Spec) {
			s.Limit, s.Per, s.Burst = 1, limiter.MaxPer, 1000
		}), "burst", "2^61 ns"},
		{with(good, func(s *limiter.Spec) {
			s.Limit, s.Per, s.Burst = 1, limiter.MaxPer, limiter.MaxLimit
		}), "burst", "2^61 ns"},
		{with(good, func(s *limiter.Spec) {
			s.Anchor = limiter.FirstHit
		}), "anchor", "gcra has none"},
		{with(good, func(s *limiter.Spec) {
			s.CountRejected = true
		}), "count_rejected", "gcra never"},
		{with(window, func(s *limiter.Spec) { s.Burst = 1 }), "burst", "fixed_window has none"},
		{with(window, func(s *limiter.Spec) { s.Anchor = 7 }), "anchor", "epoch and first_hit"},
		{with(window, func(s *limiter.Spec) { s.MinGap = 1 }), "min_gap", "fixed_window has none"},
		{with(window, func(s *limiter.Spec) { s.Refill = 1 }), "refill", "fixed_window has none"},
		{with(window, func(s *limiter.Spec) {
			s.Strict = true
		}), "strict", "fixed_window has none"},
		{with(good, func(s *limiter.Spec) { s.Drain = true }), "drain", "gcra has none"},
		{with(window, func(s *limiter.Spec) { s.Buckets = 6 }), "buckets", "fixed_window has none"},
		{with(window, func(s *limiter.Spec) {
			s.Lenient = true
		}), "lenient", "fixed_window has none"},
		{with(log, func(s *limiter.Spec) { s.Limit = limiter.MaxLog + 1 }), "limit", "1 to 2048"},
		{with(log, func(s *limiter.Spec) {
			s.MinGap = time.Minute + 1
		}), "min_gap", "0 to per, 1m0s"},
		{with(log, func(s *limiter.Spec) { s.MinGap = -1 }), "min_gap", "0 to per"},
		{with(log, func(s *limiter.Spec) { s.Burst = 1 }), "burst", "sliding_log has none"},
		{with(tokens, func(s *limiter.Spec) { s.Refill = -1 }), "refill", "1 to 1099511627776"},
		{with(tokens, func(s *limiter.Spec) {
			s.Refill = limiter.MaxLimit + 1
		}), "refill", "1 to 1099511627776"},
		{with(tokens, func(s *limiter.Spec) {
			s.Limit, s.Refill, s.Per = 1000, 1, limiter.MaxPer
		}), "refill", "2^61 ns"},
		{with(tokens, func(s *limiter.Spec) {
			s.Limit, s.Refill, s.Per = limiter.MaxLimit, 1, limiter.MaxPer
		}), "refill", "2^61 ns"},
		{with(tokens, func(s *limiter.Spec) { s.Strict = true }), "strict", "first_hit"},
		{with(tokens, func(s *limiter.Spec) { s.Anchor = 7 }), "anchor", "epoch and first_hit"},
		{with(tokens, func(s *limiter.Spec) {
			s.CountRejected = true
		}), "count_rejected", "token_bucket never"},
		{with(window, func(s *limiter.Spec) {
			s.Calendar = limiter.Days
		}), "per", "1m0s; windows of a calendar"},
		{with(window, func(s *limiter.Spec) {
			s.Calendar = 7
		}), "per", "minute, hour, day, week, month and year"},
		{with(window, func(s *limiter.Spec) { s.Calendar, s.Per = 7, 0 }), "per", "is 0s; 1ms to"},
		{with(window, func(s *limiter.Spec) {
			s.Calendar, s.Per, s.Anchor = limiter.Days, 0, limiter.FirstHit
		}), "anchor", "calendar"},
		{with(good, func(s *limiter.Spec) {
			s.Calendar, s.Per = limiter.Days, 0
		}), "per", "gcra has no windows of a calendar"},
		{with(window, func(s *limiter.Spec) {
			s.TimeZone = "UTC"
		}), "time_zone", "per minute, hour, day, week, month or year"},
		{with(window, func(s *limiter.Spec) {
			s.Calendar, s.Per, s.TimeZone = limiter.Days, 0, "Mars/Olympus"
		}), "time_zone", "like Europe/Berlin"},
		{with(tokens, func(s *limiter.Spec) { s.Sessions = true }), "sessions", "first_hit"},
		{with(window, func(s *limiter.Spec) {
			s.Sessions = true
		}), "sessions", "fixed_window has none"},
		{with(window, func(s *limiter.Spec) {
			s.ClientTime = true
		}), "client_time", "fixed_window has none"},
		{with(good, func(s *limiter.Spec) { s.MaxDebt = -1 }), "max_debt", "0 to 1099511627776"},
		{with(good, func(s *limiter.Spec) {
			s.MaxDebt = limiter.MaxLimit + 1
		}), "max_debt", "0 to 1099511627776"},
		{with(good, func(s *limiter.Spec) {
			s.Per, s.MaxDebt = limiter.MaxPer, 1000
		}), "max_debt", "2^61 ns"},
		{with(tokens, func(s *limiter.Spec) {
			s.Per, s.MaxDebt, s.Refill = limiter.MaxPer, 1000, 1
		}), "max_debt", "2^61 ns"},
		{with(queue, func(s *limiter.Spec) {
			s.Per, s.MaxDebt = limiter.MaxPer, 1000
		}), "max_debt", "2^61 ns"},
		{with(log, func(s *limiter.Spec) {
			s.MaxDebt = limiter.MaxLog + 1
		}), "max_debt", "0 to 2048"},
		{with(queue, func(s *limiter.Spec) { s.Burst = -1 }), "burst", "0 to 1099511627776"},
		{with(queue, func(s *limiter.Spec) {
			s.Burst = limiter.MaxLimit + 1
		}), "burst", "0 to 1099511627776"},
		{with(queue, func(s *limiter.Spec) {
			s.Limit, s.Per, s.Burst = 1, limiter.MaxPer, 1000
		}), "burst", "2^61 ns"},
		{with(queue, func(s *limiter.Spec) {
			s.Anchor = limiter.FirstHit
		}), "anchor", "leaky_bucket has none"},
		{with(permits, func(s *limiter.Spec) {
			s.Per = 15 * time.Millisecond
		}), "buckets", "16 do not divide 15ms"},
		{with(permits, func(s *limiter.Spec) {
			s.MaxDebt = 1
		}), "max_debt", "concurrency has none"},
		{with(permits, func(s *limiter.Spec) {
			s.CountRejected = true
		}), "count_rejected", "concurrency never"},
		{with(permits, func(s *limiter.Spec) {
			s.Lenient = true
		}), "lenient", "concurrency has none"},
		{with(parts, func(s *limiter.Spec) { s.Buckets = -1 }), "buckets", "1 to 2048"},
		{with(parts, func(s *limiter.Spec) {
			s.Buckets = limiter.MaxBuckets + 1
		}), "buckets", "1 to 2048"},
		{with(parts, func(s *limiter.Spec) {
			s.Buckets = 7
		}), "buckets", "equal parts of at least 1ms"},
		{with(parts, func(s *limiter.Spec) {
			s.Buckets, s.Per = 1001, 1001*time.Millisecond-1001
		}), "buckets", "equal parts of at least 1ms"},
		{with(parts, func(s *limiter.Spec) {
			s.Per = 30 * time.Millisecond
		}), "buckets", "60 do not divide 30ms"},
		{with(parts, func(s *limiter.Spec) {
			s.Per = 30 * time.Millisecond
		}), "buckets", "1 to 30 are accepted"},
		{with(good, func(s *limiter.Spec) {
			s.Consistency = 7
		}), "consistency", "exact, leased and replicated"},
		{with(permits, func(s *limiter.Spec) {
			s.Consistency = limiter.Replicated
		}), "consistency", "use exact"},
		{with(good, func(s *limiter.Spec) {
			s.Consistency, s.Sync = limiter.Replicated, true
		}), "replication", "use async"},
		{with(good, func(s *limiter.Spec) {
			s.OnPartition = 7
		}), "on_partition", "proportional, deny and open"},
		{with(good, func(s *limiter.Spec) { s.Unsettled = 7 }), "unsettled", "charge and release"},
		{with(good, func(s *limiter.Spec) {
			s.Override = strings.Repeat("x", 257)
		}), "override", "at most 256"},
		{with(good, func(s *limiter.Spec) { s.Unlimited = true }), "unlimited", "override"},
		{with(window, func(s *limiter.Spec) {
			s.OnError = 7
		}), "on_error", "local, allow and deny"},
		{
			with(window, func(s *limiter.Spec) { s.OnDeny = 7 }), "on_deny",
			"reject, shadow, tag, deprioritize and delay",
		},
	} {
		l, err := limiter.New(c.spec)
		var bad *limiter.SpecError
		if l != nil || !errors.As(err, &bad) || bad.Field != c.field ||
			!strings.Contains(bad.Reason, c.reason) ||
			!strings.HasPrefix(err.Error(), c.field+": ") {
			t.Errorf("%+v: %v; want %s: … %s …", c.spec, err, c.field, c.reason)
		}
	}
}

// TestNewFillsDefaults: the burst of a bucket is its limit unless it is given, and the ends of all
// ranges are accepted.
func TestNewFillsDefaults(t *testing.T) {
	l := mustNew(t, limiter.Spec{Name: "x", Algorithm: limiter.GCRA, Limit: 10, Per: time.Minute})
	if l.Burst != 10 || l.Capacity() != 10 || l.Anchor != limiter.Epoch ||
		l.OnError != limiter.ErrorLocal {
		t.Errorf("%+v", l.Spec)
	}
	for _, s := range []limiter.Spec{
		{Name: strings.Repeat("é", 128), Algorithm: limiter.GCRA, Limit: 1, Per: time.Millisecond},
		{
			Name: "x", Algorithm: limiter.GCRA, Limit: limiter.MaxLimit, Burst: limiter.MaxLimit,
			Per: limiter.MaxPer,
		},
		{
			Name: "x", Algorithm: limiter.GCRA, Limit: limiter.MaxLimit, Burst: 1,
			Per: time.Millisecond,
		},
		{Name: "x", Algorithm: limiter.SlidingWindow, Limit: limiter.MaxLimit, Per: limiter.MaxPer},
	} {
		if l := mustNew(t, s); l.Capacity() != max(s.Burst, s.Limit) && s.Burst != 1 {
			t.Errorf("%+v has capacity %d", s, l.Capacity())
		}
	}
}

// TestShare: the shares of n nodes add up to at most the limit, or to one each, and are limits like
// others.
func TestShare(t *testing.T) {
	for _, s := range []limiter.Spec{
		{Algorithm: limiter.GCRA, Limit: 10, Burst: 25, Per: time.Minute},
		// one a year: 200 would take too long to refill
		{Algorithm: limiter.GCRA, Limit: 3, Burst: 200, Per: limiter.MaxPer},
		{Algorithm: limiter.FixedWindow, Limit: 10, Per: time.Minute, CountRejected: true},
		{
			Algorithm: limiter.SlidingWindow, Limit: 10, Per: time.Minute,
			OnError: limiter.ErrorDeny,
			DryRun:  true,
		},
		{Algorithm: limiter.SlidingLog, Limit: 10, Per: time.Minute, MinGap: time.Second},
		{
			Algorithm: limiter.TokenBucket, Limit: 10, Per: time.Minute, Refill: 3,
			Anchor: limiter.FirstHit, Strict: true, Drain: true,
		},
		{Algorithm: limiter.LeakyBucket, Limit: 10, Per: time.Minute, Burst: 24},
		{Algorithm: limiter.LeakyBucket, Limit: 10, Per: time.Minute},
		{Algorithm: limiter.LeakyBucket, Limit: 3, Burst: 200, Per: limiter.MaxPer},
		{
			Algorithm: limiter.SlidingCounter, Limit: 10, Per: time.Minute, Lenient: true,
			CountRejected: true,
		},
		{Algorithm: limiter.Concurrency, Limit: 10, Per: time.Minute},
		{
			Algorithm: limiter.FixedWindow, Limit: 10, Calendar: limiter.Months,
			TimeZone: "Europe/Berlin",
		},
	} {
		s.Name = strings.Repeat("n", limiter.MaxName)
		l := mustNew(t, s)
		for _, n := range []int{-1, 0, 1, 2, 3, 7, 1000, math.MaxInt} {
			share := l.Share(n)
			of := int64(max(1, n))
			if share.Limit != max(1, s.Limit/of) || share.Capacity() > max(1, l.Capacity()/of) ||
				share.Capacity() < 1 {
				t.Errorf("a share in %d of %+v is %+v", n, s, share.Spec)
			}
			if share.Name == l.Name || share.OnError != s.OnError || share.DryRun != s.DryRun ||
				share.CountRejected != s.CountRejected {
				t.Errorf("a share in %d of %+v is %+v", n, s, share.Spec)
			}
			if _, err := limiter.New(share.Spec); err == nil {
				t.Errorf("a user can have a limit with the name of a share, %q", share.Name)
			}
			table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
			if d := table.Take(start, share, "k", 1, share.Capacity()); !d.Allowed ||
				d.Remaining != 0 {
				t.Errorf("a share in %d of %+v answers %+v", n, s, d)
			}
		}
	}
}

// TestChangeInPlace: a limit that is changed keeps what was consumed, and a higher one gives the
// difference and no more.
func TestChangeInPlace(t *testing.T) {
	for _, s := range everyKind {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		s.Limit = 100
		take := func(limit, cost int64) limiter.Decision {
			s.Limit = limit
			if s.Algorithm == limiter.LeakyBucket {
				s.Burst = limit - 1
			}
			return table.Take(start, mustNew(t, s), "k", 1, cost)
		}
		take(100, 60)
		if s.Algorithm == limiter.TokenBucket { // another one, and full
			if d, e := take(50, 1), take(100, 0); d.Remaining != 49 || e.Remaining != 40 {
				t.Errorf("%s: 60 of 100, then %+v and %+v", s.Name, d, e)
			}
			continue
		}
		if isMeter(s) { // keeps the debt in time: 60 of 100 an hour are 36 minutes
			if d, e := take(50, 0), take(200, 0); d.Remaining != 50-30 || e.Remaining != 200-120 {
				t.Errorf("%s: 60 of 100, then %+v and %+v", s.Name, d, e)
			}
			continue
		}
		if s.Algorithm == limiter.StatedBucket { // keeps its tokens
			if d, e := take(50, 1), take(30, 0); d.Remaining != 39 || e.Remaining != 30 {
				t.Errorf("%s: 60 of 100, then %+v and %+v", s.Name, d, e)
			}
			continue
		}
		if d := take(50, 1); d.Allowed || d.Remaining != 0 {
			t.Errorf("%s: 60 of 100, then 1 of 50: %+v", s.Name, d)
		}
		used := int64(60)
		if s.CountRejected {
			used++
		}
		if d := take(200, 0); d.Remaining != 200-used {
			t.Errorf("%s: 60 of 100, then of 200: %+v", s.Name, d)
		}
	}
}

// TestChangesMintNothing: a limit or a burst changes to any values, any number of times. At one
// instant no more is admitted than the largest of them, and a change adds to what remains no more
// than it adds to the limit. (The rate of a gcra or a leaky_bucket is not changed here: it keeps
// its debt in time, so at half the rate it owes half as many units.)
func TestChangesMintNothing(t *testing.T) {
	forEveryAlgorithm(t, func(t *rapid.T, a limiter.Algorithm) {
		if a == limiter.TokenBucket {
			return // another limit is another bucket
		}
		spec := drawShapeOf(t, a)
		spec.Limit = rapid.Int64Range(1, 20).Draw(t, "rate")
		change := func() *limiter.Limit {
			n := rapid.Int64Range(1, 20).Draw(t, "limit")
			switch a {
			case limiter.GCRA:
				spec.Burst = n
			case limiter.LeakyBucket:
				spec.Burst = n - 1
			default:
				spec.Limit = n
			}
			return mustNew(t, spec)
		}
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		l, sum, most := change(), int64(0), int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			before := table.Peek(start, l, "k", 1, 0)
			l = change()
			after := table.Peek(start, l, "k", 1, 0)
			if after.Remaining > max(0, before.Remaining+after.Limit-before.Limit) {
				t.Fatalf("%+v became %+v", before, after)
			}
			cost := rapid.Int64Range(1, 8).Draw(t, "cost")
			if most = max(most, l.Capacity()); table.Take(start, l, "k", 1, cost).Allowed {
				sum += cost
			}
			if sum > most {
				t.Fatalf("%d admitted, the limit was %d at most", sum, most)
			}
		}
	})
}

func TestInstantAdd(t *testing.T) {
	for _, c := range []struct {
		t    limiter.Instant
		d    time.Duration
		want limiter.Instant
	}{
		{5, 3, 8},
		{5, -8, -3},
		{math.MaxInt64, 1, math.MaxInt64},
		{math.MaxInt64 - 1, 5, math.MaxInt64},
		{math.MinInt64, -1, math.MinInt64},
		{math.MinInt64 + 2, -5, math.MinInt64},
		{math.MinInt64, math.MaxInt64, -1},
		{0, math.MinInt64, math.MinInt64},
	} {
		if got := c.t.Add(c.d); got != c.want {
			t.Errorf("%d + %d is %d, want %d", c.t, c.d, got, c.want)
		}
	}
}

func ExampleNew() {
	_, err := limiter.New(limiter.Spec{Name: "login", Algorithm: limiter.GCRA, Limit: 10})
	fmt.Println(err)
	// Output: per: is 0s; 1ms to 8784h0m0s are accepted
}
