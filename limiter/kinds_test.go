package limiter_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/limiter"
)

// TestQueueOutput: with any input, the output of a queue is never closer together than its rate,
// and no request waits longer than the units that may wait take.
func TestQueueOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.Int64Range(1, 9).Draw(t, "limit")
		l := mustNew(t, limiter.Spec{
			Name: "queue", Algorithm: limiter.LeakyBucket, Limit: units, Per: time.Second,
			Burst: rapid.Int64Range(0, 6).Draw(t, "burst"),
		})
		interval := time.Second / time.Duration(units) // a fraction of a nanosecond less than it is
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		now, idle := start, limiter.Instant(0)
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			now += limiter.Instant(rapid.Int64Range(0, int64(2*interval)).Draw(t, "step"))
			cost := rapid.Int64Range(1, 3).Draw(t, "cost")
			d := table.Take(now, l, "k", 1, cost)
			if !d.Allowed {
				continue
			}
			leaves := now.Add(d.Delay)
			if leaves < idle {
				t.Fatalf("a unit leaves %v before its turn", time.Duration(idle-leaves))
			}
			if last := d.Delay + time.Duration(
				cost-1,
			)*interval; last > time.Duration(l.Burst)*interval+time.Duration(l.Burst)+1 {
				t.Fatalf("the last of %d units waits %v, longer than %d units take", cost, last,
					l.Burst)
			}
			idle = leaves.Add(time.Duration(cost) * interval)
		}
	})
}

// TestPermits: as long as holders return their permits or crash, no more permits are out than there
// are, with returns in any order; and an unreturned permit expires.
func TestPermits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := mustNew(t, limiter.Spec{
			Name: "jobs", Algorithm: limiter.Concurrency,
			Limit: rapid.Int64Range(1, 6).Draw(t, "limit"), Per: time.Second,
			Buckets: rapid.SampledFrom([]int{1, 2, 5}).Draw(t, "buckets"),
		})
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		type permit struct {
			until limiter.Instant
			n     int64
		}
		var out []permit
		now := start
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now += limiter.Instant(rapid.Int64Range(0, int64(time.Second)/4).Draw(t, "step"))
			// its holder has died, or lost it
			out = slices.DeleteFunc(out, func(p permit) bool { return p.until <= now })
			if len(out) > 0 && rapid.Bool().Draw(t, "return?") {
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				table.Take(now, l, "k", 1, -out[i].n)
				out = slices.Delete(out, i, i+1)
				continue
			}
			n := rapid.Int64Range(1, 3).Draw(t, "permits")
			if table.Take(now, l, "k", 1, n).Allowed {
				out = append(out, permit{now.Add(time.Second), n})
			}
			sum := int64(0)
			for _, p := range out {
				sum += p.n
			}
			if sum > l.Limit {
				t.Fatalf("%d of %d permits are out", sum, l.Limit)
			}
		}
		if d := table.Peek(
			now.Add(time.Second+time.Second/time.Duration(l.Buckets)), l, "k", 1, 0,
		); d.Remaining != l.Limit {
			t.Fatalf("%d permits never come back", l.Limit-d.Remaining)
		}
	})
}

// TestLongestLog: the smallest table has room for the longest log, with the longest key that fits
// beside it in a block.
func TestLongestLog(t *testing.T) {
	l := mustNew(t, limiter.Spec{
		Name: "long", Algorithm: limiter.SlidingLog, Limit: limiter.MaxLog,
		Per: time.Minute,
	})
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	key := fmt.Sprintf("%0*d", limiter.MaxKey, 1)
	for i := range int64(limiter.MaxLog) {
		if d := table.Take(start+limiter.Instant(i), l, key, 1, 1); !d.Allowed ||
			d.Remaining != limiter.MaxLog-1-i {
			t.Fatalf("request %d: %+v", i, d)
		}
	}
	d := table.Take(start+limiter.MaxLog, l, key, 1, 1)
	if want := time.Minute - limiter.MaxLog; d.Allowed || d.RetryAfter != want {
		t.Errorf("%+v, want RetryAfter %v", d, want)
	}
	if s := table.Stats(); s.Keys != 1 || s.Refused != 0 {
		t.Errorf("%+v", s)
	}
}

// transcript asks for one key as the rows say, and compares what remains after each.
type row struct {
	at     time.Duration
	change func(*limiter.Spec) // for this request
	cost   int64
	yes    bool
	left   int64
}

func transcript(t *testing.T, spec limiter.Spec, rows []row) {
	t.Helper()
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	for i, r := range rows {
		s := spec
		if r.change != nil {
			r.change(&s)
		}
		d := table.Take(limiter.Instant(r.at), mustNew(t, s), "k", 1, r.cost)
		if d.Allowed != r.yes || d.Remaining != r.left {
			t.Errorf("row %d, at %v, cost %d: %+v; want allowed %v with %d left", i, r.at, r.cost,
				d, r.yes, r.left)
		}
	}
}

func strict(s *limiter.Spec) { s.Strict = true }
func drain(s *limiter.Spec)  { s.Drain = true }

// TestPhaseIsKept: the refills of a token bucket stay where its first request has put them, however
// long it was full.
func TestPhaseIsKept(t *testing.T) {
	spec := limiter.Spec{
		Name: "phase", Algorithm: limiter.TokenBucket, Limit: 1000, Refill: 100,
		Per: time.Minute, Anchor: limiter.FirstHit,
	}
	transcript(t, spec, []row{
		{2 * time.Second, nil, 900, true, 100},
		{53 * time.Second, nil, 0, true, 100},
		{123 * time.Second, nil, 0, true, 300},
		{1312 * time.Second, nil, 1000, true, 0}, // full since 542 s; the last mark was at 1262 s
		{1322*time.Second - 1, nil, 1, false, 0},
		{1322 * time.Second, nil, 100, true, 0},
	})
	spec.Anchor = limiter.Epoch
	transcript(t, spec, []row{
		{61 * time.Second, nil, 1000, true, 0},
		{120*time.Second - 1, nil, 1, false, 0},
		{120 * time.Second, nil, 1, true, 99},
	})
}

// TestStrict: a request that leaves nothing puts the refill off, one that leaves something does
// not, and a clock that goes back brings it no nearer. The flag is the request's: the bucket is one
// with and without it.
func TestStrict(t *testing.T) {
	transcript(t, limiter.Spec{
		Name: "strict", Algorithm: limiter.TokenBucket, Limit: 2,
		Per: 10 * time.Second, Anchor: limiter.FirstHit,
	}, []row{
		{100 * time.Second, nil, 1, true, 1},
		{104 * time.Second, strict, 2, false, 1},
		{105 * time.Second, strict, 1, true, 0},
		{110 * time.Second, nil, 1, false, 0}, // would have been refilled
		{114 * time.Second, strict, 1, false, 0},
		{115 * time.Second, nil, 1, false, 0}, // and again
		{50 * time.Second, strict, 1, false, 0},
		{60 * time.Second, nil, 1, false, 0},
		{124*time.Second - 1, nil, 1, false, 0},
		{124 * time.Second, nil, 1, true, 1},
	})
}

// TestDrain: a refused request with this flag takes what there is, also if it asks for more than
// there can be.
func TestDrain(t *testing.T) {
	transcript(t, limiter.Spec{
		Name: "drain", Algorithm: limiter.TokenBucket, Limit: 5,
		Per: 10 * time.Second, Anchor: limiter.FirstHit,
	}, []row{
		{100 * time.Second, nil, 6, false, 5},
		{100 * time.Second, drain, 6, false, 0},
		{110*time.Second - 1, nil, 1, false, 0},
		{110 * time.Second, nil, 2, true, 3},
		{110 * time.Second, nil, 4, false, 3},
		{110 * time.Second, drain, 4, false, 0},
		{110 * time.Second, nil, 1, false, 0},
	})
	transcript(t, limiter.Spec{
		Name: "drain", Algorithm: limiter.FixedWindow, Limit: 5,
		Per: 10 * time.Second,
	}, []row{
		{100 * time.Second, drain, 5, true, 0},
		{100 * time.Second, drain, 0, true, 0}, // all is taken, and nothing was refused yet
		{109 * time.Second, drain, 1, false, 0},
		{109 * time.Second, drain, 0, false, 0},
		{109 * time.Second, drain, -2, true, 2},
		{109 * time.Second, drain, 0, true, 2},
		{109 * time.Second, nil, 6, false, 2},
		{109 * time.Second, drain, 6, false, 0},
		{109 * time.Second, drain, 0, false, 0},
		{110 * time.Second, drain, 0, true, 5},
		{110 * time.Second, drain, 3, true, 2},
		{111 * time.Second, drain, 3, false, 0},
		{111 * time.Second, drain, 1, false, 0},
	})
}

// TestFullBucketIsForgotten: a sweep removes a bucket that has kept its phase as long as an empty
// one takes to fill.
func TestFullBucketIsForgotten(t *testing.T) {
	l := mustNew(t, limiter.Spec{
		Name: "phase", Algorithm: limiter.TokenBucket, Limit: 5, Refill: 2,
		Per: time.Second, Anchor: limiter.FirstHit,
	})
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	table.Take(start, l, "k", 1, 3) // full after two refills; an empty one is after three
	table.Merge(start.Add(4*time.Second), l, "k", 1, nil)
	over := start.Add(5 * time.Second)
	if n := table.Sweep(over-1, 1000); n != 0 {
		t.Error("forgotten too early")
	}
	if n := table.Sweep(over, 1000); n != 1 {
		t.Error("kept for ever")
	}
}
