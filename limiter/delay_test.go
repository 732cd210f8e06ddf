package limiter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/limiter"
)

// drawDelay draws on_deny: delay for a third of the limits that can have it.
func drawDelay(t *rapid.T, s limiter.Spec) limiter.Spec {
	if s.Algorithm != limiter.GCRA && s.Algorithm != limiter.TokenBucket ||
		rapid.IntRange(0, 2).Draw(t, "delay?") > 0 {
		return s
	}
	with := s
	with.OnDeny, with.Strict, with.Drain = limiter.DenyDelay, false, false
	with.MaxDelay = time.Duration(rapid.OneOf(
		rapid.SampledFrom([]int64{
			0, int64(limiter.MinDelay), int64(limiter.LongestDelay), int64(s.Per), int64(s.Per) / 2,
		}),
		rapid.Int64Range(int64(limiter.MinDelay), int64(time.Minute)),
	).Draw(t, "max_delay"))
	if _, err := limiter.New(with); err != nil {
		return s
	}
	return with
}

// goesOn is a caller that goes on at a moment, with units.
type goesOn struct {
	at    limiter.Instant
	units int64
}

// drawDelayed draws a limit that delays, with few units, so that many moments collide.
func drawDelayed(t *rapid.T) limiter.Spec {
	s := limiter.Spec{
		Name: "delayed", OnDeny: limiter.DenyDelay,
		Algorithm: rapid.SampledFrom([]limiter.Algorithm{
			limiter.GCRA, limiter.TokenBucket,
		}).Draw(t, "algorithm"),
		Limit: rapid.Int64Range(1, 9).Draw(t, "limit"), Per: time.Second,
		MaxDelay: time.Duration(rapid.Int64Range(1, 5000).Draw(t, "max_delay")) * time.Millisecond,
	}
	if s.Algorithm == limiter.GCRA {
		s.Burst = rapid.Int64Range(1, 9).Draw(t, "burst")
	} else {
		s.Refill = rapid.Int64Range(1, 9).Draw(t, "refill")
		s.Anchor = rapid.SampledFrom([]limiter.Anchor{limiter.Epoch, limiter.FirstHit}).Draw(t,
			"anchor")
	}
	return s
}

// mostGoOn is the most units that may go on in the closed span from a to b: what the page of the
// algorithm says of those that are admitted.
func mostGoOn(s limiter.Spec, a, b limiter.Instant) int64 {
	span := int64(b - a)
	if s.Algorithm == limiter.TokenBucket {
		if s.Anchor == limiter.Epoch { // marks in (a, b], and one at a
			return s.Limit + refill(s)*(int64(b)/int64(s.Per)-(int64(a)-1)/int64(s.Per))
		}
		return s.Limit + refill(s)*(span/int64(s.Per)+1)
	}
	if int64(s.Per)%s.Limit != 0 {
		span++ // the moment is rounded up to a nanosecond
	}
	return s.Burst + span*s.Limit/int64(s.Per)
}

// TestDelayedGoOnWithinTheLimit: whatever is asked in whatever order, units that go on when their
// delay has passed exceed the limit in no span of time; and no caller waits longer than the limit
// says. What is given back counts in the spans in which it was given back, and in no other.
func TestDelayedGoOnWithinTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawDelayed(t)
		l := mustNew(t, s)
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		now := start
		var on, back []goesOn
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += limiter.Instant(rapid.OneOf(rapid.Just(int64(0)),
				rapid.Int64Range(0, int64(s.Per)/s.Limit),
				rapid.Int64Range(0, int64(s.Per))).Draw(t, "step"))
			cost := rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(-2, l.Capacity()+1)).Draw(
				t, "cost")
			d := table.Take(now, l, "k", 1, cost)
			switch {
			case cost < 0:
				back = append(back, goesOn{now, -cost})
			case cost == 0:
			case d.Allowed && (d.Delay < 0 || d.Delay > s.MaxDelay):
				t.Fatalf("a delay of %v, of at most %v", d.Delay, s.MaxDelay)
			case d.Allowed:
				on = append(on, goesOn{now.Add(d.Delay), cost})
			}
		}
		for i := range max(0, len(on)-1) {
			if on[i+1].at < on[i].at {
				t.Fatalf("a later request goes on %v earlier", on[i].at-on[i+1].at)
			}
		}
		keepsTo(t, s, on, back)
	})
}

// keepsTo checks every span that begins and ends with one of those that go on.
func keepsTo(t *rapid.T, s limiter.Spec, on, back []goesOn) {
	for _, first := range on {
		for _, last := range on {
			sum := func(all []goesOn) (units int64) {
				for _, x := range all {
					if x.at >= first.at && x.at <= last.at {
						units += x.units
					}
				}
				return units
			}
			if last.at < first.at {
				continue
			}
			if n, most := sum(on), mostGoOn(s, first.at, last.at)+sum(back); n > most {
				t.Fatalf("%d units go on within %v, at most %d may: %+v", n,
					time.Duration(last.at-first.at), most, on)
			}
		}
	}
}

// TestDelayedHoldsGoOnWithinTheLimit: so it is with holds. The units of a hold, all or
// some, are used at some time between the end of its delay and its settlement.
func TestDelayedHoldsGoOnWithinTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawDelayed(t)
		l := mustNew(t, s)
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		book := limiter.NewLedger(table, nil)
		now := start
		var on []goesOn
		var open []limiter.HoldRequest
		usable := map[limiter.HoldID]limiter.Instant{}
		for i := range rapid.Uint64Range(1, 60).Draw(t, "events") {
			now += limiter.Instant(rapid.OneOf(rapid.Just(int64(0)),
				rapid.Int64Range(0, int64(s.Per)/s.Limit),
				rapid.Int64Range(0, int64(s.Per))).Draw(t, "step"))
			cost := rapid.Int64Range(1, min(3, l.Capacity())).Draw(t, "cost")
			switch rapid.SampledFrom([]string{"take", "hold", "settle"}).Draw(t, "event") {
			case "take":
				if d := table.Take(now, l, "k", limiter.Hash("k"), cost); d.Allowed {
					on = append(on, goesOn{now.Add(d.Delay), cost})
				}
			case "hold":
				r := limiter.HoldRequest{
					ID: limiter.HoldID{Origin: 1, Sequence: i}, Limit: l, Key: "k",
					Hash: limiter.Hash("k"), Units: cost, TTL: limiter.MaxTTL,
				}
				var out [1]limiter.Decision
				if book.Open(now, []limiter.HoldRequest{r}, out[:]) {
					open, usable[r.ID] = append(open, r), now.Add(out[0].Delay)
				}
			case "settle":
				if len(open) == 0 {
					continue
				}
				which := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				r := open[which]
				open = append(open[:which:which], open[which+1:]...)
				now = max(now, usable[r.ID])
				used := rapid.Int64Range(0, r.Units).Draw(t, "used")
				at := rapid.Int64Range(int64(usable[r.ID]), int64(now)).Draw(t, "at")
				book.Settle(now, r.ID, r.Hash, "", used)
				on = append(on, goesOn{limiter.Instant(at), used})
			}
		}
		keepsTo(t, s, on, nil)
	})
}

// TestDelayTranscript: the burst goes on at once, those after it one interval apart; the first that
// would wait too long is refused, and told when it would wait no longer than it may.
func TestDelayTranscript(t *testing.T) {
	const ms = time.Millisecond
	gcra := limiter.Spec{
		Name: "a", Algorithm: limiter.GCRA, Limit: 10, Per: time.Second, Burst: 2,
		OnDeny: limiter.DenyDelay, MaxDelay: 250 * ms,
	}
	bucket := limiter.Spec{
		Name: "b", Algorithm: limiter.TokenBucket, Limit: 3, Per: time.Second, Refill: 2,
		Anchor: limiter.FirstHit, OnDeny: limiter.DenyDelay, MaxDelay: time.Second,
	}
	type row struct {
		at    time.Duration // since the first
		cost  int64
		want  string // "yes", "in 100ms", "no, 50ms" or "never"
		after int64  // remaining
	}
	for _, c := range []struct {
		spec limiter.Spec
		rows []row
	}{
		{gcra, []row{
			{0, 1, "yes", 1},
			{0, 1, "yes", 0},
			{0, 1, "in 100ms", 0},
			{0, 1, "in 200ms", 0},
			{0, 1, "no, 50ms", 0},
			{50 * ms, 1, "in 250ms", 0},
			{50 * ms, 3, "never", 0},
			{50 * ms, -2, "yes", 0}, // callers wait for these units
			{50 * ms, 1, "no, 100ms", 0},
			{300 * ms, -1, "yes", 1}, // no caller waits any more
			{300 * ms, 2, "in 100ms", 0},
			{10 * time.Second, 0, "yes", 2},
		}},
		{bucket, []row{
			{0, 3, "yes", 0},
			{0, 2, "in 1s", 0},
			{0, 1, "no, 1s", 0},
			{500 * ms, 1, "no, 500ms", 0},
			{500 * ms, -1, "yes", 0},
			{time.Second, 1, "in 1s", 0},
			{time.Second, 1, "in 1s", 0},
			{time.Second, 4, "never", 0},
			{2 * time.Second, -2, "yes", 2},
		}},
	} {
		l := mustNew(t, c.spec)
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		for i, r := range c.rows {
			d := table.Take(start.Add(r.at), l, "k", 1, r.cost)
			got := "yes"
			switch {
			case d.Allowed && d.Delay > 0:
				got = fmt.Sprintf("in %v", d.Delay)
			case !d.Allowed && d.RetryAfter == limiter.Never:
				got = "never"
			case !d.Allowed:
				got = fmt.Sprintf("no, %v", d.RetryAfter)
			}
			if got != r.want || d.Remaining != r.after {
				t.Errorf("%v, row %d: %s, %d remain; want %s, %d", c.spec.Algorithm, i, got,
					d.Remaining, r.want, r.after)
			}
		}
	}
}

// TestDelayDefault: without max_delay a caller waits for a period, and for at most 5 s.
func TestDelayDefault(t *testing.T) {
	for per, want := range map[time.Duration]time.Duration{
		time.Second: time.Second, 5 * time.Second: 5 * time.Second, time.Hour: 5 * time.Second,
	} {
		for _, a := range []limiter.Algorithm{limiter.GCRA, limiter.TokenBucket} {
			l := mustNew(t, limiter.Spec{
				Name: "x", Algorithm: a, Limit: limiter.MaxLimit, Per: per,
				OnDeny: limiter.DenyDelay,
			})
			if l.MaxDelay != want || l.NeverDenies() || !l.KeepsDenials() {
				t.Errorf("%v per %v: %+v", a, per, l.Spec)
			}
		}
	}
}

// TestDelayRefuses: where no future units can be promised, a limit says so and names what to write.
func TestDelayRefuses(t *testing.T) {
	plain := limiter.Spec{
		Name: "x", Algorithm: limiter.GCRA, Limit: 10, Per: time.Minute, OnDeny: limiter.DenyDelay,
	}
	bucket := plain
	bucket.Algorithm, bucket.Anchor = limiter.TokenBucket, limiter.FirstHit
	with := func(s limiter.Spec, change func(*limiter.Spec)) limiter.Spec { change(&s); return s }
	for _, c := range []struct {
		spec          limiter.Spec
		field, reason string
	}{
		{with(plain, func(s *limiter.Spec) {
			s.Algorithm = limiter.LeakyBucket
		}), "on_deny", "burst is how many units may wait; leave on_deny out"},
		{with(plain, func(s *limiter.Spec) {
			s.Algorithm = limiter.FixedWindow
		}), "on_deny", "delay is for gcra and token_bucket"},
		{with(plain, func(s *limiter.Spec) {
			s.Algorithm = limiter.Concurrency
		}), "on_deny", "a concurrency has reject, shadow"},
		{with(bucket, func(s *limiter.Spec) { s.Strict = true }), "on_deny", "leave one of them"},
		{with(bucket, func(s *limiter.Spec) { s.Drain = true }), "on_deny", "leave one of them"},
		{with(bucket, func(s *limiter.Spec) { s.Sessions = true }), "on_deny", "leave one of them"},
		{with(bucket, func(s *limiter.Spec) {
			s.ClientTime = true
		}), "on_deny", "leave one of them"},
		{with(plain, func(s *limiter.Spec) {
			s.Consistency = limiter.Leased
		}), "on_deny", "use consistency: exact"},
		{with(plain, func(s *limiter.Spec) {
			s.Consistency = limiter.Replicated
		}), "on_deny", "use consistency: exact"},
		{with(plain, func(s *limiter.Spec) {
			s.OnDeny, s.MaxDelay = limiter.DenyReject, time.Second
		}), "max_delay", "is for on_deny: delay"},
		{with(plain, func(s *limiter.Spec) {
			s.MaxDelay = time.Hour + 1
		}), "max_delay", "1ms to 1h0m0s are accepted"},
		{with(plain, func(s *limiter.Spec) { s.MaxDelay = 1 }), "max_delay", "is 1ns; 1ms"},
		{with(plain, func(s *limiter.Spec) {
			s.Limit, s.MaxDelay = limiter.MaxLimit, time.Hour
		}), "max_delay", "more than 2^40 units"},
		{with(plain, func(s *limiter.Spec) {
			s.Limit, s.Per, s.Burst = 1, limiter.MaxPer, 72
			s.MaxDelay = time.Hour
		}), "max_delay", "years to refill"},
	} {
		_, err := limiter.New(c.spec)
		var bad *limiter.SpecError
		if !errors.As(err, &bad) || bad.Field != c.field ||
			!strings.Contains(bad.Reason, c.reason) {
			t.Errorf("%+v: %v; want %s: %s", c.spec, err, c.field, c.reason)
		}
	}
	if err := mustNew(t, bucket).Accepts(&limiter.Request{Cost: 1, Strict: true}); err == nil {
		t.Error("a strict request is accepted")
	}
}

// TestDelayTogether: of several limits the longest delay counts, and if one of them refuses, the
// others have promised nothing.
func TestDelayTogether(t *testing.T) {
	limits := make([]*limiter.Limit, 2)
	for i, rate := range []int64{10, 2} {
		limits[i] = mustNew(t, limiter.Spec{
			Name: fmt.Sprint(rate), Algorithm: limiter.GCRA, Limit: rate, Per: time.Second,
			Burst: 1, OnDeny: limiter.DenyDelay, MaxDelay: time.Second,
		})
	}
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	items := []limiter.Item{
		{Limit: limits[0], Key: "k", Hash: 1, Request: limiter.Request{Cost: 1}},
		{Limit: limits[1], Key: "k", Hash: 1, Request: limiter.Request{Cost: 1}},
	}
	for i, want := range []struct {
		allowed bool
		delay   time.Duration
	}{{true, 0}, {true, 500 * time.Millisecond}, {true, time.Second}, {false, 0}} {
		out := make([]limiter.Decision, 2)
		allowed := table.TakeAll(start, items, out)
		if sum := limiter.Together(out); allowed != want.allowed || sum.Allowed != allowed ||
			allowed && sum.Delay != want.delay {
			t.Errorf("request %d: %+v", i, out)
		}
	}
	if d := table.Peek(start, limits[0], "k", 1, 1); d.Delay != 300*time.Millisecond {
		t.Errorf("a refused request has taken a turn: %+v", d)
	}
}

// TestDelayOfTheCandidate: a candidate delays as its limit does, so that what it refuses can be
// compared, and what it becomes delays too.
func TestDelayOfTheCandidate(t *testing.T) {
	l := mustNew(t, limiter.Spec{
		Name: "x", Algorithm: limiter.GCRA, Limit: 10, Per: time.Second,
		OnDeny: limiter.DenyDelay, MaxDelay: 300 * time.Millisecond,
	})
	tried, err := l.WithCandidate(limiter.Spec{
		Algorithm: limiter.TokenBucket, Limit: 5, Per: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	promoted, err := tried.Promoted()
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []*limiter.Limit{tried.Candidate(), promoted, l.Share(3)} {
		if !got.Delays() || got.MaxDelay != l.MaxDelay {
			t.Errorf("%+v", got.Spec)
		}
	}
	_, err = l.WithCandidate(limiter.Spec{
		Algorithm: limiter.FixedWindow, Limit: 5, Per: time.Second,
	})
	if err == nil || !strings.Contains(err.Error(), "delay is for gcra and token_bucket") {
		t.Error(err)
	}
}

// TestDelayedHold: a hold that was admitted with a delay is charged in full when it is settled,
// and requests beside it wait as if it had been charged.
func TestDelayedHold(t *testing.T) {
	l := mustNew(t, limiter.Spec{
		Name: "x", Algorithm: limiter.GCRA, Limit: 10, Per: time.Second, Burst: 2,
		OnDeny: limiter.DenyDelay, MaxDelay: time.Second,
	})
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	book := limiter.NewLedger(table, nil)
	take := func() time.Duration { return table.Take(start, l, "k", limiter.Hash("k"), 1).Delay }
	take()
	take()
	var out [1]limiter.Decision
	if !book.Open(start, []limiter.HoldRequest{{
		ID: limiter.HoldID{Origin: 1, Sequence: 1}, Limit: l, Key: "k", Hash: limiter.Hash("k"),
		Units: 1, TTL: time.Minute,
	}}, out[:]) || out[0].Delay != 100*time.Millisecond {
		t.Fatalf("%+v", out[0])
	}
	if got := take(); got != 200*time.Millisecond {
		t.Errorf("beside the hold: %v", got)
	}
	book.Settle(start, limiter.HoldID{Origin: 1, Sequence: 1}, limiter.Hash("k"), "", 1)
	if got := take(); got != 300*time.Millisecond {
		t.Errorf("after it was settled: %v", got)
	}
}

// TestDelayIsMerged: a state that moves to another table takes along those that wait.
func TestDelayIsMerged(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.GCRA, limiter.TokenBucket} {
		l := mustNew(t, limiter.Spec{
			Name: "x", Algorithm: a, Limit: 2, Per: time.Second, OnDeny: limiter.DenyDelay,
			MaxDelay: 3 * time.Second,
		})
		from := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		for range 6 {
			from.Take(start, l, "k", limiter.Hash("k"), 1)
		}
		e := from.Entry(start, l, "k", limiter.Hash("k"))
		want := from.Take(start, l, "k", limiter.Hash("k"), 1)
		for _, replace := range []bool{false, true} {
			to := limiter.NewTable(limiter.TableConfig{Bytes: 1})
			to.Import(start, &e, replace)
			got := to.Take(start, l, "k", limiter.Hash("k"), 1)
			if got != want || got.Delay == 0 {
				t.Errorf("%v, replaced %v: %+v, want %+v", a, replace, got, want)
			}
		}
	}
}

// TestDelayIsBounded: a caller that bears less than the limit says is refused where it would wait
// for longer, charges nothing then, and hears when it would wait no longer than it bears.
func TestDelayIsBounded(t *testing.T) {
	const ms = time.Millisecond
	for _, s := range []limiter.Spec{
		{Algorithm: limiter.GCRA, Burst: 1, OnDeny: limiter.DenyDelay, MaxDelay: time.Second},
		{Algorithm: limiter.LeakyBucket, Burst: 5},
	} {
		s.Name, s.Limit, s.Per = "x", 10, time.Second
		l := mustNew(t, s)
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		for i, row := range []struct {
			longest    time.Duration // below 0: not bounded
			want, wait time.Duration // below 0: refused
		}{
			{0, 0, 0},
			{0, -1, 100 * ms},
			{99 * ms, -1, 1 * ms},
			{100 * ms, 100 * ms, 0},
			{-1, 200 * ms, 0},
			{250 * ms, -1, 50 * ms},
			{300 * ms, 300 * ms, 0},
		} {
			d := table.Do(start, l, "k", 1, limiter.Request{
				Cost: 1, Bounded: row.longest >= 0, MaxDelay: row.longest,
			})
			if row.want < 0 && (d.Allowed || d.Delay != row.longest+row.wait ||
				d.RetryAfter != row.wait) ||
				row.want >= 0 && (!d.Allowed || d.Delay != row.want) {
				t.Errorf("%v, row %d: %+v", s.Algorithm, i, d)
			}
		}
		if err := l.Accepts(&limiter.Request{Bounded: true, MaxDelay: -1}); err == nil {
			t.Error("a bound below 0 is accepted")
		}
	}
}

// TestDelayedHoldAsksAgain: a reservation that is repeated is told to wait, for no shorter time.
func TestDelayedHoldAsksAgain(t *testing.T) {
	l := mustNew(t, limiter.Spec{
		Name: "x", Algorithm: limiter.GCRA, Limit: 10, Per: time.Second, Burst: 2,
		OnDeny: limiter.DenyDelay, MaxDelay: time.Second,
	})
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	book := limiter.NewLedger(table, nil)
	table.Take(start, l, "k", limiter.Hash("k"), 2)
	var out [1]limiter.Decision
	for i := range 2 {
		open := book.Open(start, []limiter.HoldRequest{{
			ID: limiter.HoldID{Origin: 1, Sequence: 1}, Limit: l, Key: "k",
			Hash: limiter.Hash("k"), Units: 1, TTL: time.Minute,
		}}, out[:])
		if !open || !out[0].Allowed || out[0].Delay < 100*time.Millisecond {
			t.Errorf("time %d: %+v", i, out[0])
		}
	}
}
