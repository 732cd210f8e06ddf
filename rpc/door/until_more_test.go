package door

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/cluster"
	"penstock/limiter"
)

// Promise: the wait is exact: just before its end as much remains as now, and at its end more does.
// (It is rounded to whole nanoseconds.)
// Of a token bucket in debt it may be longer, by one refill at most.
func TestUntilMoreIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := limiter.Spec{
			Name: "l", Limit: rapid.Int64Range(1, 20).Draw(t, "limit"), Per: time.Minute,
			MaxDebt: rapid.Int64Range(0, 30).Draw(t, "debt"),
			Algorithm: rapid.SampledFrom([]limiter.Algorithm{
				limiter.GCRA, limiter.TokenBucket, limiter.LeakyBucket,
			}).Draw(t, "algorithm"),
		}
		switch spec.Algorithm {
		case limiter.GCRA:
			spec.Burst = rapid.Int64Range(1, 20).Draw(t, "burst")
		case limiter.TokenBucket:
			spec.Refill = rapid.Int64Range(1, 20).Draw(t, "refill")
		case limiter.LeakyBucket:
			spec.Burst, spec.MaxDebt = rapid.Int64Range(0, 20).Draw(t, "queue"), 0
		}
		l, err := limiter.New(spec)
		if err != nil {
			t.Skip(err)
		}
		table, hash := limiter.NewTable(limiter.TableConfig{}), limiter.Hash("k")
		now := limiter.Instant(time.Hour)
		for range rapid.IntRange(1, 8).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 2*int64(time.Minute)).Draw(t, "later")))
			r := limiter.Request{Cost: rapid.Int64Range(0, 15).Draw(t, "cost")}
			r.Report = spec.MaxDebt > 0 && rapid.Bool().Draw(t, "report")
			table.Do(now, l, "k", hash, r)
		}
		left := func(after time.Duration) int64 {
			return table.Peek(now.Add(after), l, "k", hash, 0).Remaining
		}
		d := cluster.Decision{Decision: table.Peek(now, l, "k", hash, 0), Rule: l}
		wait, slack := UntilMore(&d), time.Duration(0)
		if spec.Algorithm == limiter.TokenBucket && d.Remaining == 0 && l.MaxDebt > 0 {
			slack = l.Per
		}
		switch {
		case d.Remaining == d.Limit && wait != 0 || d.Remaining < d.Limit && wait <= 0:
			t.Fatalf("%+v: wait %v", d.Decision, wait)
		case wait > 0 && (left(wait) <= d.Remaining || left(wait-slack-2) > d.Remaining):
			t.Fatalf("%+v: after %v, %d; before, %d", d.Decision, wait, left(wait),
				left(wait-slack-2))
		}
	})
}

// Promise: what a fallback decides from a share comes back as slowly as the share's units do.
func TestUntilMoreOfAShare(t *testing.T) {
	l := rule(t, limiter.Spec{Name: "l", Algorithm: limiter.GCRA, Limit: 100, Per: time.Hour})
	one := rule(t, limiter.Spec{
		Name: "l", Algorithm: limiter.GCRA, Limit: 10, Burst: 1, Per: time.Hour,
	})
	for _, row := range []struct {
		l            *limiter.Limit
		nodes, bound int64
		whole        bool
		want         time.Duration
	}{
		{l, 3, 100, false, time.Hour / 33},
		{l, 150, 150, false, time.Hour},
		{l, 3, 300, true, time.Hour / 100}, // on_partition: open
		{one, 3, 3, false, time.Hour / 3},
	} {
		share := row.l
		if !row.whole {
			share = row.l.Share(int(row.nodes))
		}
		table := limiter.NewTable(limiter.TableConfig{})
		d := cluster.Decision{
			Rule: row.l, Source: cluster.SourceFallback, Degraded: true, Bound: row.bound,
			Decision: table.Take(1, share, "k", limiter.Hash("k"), 1),
		}
		if got := UntilMore(&d); got.Round(time.Microsecond) != row.want.Round(time.Microsecond) {
			t.Errorf("%d nodes, bound %d: %v, want %v", row.nodes, row.bound, got, row.want)
		}
	}
}

// Promise: a bucket with a mark far ahead of its client's clock does not promise more sooner.
func TestUntilMoreByClientsClocks(t *testing.T) {
	l := rule(t, limiter.Spec{
		Name: "l", Algorithm: limiter.TokenBucket, Limit: 10, Refill: 3, Per: 8 * time.Second,
		Anchor: limiter.FirstHit, ClientTime: true,
	})
	table, hash := limiter.NewTable(limiter.TableConfig{}), limiter.Hash("k")
	table.Do(1, l, "k", hash, limiter.Request{Cost: 5, At: 1_800_000_000_000, Timed: true})
	d := cluster.Decision{
		Decision: table.Do(1, l, "k", hash, limiter.Request{Cost: 1, Timed: true}), Rule: l,
	}
	if got := UntilMore(&d); got != 1_800_000_008*time.Second {
		t.Errorf("%v, %+v", got, d.Decision)
	}
}

func rule(t *testing.T, s limiter.Spec) *limiter.Limit {
	t.Helper()
	l, err := limiter.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
