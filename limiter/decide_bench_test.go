package limiter

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// decided are the limits of the table in the package's doc, each as it is called there: 100 units
// an hour.
var decided = []struct {
	name string
	spec Spec
}{
	{"token_bucket", Spec{Algorithm: TokenBucket, Limit: 100, Anchor: FirstHit}},
	{"token_bucket/client_time", Spec{
		Algorithm: TokenBucket, Limit: 100, Anchor: FirstHit,
		ClientTime: true,
	}},
	{"gcra", Spec{Algorithm: GCRA, Limit: 100}},
	{"gcra/fraction", Spec{Algorithm: GCRA, Limit: 101}}, // an interval with a fraction
	{"leaky_bucket", Spec{Algorithm: LeakyBucket, Limit: 100, Burst: 99}},
	{"fixed_window", Spec{Algorithm: FixedWindow, Limit: 100}},
	{"fixed_window/day", Spec{
		Algorithm: FixedWindow, Limit: 2400, Calendar: Days,
		TimeZone: "Europe/Berlin",
	}},
	{"fixed_window/month", Spec{
		Algorithm: FixedWindow, Limit: 72000, Calendar: Months,
		TimeZone: "Europe/Berlin",
	}},
	{"sliding_log", Spec{Algorithm: SlidingLog, Limit: 100}},
	{"sliding_window", Spec{Algorithm: SlidingWindow, Limit: 100}},
	{"sliding_counter", Spec{Algorithm: SlidingCounter, Limit: 100}},
	{"concurrency", Spec{Algorithm: Concurrency, Limit: 100}},
	{"stated_window", Spec{Algorithm: StatedWindow, Limit: 100}},
	{"stated_bucket", Spec{Algorithm: StatedBucket, Limit: 100}},
}

func limitOf(s Spec) *Limit {
	s.Name = "bench"
	if s.Calendar == 0 {
		s.Per = time.Hour
	}
	return mustBe(New(s))
}

// BenchmarkDecide is the arithmetic alone, of an algorithm on a state at hand, without the table
// around it: asked for so seldom that nearly all requests are admitted, and so often that most are
// refused and have their wait worked out.
func BenchmarkDecide(b *testing.B) {
	for _, c := range decided {
		l := limitOf(c.spec)
		for _, pace := range []struct {
			name string
			step time.Duration
		}{{"admitted", time.Minute}, {"refused", time.Second}} {
			b.Run("alg="+c.name+"/mostly="+pace.name, func(b *testing.B) {
				w := make([]int64, l.words())
				now, yes := Instant(1_700_000_000e9), 0
				r := Request{Cost: 1}
				var d Decision
				for b.Loop() {
					l.answer(w, now, &r, &d)
					if d.Allowed {
						yes++
					}
					now += Instant(pace.step)
				}
				b.ReportMetric(float64(8*l.words()), "state-bytes")
				b.ReportMetric(100*float64(yes)/float64(b.N), "%allowed")
			})
		}
	}
}

// TestStateBytes: the states have as many bytes as the package's doc says.
func TestStateBytes(t *testing.T) {
	doc, err := os.ReadFile("limiter.go")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^//\t([a-z_/]+) +(\d+) `).FindAllStringSubmatch(
		string(doc), -1) {
		said[m[1]] = m[2]
	}
	for _, c := range decided {
		if is := strconv.Itoa(8 * limitOf(c.spec).words()); said[c.name] != is {
			t.Errorf("%s: the doc says %q bytes, it has %s", c.name, said[c.name], is)
		}
		delete(said, c.name)
	}
	if len(said) > 0 {
		t.Errorf("the doc has lines for %v, which nobody measures", said)
	}
}
