package limiter

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// Tests of this file compare the arithmetic of limits with the same in words and big integers.

func oneOf[T any](draw *rand.Rand, from ...T) T { return from[draw.IntN(len(from))] }

func product(factors ...int64) *big.Int {
	p := big.NewInt(1)
	for _, f := range factors {
		p.Mul(p, big.NewInt(f))
	}
	return p
}

// upwards is a / b, rounded up.
func upwards(a, b *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// plainWaiting is how many units may wait: what comes back in the longest delay, and one more.
func plainWaiting(s Spec) *big.Int {
	if !s.Delays() {
		return new(big.Int)
	}
	n := new(big.Int).Quo(product(s.Limit, int64(s.MaxDelay)), product(int64(s.Per)))
	if s.Algorithm == TokenBucket {
		refills := upwards(product(int64(s.MaxDelay)), product(int64(s.Per)))
		n = refills.Mul(refills, product(s.Refill))
	}
	return n.Add(n, big.NewInt(1))
}

// plainFills reports whether so many units come back within MaxFill.
func plainFills(s Spec, units *big.Int) bool {
	needs := new(big.Int).Mul(units, product(int64(s.Per)))
	most := product(int64(MaxFill), s.Limit)
	if s.Algorithm == TokenBucket {
		needs, most = upwards(units, product(s.Refill)), product(int64(MaxFill))
		needs.Mul(needs, product(int64(s.Per)))
	}
	return needs.Cmp(most) <= 0
}

// plainPays reports whether the largest debt is paid within MaxFill, with all that may wait.
func plainPays(s Spec) bool {
	units := new(big.Int).Add(plainWaiting(s), big.NewInt(s.MaxDebt))
	switch s.Algorithm {
	case GCRA:
		return plainFills(s, units.Add(units, big.NewInt(s.Burst)))
	case LeakyBucket:
		return plainFills(s, product(s.Burst+1+s.MaxDebt))
	case TokenBucket:
		return plainFills(s, units.Add(units, big.NewInt(s.Limit)))
	}
	return true
}

// plainShare is s divided by n: what is divided is rounded down, to one at the least. A bucket that
// would take too long to fill has what comes back in one period, and a debt that would take too
// long to pay is none.
func plainShare(s Spec, n int) Spec {
	of := int64(max(1, n))
	part := func(x int64) int64 { return max(1, x/of) }
	s.Name, _, _ = strings.Cut(s.Name, shareMark)
	s.Name += shareMark
	s.Limit = part(s.Limit)
	switch s.Algorithm {
	case GCRA, StatedBucket:
		s.Burst = part(s.Burst)
		if full := plainWaiting(s); !plainFills(s, full.Add(full, big.NewInt(s.Burst))) {
			s.Burst = s.Limit
		}
	case LeakyBucket:
		if s.Burst = part(s.Burst+1) - 1; !plainFills(s, big.NewInt(s.Burst+1)) {
			s.Burst = s.Limit - 1
		}
	case TokenBucket:
		s.Refill = part(s.Refill)
		full := plainWaiting(s)
		if !s.ClientTime && !plainFills(s, full.Add(full, big.NewInt(s.Limit))) {
			s.Refill = s.Limit
		}
	}
	if s.MaxDebt /= of; !plainPays(s) {
		s.MaxDebt = 0
	}
	return s
}

func drawnSpec(draw *rand.Rand) Spec {
	s := Spec{
		Name: "l", Algorithm: oneOf(draw, GCRA, GCRA, LeakyBucket, TokenBucket, TokenBucket,
			StatedBucket, FixedWindow, SlidingWindow, SlidingLog),
		Per:     oneOf(draw, time.Second, time.Hour, MaxPer, MaxPer/7, MaxPer/73),
		Limit:   oneOf[int64](draw, 1, 2, 3, 7, 10, 100, 2000),
		MaxDebt: oneOf[int64](draw, 0, 0, 1, 20, 70, 500),
	}
	switch s.Algorithm {
	case GCRA, LeakyBucket, StatedBucket:
		s.Burst = oneOf[int64](draw, 0, 1, 5, 30, 72, 73, 200, 5000)
	case TokenBucket:
		s.Refill = oneOf[int64](draw, 0, 1, 2, 7, 39)
		s.ClientTime = draw.IntN(6) == 0
	}
	if (s.Algorithm == GCRA || s.Algorithm == TokenBucket) && draw.IntN(3) == 0 {
		s.OnDeny = DenyDelay
		s.MaxDelay = oneOf(draw, time.Second, time.Second+1, LongestDelay, 2*time.Second-1)
	}
	return s
}

// Promise: see plainShare; so are shares of shares.
func TestSharesInPlainWords(t *testing.T) {
	tried, cut := 0, 0
	for seed := range uint64(20000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		l, err := New(drawnSpec(draw))
		if err != nil {
			continue
		}
		n := oneOf(draw, -1, 0, 1, 2, 3, 5, 7, 10, 21, 1000, math.MaxInt)
		got, want := l.Share(n), plainShare(l.Spec, n)
		if got.Spec != want {
			t.Fatalf("seed %d: a share in %d of\n%+v is\n%+v, want\n%+v", seed, n, l.Spec,
				got.Spec, want)
		}
		if again := got.Share(2).Spec; again != plainShare(want, 2) {
			t.Fatalf("seed %d: half of the share\n%+v is\n%+v", seed, want, again)
		}
		if tried++; want.MaxDebt == 0 && l.MaxDebt/int64(max(1, n)) > 0 ||
			l.Burst > 0 && want.Burst != max(1, l.Burst/int64(max(1, n))) {
			cut++
		}
	}
	if tried < 5000 || cut < 50 {
		t.Errorf("%d shares, %d of them cut for their time: that proves little", tried, cut)
	}
}

// Promise: what may wait, what fills and what pays in time is so to the unit.
func TestTimesToFillInPlainWords(t *testing.T) {
	for seed := range uint64(20000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		s := drawnSpec(draw)
		s.Burst, s.Refill = max(1, s.Burst), max(1, s.Refill)
		if s.OnDeny == DenyDelay && draw.IntN(2) == 0 {
			s.MaxDelay = s.Per*time.Duration(1+draw.IntN(3)) + oneOf(draw, time.Duration(-1), 0, 1)
		}
		if n, ok := s.waitingUnits(); !ok || plainWaiting(s).Cmp(big.NewInt(n)) != 0 {
			t.Fatalf("seed %d: of %+v %d wait: %t, want %v", seed, s, n, ok, plainWaiting(s))
		}
		// as many as just fill in time, of which some are the debt
		most := new(big.Int).Quo(product(int64(MaxFill), s.Limit), product(int64(s.Per))).Int64()
		if s.Algorithm == TokenBucket {
			most = int64(MaxFill/s.Per) * s.Refill
		}
		for _, more := range []int64{-1, 0, 1} {
			if got := fills(most+more, s.Limit, s.Per); s.Algorithm != TokenBucket &&
				got != plainFills(s, big.NewInt(most+more)) {
				t.Fatalf("seed %d: %d of %+v fill: %t", seed, most+more, s, got)
			}
			x := s
			x.MaxDebt = most + more - plainWaiting(s).Int64()
			switch s.Algorithm {
			case GCRA:
				x.MaxDebt -= s.Burst
			case LeakyBucket:
				x.MaxDebt = most + more - s.Burst - 1
			case TokenBucket:
				x.MaxDebt -= s.Limit
			}
			if got := x.paysInTime(); x.MaxDebt >= 0 && got != plainPays(x) {
				t.Fatalf("seed %d: %+v is paid in time: %t", seed, x, got)
			}
		}
		s.Limit = oneOf(draw, s.Limit, MaxLimit/100, MaxLimit/100+1)
		owed := min(max(s.Limit*100, s.Burst*100), MaxLimit)
		if s.Algorithm == SlidingLog {
			owed = MaxLog - s.Limit
		}
		if got := s.mostOwed(); got != owed {
			t.Fatalf("seed %d: %+v may owe %d, want %d", seed, s, got, owed)
		}
	}
	huge := Spec{
		Algorithm: GCRA, Limit: 1 << 40, Per: time.Millisecond, OnDeny: DenyDelay,
		MaxDelay: 1 << 62,
	}
	if n, ok := huge.waitingUnits(); ok {
		t.Errorf("%d units wait of %+v", n, huge)
	}
}

// Promise: of a count that fades, the longest part of a window of which no more than k are inside.
func TestFadingInPlainWords(t *testing.T) {
	for seed := range uint64(20000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		count := oneOf(draw, 2+draw.Int64N(9), 1<<33, 1<<40, 1<<61, 1+draw.Int64N(1<<61))
		k := oneOf(draw, 0, 1, 1<<32-1, count-1, draw.Int64N(count))
		per := oneOf(draw, int64(time.Second), 1<<32, 1<<33, 1<<54, int64(MaxPer),
			1+draw.Int64N(1<<54))
		if k >= count {
			continue
		}
		most := new(big.Int).Mul(product(k+1), product(per))
		most.Sub(most, big.NewInt(1)).Quo(most, product(count))
		if got := fadeTo(count, k, per); most.Cmp(big.NewInt(got)) != 0 {
			t.Fatalf("of %d in %d at most %d are inside for %d, want %v", count, per, k, got, most)
		}
	}
}

// plainWords are the words of a state as any node could send them, most of them near now.
func plainWords(draw *rand.Rand, now Instant, n int) []int64 {
	w := make([]int64, n)
	for i := range w {
		x := int64(now) + oneOf(draw, int64(-2), -1, 0, 1, 2)
		w[i] = oneOf(draw, x, x, 0, 1, 2, -1, -2, 7, MaxLimit, MaxLimit+1, MaxLimit-1,
			int64(earliest), int64(earliest)-1, int64(latest), int64(latest)+1, latestArrival+1,
			maxCount, maxCount+1, -maxCount, -maxCount-1, math.MinInt64, math.MaxInt64,
			x+int64(MaxPer), x+int64(MaxPer)+1)
	}
	return w
}

func between(x, low, high int64) int64 { return max(low, min(x, high)) }

// plainBucket is a stated bucket as a node may believe it: zeros if it is full.
func plainBucket(w []int64, now Instant) []int64 {
	at, left, fraction := between(w[0], int64(earliest), int64(latest)), w[1], w[2]
	full := min(w[3], latestArrival)
	switch {
	case full == 0 || full <= int64(now):
		return make([]int64, 4)
	case left > MaxLimit:
		left, fraction = MaxLimit, 0
	case left < 0:
		left = 0
	}
	return []int64{at, left, fraction, full}
}

// plainWindow is a stated window as a node may believe it: zeros if it is over.
func plainWindow(w []int64, now Instant) []int64 {
	start := between(w[0], int64(earliest), int64(latest))
	end := between(w[2], start, start+int64(MaxPer))
	if w[1] == 0 || w[2] <= int64(now) || end <= int64(now) {
		return make([]int64, 3)
	}
	return []int64{start, between(w[1], -maxCount, maxCount), end}
}

// Promise: of two buckets the lower level holds, from the later instant on and until the later one;
// of two windows the later start and end and the larger count.
func TestStatedMergersInPlainWords(t *testing.T) {
	seen := 0
	for seed := range uint64(60000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		now := oneOf(draw, Instant(0), 1, -1, -5, 1000, Instant(time.Hour), -Instant(time.Hour))
		a, b := plainWords(draw, now, 4), plainWords(draw, now, 4)
		x, y := plainBucket(a, now), plainBucket(b, now)
		want := slices.Clone(x)
		if !zero(y) {
			lower := y
			if !zero(x) {
				if seen++; x[1] > y[1] || x[1] == y[1] && uint64(x[2]) <= uint64(y[2]) {
					lower = x
				}
				want = []int64{max(x[0], y[0]), lower[1], lower[2], max(x[3], y[3])}
			} else {
				want = y
			}
		}
		got := slices.Clone(a)
		if mergeStatedBucket(got, slices.Clone(b), now); !slices.Equal(got, want) {
			t.Fatalf("seed %d, at %d: %v and %v make %v, want %v", seed, now, a, b, got, want)
		}
		a, b = a[:3], b[:3]
		x, y = plainWindow(a, now), plainWindow(b, now)
		switch {
		case zero(x):
			x = y
		case !zero(y):
			if seen++; true {
				x = []int64{max(x[0], y[0]), max(x[1], y[1]), max(x[2], y[2])}
			}
		}
		if want = plainWindow(x, now); zero(x) {
			want = x
		}
		got = slices.Clone(a)
		if mergeStatedWindow(got, slices.Clone(b), now); !slices.Equal(got, want) {
			t.Fatalf("seed %d, at %d: windows %v and %v make %v, want %v", seed, now, a, b, got,
				want)
		}
	}
	if seen < 2000 {
		t.Errorf("%d mergers of two that are seen; that proves little", seen)
	}
}
