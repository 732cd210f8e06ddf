package limiter_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/limiter"
)

// TestStatedEqualsPlain: while a limit stays the same, stating it with each request makes no
// difference: a stated bucket decides as a gcra, a stated window as a fixed one from the first hit,
// for as long as no more is given back than was taken.
func TestStatedEqualsPlain(t *testing.T) {
	for stated, plain := range map[limiter.Algorithm]limiter.Algorithm{
		limiter.StatedBucket: limiter.GCRA, limiter.StatedWindow: limiter.FixedWindow,
	} {
		t.Run(stated.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				// An interval of whole nanoseconds: with a fraction, gcra rounds in time and a
				// stated bucket in tokens.
				spec := limiter.Spec{
					Name: "drawn", Algorithm: plain,
					Limit: rapid.Int64Range(1, 1000).Draw(t, "limit"),
				}
				spec.Per = time.Duration(spec.Limit * rapid.Int64Range(int64(limiter.MinPer),
					int64(time.Hour)).Draw(t, "interval"))
				if plain == limiter.GCRA {
					spec.Burst = rapid.Int64Range(0, 2000).Draw(t, "burst")
				} else {
					spec.Anchor = limiter.FirstHit
				}
				p := mustNew(t, spec)
				spec.Algorithm, spec.Anchor = stated, limiter.Epoch
				s := mustNew(t, spec)
				// tables of their own: in one, a limit's namesake would count as changed
				table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
				other := limiter.NewTable(limiter.TableConfig{Bytes: 1})
				now := start
				for range rapid.IntRange(1, 40).Draw(t, "requests") {
					now += limiter.Instant(rapid.OneOf(
						rapid.Just(int64(0)), rapid.Int64Range(0, int64(spec.Per)/spec.Limit),
						rapid.Int64Range(0, int64(spec.Per)),
						rapid.SampledFrom([]int64{int64(spec.Per), int64(spec.Per) / spec.Limit}),
					).Draw(t, "step"))
					if stated == limiter.StatedWindow {
						now -= now % limiter.Instant(time.Millisecond) // where its windows begin
					}
					used := p.Capacity() - table.Peek(now, p, "k", 1, 0).Remaining
					cost := rapid.OneOf(rapid.Just(int64(1)),
						rapid.Int64Range(-used, p.Capacity()+1)).Draw(t, "cost")
					got, want := other.Take(now, s, "k", 1, cost), table.Take(now, p, "k", 1, cost)
					if got != want {
						t.Fatalf("cost %d:\n got %+v\nwant %+v", cost, got, want)
					}
				}
			})
		})
	}
}

func stated(limit int64, per time.Duration) func(*limiter.Spec) {
	return func(s *limiter.Spec) { s.Limit, s.Per = limit, per }
}

// TestStatedWindow: the limit and the period are the request's, the count and the beginning are the
// key's.
func TestStatedWindow(t *testing.T) {
	hour := limiter.Spec{
		Name: "stated", Algorithm: limiter.StatedWindow, Limit: 100,
		Per: time.Hour,
	}
	const t0 = time.Minute
	transcript(t, hour, []row{
		{t0, nil, 1, true, 99},
		{t0, nil, 1, true, 98},
		{t0, stated(10, time.Hour), 1, true, 7},
		{t0, stated(10, time.Hour), 1, true, 6},
		{t0, stated(200, time.Hour), 1, true, 195},
		{t0, stated(2, time.Hour), 1, false, 0},
		{t0, stated(10, time.Hour), 1, true, 4}, // nothing was minted
		// A longer period: the window is the same one, and lasts longer.
		{t0 + 59*time.Minute, stated(10, 2*time.Hour), 1, true, 3},
		{t0 + 2*time.Hour - 1, stated(10, 2*time.Hour), 4, false, 3},
		{t0 + 2*time.Hour, stated(10, 2*time.Hour), 4, true, 6},
		// A shorter one, and its end has passed: a window is opened before it is decided.
		{t0 + 2*time.Hour + time.Second, stated(4, time.Second), 0, true, 4},
		{t0 + 2*time.Hour + time.Second, stated(4, time.Second), 3, true, 1},
	})
	// What a window that has been charged for a second has counted is not counted for an hour.
	transcript(t, hour, []row{
		{t0, stated(10, time.Second), 10, true, 0},
		{t0, stated(10, time.Hour), 1, false, 0},
		{t0 + time.Second, stated(10, time.Hour), 1, true, 9},
	})
}

// TestStatedWindowOfACalendar: such a window is one that requests may state too, and meets what was
// counted before.
func TestStatedWindowOfACalendar(t *testing.T) {
	by := func(c limiter.Calendar) func(*limiter.Spec) {
		return func(s *limiter.Spec) { s.Calendar, s.Per = c, 0 }
	}
	const t0 = 90 * time.Minute // 1970-01-01 01:30:00
	transcript(t, limiter.Spec{
		Name: "calendar", Algorithm: limiter.StatedWindow, Limit: 10,
		Per: time.Hour,
	}, []row{
		{t0, by(limiter.Hours), 4, true, 6},
		{t0 + 30*time.Minute - 1, by(limiter.Hours), 7, false, 6},
		{t0 + 30*time.Minute, by(limiter.Hours), 7, true, 3}, // 02:00
		{t0 + 31*time.Minute, by(limiter.Minutes), 1, true, 9},
		{t0 + 31*time.Minute, by(limiter.Days), 1, true, 8},
		{24*time.Hour - 1, by(limiter.Days), 1, true, 7},
		{24 * time.Hour, by(limiter.Days), 1, true, 9},
		{25 * time.Hour, nil, 1, true, 9}, // a day that began an hour ago is no hour any more
		{25*time.Hour + 59*time.Minute, nil, 1, true, 8},
		{26 * time.Hour, nil, 1, true, 9},
		{26 * time.Hour, by(limiter.Months), 1, true, 8},
		{31*24*time.Hour - 1, by(limiter.Months), 1, true, 7},
		{31 * 24 * time.Hour, by(limiter.Months), 1, true, 9},
	})
}

// TestStatedWindowCredit: what is given back beyond what was taken may be taken on top of the
// limit, in this window.
func TestStatedWindowCredit(t *testing.T) {
	transcript(t, limiter.Spec{
		Name: "credit", Algorithm: limiter.StatedWindow, Limit: 2,
		Per: time.Second,
	}, []row{
		{time.Minute, nil, -1, true, 3},
		{time.Minute, nil, -1, true, 4},
		{time.Minute, nil, 5, false, 4},
		{time.Minute, nil, 4, true, 0},
		{time.Minute, nil, 1, false, 0},
		{time.Minute, nil, -1, true, 1},
		{time.Minute, nil, -9, true, 10},
		{time.Minute + time.Second, nil, 0, true, 2},
		{time.Minute, nil, math.MinInt64, true, 2 + 1<<61},
	})
}

// TestStatedBucket: what is in the bucket stays in it when the limit changes, as far as it fits.
func TestStatedBucket(t *testing.T) {
	const per = 9 * time.Second
	transcript(t, limiter.Spec{
		Name: "stated", Algorithm: limiter.StatedBucket, Limit: 100,
		Per: per,
	}, []row{
		{time.Minute, nil, 1, true, 99},
		{time.Minute, stated(10, per), 1, true, 9},
		{time.Minute, stated(10, per), 1, true, 8},
		{time.Minute, nil, 0, true, 8}, // a larger limit brings no token by itself
		{time.Minute, stated(1, per), 1, true, 0},
		{time.Minute, nil, 1, false, 0},
		{time.Minute + 90*time.Millisecond, nil, 1, true, 0},
		{time.Minute + 90*time.Millisecond + per/2, stated(2, per), 2, false, 1},
	})
	// Thirds of a token add up, with any peeks in between.
	transcript(t, limiter.Spec{
		Name: "thirds", Algorithm: limiter.StatedBucket, Limit: 10,
		Per: 30 * time.Second,
	}, []row{
		{60 * time.Second, nil, 1, true, 9},
		{61 * time.Second, nil, 1, true, 8},
		{62 * time.Second, nil, 1, true, 7},
		{63*time.Second - 1, nil, 0, true, 7},
		{63 * time.Second, nil, 0, true, 8},
		{63 * time.Second, nil, 8, true, 0},
		{66 * time.Second, nil, 1, true, 0},
		{66 * time.Second, nil, 1, false, 0},
		{50 * time.Second, nil, 1, false, 0}, // a clock that goes back brings nothing
		{96 * time.Second, nil, 0, true, 10},
	})
	transcript(t, limiter.Spec{
		Name: "back", Algorithm: limiter.StatedBucket, Limit: 10,
		Per: 10 * time.Second,
	}, []row{
		{60 * time.Second, nil, 5, true, 5},
		{55 * time.Second, nil, 1, true, 4},
		{60 * time.Second, nil, 0, true, 4}, // the same seconds bring nothing twice
		{61 * time.Second, nil, 0, true, 5},
	})
}

// TestStatedWaits: a refused caller is told when there will be room, also if the clock has gone
// back.
func TestStatedWaits(t *testing.T) {
	l := mustNew(t, limiter.Spec{
		Name: "waits", Algorithm: limiter.StatedBucket, Limit: 10,
		Per: 10 * time.Second,
	})
	table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
	table.Take(start, l, "k", 1, 10)
	for at, want := range map[time.Duration]time.Duration{
		0:           3 * time.Second,
		time.Second: 2 * time.Second, -5 * time.Second: 8 * time.Second,
	} {
		if d := table.Peek(start.Add(at), l, "k", 1, 3); d.Allowed || d.RetryAfter != want {
			t.Errorf("at %v: %+v, want %v", at, d, want)
		}
	}
}

// TestStatedTravels: a state that moves to a node with a clock that is days away stays the same,
// and ends at the same time.
func TestStatedTravels(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.StatedWindow, limiter.StatedBucket} {
		l := mustNew(t, limiter.Spec{Name: "travels", Algorithm: a, Limit: 10, Per: time.Hour})
		from := limiter.NewTable(limiter.TableConfig{Bytes: 1})
		from.Take(start, l, "k", 1, 10)
		var words []int64
		from.Each(start, func(_ *limiter.Limit, _ string, state []int64, _ limiter.Decision) bool {
			words = slices.Clone(state)
			return false
		})
		for _, there := range []limiter.Instant{
			start.Add(-48 * time.Hour), start,
			start.Add(48 * time.Hour),
		} {
			state, err := l.DecodeState(l.EncodeState(words, start), there)
			if err != nil {
				t.Fatal(err)
			}
			to := limiter.NewTable(limiter.TableConfig{Bytes: 1})
			to.Merge(there, l, "k", limiter.Hash("k"), state)
			if d := to.Peek(there, l, "k", limiter.Hash("k"), 1); d.Allowed || d.Remaining != 0 ||
				d.ResetAfter > time.Hour || d.ResetAfter < time.Hour-time.Millisecond {
				t.Errorf("%v, %v away: %+v", a, time.Duration(there-start), d)
			}
			if n := to.Sweep(there.Add(time.Hour-2*time.Millisecond), 100); n != 0 {
				t.Errorf("%v, %v away: forgotten too early", a, time.Duration(there-start))
			}
			if n := to.Sweep(there.Add(time.Hour), 100); n != 1 {
				t.Errorf("%v, %v away: kept for ever", a, time.Duration(there-start))
			}
		}
	}
}

// TestStatedDrain: a refused request that drains takes what there is, the first one of a key as
// well as a later one.
func TestStatedDrain(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.StatedWindow, limiter.StatedBucket} {
		l := mustNew(t, limiter.Spec{Name: "drain", Algorithm: a, Limit: 10, Per: 10 * time.Second})
		for _, first := range []int64{0, 1} {
			table := limiter.NewTable(limiter.TableConfig{Bytes: 1})
			table.Take(start, l, "k", 1, first)
			if d := table.Take(start, l, "k", 1, 100); d.Allowed || d.Remaining != 10-first {
				t.Errorf("%v: without the flag: %+v", a, d)
			}
			if d := table.Do(start, l, "k", 1,
				limiter.Request{Cost: 100, Drain: true}); d.Allowed || d.Remaining != 0 ||
				d.Drained != 10-first {
				t.Errorf("%v: %+v", a, d)
			}
			if d := table.Take(start, l, "k", 1, 1); d.Allowed {
				t.Errorf("%v: after it: %+v", a, d)
			}
			if d := table.Peek(start.Add(10*time.Second), l, "k", 1, 0); d.Remaining != 10 {
				t.Errorf("%v: at the end: %+v", a, d)
			}
		}
	}
}

// TestStatedNewcomersShareNoCell: in a full table too, stating another limit for another key of the
// same name refunds no key.
func TestStatedNewcomersShareNoCell(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.StatedWindow, limiter.StatedBucket} {
		table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
		filler := mustNew(t, limiter.Spec{
			Name: "filler", Algorithm: limiter.GCRA, Limit: 2,
			Per: limiter.MaxPer,
		})
		for i := 0; table.Stats().Overflowed == 0; i++ {
			key := fmt.Sprint(i)
			table.Take(start, filler, key, limiter.Hash(key), 1)
		}
		slow := mustNew(t, limiter.Spec{Name: "stated", Algorithm: a, Limit: 10, Per: time.Hour})
		fast := mustNew(t, limiter.Spec{Name: "stated", Algorithm: a, Limit: 10, Per: time.Second})
		if d := table.Take(start, slow, "slow", 1, 10); !d.Allowed {
			t.Fatalf("%v: %+v", a, d)
		}
		later := start.Add(2 * time.Second)
		table.Take(later, fast, "fast", 1, 1)
		if d := table.Take(later, slow, "slow", 1, 1); d.Allowed {
			t.Errorf("%v: after 10 of 10 an hour: %+v", a, d)
		}
	}
}
