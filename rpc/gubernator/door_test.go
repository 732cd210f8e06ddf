package gubernator

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"penstock/cluster"
	"penstock/proto/gubernator"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
)

// The names that rows of the table use.
const (
	under, over = gubernator.Status_UNDER_LIMIT, gubernator.Status_OVER_LIMIT

	leaky      = gubernator.Algorithm_LEAKY_BUCKET
	calendarly = gubernator.Behavior_DURATION_IS_GREGORIAN
	reset      = gubernator.Behavior_RESET_REMAINING
	drain      = gubernator.Behavior_DRAIN_OVER_LIMIT
)

// visit is one row of a transcript: after a pause, one request, and what it is answered.
type visit struct {
	pause     time.Duration
	hits      int64
	change    func(*gubernator.RateLimitReq) // for this request; nil: none
	remaining int64
	status    gubernator.Status
}

func limit(n int64) func(*gubernator.RateLimitReq) {
	return func(r *gubernator.RateLimitReq) { r.Limit = n }
}

func duration(d time.Duration) func(*gubernator.RateLimitReq) {
	return func(r *gubernator.RateLimitReq) { r.Duration = d.Milliseconds() }
}

func flags(b gubernator.Behavior) func(*gubernator.RateLimitReq) {
	return func(r *gubernator.RateLimitReq) { r.Behavior |= b }
}

func leakyLimit(n int64) func(*gubernator.RateLimitReq) {
	return func(r *gubernator.RateLimitReq) { r.Algorithm, r.Limit = leaky, n }
}

// inBubble runs f with a door and a clock that goes only when f sleeps. It begins at midnight,
// 2000-01-01, UTC.
func inBubble(t *testing.T, f func(t *testing.T, door *Door)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, &Door{Node: rpctest.Alone(t), Clock: clock.New(), Inlines: new(door.Inlines)})
	})
}

// answerAt is g's answer to in, which came at now.
func answerAt(g *Door, now time.Time,
	in *gubernator.GetRateLimitsReq,
) (*gubernator.GetRateLimitsResp, error) {
	c := &call{in: in}
	err := g.answer(now, c)
	return &c.out, err
}

// one asks for one item.
func (g *Door) one(t testing.TB, r *gubernator.RateLimitReq) *gubernator.RateLimitResp {
	t.Helper()
	out, err := answerAt(g, time.Now(),
		&gubernator.GetRateLimitsReq{Requests: []*gubernator.RateLimitReq{r}})
	if err != nil || len(out.Responses) != 1 {
		t.Fatalf("%v: %v, %v", r, out, err)
	}
	return out.Responses[0]
}

func replayVisits(t *testing.T, base *gubernator.RateLimitReq, visits []visit) {
	t.Helper()
	inBubble(t, func(t *testing.T, door *Door) {
		for i, v := range visits {
			time.Sleep(v.pause)
			r := proto.Clone(base).(*gubernator.RateLimitReq)
			r.Name, r.UniqueKey, r.Hits = "test", "account:1234", v.hits
			if v.change != nil {
				v.change(r)
			}
			got := door.one(t, r)
			if got.Status != v.status || got.Remaining != v.remaining || got.Limit != r.Limit ||
				got.Error != "" || got.ResetTime < time.Now().UnixMilli() {
				t.Errorf("row %d, %d hits: %v; want %v with %d remaining of %d, reset after %d",
					i+1, v.hits, got, v.status, v.remaining, r.Limit, time.Now().UnixMilli())
			}
		}
	})
}

// Promise: Gubernator's clients see the behaviour that they know.
func TestGubernatorBehaviours(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	token := func(limit int64, d time.Duration) *gubernator.RateLimitReq {
		return &gubernator.RateLimitReq{Limit: limit, Duration: d.Milliseconds()}
	}
	bucket := func(limit, burst int64, d time.Duration) *gubernator.RateLimitReq {
		return &gubernator.RateLimitReq{
			Limit: limit, Burst: burst, Duration: d.Milliseconds(),
			Algorithm: leaky,
		}
	}
	calendar := func(algorithm gubernator.Algorithm, kind int64) *gubernator.RateLimitReq {
		return &gubernator.RateLimitReq{
			Limit: 60, Duration: kind, Algorithm: algorithm,
			Behavior: calendarly,
		}
	}
	for _, c := range []struct {
		name string
		base *gubernator.RateLimitReq
		rows []visit
	}{
		{"token", token(2, 5*ms), []visit{
			{0, 1, nil, 1, under},
			{0, 1, nil, 0, under},
			{0, 1, nil, 0, over},
			{5 * ms, 1, nil, 1, under},
		}},
		{"over-ask of a token bucket", token(2000, s), []visit{
			{0, 1000, nil, 1000, under},
			{0, 1500, nil, 1000, over},
			{0, 500, nil, 500, under},
			{0, 400, nil, 100, under},
			{0, 100, nil, 0, under},
			{0, 1, nil, 0, over},
		}},
		{"over-ask of a leaky bucket", bucket(2000, 0, 1000*s), []visit{
			{0, 1000, nil, 1000, under},
			{0, 1500, nil, 1000, over},
			{0, 500, nil, 500, under},
			{0, 400, nil, 100, under},
			{0, 100, nil, 0, under},
			{0, 1, nil, 0, over},
		}},
		{
			"drain", &gubernator.RateLimitReq{Limit: 10, Duration: 30_000, Behavior: drain},
			[]visit{
				{0, 0, nil, 10, under},
				{0, 1, nil, 9, under},
				{0, 100, nil, 0, over},
				{0, 0, nil, 0, under},
			},
		},
		{"drain of a leaky bucket", &gubernator.RateLimitReq{
			Limit: 10, Duration: 30_000,
			Algorithm: leaky, Behavior: drain,
		}, []visit{
			{0, 0, nil, 10, under},
			{0, 1, nil, 9, under},
			{0, 100, nil, 0, over},
			{0, 0, nil, 0, under},
		}},
		{"negative", token(2, 30*s), []visit{
			{0, -1, nil, 3, under},
			{0, -1, nil, 4, under},
			{0, 4, nil, 0, under},
			{0, -1, nil, 1, under},
		}},
		{"negative in a leaky bucket", bucket(10, 0, 30*s), []visit{
			{0, 1, nil, 9, under},
			{0, -1, nil, 10, under},
			{0, 10, nil, 0, under},
			{0, -1, nil, 1, under},
		}},
		{"leaky", bucket(10, 0, 30*s), []visit{
			{0, 1, nil, 9, under},
			{s, 1, nil, 8, under},
			{s, 1, nil, 7, under},
			{1500 * ms, 0, nil, 8, under},
			{3 * s, 0, nil, 9, under},
			{0, 9, nil, 0, under},
			{0, 1, nil, 0, over},
			{3 * s, 0, nil, 1, under},
			{60 * s, 0, nil, 10, under},
			{60 * s, 0, nil, 10, under},
			{0, 10, nil, 0, under},
		}},
		{"leaky with a burst", bucket(10, 20, 30*s), []visit{
			{0, 1, nil, 19, under},
			{s, 1, nil, 18, under},
			{s, 1, nil, 17, under},
			{1500 * ms, 0, nil, 18, under},
			{3 * s, 0, nil, 19, under},
			{0, 19, nil, 0, under},
			{0, 1, nil, 0, over},
			{3 * s, 0, nil, 1, under},
			{60 * s, 0, nil, 20, under},
		}},
		{"more than one a millisecond", bucket(2000, 0, s), []visit{
			{0, 1, nil, 1999, under},
			{0, 100, nil, 1899, under},
		}},
		{"token minute", calendar(0, 0), []visit{
			{100 * ms, 1, nil, 59, under},
			{0, 1, nil, 58, under},
			{0, 58, nil, 0, under},
			{0, 1, nil, 0, over},
			{61 * s, 0, nil, 60, under},
			{0, 60, nil, 0, under},
			{59*s - 101*ms, 1, nil, 0, over},
			{ms, 1, nil, 59, under},
		}},
		{"token week", calendar(0, 3), []visit{ // 2000-01-01 was a Saturday
			{0, 60, nil, 0, under},
			{48*time.Hour - ms, 1, nil, 0, over},
			{ms, 1, nil, 59, under},
			{7*24*time.Hour - ms, 1, nil, 58, under},
			{ms, 1, nil, 59, under},
		}},
		{"token month", calendar(0, 4), []visit{{0, 60, nil, 0, under}, {
			31*24*time.Hour - ms, 1,
			nil, 0, over,
		}, {ms, 1, nil, 59, under}, {29 * 24 * time.Hour, 1, nil, 59, under}}},
		{"token year", calendar(0, 5), []visit{{0, 60, nil, 0, under}, {
			366*24*time.Hour - ms, 1,
			nil, 0, over,
		}, {ms, 1, nil, 59, under}}},
		{"leaky minute", calendar(leaky, 0), []visit{
			{100 * ms, 1, nil, 59, under},
			{500 * ms, 1, nil, 58, under},
			{1200 * ms, 1, nil, 58, under},
		}},
		{"limit change", token(100, 9*s), []visit{
			{0, 1, nil, 99, under},
			{0, 1, nil, 98, under},
			{0, 1, limit(10), 7, under},
			{ms, 1, limit(10), 6, under},
			{0, 1, limit(200), 195, under},
			{0, 1, leakyLimit(100), 99, under},
			{ms, 1, leakyLimit(10), 9, under},
			{ms, 1, leakyLimit(10), 8, under},
		}},
		{"duration change", token(10, 10*s), []visit{
			{0, 4, nil, 6, under},
			{9 * s, 1, duration(20 * s), 5, under},
			{10 * s, 1, duration(20 * s), 4, under},
			{ms, 1, duration(5 * s), 9, under}, // it would have been over: renewed
		}},
		{"reset", token(100, 300*s), []visit{
			{0, 1, nil, 99, under},
			{0, 1, nil, 98, under},
			{0, 1, flags(reset), 100, under},
			{0, 1, nil, 99, under},
		}},
		{"reset of a leaky bucket", bucket(100, 0, 300*s), []visit{
			{0, 1, nil, 99, under},
			{0, 1, nil, 98, under},
			{0, 1, flags(reset), 100, under},
			{0, 1, nil, 99, under},
		}},
		{"duration 0", token(10, 0), []visit{
			{0, 1, nil, 9, under},
			{0, 10, nil, 0, under},
			{0, 11, nil, 10, over},
		}},
		{"limit 0", token(0, 10*s), []visit{
			{0, 1, nil, 0, over},
			{0, 0, nil, 0, under},
			{0, 1, flags(reset), 0, under},
		}},
		{"global", &gubernator.RateLimitReq{
			Limit: 5, Duration: 300_000,
			Behavior: gubernator.Behavior_GLOBAL,
		}, []visit{
			{0, 1, nil, 4, under},
			{0, 2, nil, 2, under},
			{s, 0, nil, 2, under},
			{0, 0, nil, 2, under},
			{0, 2, nil, 0, under},
			{0, 1, nil, 0, over},
		}},
		{"all flags without effect", &gubernator.RateLimitReq{
			Limit: 2, Duration: 9000,
			Behavior: 1 | 2 | 16,
		}, []visit{{0, 1, nil, 1, under}, {0, 2, nil, 1, over}}},
	} {
		t.Run(c.name, func(t *testing.T) { replayVisits(t, c.base, c.rows) })
	}
}

// Promise: none of Gubernator's known faults is here. Each row is named as facts about them are.
func TestGubernatorFaultsAreNotRepeated(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	token := &gubernator.RateLimitReq{Limit: 2, Duration: 10_000}
	ten := &gubernator.RateLimitReq{Limit: 10, Duration: 10_000}
	bucket := &gubernator.RateLimitReq{Limit: 10, Duration: 30_000, Algorithm: leaky}
	created := func(d time.Duration) func(*gubernator.RateLimitReq) {
		return func(r *gubernator.RateLimitReq) {
			r.CreatedAt = proto.Int64(time.Now().Add(d).UnixMilli())
		}
	}
	burst := func(n int64) func(*gubernator.RateLimitReq) {
		return func(r *gubernator.RateLimitReq) { r.Burst = n }
	}
	for _, c := range []struct {
		name string
		base *gubernator.RateLimitReq
		rows []visit
	}{
		{"token_sticky_over_limit_after_credit", token, []visit{
			{0, 2, nil, 0, under},
			{0, 1, nil, 0, over},
			{0, -1, nil, 1, under},
			{0, 1, nil, 0, under},
		}},
		{"token_sticky_over_limit_after_limit_raise", token, []visit{
			{0, 2, nil, 0, under},
			{0, 1, nil, 0, over},
			{0, 1, limit(10), 7, under},
			{0, 1, limit(10), 6, under},
		}},
		{"token_limit_flap_mints_tokens", ten, []visit{{0, 10, nil, 0, under}, {
			0, 1, limit(1), 0,
			over,
		}, {0, 1, nil, 0, over}, {0, 1, limit(1), 0, over}, {0, 1, nil, 0, over}}},
		{"leaky_limit_flap_refills", bucket, []visit{
			{0, 10, nil, 0, under},
			{0, 1, limit(20), 0, over},
			{0, 1, nil, 0, over},
			{0, 1, burst(100), 0, over},
			{0, 1, nil, 0, over},
			{3 * s, 1, nil, 0, under},
			{0, 1, burst(100), 0, over},
		}},
		{"token_duration_shrink_renew_still_denied", token, []visit{
			{0, 2, nil, 0, under},
			{5 * s, 1, duration(s), 1, under},
			{0, 1, duration(s), 0, under},
		}},
		{"token_duration_shrink_probe_reports_stale", token, []visit{
			{0, 2, nil, 0, under},
			{5 * s, 0, duration(s), 2, under},
			{0, 0, duration(s), 2, under},
		}},
		{
			"token_reset_remaining_on_missing_key_counts_hits", token,
			[]visit{{0, 1, flags(reset), 2, under}, {0, 1, flags(reset), 2, under}},
		},
		{"leaky_reset_remaining_applies_hits", bucket, []visit{
			{0, 5, flags(reset), 10, under},
			{0, 5, nil, 5, under},
			{0, 5, flags(reset), 10, under},
		}},
		{"token_created_at_in_past_bypasses", token, []visit{
			{0, 2, created(-time.Hour), 0, under},
			{0, 1, created(-time.Hour), 0, over},
		}},
		{"leaky_created_at_in_future_bypasses", bucket, []visit{
			{0, 10, nil, 0, under},
			{0, 1, created(time.Hour), 0, over},
			{0, 1, created(2 * time.Hour), 0, over},
		}},
		{"token_duration_int64_max_never_limits", &gubernator.RateLimitReq{
			Limit:    2,
			Duration: math.MaxInt64,
		}, []visit{{0, 2, nil, 0, under}, {
			24 * time.Hour, 1,
			nil, 0, over,
		}}},
		{"token_first_over_ask_does_not_drain", token, []visit{
			{0, 3, flags(drain), 0, over},
			{0, 1, nil, 0, over},
		}},
		{"leaky_first_over_ask_drains_without_flag", bucket, []visit{
			{0, 11, nil, 10, over},
			{0, 10, nil, 0, under},
		}},
		{"token_expiry_is_inclusive", token, []visit{{0, 2, nil, 0, under}, {
			10*s - ms, 1, nil, 0,
			over,
		}, {ms, 1, nil, 1, under}}},
		{
			"leaky_limit_zero", &gubernator.RateLimitReq{Duration: 1000, Algorithm: leaky},
			[]visit{{0, 1, nil, 0, over}, {time.Hour, 1, nil, 0, over}},
		},
		{"leaky_calendarlymonth_never_leaks", &gubernator.RateLimitReq{
			Limit: 31, Duration: 4,
			Algorithm: leaky, Behavior: calendarly,
		}, []visit{
			{0, 31, nil, 0, under},
			{24*time.Hour - ms, 1, nil, 0, over},
			{ms, 1, nil, 0, under},
		}},
		{"leaky_new_item_negative_hits_exceeds_burst", bucket, []visit{
			{0, -5, nil, 10, under},
			{0, 0, nil, 10, under},
		}},
		{"leaky negative hits above full", bucket, []visit{{0, 1, nil, 9, under}, {
			0, -5, nil, 10,
			under,
		}, {0, math.MinInt64, nil, 10, under}, {0, math.MaxInt64, nil, 10, over}}},
	} {
		t.Run(c.name, func(t *testing.T) { replayVisits(t, c.base, c.rows) })
	}
	// Those that a transcript does not show.
	inBubble(t, func(t *testing.T, door *Door) {
		time.Sleep(ms / 2)
		request := func(key string, hits, limit int64, d time.Duration,
			algorithm gubernator.Algorithm,
		) *gubernator.RateLimitReq {
			return &gubernator.RateLimitReq{
				Name: "a_b", UniqueKey: key, Hits: hits, Limit: limit,
				Duration: d.Milliseconds(), Algorithm: algorithm,
			}
		}
		now := time.Now()
		resets := func(fault string, r *gubernator.RateLimitReq, want time.Duration) {
			t.Helper()
			if got := door.one(t, r); got.ResetTime != upMillis(now.Add(want)) {
				t.Errorf("%s: %v resets after %v, want %v", fault, got,
					time.UnixMilli(got.ResetTime).Sub(now), want)
			}
		}
		resets("a probe of a window that nobody has opened", request("fresh", 0, 3, s, 0), s)
		resets("a probe of a bucket that is full", request("fresh", 0, 3, s, leaky), 0)
		resets("leaky_reset_time_truncates_rate", request("rate", 3, 3, s, leaky), s)
		resets("leaky_reset_time_truncates_rate", request("rate1", 1, 3, s, leaky), s/3+1)
		resets("leaky_reset_time_zero_when_rate_below_1ms", request("fast", 2000,
			2000, s, leaky), s)
		resets("leaky_reset_time_zero_when_rate_below_1ms", request("fast", 1, 2000, s, leaky), s)
		if got := door.one(t, request("fast", 1, 2000, s,
			leaky)); got.Metadata["retry_after_ms"] != "1" {
			t.Errorf("a token comes within a millisecond: %v", got)
		}
		b := request("burst", 1, 10, 30*s, leaky)
		b.Burst = 20
		resets("leaky_burst_reset_time_in_past", b, 3*s)
		door.one(t, request("full", 10, 10, 30*s, leaky))
		resets("leaky_over_limit_reset_is_full_drain_not_next_token", request("full", 1, 10,
			30*s, leaky), 30*s)
		if got := door.one(t, request("full", 1, 10, 30*s,
			leaky)); got.Metadata["retry_after_ms"] != "3000" {
			t.Errorf("leaky_over_limit_reset_is_full_drain_not_next_token: %v", got)
		}
		for kind, want := range []string{
			"00:00:59.999", "00:59:59.999", "23:59:59.999",
			"2000-01-02", "2000-01-31", "2000-12-31",
		} {
			for _, hits := range []int64{0, 1, 100} {
				r := request(fmt.Sprint("kind", kind), hits, 60, 0, 0)
				r.Duration, r.Behavior = int64(kind), calendarly
				at := time.UnixMilli(door.one(t, r).ResetTime).UTC().Format("2006-01-02 " +
					"15:04:05.000")
				if !strings.Contains(at, want) || !strings.HasSuffix(at, "59.999") {
					t.Errorf("calendar %d, %d hits: resets %s, want %s", kind, hits, at, want)
				}
			}
		}
		for _, algorithm := range []gubernator.Algorithm{0, leaky} {
			for fault, r := range map[string]*gubernator.RateLimitReq{
				"token_negative_limit":    request("k", 1, -5, s, algorithm),
				"token_negative_duration": request("k", 1, 5, -s, algorithm),
				"negative burst": {
					Name: "n", UniqueKey: "k", Hits: 1, Limit: 1,
					Burst: -1, Duration: 1,
				},
			} {
				if got := door.one(t, r); got.Status != over || got.Error == "" {
					t.Errorf("%s: %v", fault, got)
				}
			}
		}
		other := request("c", 1, 1, s, 0)
		door.one(t, other)
		other.Name, other.UniqueKey = "a", "b_c"
		if got := door.one(t, other); got.Status != under {
			t.Errorf("key_join_is_ambiguous: %v", got)
		}
		for _, r := range []*gubernator.RateLimitReq{
			request("half", 1, 10, s, 0),
			request("half", 2, 10, s, 0),
		} {
			if got := door.one(t, r); got.ResetTime != now.Add(s-ms/2).UnixMilli() {
				t.Errorf("a window ends at a full millisecond, for all who ask: %v", got)
			}
		}
	})
}

// Promise: what is wrong with one request of a batch is said there, charges nothing there, and
// hurts no other.
func TestGubernatorBatch(t *testing.T) {
	inBubble(t, func(t *testing.T, door *Door) {
		good := func(key string) *gubernator.RateLimitReq {
			return &gubernator.RateLimitReq{
				Name: "n", UniqueKey: key, Hits: 1, Limit: 10,
				Duration: 1000,
			}
		}
		bad := func(f func(*gubernator.RateLimitReq)) *gubernator.RateLimitReq {
			r := good("k")
			f(r)
			return r
		}
		in := &gubernator.GetRateLimitsReq{Requests: []*gubernator.RateLimitReq{
			good("k"),
			bad(func(r *gubernator.RateLimitReq) { r.UniqueKey = "" }),
			bad(func(r *gubernator.RateLimitReq) { r.Name = "" }),
			good("k"),
			bad(func(r *gubernator.RateLimitReq) { r.UniqueKey = strings.Repeat("k", 1025) }),
			bad(func(r *gubernator.RateLimitReq) { r.Name = strings.Repeat("n", 257) }),
			bad(func(r *gubernator.RateLimitReq) { r.Name = "n\x00" }),
			bad(func(r *gubernator.RateLimitReq) { r.Algorithm = 2 }),
			bad(func(r *gubernator.RateLimitReq) { r.Behavior = 64 }),
			bad(func(r *gubernator.RateLimitReq) { r.Behavior, r.Duration = calendarly, 6 }),
			bad(func(r *gubernator.RateLimitReq) {
				r.Algorithm, r.Burst, r.Duration = leaky, 1<<40, 1<<40
			}),
			good("k"),
		}}
		out, err := answerAt(door, time.Now(), in)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []struct {
			status    gubernator.Status
			remaining int64
			err       string
		}{
			{under, 9, ""},
			{under, 0, "field 'unique_key' cannot be empty"},
			{under, 0, "field 'namespace' cannot be empty"},
			{under, 8, ""},
			{over, 0, "field 'unique_key' has 1025 bytes"},
			{over, 0, "name: has 257 bytes"},
			{over, 0, "name: "},
			{over, 0, "field 'algorithm' is 2"},
			{over, 0, "field 'behavior' is 64"},
			{over, 0, "behavior DURATION_IS_GREGORIAN is set; but `Duration` is not a valid " +
				"gregorian interval"},
			{over, 0, "burst: "},
			{under, 7, ""},
		} {
			got := out.Responses[i]
			if got.Status != want.status || got.Remaining != want.remaining ||
				!strings.HasPrefix(got.Error, want.err) || (want.err == "") != (got.Error == "") {
				t.Errorf("request %d: %v, want %+v", i, got, want)
			}
		}
		large := &gubernator.GetRateLimitsReq{}
		for i := range cluster.MaxItems {
			large.Requests = append(large.Requests, good(fmt.Sprint("key-", i)))
		}
		if out, err = answerAt(door, time.Now(), large); err != nil ||
			len(out.Responses) != cluster.MaxItems || out.Responses[999].Remaining != 9 {
			t.Errorf("a thousand: %v", err)
		}
		large.Requests = append(large.Requests, good("one more"))
		if _, err = answerAt(door, time.Now(), large); status.Code(err) != codes.OutOfRange ||
			!strings.Contains(err.Error(), "max size is '1000'") {
			t.Errorf("a thousand and one: %v", err)
		}
		if got := door.one(t, good("key-0")); got.Remaining != 8 {
			t.Errorf("a batch that is too large has charged something: %v", got)
		}
		if out, err = answerAt(door, time.Now(), &gubernator.GetRateLimitsReq{}); err != nil ||
			len(out.Responses) != 0 {
			t.Errorf("none: %v, %v", out, err)
		}
	})
}

func FuzzGubernator(f *testing.F) {
	seed, err := proto.Marshal(&gubernator.GetRateLimitsReq{Requests: []*gubernator.RateLimitReq{
		{Name: "n", UniqueKey: "k", Hits: 1, Limit: 10, Duration: 1000, Algorithm: leaky, Burst: 3},
		{
			Name: "n", UniqueKey: "k", Hits: -1, Limit: math.MaxInt64, Duration: 4,
			Behavior: calendarly | drain,
		},
		{},
	}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	door := &Door{Node: rpctest.Alone(f), Inlines: new(door.Inlines)}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := new(gubernator.GetRateLimitsReq)
		if proto.Unmarshal(b, in) != nil {
			return
		}
		now := time.Now()
		out, err := answerAt(door, now, in)
		if err != nil {
			if len(in.Requests) <= cluster.MaxItems {
				t.Fatal(err)
			}
			return
		}
		for i, r := range in.Requests {
			got := out.Responses[i]
			if got == nil || got.Remaining < 0 ||
				got.Error == "" && got.ResetTime < now.UnixMilli() {
				t.Fatalf("%v: %v", r, got)
			}
			if got.Error == "" && got.Status == over && r.Hits <= 0 &&
				door.Node.Limits()[r.Name] == nil {
				t.Fatalf("%v gives back or asks, and is denied: %v", r, got)
			}
		}
	})
}

func TestGregorian(t *testing.T) {
	// 2019-11-10 23:20:10 UTC, a Sunday
	at := time.Date(2019, 11, 11, 0, 20, 10, 5, time.FixedZone("elsewhere", 3600))
	for kind, want := range []string{
		"2019-11-10T23:20:00Z 2019-11-10T23:21:00Z",
		"2019-11-10T23:00:00Z 2019-11-11T00:00:00Z",
		"2019-11-10T00:00:00Z 2019-11-11T00:00:00Z",
		"2019-11-04T00:00:00Z 2019-11-11T00:00:00Z",
		"2019-11-01T00:00:00Z 2019-12-01T00:00:00Z",
		"2019-01-01T00:00:00Z 2020-01-01T00:00:00Z",
	} {
		begin, end := gregorian(at, int64(kind))
		if got := begin.Format(time.RFC3339) + " " + end.Format(time.RFC3339); got != want {
			t.Errorf("%d: %s, want %s", kind, got, want)
		}
	}
}
