package limiter_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
)

// testdata/vectors.json holds documented examples of the field: what other limiters' own tests, manuals and articles
// say that they answer. A vector is a limit and steps in order; what a step does not mention is not asserted.
type vector struct {
	Name        string
	Algorithm   string
	Conformance string
	Params      vectorParams
	Steps       []struct {
		AtMS   int64 `json:"at_ms"`
		Cost   int64
		Op     string
		Key    string
		Params json.RawMessage
		Expect struct {
			Allowed      *bool
			Tokens       *int64
			Remaining    *int64
			Limit        *int64
			RetryAfterMS *int64 `json:"retry_after_ms"`
			ResetMS      *int64 `json:"reset_ms"`
			Estimate     *int64
			CLThrottle   []int64 `json:"cl_throttle"`
		}
	}
}

type vectorParams struct {
	MaxBurst      int64 `json:"max_burst"`
	Count         int64
	PeriodMS      int64 `json:"period_ms"`
	Capacity      int64
	RefillTokens  int64 `json:"refill_tokens"`
	PerMS         int64 `json:"per_ms"`
	Limit         int64
	WindowMS      int64 `json:"window_ms"`
	Anchor        string
	CountRejected bool   `json:"count_rejected"`
	OnReject      string `json:"on_reject"`
	Backward      string
}

// spec is the limit that a vector describes; false if the algorithm is not built.
func (p vectorParams) spec(algorithm string) (limiter.Spec, bool) {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	switch algorithm {
	case "gcra":
		// CL.THROTTLE has whole nanoseconds between units. Count times that is a period which has no fraction.
		interval := ms(p.PeriodMS) / time.Duration(p.Count)
		return limiter.Spec{
			Algorithm: limiter.GCRA, Limit: p.Count, Per: interval * time.Duration(p.Count), Burst: p.MaxBurst + 1,
		}, true
	case "token_bucket_continuous":
		return limiter.Spec{Algorithm: limiter.GCRA, Limit: p.RefillTokens, Per: ms(p.PerMS), Burst: p.Capacity}, p.Backward != "follow"
	case "fixed_window":
		s := limiter.Spec{Algorithm: limiter.FixedWindow, Limit: p.Limit, Per: ms(p.WindowMS), CountRejected: p.CountRejected}
		if p.Anchor == "first_hit" {
			s.Anchor = limiter.FirstHit
		}
		return s, p.OnReject != "drain"
	case "sliding_window_counter":
		return limiter.Spec{Algorithm: limiter.SlidingCounter, Limit: p.Limit, Per: ms(p.WindowMS)}, true
	}
	return limiter.Spec{}, false
}

func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	ran, skipped := map[string]int{}, map[string]int{}
	for _, v := range file.Vectors {
		if v.Conformance == "origin_quirk" {
			continue
		}
		if _, built := v.Params.spec(v.Algorithm); !built {
			skipped[v.Algorithm]++
			continue
		}
		ran[v.Algorithm]++
		t.Run(v.Name, func(t *testing.T) { replay(t, v) })
	}
	for _, a := range slices.Sorted(maps.Keys(ran)) {
		t.Logf("%-24s %2d vectors ran", a, ran[a])
	}
	for _, a := range slices.Sorted(maps.Keys(skipped)) {
		t.Logf("%-24s %2d vectors skipped: the algorithm is not built yet", a, skipped[a])
	}
	for _, a := range []string{"gcra", "token_bucket_continuous", "fixed_window", "sliding_window_counter"} {
		if ran[a] == 0 || skipped[a] != 0 {
			t.Errorf("%s: %d vectors ran, %d were skipped", a, ran[a], skipped[a])
		}
	}
}

func replay(t *testing.T, v vector) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
	for i, step := range v.Steps {
		params := v.Params
		if step.Params != nil {
			if err := json.Unmarshal(step.Params, &params); err != nil {
				t.Fatal(err)
			}
		}
		spec, _ := params.spec(v.Algorithm)
		spec.Name = v.Name
		l, err := limiter.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		if step.Op != "" {
			t.Fatalf("step %d: op %q is unknown", i, step.Op)
		}
		now, hash := limiter.Instant(step.AtMS)*1e6, limiter.Hash(step.Key)
		before := table.Peek(now, l, step.Key, hash, 0)
		d := table.Take(now, l, step.Key, hash, step.Cost)

		e := step.Expect
		check := func(field string, got int64, want *int64) {
			if want != nil && got != *want {
				t.Errorf("step %d, at %d, cost %d: %s %d, want %d (%+v)", i, step.AtMS, step.Cost, field, got, *want, d)
			}
		}
		if e.Allowed != nil && d.Allowed != *e.Allowed {
			t.Errorf("step %d, at %d, cost %d: allowed %v, want %v", i, step.AtMS, step.Cost, d.Allowed, *e.Allowed)
		}
		check("tokens before", before.Remaining, e.Tokens)
		check("estimate before", before.Limit-before.Remaining, e.Estimate)
		check("remaining", d.Remaining, e.Remaining)
		check("limit", d.Limit, e.Limit)
		check("retry_after_ms", roundUp(d.RetryAfter, time.Millisecond), e.RetryAfterMS)
		check("reset_ms", roundUp(d.ResetAfter, time.Millisecond), e.ResetMS)
		if e.CLThrottle != nil && !slices.Equal(clThrottle(d), e.CLThrottle) {
			t.Errorf("step %d: CL.THROTTLE %v, want %v", i, clThrottle(d), e.CLThrottle)
		}
	}
}

// roundUp counts whole units; Never stays -1.
func roundUp(d, unit time.Duration) int64 {
	if d == limiter.Never {
		return -1
	}
	return int64((d + unit - 1) / unit)
}

// clThrottle is the reply of the command CL.THROTTLE: seconds, rounded up from whole milliseconds, of which a rest is
// dropped.
func clThrottle(d limiter.Decision) []int64 {
	seconds := func(d time.Duration) int64 {
		if d == limiter.Never {
			return -1
		}
		return roundUp(d.Truncate(time.Millisecond), time.Second)
	}
	denied := int64(1)
	if d.Allowed {
		denied = 0
	}
	return []int64{denied, d.Limit, d.Remaining, seconds(d.RetryAfter), seconds(d.ResetAfter)}
}
