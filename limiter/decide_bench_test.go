package limiter

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkDecide is the arithmetic alone, of an algorithm on a state at hand, without the table around it: 100 units
// an hour, asked for so often that most requests are refused and so have their wait worked out, and so seldom that
// nearly all are admitted.
func BenchmarkDecide(b *testing.B) {
	for _, s := range []Spec{
		{Algorithm: GCRA, Limit: 100},
		{Algorithm: GCRA, Limit: 101}, // an interval with a fraction
		{Algorithm: TokenBucket, Limit: 100, Anchor: FirstHit},
		{Algorithm: LeakyBucket, Limit: 100, Burst: 99},
		{Algorithm: FixedWindow, Limit: 100},
		{Algorithm: FixedWindow, Limit: 100, Calendar: Hours, TimeZone: "Europe/Berlin"},
		{Algorithm: FixedWindow, Limit: 2400, Calendar: Days, TimeZone: "Europe/Berlin"},
		{Algorithm: FixedWindow, Limit: 72000, Calendar: Months, TimeZone: "Europe/Berlin"},
		{Algorithm: SlidingLog, Limit: 100},
		{Algorithm: SlidingWindow, Limit: 100},
		{Algorithm: SlidingCounter, Limit: 100},
		{Algorithm: Concurrency, Limit: 100},
	} {
		s.Name = "bench"
		if s.Calendar == 0 {
			s.Per = time.Hour
		}
		l := mustBe(New(s))
		for name, step := range map[string]time.Duration{"refused": time.Second, "admitted": time.Minute} {
			b.Run(fmt.Sprintf("alg=%v/limit=%d/per=%v/mostly=%s", l.Algorithm, l.Limit, l.Per, name), func(b *testing.B) {
				w := make([]int64, l.words())
				now, yes := Instant(1_700_000_000e9), 0
				var d Decision
				for b.Loop() {
					l.decide(w, now, 1, &d)
					if d.Allowed {
						yes++
					}
					now += Instant(step)
				}
				b.ReportMetric(float64(8*l.words()), "state-bytes")
				b.ReportMetric(100*float64(yes)/float64(b.N), "%allowed")
			})
		}
	}
}
