package limiter

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestWindowsComeToAnotherClock: where two clocks are not in step, all that was charged in a window
// in force, and lies in the window of the other clock, counts there.
func TestWindowsComeToAnotherClock(t *testing.T) {
	for _, a := range []Algorithm{FixedWindow, SlidingWindow} {
		t.Run(a.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { comeToAnotherClock(t, a) })
		})
	}
}

func comeToAnotherClock(t *rapid.T, a Algorithm) {
	per := rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second, time.Minute}).
		Draw(t, "per")
	l := mustBe(New(Spec{Name: "l", Algorithm: a, Limit: 100, Per: per}))
	part := func(from, to int, of string) time.Duration { // of a window
		return per * time.Duration(rapid.IntRange(from, to).Draw(t, of)) / 64
	}
	ahead := per*time.Duration(rapid.IntRange(-2, 2).Draw(t, "windows")) + part(12, 52, "ahead")
	way := time.Duration(rapid.Int64Range(0, int64(time.Millisecond)).Draw(t, "way"))
	begin := Instant(1_700_000_040_000_000_000)
	begin -= begin % Instant(per)
	var charged []Instant // by the clock of the one that charges
	w := make([]int64, l.words())
	at := begin
	for range rapid.IntRange(1, 6).Draw(t, "charges") {
		next := at.Add(part(1, 32, "step"))
		if next >= begin.Add(per) {
			break
		}
		at = next
		charged = append(charged, at)
		var d Decision
		l.decide(w, at, 1, &d)
	}
	if len(charged) == 0 {
		return
	}
	now := min(at.Add(part(0, 16, "later")), begin.Add(per)-1)
	there := now.Add(ahead + way)
	state, err := l.DecodeState(l.EncodeState(w, now), there)
	if err != nil {
		t.Fatal(err)
	}
	start, lie := Instant(floorTo(int64(there), int64(per))), int64(0)
	for _, x := range charged {
		if x.Add(ahead) >= start {
			lie++
		}
	}
	var d Decision
	if l.decide(state, there, 0, &d); d.Remaining > 100-lie {
		t.Errorf("%d are left, but %d of 100 were charged in the window of this clock, %v ahead",
			d.Remaining, lie, ahead)
	}
}

// TestPartsComeToAnotherClock: where two clocks are not in step, a unit of a sliding counter is
// over no earlier than on the clock by which it was charged.
func TestPartsComeToAnotherClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const per = 10 * time.Second
		l := mustBe(New(Spec{
			Name: "l", Algorithm: SlidingCounter, Limit: 100, Per: per,
			Buckets: rapid.SampledFrom([]int{2, 4, 10}).Draw(t, "buckets"),
		}))
		w := make([]int64, l.words())
		at := Instant(1_700_000_040_000_000_000)
		var d, here, there Decision
		for range rapid.IntRange(1, 6).Draw(t, "charges") {
			at = at.Add(per * time.Duration(rapid.IntRange(0, 12).Draw(t, "step")) / 64)
			l.decide(w, at, 1, &d)
		}
		ahead := per * time.Duration(rapid.IntRange(-128, 128).Draw(t, "ahead")) / 64
		if _, shared := sharedBoundary(int64(ahead), l.step); shared {
			return
		}
		state, err := l.DecodeState(l.EncodeState(w, at), at.Add(ahead))
		if err != nil {
			t.Fatal(err)
		}
		later := per * time.Duration(rapid.IntRange(0, 80).Draw(t, "later")) / 64
		l.decide(w, at.Add(later), 0, &here)
		l.decide(state, at.Add(ahead+later), 0, &there)
		if there.Remaining > here.Remaining {
			t.Errorf("%d are left on a clock that is %v ahead, and %d on the one before, %v later",
				there.Remaining, ahead, here.Remaining, later)
		}
	})
}

// TestPartsComeToOtherClocksAgain: a key that goes to and fro between two clocks that are not in
// step is over a sub-window later than on one of them at most, however often it comes.
func TestPartsComeToOtherClocksAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const per = 10 * time.Second
		l := mustBe(New(Spec{
			Name: "l", Algorithm: SlidingCounter, Limit: 100, Per: per,
			Buckets: rapid.SampledFrom([]int{1, 2, 4, 10}).Draw(t, "buckets"),
			Lenient: rapid.Bool().Draw(t, "lenient"),
		}))
		w := make([]int64, l.words())
		at := Instant(1_700_000_040_000_000_000).Add(time.Duration(rapid.Int64Range(0, int64(per)).
			Draw(t, "at")))
		var d Decision
		l.decide(w, at, 1, &d)
		ahead := per * time.Duration(rapid.IntRange(1, 63).Draw(t, "ahead")) / 64
		for range rapid.IntRange(1, 12).Draw(t, "times") {
			var err error
			if w, err = l.DecodeState(l.EncodeState(w, at), at.Add(ahead)); err != nil {
				t.Fatal(err)
			}
			at, ahead = at.Add(ahead), -ahead
		}
		if l.decide(w, at, 0, &d); d.ResetAfter > per+2*time.Duration(l.step) {
			t.Errorf("what was charged now is over in %v", d.ResetAfter)
		}
	})
}

// TestInstantsStayWithinBounds: whatever another node says, no instant of a merged state is out of
// the range of clocks, where sums would turn into their contrary.
func TestInstantsStayWithinBounds(t *testing.T) {
	const now = Instant(1_700_000_123_456_789_012)
	forEveryShape(t, func(t *rapid.T, l *Limit) {
		switch l.Algorithm {
		case GCRA, LeakyBucket, StatedBucket, StatedWindow:
			return // they say when all will be over, which has bounds of its own
		}
		w := make([]int64, l.words())
		words := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{
			math.MinInt64, math.MaxInt64, int64(earliest) - 1, int64(latest) + 1,
		}))
		for i := range w {
			w[i] = words.Draw(t, "word")
		}
		m := merged(l, now, w)
		moved := slices.Clone(m)
		l.shift(moved, 1)
		for i := range m {
			if m[i] != moved[i] && (m[i] < int64(earliest) || m[i] > int64(latest)) {
				t.Fatalf("%d of %v, from %v, is out of bounds", i, m, w)
			}
		}
	})
}

// TestNearestBoundary: the boundary on which a mark lands is the nearest one, and that of the last
// instant there is for a mark behind it.
func TestNearestBoundary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mark := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{
			math.MinInt64, math.MaxInt64, int64(earliest) - 1, int64(latest) + 1,
		})).Draw(t, "mark")
		step := int64(time.Second) * rapid.Int64Range(1, 1000).Draw(t, "step")
		at := nearest(mark, step)
		within := min(max(mark, int64(earliest)), int64(latest))
		if at%step != 0 || max(at-within, within-at) > step/2 {
			t.Fatalf("%d lands at %d in steps of %d", mark, at, step)
		}
	})
}
