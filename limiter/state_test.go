package limiter

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var shapes = []Spec{
	{Algorithm: GCRA, Limit: 6, Per: time.Second},
	{Algorithm: GCRA, Limit: 7, Burst: 3, Per: time.Second}, // an interval with a fraction
	{Algorithm: FixedWindow, Limit: 6, Per: time.Second},
	{Algorithm: FixedWindow, Limit: 6, Per: time.Second, Anchor: FirstHit},
	{Algorithm: FixedWindow, Limit: 6, Per: time.Second, Drain: true},
	{Algorithm: FixedWindow, Limit: 6, Calendar: Minutes},
	{Algorithm: FixedWindow, Limit: 6, Calendar: Days, TimeZone: "Europe/Berlin"},
	{Algorithm: FixedWindow, Limit: 6, Calendar: Months, TimeZone: "America/St_Johns"},
	{Algorithm: SlidingWindow, Limit: 6, Per: time.Second},
	{Algorithm: SlidingLog, Limit: 6, Per: time.Second},
	{
		Algorithm: SlidingLog, Limit: 6, Per: time.Second, MinGap: time.Second / 5,
		CountRejected: true,
	},
	{Algorithm: TokenBucket, Limit: 6, Per: time.Second, Refill: 4},
	{Algorithm: TokenBucket, Limit: 6, Per: time.Second / 2, Refill: 3, Anchor: FirstHit},
	{
		Algorithm: TokenBucket, Limit: 6, Per: time.Second, Anchor: FirstHit, Strict: true,
		Drain: true,
	},
	{
		Algorithm: TokenBucket, Limit: 6, Per: time.Second, MaxDebt: 8, Anchor: FirstHit,
		Sessions: true,
	},
	{
		Algorithm: TokenBucket, Limit: 6, Per: time.Second, Refill: 4, Anchor: FirstHit,
		ClientTime: true, Sessions: true,
	},
	{Algorithm: TokenBucket, Limit: 6, Per: time.Second, ClientTime: true, MaxDebt: 3},
	{Algorithm: GCRA, Limit: 6, Per: time.Second, MaxDebt: 9},
	{Algorithm: GCRA, Limit: 7, Per: time.Second, MaxDebt: 9},
	{Algorithm: SlidingLog, Limit: 6, Per: time.Second, MaxDebt: 20},
	{Algorithm: SlidingWindow, Limit: 6, Per: time.Second, MaxDebt: 20},
	{Algorithm: SlidingCounter, Limit: 6, Per: time.Second, Buckets: 4, MaxDebt: 20},
	{Algorithm: LeakyBucket, Limit: 6, Per: time.Second, Burst: 5},
	{Algorithm: LeakyBucket, Limit: 7, Per: time.Second, Burst: 2},
	{Algorithm: SlidingCounter, Limit: 6, Per: time.Second, Buckets: 4, CountRejected: true},
	{Algorithm: SlidingCounter, Limit: 6, Per: time.Second, Buckets: 5, Lenient: true},
	{Algorithm: Concurrency, Limit: 6, Per: time.Second, Buckets: 4},
	{Algorithm: StatedWindow, Limit: 6, Per: time.Second},
	{Algorithm: StatedBucket, Limit: 6, Per: time.Second},
	{Algorithm: StatedBucket, Limit: 7, Burst: 3, Per: time.Second},
}

// keepsPhase reports whether l is a bucket with a phase that outlasts its being full.
func keepsPhase(l *Limit) bool { return l.Algorithm == TokenBucket && l.Anchor == FirstHit }

func forEveryShape(t *testing.T, f func(*rapid.T, *Limit)) {
	for _, s := range shapes {
		s.Name = fmt.Sprintf("%v/%d/%v/%v/%v/%v/%v/%d", s.Algorithm, s.Anchor, s.CountRejected,
			s.Strict, s.Lenient, s.ClientTime, s.Sessions, s.MaxDebt)
		l := mustBe(New(s))
		t.Run(s.Name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { f(t, l) }) })
	}
}

// drawState is a state that some node could have at about now, or, now and then, a broken one.
func drawState(t *rapid.T, l *Limit, now Instant, name string) []int64 {
	w := make([]int64, l.words())
	if rapid.IntRange(0, 9).Draw(t, name+" broken?") == 0 {
		for i := range w {
			w[i] = rapid.Int64().Draw(t, name)
		}
		return w
	}
	at := now - Instant(l.Per)*Instant(rapid.SampledFrom([]int{1, 0, 2, 3}).Draw(t, name+" begins"))
	var d Decision
	for range rapid.IntRange(0, 8).Draw(t, name+" requests") {
		at += Instant(rapid.Int64Range(0, int64(l.Per)).Draw(t, name+" step"))
		l.answer(w, at, drawRequest(t, l, at, name), &d)
	}
	return w
}

func drawRequest(t *rapid.T, l *Limit, now Instant, name string) *Request {
	r := &Request{Cost: rapid.Int64Range(-1, 6).Draw(t, name+" cost")}
	flags := rapid.IntRange(0, 31).Draw(t, name+" flags")
	r.Report, r.Drain, r.Strict, r.Timed = flags&17 == 17, flags&18 == 18, flags&20 == 20,
		flags&24 == 24
	if r.Timed {
		r.At = (now + Instant(rapid.Int64Range(-2*int64(l.Per), 2*int64(l.Per)).Draw(t,
			name+" at"))).Millis()
	}
	return r
}

func merged(l *Limit, now Instant, states ...[]int64) []int64 {
	w := make([]int64, l.words())
	for _, s := range states {
		l.merge(w, slices.Clone(s), now)
	}
	return w
}

// Promise: what a limit has admitted counts for no longer than it says, whatever was asked for.
func TestCountsFor(t *testing.T) {
	forEveryShape(t, func(t *rapid.T, l *Limit) {
		if l.ClientTime || l.stated() {
			return // they go by what clients say
		}
		now := Instant(rapid.Int64Range(1, 1<<60).Draw(t, "now"))
		w, d := make([]int64, l.words()), Decision{}
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			l.answer(w, now, drawRequest(t, l, now, "request"), &d)
			now += Instant(rapid.Int64Range(0, int64(l.Per)/3).Draw(t, "step"))
		}
		l.answer(w, now, &Request{Cost: l.Capacity(), Drain: true}, &d)
		l.answer(w, now, &Request{Cost: 3, Report: true}, &d)
		l.decide(w, now.Add(l.CountsFor()), 0, &d)
		if d.Remaining != l.Capacity() {
			t.Errorf("%v later %d of %d are left", l.CountsFor(), d.Remaining, l.Capacity())
		}
	})
}

// TestMergeLaws: states arrive in any order, any number of times, and the result is the same.
func TestMergeLaws(t *testing.T) {
	const now = Instant(1_700_000_123_456_789_012)
	forEveryShape(t, func(t *rapid.T, l *Limit) {
		a, b, c := drawState(t, l, now, "a"), drawState(t, l, now, "b"), drawState(t, l, now, "c")
		same := func(law string, x, y []int64) {
			if !slices.Equal(x, y) {
				t.Fatalf("%v is not %s: %v and %v of %v, %v, %v", l.Algorithm, law, x, y, a, b, c)
			}
		}
		ab, ba := merged(l, now, a, b), merged(l, now, b, a)
		same("commutative", ab, ba)
		same("associative", merged(l, now, ab, c), merged(l, now, a, merged(l, now, b, c)))
		same("idempotent", merged(l, now, ab, a, b, ab), ab)
	})
}

// TestMergeGivesNothingBack: what either of two states refuses, at once or later, their merger
// refuses too.
func TestMergeGivesNothingBack(t *testing.T) {
	const now = Instant(1_700_000_123_456_789_012)
	forEveryShape(t, func(t *rapid.T, l *Limit) {
		a, b := drawState(t, l, now, "a"), drawState(t, l, now, "b")
		both := merged(l, now, a, b)
		at := now + Instant(rapid.Int64Range(0, 3*int64(l.Per)).Draw(t, "later"))
		cost := rapid.SampledFrom([]int64{0, 1, 2, 3, 4, 5, 6}).Draw(t, "cost")
		var one, two, m Decision
		l.decide(merged(l, now, a), at, cost, &one)
		l.decide(merged(l, now, b), at, cost, &two)
		l.decide(both, at, cost, &m)
		switch { // of a credit and nothing, the credit is what was handed over
		case l.credits() && l.fresh(merged(l, now, a), at):
			one = two
		case l.credits() && l.fresh(merged(l, now, b), at):
			two = one
		}
		bad := m.Allowed && !(one.Allowed && two.Allowed)
		if cost == 0 { // else what they admit is charged
			bad = m.Remaining > min(one.Remaining, two.Remaining) ||
				m.ResetAfter < max(one.ResetAfter, two.ResetAfter)
		}
		if bad {
			t.Fatalf("%v at +%d: %v and %v make %v, which answers\n%+v instead of\n%+v and\n%+v",
				l.Algorithm, at-now, a, b, both, m, one, two)
		}
	})
}

// TestMergeAloneIsTheState: merging into nothing changes no decision, so a state survives being
// handed over.
func TestMergeAloneIsTheState(t *testing.T) {
	const now = Instant(1_700_000_123_456_789_012)
	forEveryShape(t, func(t *rapid.T, l *Limit) {
		w := make([]int64, l.words())
		at := now - 3*Instant(l.Per)
		var d, e Decision
		for range rapid.IntRange(0, 8).Draw(t, "requests") {
			at += Instant(rapid.Int64Range(0, int64(l.Per)).Draw(t, "step"))
			l.answer(w, at, drawRequest(t, l, at, "a"), &d)
		}
		cost := rapid.Int64Range(0, 6).Draw(t, "cost")
		l.decide(merged(l, at, w), at, cost, &d)
		l.decide(w, at, cost, &e)
		if d != e {
			t.Fatalf("%v: %+v before, %+v after", l.Algorithm, e, d)
		}
	})
}

// TestFreshIsNeverSeen: a state that is called fresh decides like one of zeros from then on, and
// not a nanosecond after ResetAfter is it called otherwise.
func TestFreshIsNeverSeen(t *testing.T) {
	const now = Instant(1_700_000_123_456_789_012)
	forEveryShape(t, func(t *rapid.T, l *Limit) {
		if l.ClientTime {
			return // it is forgotten by another clock than it decides by, see TestClientTime
		}
		w := drawState(t, l, now, "a")
		l.merge(w, make([]int64, len(w)), now)
		at := now + Instant(rapid.Int64Range(0, 3*int64(l.Per)).Draw(t, "later"))
		var d, e Decision
		l.decide(slices.Clone(w), at, 0, &d)
		if l.Algorithm != FixedWindow && !keepsPhase(l) && l.fresh(w, at) != (d.ResetAfter == 0) {
			t.Fatalf("%v %v: fresh is %v at %+v", l.Algorithm, w, l.fresh(w, at), d)
		}
		// a broken one may be later
		if l.Algorithm != FixedWindow && !keepsPhase(l) && d.ResetAfter > 0 &&
			d.ResetAfter < MaxFill {
			if end := at.Add(d.ResetAfter); l.fresh(w, end-1) || !l.fresh(w, end) {
				t.Fatalf("%v %v: after %v fresh is %v, and %v before", l.Algorithm, w, d.ResetAfter,
					l.fresh(w, end), l.fresh(w, end-1))
			}
		}
		if !l.fresh(w, at) {
			return
		}
		z := make([]int64, len(w))
		for range 5 {
			at += Instant(rapid.Int64Range(0, int64(l.Per)).Draw(t, "step"))
			cost := rapid.Int64Range(-1, 7).Draw(t, "cost")
			l.decide(w, at, cost, &d)
			l.decide(z, at, cost, &e)
			if keepsPhase(l) && d != e {
				// The forgotten phase was ahead of the new one. From here on the two have been
				// charged differently.
				if e.Allowed && !d.Allowed || e.Remaining > d.Remaining {
					t.Fatalf("%v at %d, cost %d: a new phase admits more: %+v instead of %+v",
						l.Algorithm, at, cost, e, d)
				}
				return
			}
			if d != e {
				t.Fatalf("%v at %d, cost %d: a fresh state answers %+v, zeros %+v", l.Algorithm, at,
					cost, d, e)
			}
		}
	})
}

// TestRefitGivesNothingBack: if a bucket's interval gets or loses a fraction, it keeps its debt in
// time, at most a nanosecond more.
func TestRefitGivesNothingBack(t *testing.T) {
	whole, fraction := *newLimit(Spec{
		Algorithm: GCRA, Limit: 10, Burst: 10,
		Per: time.Minute,
	}), *newLimit(Spec{Algorithm: GCRA, Limit: 7, Burst: 7, Per: time.Minute})
	w, two := make([]int64, 1), make([]int64, 2)
	var d Decision
	fraction.decide(two, 5, 3, &d)
	whole.refit(w, two)
	if got, want := w[0]-5, int64(3*time.Minute/7)+1; got != want {
		t.Errorf("three sevenths of a minute became %d ns, want %d", got, want)
	}
	fraction.refit(two, w)
	if two[0] != w[0] || two[1] != 0 {
		t.Errorf("%v became %v", w, two)
	}
}

// TestMostAdmitted searches all ways of asking for the most that is admitted in any span (t−Per,
// t]: the figure that each algorithm's file promises is reached and never exceeded.
func TestMostAdmitted(t *testing.T) {
	const limit, ticks = 3, 12 // requests come at full milliseconds, a window has ticks of them
	for _, c := range []struct {
		spec Spec
		want int
	}{
		{Spec{Algorithm: GCRA}, 2*limit - 1},
		{Spec{Algorithm: FixedWindow}, 2 * limit},
		{Spec{Algorithm: FixedWindow, Anchor: FirstHit}, 2*limit - 1},
		{Spec{Algorithm: SlidingWindow}, 2 * limit},
		{Spec{Algorithm: SlidingLog}, limit},
		{Spec{Algorithm: SlidingLog, CountRejected: true}, limit},
		{Spec{Algorithm: TokenBucket, Anchor: FirstHit}, 2 * limit},
		{Spec{Algorithm: TokenBucket}, 2 * limit},
		{Spec{Algorithm: TokenBucket, Anchor: FirstHit, Strict: true}, 2*limit - 1},
		{Spec{Algorithm: LeakyBucket, Burst: limit - 1}, 2*limit - 1},
		{Spec{Algorithm: SlidingCounter, Buckets: 4}, limit},
		{Spec{Algorithm: Concurrency, Buckets: 4}, limit},
		{Spec{Algorithm: SlidingCounter, Buckets: 4, Lenient: true}, 2 * limit},
		{Spec{Algorithm: StatedWindow}, 2*limit - 1},
		{Spec{Algorithm: StatedBucket}, 2*limit - 1},
	} {
		c.spec.Name, c.spec.Limit, c.spec.Per = "search", limit, ticks*time.Millisecond
		l, err := New(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprintf("%v/%d/%v/%v/%v", l.Algorithm, l.Anchor, l.CountRejected, l.Strict,
			l.Lenient), func(t *testing.T) {
			s := search{l: l, ticks: ticks, seen: map[searchState]bool{}}
			s.from(0, searchState{}, 3*ticks)
			if s.most != c.want {
				t.Errorf("%d admitted in a window, want %d", s.most, c.want)
			}
			t.Logf("%d admitted at most, %d states", s.most, len(s.seen))
		})
	}
}

type search struct {
	l     *Limit
	ticks int
	seen  map[searchState]bool
	most  int
}

// searchState is all that the future depends on.
type searchState struct {
	tick     int
	words    [6]int64
	admitted uint64 // of the last ticks, four bits each, the newest lowest
}

// from tries every number of requests at this tick, and then every future.
func (s *search) from(tick int, state searchState, left int) {
	state.tick = tick
	if s.seen[state] || left == 0 {
		return
	}
	s.seen[state] = true
	window := state.admitted << 4 & (1<<(4*s.ticks) - 1)
	for {
		s.most = max(s.most, nibbles(window))
		next := state
		next.admitted = window
		s.from(tick+1, next, left-1)
		var d Decision
		s.l.decide(state.words[:s.l.words()], Instant(tick)*1e6, 1, &d)
		if !d.Allowed {
			return
		}
		window++
	}
}

func nibbles(x uint64) (sum int) {
	for ; x != 0; x >>= 4 {
		sum += int(x & 15)
	}
	return sum
}

// TestSpanDivision: floor(a/e) of 128 by 128 bits is what schoolbook division by trying makes it.
func TestSpanDivision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := span{
			rapid.Uint64Range(0, 1<<55).Draw(t, "ns"),
			rapid.Uint64Range(1, math.MaxUint64).Draw(t, "fraction"),
		}
		if rapid.Bool().Draw(t, "below a nanosecond") {
			e.ns = 0
		}
		q := rapid.Uint64Range(0, MaxLimit).Draw(t, "q")
		l := gcraLimit{interval: e.ns, fraction: e.fraction}
		if over, _ := bits.Mul64(q, e.ns+1); over != 0 {
			return
		}
		a := l.units(q)
		if got := a.over(e); got != int64(q) {
			t.Fatalf("%d × %v / %v is %d", q, e, e, got)
		}
		if q > 0 {
			if got := a.minus(span{0, 1}).over(e); got != int64(q)-1 {
				t.Fatalf("(%d × %v − 2^-64) / %v is %d", q, e, e, got)
			}
		}
	})
}

// TestMergeOverRefill: a bucket by its clients' clocks, and a copy of it that is whole periods
// younger, make what the copy was refilled to. TestMergeCountsOnce rarely draws such a pair.
func TestMergeOverRefill(t *testing.T) {
	const second = int64(1_700_000_123_000) // ms
	l := mustBe(New(Spec{
		Name: "clients", Algorithm: TokenBucket, Anchor: Epoch, ClientTime: true,
		Limit: 6, Refill: 2, Per: time.Second, MaxDebt: 3,
	}))
	now := Instant(second)*Instant(time.Millisecond) + 1
	stayed := []int64{4, second - 1000, int64(now) - 2}
	travelled := []int64{2, second, int64(now) - 1}
	for _, order := range [][2][]int64{{stayed, travelled}, {travelled, stayed}} {
		if w := merged(l, now, order[0], order[1]); !slices.Equal(w, travelled) {
			t.Errorf("%v and %v make %v, want %v", order[0], order[1], w, travelled)
		}
	}
}

// TestMergeCountsOnce: a state that was copied, and comes back a little later than it was, makes
// nothing of the one that has stayed count twice.
func TestMergeCountsOnce(t *testing.T) {
	const now = Instant(1_700_000_123_456_789_012)
	forEveryShape(t, func(t *rapid.T, l *Limit) {
		stayed, travelled := make([]int64, l.words()), make([]int64, l.words())
		late := Instant(rapid.Int64Range(0, int64(l.Per)).Draw(t, "late"))
		at := now - Instant(l.Per) - late
		var d Decision
		for range rapid.IntRange(1, 2).Draw(t, "takes") {
			at += Instant(rapid.Int64Range(0, int64(l.Per)/2).Draw(t, "step"))
			l.decide(stayed, at, 2, &d)
			l.decide(travelled, at+late, 2, &d)
		}
		var one, two, both Decision
		l.decide(merged(l, now, stayed), now, 0, &one)
		l.decide(merged(l, now, travelled), now, 0, &two)
		l.decide(merged(l, now, stayed, travelled), now, 0, &both)
		if both.Remaining != min(one.Remaining, two.Remaining) {
			t.Fatalf("%v: %v, and %v that comes %v late, make %+v, from\n%+v and\n%+v",
				l.Algorithm, stayed, travelled, late, both, one, two)
		}
	})
}
