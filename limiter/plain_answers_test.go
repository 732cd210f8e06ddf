package limiter

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// Promise: a wait is told up to a part of so many percent longer, evenly, and never shorter; the
// longest there is stays the longest.
func TestSpreadsInPlainWords(t *testing.T) {
	sum, n := 0.0, 0
	for seed := range uint64(40000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		a := Answers{Spread: oneOf(draw, 0, 1, 50, 99, 100, draw.IntN(101))}
		retry := oneOf(draw, Never, 0, 1, 99, 100, time.Second, time.Duration(draw.Int64N(1e12)),
			math.MaxInt64, math.MaxInt64-1, math.MaxInt64/2, math.MaxInt64/2+1)
		now, hash := Instant(draw.Int64()), draw.Uint64()
		got := a.SpreadRetry(now, hash, retry)
		more := product(max(0, int64(retry)), int64(a.Spread))
		most := more.Quo(more, big.NewInt(100)).Add(more, big.NewInt(int64(retry)))
		if got < retry || big.NewInt(int64(got)).Cmp(most) > 0 ||
			got != a.SpreadRetry(now, hash, retry) {
			t.Fatalf("seed %d: %v is told as %v, with a spread of %d %%", seed, retry, got,
				a.Spread)
		}
		if retry == time.Second && a.Spread == 100 {
			sum, n = sum+float64(got-retry)/float64(retry), n+1
		}
	}
	if mean := sum / float64(n); n < 300 || mean < 0.45 || mean > 0.55 {
		t.Errorf("of %d waits the part that is told is %.2f of the most", n, mean)
	}
}

// Promise: an override gives its limit, burst and refill in place of the limit's, or none at all;
// it gives one of them, or is unlimited, but not both.
func TestOverridesInPlainWords(t *testing.T) {
	for _, s := range []Spec{
		{Name: "l", Algorithm: GCRA, Limit: 6, Burst: 5, Per: time.Minute},
		{Name: "l", Algorithm: GCRA, Limit: 6, Per: time.Minute},
		{Name: "l", Algorithm: TokenBucket, Limit: 6, Refill: 4, Per: time.Minute},
	} {
		for i := range 3 * 3 * 3 * 2 {
			o := Override{
				Key: "a*", Limit: int64(i%3) * 10, Burst: int64(i/3%3) * 7,
				Refill: int64(i/9%3) * 2, Unlimited: i >= 27,
			}
			given := o.Limit != 0 || o.Burst != 0 || o.Refill != 0
			l, err := New(s, o)
			var bad *SpecError
			field := ""
			if errors.As(err, &bad) {
				field = bad.Field
			}
			want := s
			want.Override = o.Key
			for of, to := range map[*int64]int64{
				&want.Limit: o.Limit, &want.Burst: o.Burst, &want.Refill: o.Refill,
			} {
				if to != 0 {
					*of = to
				}
			}
			switch {
			case o.Unlimited && given:
				if field != "overrides[0].unlimited" {
					t.Errorf("%+v: %v", o, err)
				}
			case o.Unlimited:
				if d := without(l.For("ab")); err != nil || !l.For("ab").Unlimited || !d.Allowed ||
					d.Limit != MaxLimit || d.Remaining != MaxLimit || l.For("b") != l {
					t.Errorf("%+v: %+v, %v", o, d, err)
				}
			case !given:
				if field != "overrides[0].key" {
					t.Errorf("%+v: %v", o, err)
				}
			case o.Burst != 0 && s.Algorithm == TokenBucket:
				if field != "overrides[0].burst" {
					t.Errorf("%+v: %v", o, err)
				}
			case o.Refill != 0 && s.Algorithm == GCRA:
				if field != "overrides[0].refill" {
					t.Errorf("%+v: %v", o, err)
				}
			default:
				if err != nil || l.For("ab").Spec != filled(want) || l.For("b") != l {
					t.Errorf("%+v: %+v, %v", o, l, err)
				}
			}
		}
	}
}

// Promise: a bucket by the clocks of clients has periods and amounts of its own.
func TestBoundsOfClients(t *testing.T) {
	for _, c := range []struct {
		per         time.Duration
		limit, debt int64
		good        bool
	}{
		{MaxClientPer, math.MaxInt64, 0, true},
		{MaxClientPer + time.Second, 5, 0, false},
		{MaxPer + time.Second, 5, 0, true},
		{MinPer, MaxLimit, 1, true},
		{MinPer, MaxLimit + 1, 1, false},
		{MinPer, MaxLimit + 1, 0, true},
	} {
		s := Spec{
			Name: "l", Algorithm: TokenBucket, Limit: c.limit, Per: c.per, MaxDebt: c.debt,
			ClientTime: true,
		}
		if _, err := New(s); (err == nil) != c.good {
			t.Errorf("%+v: %v", c, err)
		}
		s.ClientTime = false
		if _, err := New(s); (err == nil) != (c.per <= MaxPer && c.limit <= MaxLimit) {
			t.Errorf("%+v by the clock of the owner: %v", c, err)
		}
	}
}

// Promise: whatever a table is asked for at an instant out of range, it answers as at the nearest
// one in range.
func TestAllAtInstantsOutOfRange(t *testing.T) {
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 6, Per: MaxPer, MaxDebt: 3}))
	hash := Hash("k")
	items := []Item{{l, "k", hash, Request{Cost: 1}}}
	out := make([]Decision, 1)
	for i, do := range []func(table *Table, now Instant) string{
		func(table *Table, now Instant) string {
			return fmt.Sprint(table.Sweep(now, 100))
		},
		func(table *Table, now Instant) string {
			return fmt.Sprint(table.Peek(now, l, "k", hash, 1))
		},
		func(table *Table, now Instant) string {
			return fmt.Sprint(table.Take(now, l, "k", hash, 7))
		},
		func(table *Table, now Instant) string {
			return fmt.Sprint(table.Reset(now, l, "k", hash))
		},
		func(table *Table, now Instant) string {
			return fmt.Sprint(table.TakeAll(now, items, out), out)
		},
		func(table *Table, now Instant) string {
			return fmt.Sprint(table.reserveAll(now, items, out), out)
		},
		func(table *Table, now Instant) string {
			return fmt.Sprint(table.putBack(now, l, "k", hash, 0, 1))
		},
		func(table *Table, now Instant) string {
			return fmt.Sprint(table.Entry(now, l, "k", hash).State, table.Save(now, 0)[0].State)
		},
		func(table *Table, now Instant) (said string) {
			table.Scan(now, 0, func(uint64) bool { return true }, func(_ uint64, e Entry) {
				said += fmt.Sprint(e.State)
			})
			return said
		},
		func(table *Table, now Instant) (said string) {
			table.Changed(now, func(_ uint64, e Entry) { said += fmt.Sprint(e.State) })
			return said
		},
		func(table *Table, now Instant) (said string) {
			table.Keys(now, "", Cursor{}, 9, func(_ *Limit, key string, d Decision) {
				said += fmt.Sprint(key, d)
			})
			return said
		},
		func(table *Table, now Instant) (said string) {
			table.Each(now, func(_ *Limit, key string, w []int64, d Decision) bool {
				said += fmt.Sprint(key, w, d)
				return true
			})
			return said
		},
		func(table *Table, now Instant) string {
			table.Merge(now, l, "m", hash, []int64{int64(within(now)) + 1000})
			e := Entry{Limit: l, Key: "i", State: l.EncodeState([]int64{5000}, 1)}
			good, at := table.Import(now, &e, false), within(now)
			return fmt.Sprint(good, table.Peek(at, l, "m", hash, 0),
				table.Peek(at, l, "i", Hash("i"), 0))
		},
		func(_ *Table, now Instant) string {
			b := l.EncodeState([]int64{int64(within(now)) + 1000}, now)
			w, err := l.DecodeState(b, now)
			return fmt.Sprint(b, w, err)
		},
	} {
		for _, now := range []Instant{math.MinInt64, earliest - 5, latest + 5, math.MaxInt64} {
			var said [2]string
			for k, at := range []Instant{now, within(now)} {
				table := NewTable(TableConfig{Bytes: 1, Shards: 1})
				table.Track()
				table.Take(at, l, "k", hash, 5)
				said[k] = do(table, at)
			}
			if said[0] != said[1] || said[0] == "" {
				t.Errorf("%d: at %d: %s, want %s", i, now, said[0], said[1])
			}
		}
	}
}
