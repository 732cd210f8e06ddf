package limiter_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"penstock/limiter"
)

// testdata/vectors.json holds documented examples of the field: what other limiters' own tests,
// manuals and articles say that they answer. A vector is a limit and steps in order; what a step
// does not mention is not asserted.
type vector struct {
	Name        string
	Algorithm   string
	Conformance string
	Params      vectorParams
	Steps       []struct {
		AtMS   int64 `json:"at_ms"`
		Cost   int64
		Op     string
		Strict bool
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
			Value        *int64
			DelayMS      *int64 `json:"delay_ms"`
			Count        *int64
			ByCount      *bool   `json:"blocked_by_count"`
			ByGap        *bool   `json:"blocked_by_gap"`
			NextMS       *int64  `json:"next_allowed_ms"`
			SessionMS    *int64  `json:"session_started_at_ms"`
			DeniedBy     []int   `json:"denied_by"`
			CLThrottle   []int64 `json:"cl_throttle"`
		}
		Recommended struct {
			RetryAfterMS *int64 `json:"retry_after_ms"`
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
	Max           int64
	RefillTimeMS  int64 `json:"refill_time_ms"`
	RefillAmount  int64 `json:"refill_amount"`
	Align         string
	MinGapMS      int64 `json:"min_gap_ms"`
	Buckets       int
	Mode          string
	Limits        []struct {
		Algorithm string
		Params    vectorParams
	}
}

// spec is the limit that a vector describes.
func (p vectorParams) spec(t *testing.T, algorithm string) limiter.Spec {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	switch algorithm {
	case "gcra":
		// CL.THROTTLE has whole nanoseconds between units. Count times that is a period which has
		// no fraction.
		interval := ms(p.PeriodMS) / time.Duration(p.Count)
		return limiter.Spec{
			Algorithm: limiter.GCRA, Limit: p.Count, Per: interval * time.Duration(p.Count),
			Burst: p.MaxBurst + 1,
		}
	case "token_bucket_continuous":
		return limiter.Spec{
			Algorithm: limiter.GCRA, Limit: p.RefillTokens, Per: ms(p.PerMS),
			Burst: p.Capacity,
		}
	case "fixed_window":
		s := limiter.Spec{
			Algorithm: limiter.FixedWindow, Limit: p.Limit, Per: ms(p.WindowMS),
			CountRejected: p.CountRejected,
		}
		if p.Anchor == "first_hit" {
			s.Anchor = limiter.FirstHit
		}
		return s
	case "token_bucket_discrete", "smyte_sessionize":
		s := limiter.Spec{
			Algorithm: limiter.TokenBucket, Limit: p.Max, Refill: p.RefillAmount,
			Per:        ms(p.RefillTimeMS),
			ClientTime: true, Sessions: algorithm == "smyte_sessionize",
		}
		if p.Align != "epoch" {
			s.Anchor = limiter.FirstHit
		}
		return s
	case "leaky_bucket_queue":
		return limiter.Spec{
			Algorithm: limiter.LeakyBucket, Limit: p.Count, Per: ms(p.PeriodMS),
			Burst: p.Capacity,
		}
	case "sliding_log":
		return limiter.Spec{
			Algorithm: limiter.SlidingLog, Limit: p.Limit, Per: ms(p.WindowMS),
			CountRejected: p.CountRejected, MinGap: ms(p.MinGapMS),
		}
	case "sliding_window_buckets":
		return limiter.Spec{
			Algorithm: limiter.SlidingCounter, Limit: p.Limit, Per: ms(p.WindowMS),
			CountRejected: p.CountRejected,
			Buckets:       p.Buckets, Lenient: p.Mode == "lenient",
		}
	case "sliding_window_counter":
		return limiter.Spec{Algorithm: limiter.SlidingWindow, Limit: p.Limit, Per: ms(p.WindowMS)}
	}
	t.Fatalf("algorithm %q is unknown", algorithm)
	return limiter.Spec{}
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
	ran := map[string]int{}
	for _, v := range file.Vectors {
		if v.Params.Backward == "follow" || v.Params.OnReject == "drain" ||
			v.Conformance == "origin_quirk" {
			t.Fatalf("%s: is a quirk of one origin, which nothing here answers like", v.Name)
		}
		ran[v.Algorithm]++
		if v.Algorithm == "multi" {
			t.Run(v.Name, func(t *testing.T) { replayAll(t, v) })
		} else {
			t.Run(v.Name, func(t *testing.T) { replay(t, v) })
		}
	}
	sum := 0
	for _, a := range slices.Sorted(maps.Keys(ran)) {
		t.Logf("%-24s %2d vectors ran", a, ran[a])
		sum += ran[a]
	}
	t.Logf("%-24s %2d vectors ran, none was skipped", "all", sum)
	if len(file.Vectors) == 0 || sum != len(file.Vectors) {
		t.Errorf("%d vectors ran, the file has %d", sum, len(file.Vectors))
	}
}

// smyteClock is the time of the table while Smyte's clients say what time it is.
const smyteClock = start

func replay(t *testing.T, v vector) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
	for i, step := range v.Steps {
		params := v.Params
		if step.Params != nil {
			if err := json.Unmarshal(step.Params, &params); err != nil {
				t.Fatal(err)
			}
		}
		spec := params.spec(t, v.Algorithm)
		spec.Name = v.Name
		l := mustNew(t, spec)
		now, hash := limiter.Instant(step.AtMS)*1e6, limiter.Hash(step.Key)
		request := limiter.Request{Cost: step.Cost, Strict: step.Strict}
		// Smyte's commands: the client says what time it is, and a refusal drains
		if spec.ClientTime {
			request.At, request.Timed, request.Drain = now.Millis(), true, true
			now = smyteClock
		}
		// the same counters under other conditions
		peek := func(s limiter.Spec, cost int64) limiter.Decision {
			return table.Peek(now, mustNew(t, s), step.Key, hash, cost)
		}
		table.Sweep(now, 1<<10) // forgets nothing that still counts, at any client time
		before := table.Do(now, l, step.Key, hash,
			limiter.Request{At: request.At, Timed: request.Timed})
		var byCount, byGap bool
		if spec.Algorithm == limiter.SlidingLog {
			noGap, noCount := spec, spec
			noGap.MinGap, noCount.Limit = 0, limiter.MaxLog
			byCount, byGap = !peek(noGap, step.Cost).Allowed, !peek(noCount, step.Cost).Allowed
		}
		var d limiter.Decision
		switch step.Op {
		case "":
			d = table.Do(now, l, step.Key, hash, request)
		case "get":
			d = before
		case "would":
			d = peek(spec, step.Cost)
		default:
			t.Fatalf("step %d: op %q is unknown", i, step.Op)
		}
		// until a request would be admitted that is not entered if it is refused
		next := d.RetryAfter
		if step.Op == "" {
			s := spec
			s.CountRejected = false
			next = peek(s, 1).RetryAfter
		}
		delay := d.Delay
		if !d.Allowed {
			delay = limiter.Never
		}

		e := step.Expect
		check := func(field string, got int64, want *int64) {
			if want != nil && got != *want {
				t.Errorf("step %d, at %d, cost %d: %s %d, want %d (%+v)", i, step.AtMS, step.Cost,
					field, got, *want, d)
			}
		}
		if e.Allowed != nil && d.Allowed != *e.Allowed {
			t.Errorf("step %d, at %d, cost %d: allowed %v, want %v", i, step.AtMS, step.Cost,
				d.Allowed, *e.Allowed)
		}
		check("tokens before", before.Remaining, e.Tokens)
		check("estimate before", before.Limit-before.Remaining, e.Estimate)
		check("value", before.Remaining, e.Value)
		if e.Value != nil {
			had := d.Remaining + d.Drained // what the decision says of before
			if d.Allowed {
				had += step.Cost
			}
			check("value", had, e.Value)
		}
		check("session_started_at_ms", int64(d.Session), e.SessionMS)
		check("delay_ms", roundUp(delay, time.Millisecond), e.DelayMS)
		check("count", before.Limit-before.Remaining, e.Count)
		check("next_allowed_ms", max(0, roundUp(next, time.Millisecond)), e.NextMS)
		if e.ByCount != nil && byCount != *e.ByCount {
			t.Errorf("step %d, at %d: blocked by count %v, want %v", i, step.AtMS, byCount,
				*e.ByCount)
		}
		if e.ByGap != nil && byGap != *e.ByGap {
			t.Errorf("step %d, at %d: blocked by gap %v, want %v", i, step.AtMS, byGap, *e.ByGap)
		}
		check("remaining", d.Remaining, e.Remaining)
		check("limit", d.Limit, e.Limit)
		check("retry_after_ms", roundUp(d.RetryAfter, time.Millisecond), e.RetryAfterMS)
		check("reset_ms", roundUp(d.ResetAfter, time.Millisecond), e.ResetMS)
		if e.CLThrottle != nil && !slices.Equal(clThrottle(d), e.CLThrottle) {
			t.Errorf("step %d: CL.THROTTLE %v, want %v", i, clThrottle(d), e.CLThrottle)
		}
	}
}

// replayAll is replay for several limits that stand or fall together.
func replayAll(t *testing.T, v vector) {
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1 << 20})
	for i, step := range v.Steps {
		var items []limiter.Item
		for k, part := range v.Params.Limits {
			spec := part.Params.spec(t, part.Algorithm)
			spec.Name = fmt.Sprint(v.Name, k)
			items = append(items, limiter.Item{
				Limit: mustNew(t, spec), Key: step.Key, Hash: limiter.Hash(step.Key),
				Request: limiter.Request{Cost: step.Cost},
			})
		}
		out := make([]limiter.Decision, len(items))
		all := table.TakeAll(limiter.Instant(step.AtMS)*1e6, items, out)
		d := limiter.Together(out)
		var deniedBy []int
		for k := range out {
			if !out[k].Allowed {
				deniedBy = append(deniedBy, k)
			}
		}
		if all != *step.Expect.Allowed || d.Allowed != all ||
			!slices.Equal(deniedBy, step.Expect.DeniedBy) {
			t.Errorf("step %d: allowed %v, denied by %v: %+v", i, all, deniedBy, out)
		}
		if want := step.Recommended.RetryAfterMS; want != nil &&
			roundUp(d.RetryAfter, time.Millisecond) != *want {
			t.Errorf("step %d: retry after %v, want %d ms", i, d.RetryAfter, *want)
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

// clThrottle is the reply of the command CL.THROTTLE: seconds, rounded up from whole milliseconds,
// of which a rest is dropped.
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
