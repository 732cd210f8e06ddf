package limiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A settled state is what is left of a state at now, as the words say that it is kept; bad numbers
// are the nearest good ones. It is zeros if that is nothing.

func settledWindow(l *Limit, w []int64, now int64) []int64 {
	start, count := inTime(w[0]), between(w[1], 0, maxCount)
	if l.Anchor == Epoch {
		start = floorTo(start, int64(l.Per))
	}
	if count == 0 || now >= start+int64(l.Per) {
		return make([]int64, 2)
	}
	return []int64{start, count}
}

func inTime(x int64) int64 { return between(x, int64(earliest), int64(latest)) }

func settledSliding(l *Limit, w []int64, now int64) []int64 {
	per := int64(l.Per)
	start := floorTo(inTime(w[0]), per)
	current, previous := between(w[1], 0, maxCount), between(w[2], 0, maxCount)
	if now >= start+per {
		start, current, previous = start+per, 0, current
	}
	inside := start + per - max(now, start)
	seen := product(previous, max(0, inside))
	if seen.Quo(seen, product(per)); current == 0 && seen.Sign() == 0 || inside <= 0 {
		return make([]int64, 3)
	}
	return []int64{start, current, previous}
}

func settledParts(l *Limit, w []int64, now int64) []int64 {
	newest := floorTo(inTime(w[0]), l.step)
	at, sum := max(now, newest), int64(0)
	out := make([]int64, len(w))
	out[0] = floorTo(at, l.step)
	for i, count := range w[1:] {
		begin := newest - int64(i)*l.step
		over := begin + int64(l.Per) + l.step
		if l.Lenient {
			over = begin + int64(l.Per) + 1
		}
		if at < over {
			count = between(count, 0, maxCounter)
			out[1+(out[0]-begin)/l.step] = count
			sum += count
		}
	}
	if sum == 0 {
		clear(out)
	}
	return out
}

func settledBucket(l *Limit, w []int64, now int64) []int64 {
	missing := between(w[0], 0, min(1<<61, int64(MaxFill/l.Per)*l.Refill))
	mark, per := inTime(w[1]), int64(l.Per)
	if l.Anchor == Epoch {
		mark = floorTo(mark, per)
	}
	if missing == 0 && mark == 0 {
		return make([]int64, 2)
	}
	refills := min((now-mark)/per, (missing+l.Refill-1)/l.Refill) // the last one may be in part
	if refills > 0 {
		missing, mark = max(0, missing-refills*l.Refill), mark+refills*per
	}
	switch {
	case missing == 0 && l.Anchor == Epoch:
		mark = 0
	case missing == 0 && mark == 0:
		mark = -per
	}
	return []int64{missing, mark}
}

// settledClients is settledBucket of a bucket that goes by the clocks of clients: it is forgotten
// when it was not asked for as long as it takes to fill, and its marks are refilled together.
func settledClients(l *Limit, w []int64, now int64) []int64 {
	out, ms := slices.Clone(w), int64(l.Per/time.Millisecond)
	for i := 1; i < len(w); i++ {
		out[i] = max(w[i], earliestMillis)
	}
	out[0] = between(w[0], 0, max(l.Limit, 2<<40))
	if l.Anchor == Epoch {
		if out[1] = floorTo(out[1], ms); out[1] < earliestMillis {
			out[1] += ms
		}
	}
	out[2] = min(out[2], int64(latest))
	fills := (max(out[0], l.Limit) + l.Refill - 1) / l.Refill
	if zero(out[:2]) || l.Anchor == Epoch && out[0] == 0 || (now-out[2])/int64(l.Per) >= fills {
		clear(out)
	}
	return out
}

// refilledTogether is the larger of each word of two such buckets, at the later mark if there are
// marks in common, but none after now.
func refilledTogether(l *Limit, a, b []int64, now int64) []int64 {
	ms := int64(l.Per / time.Millisecond)
	later := min(max(a[1], b[1]), floorTo(floorTo(now, 1e6)/1e6, ms))
	up := func(w []int64) []int64 {
		w = slices.Clone(w)
		if l.Anchor == Epoch && w[1] < later {
			apart := product(later)
			apart.Sub(apart, product(w[1])).Quo(apart, product(ms)).Mul(apart, product(l.Refill))
			if !apart.IsInt64() {
				apart = product(w[0])
			}
			w[0], w[1] = max(0, w[0]-apart.Int64()), later
		}
		return w
	}
	switch a, b = up(a), up(b); {
	case zero(a):
		return b
	case zero(b):
		return a
	}
	return larger(a, b)
}

// larger is the larger of each word.
func larger(a, b []int64) []int64 {
	out := slices.Clone(a)
	for i := range out {
		out[i] = max(a[i], b[i])
	}
	return out
}

// largerSums is the later first word, and behind it the larger sum of the first k, for each k.
func largerSums(a, b []int64) []int64 {
	out, sumA, sumB, sum := []int64{max(a[0], b[0])}, int64(0), int64(0), int64(0)
	for i := range a[1:] {
		sumA, sumB = sumA+a[1+i], sumB+b[1+i]
		out = append(out, max(sumA, sumB)-sum)
		sum = max(sumA, sumB)
	}
	return out
}

// laterArrival is the later arrival time, which may have a fraction behind it.
func laterArrival(a, b []int64) []int64 {
	switch {
	case b[0] > a[0], b[0] == a[0] && len(a) > 1 && uint64(b[1]) > uint64(a[1]):
		return b
	}
	return a
}

// Promise: two states of a key are settled; if nothing is left of one the other one holds, else
// of windows and buckets the larger of each word, of counts the larger sums, of meters the later
// arrival.
func TestMergersInPlainWords(t *testing.T) {
	type kind struct {
		spec    Spec
		settled func(l *Limit, w []int64, now int64) []int64
		both    func(a, b []int64) []int64
	}
	asIs := func(_ *Limit, w []int64, _ int64) []int64 { return w }
	kinds := []kind{
		{Spec{Algorithm: FixedWindow}, settledWindow, larger},
		{Spec{Algorithm: FixedWindow, Anchor: FirstHit}, settledWindow, larger},
		{Spec{Algorithm: SlidingWindow}, settledSliding, largerSums},
		{Spec{Algorithm: SlidingCounter, Buckets: 3}, settledParts, largerSums},
		{Spec{Algorithm: SlidingCounter, Buckets: 3, Lenient: true}, settledParts, largerSums},
		{Spec{Algorithm: Concurrency, Buckets: 3}, settledParts, largerSums},
		{Spec{Algorithm: TokenBucket, Refill: 2}, settledBucket, larger},
		{Spec{Algorithm: TokenBucket, Anchor: FirstHit, Refill: 2}, settledBucket, larger},
		{Spec{Algorithm: TokenBucket, MaxDebt: 3, OnDeny: DenyDelay}, settledBucket, larger},
		{
			Spec{Algorithm: TokenBucket, ClientTime: true, Refill: 2, MaxDebt: 3},
			settledClients,
			nil,
		},
		{Spec{Algorithm: TokenBucket, ClientTime: true, Anchor: FirstHit}, settledClients, nil},
		{Spec{Algorithm: GCRA, Limit: 4}, asIs, laterArrival},
		{Spec{Algorithm: GCRA}, asIs, laterArrival},
	}
	seen := map[string]int{}
	for seed := range uint64(60000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		k := oneOf(draw, kinds...)
		k.spec.Name, k.spec.Limit, k.spec.Per = "l", max(7, k.spec.Limit), 12*time.Millisecond
		if k.spec.Algorithm == GCRA && seed%2 == 0 {
			k.spec.Limit = 6
		}
		l := mustBe(New(k.spec))
		now := oneOf(draw, Instant(0), 1, -1, Instant(12e6), Instant(1e18), -Instant(1e18))
		words := func() []int64 {
			w := plainWords(draw, now, l.words())
			for i := range w { // most of them near, by parts of a period
				switch at := int64(now) + int64(draw.IntN(13)-8)*4e6; {
				case draw.IntN(3) == 0:
					w[i] = at + int64(draw.IntN(3)-1)
				case i > 0 && draw.IntN(2) == 0:
					w[i] = draw.Int64N(9)
				}
			}
			if l.Algorithm == TokenBucket && draw.IntN(2) == 0 {
				w[0] = draw.Int64N(9)
			}
			if l.ClientTime && draw.IntN(2) == 0 { // a mark that the clients' clocks are near to
				w[1] = int64(now.Millis()) + int64(draw.IntN(50)-40)
			}
			if l.Algorithm == GCRA && w[0] == 0 { // never seen, whatever stands behind it
				clear(w)
			}
			return w
		}
		a, b := words(), words()
		x, y := k.settled(l, a, int64(now)), k.settled(l, b, int64(now))
		want := x
		switch {
		case zero(x):
			want = y
		case !zero(y):
			seen[fmt.Sprint(k.spec.Algorithm)]++
			if k.both != nil {
				want = k.both(x, y)
			} else {
				want = refilledTogether(l, x, y, int64(now))
			}
		}
		got := slices.Clone(a)
		if l.merge(got, slices.Clone(b), now); !slices.Equal(got, want) {
			t.Fatalf("seed %d, at %d: %v and %v of %+v\nmake %v, want %v", seed, now, a, b, l.Spec,
				got, want)
		}
	}
	for _, k := range kinds {
		if n := seen[fmt.Sprint(k.spec.Algorithm)]; n < 500 {
			t.Errorf("%d mergers of %v in which both count; that proves little", n,
				k.spec.Algorithm)
		}
	}
}
