package sim

import (
	"testing"
	"time"

	"penstock/limiter"
)

// The reference is held against rows that were worked out by hand.
func TestNaive(t *testing.T) {
	const never = limiter.Never
	type row struct {
		at   time.Duration
		cost int64
		want limiter.Decision // Limit is filled in
	}
	yes := func(left int64, reset time.Duration) limiter.Decision {
		return limiter.Decision{
			Allowed: true, Remaining: left, RetryAfter: never,
			ResetAfter: reset,
		}
	}
	no := func(left int64, retry, reset time.Duration) limiter.Decision {
		return limiter.Decision{Remaining: left, RetryAfter: retry, ResetAfter: reset}
	}
	s := time.Second
	for _, c := range []struct {
		name     string
		spec     limiter.Spec
		capacity int64
		rows     []row
	}{
		{"bucket: 1 a second, burst 3", limiter.Spec{
			Algorithm: limiter.GCRA, Limit: 10,
			Per: 10 * s, Burst: 3,
		}, 3, []row{
			{0, 0, yes(3, 0)},
			{0, 2, yes(1, 2*s)},
			{0, 2, no(1, 1*s, 2*s)},
			{0, 4, no(1, never, 2*s)},
			{s / 2, 1, yes(0, 5*s/2)},
			{s, 1, yes(0, 3*s)},
			{s, 1, no(0, 1*s, 3*s)},
			{s, -2, yes(2, 1*s)},
			{s, -9, yes(3, 0)},
			{9 * s, 3, yes(0, 3*s)},
		}},
		{
			"bucket: 3 a second does not divide a nanosecond",
			limiter.Spec{Algorithm: limiter.GCRA, Limit: 3, Per: s, Burst: 1},
			1,
			[]row{
				{0, 1, yes(0, 333_333_334)},
				{333_333_333, 1, no(0, 1, 1)},
				{333_333_334, 1, yes(0, 333_333_334)},
			},
		},
		{"window at the epoch: 2 per 10 s", limiter.Spec{
			Algorithm: limiter.FixedWindow, Limit: 2,
			Per: 10 * s,
		}, 2, []row{
			{9 * s, 2, yes(0, 1*s)},
			{9 * s, 1, no(0, 1*s, 1*s)},
			{10 * s, 2, yes(0, 10*s)},
			{11 * s, -1, yes(1, 9*s)},
			{11 * s, 3, no(1, never, 9*s)},
		}},
		{"window from the first hit", limiter.Spec{
			Algorithm: limiter.FixedWindow,
			Anchor:    limiter.FirstHit, Limit: 2, Per: 10 * s,
		}, 2, []row{
			{3 * s, 0, yes(2, 0)},
			{9 * s, 1, yes(1, 10*s)},
			{12 * s, 2, no(1, 7*s, 7*s)},
			{18 * s, 1, yes(0, 1*s)},
			{19 * s, 1, yes(1, 10*s)},
		}},
		{"window that counts what it refuses", limiter.Spec{
			Algorithm:     limiter.FixedWindow,
			CountRejected: true, Limit: 5, Per: 10 * s,
		}, 5, []row{
			{0, 3, yes(2, 10*s)},
			{0, 4, no(0, 10*s, 10*s)},
			{0, 1, no(0, 10*s, 10*s)},
		}},
		// 3 in this minute, 5 in the last, 30 % of the minute is over: 3 + 5 × 0.7 = 6.5, so one
		// more fits into 7.
		{
			"sliding counter: the worked example of seven a minute",
			limiter.Spec{Algorithm: limiter.SlidingWindow, Limit: 7, Per: 60 * s},
			7,
			[]row{
				{30 * s, 5, yes(2, 30*s+48*s+1)},
				{61 * s, 2, yes(1, 59*s+30*s+1)},
				{78 * s, 1, yes(1, 42*s+40*s+1)},
				{78 * s, 1, yes(0, 42*s+45*s+1)},
				{78 * s, 1, no(0, 6*s+1, 42*s+45*s+1)},
				{84*s + 1, 1, yes(0, 36*s-1+48*s+1)},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := naive{keys: make(map[naiveKey]*naiveState)}
			for _, r := range c.rows {
				want := r.want
				want.Limit = c.capacity
				// a multiple of all windows since the epoch
				at := limiter.Instant(6_000_000_000 * s).Add(r.at)
				peeked := n.peek(at, &c.spec, "k", r.cost)
				got := n.take(at, &c.spec, "k", r.cost)
				if got != want || peeked != want {
					t.Fatalf("at %v, cost %d:\n got %s\npeek %s\nwant %s", r.at, r.cost,
						decisionText(got), decisionText(peeked), decisionText(want))
				}
			}
			n.reset(&c.spec, "k")
			if d := n.peek(limiter.Instant(6_000_000_000*s), &c.spec, "k", 0); d.Remaining !=
				c.capacity {
				t.Errorf("after a reset %d are left, want %d", d.Remaining, c.capacity)
			}
		})
	}
}
