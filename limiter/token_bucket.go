package limiter

import (
	"math/bits"
	"time"
)

// The token bucket with discrete refills holds up to Limit tokens, and at every mark, Per apart,
// gets Refill more.
//
//	k = floor((now − mark) / Per);  mark += k×Per;  tokens = min(Limit, tokens + k×Refill)
//	admit c  iff  c ≤ tokens
//
// The first charged request sets the first mark (FirstHit, as Smyte's limiter does), and that phase
// is kept also while the bucket is full. Or the marks lie at multiples of Per since the Unix epoch
// (Epoch, "refilled at the top of the minute"). If the clock goes back, nothing is refilled and no
// mark moves. A bucket with another Limit, Refill or Per is another bucket, and full.
//
// Strict imitates a flag of Smyte's commands. It belongs to no bucket, so one request may have it
// and the next may not. A request that leaves the bucket empty, refused or not, moves the mark to
// now, so a caller that goes on asking waits a whole Per. The mark never moves back. (By the clocks
// of clients it does: see token_bucket_client.go.)
//
// In a half-open span T there are at most ceil(T/Per) marks, so at most Limit + Refill×ceil(T/Per)
// are admitted.
//
// The state is how many tokens are missing, and the mark. A full bucket with a phase is not quite
// one that was never seen, but it cannot be kept for ever. It is forgotten once it has stood full
// for as long as an empty one takes to fill. The next request then sets a new phase, which keeps
// the bound.
const tokenBucketWords = 2

// tokenBucketLimit is the arithmetic of a token bucket that goes by the table's clock.
type tokenBucketLimit Limit

func (l *tokenBucketLimit) decide(w []int64, now Instant, cost int64, d *Decision) {
	missing, mark := l.bucketAt(w, now)
	switch {
	case cost > l.Limit-missing && cost > 0:
		if l.Strict && missing >= l.Limit {
			mark = l.charge(w, now, missing, mark)
		}
		if cost > l.Limit {
			d.Allowed = false
			break
		}
		wait := l.until(l.Limit-cost, missing, mark, now)
		if d.delays(uint64(wait), uint64(l.MaxDelay)) {
			missing += cost
			l.store(w, missing, mark)
		}
	case cost > 0:
		missing += cost
		mark = l.charge(w, now, missing, mark)
	case cost < 0 && missing > l.Limit && l.MaxDelay > 0: // callers wait: see delay.go
	case cost < 0 && missing > 0:
		missing -= min(missing, magnitude(cost))
		l.store(w, missing, mark)
	}
	d.Remaining = max(0, l.Limit-missing)
	if missing > 0 {
		d.ResetAfter = l.until(0, missing, mark, now)
	}
}

// bucketAt is the state at now.
func (l *tokenBucketLimit) bucketAt(w []int64, now Instant) (missing, mark int64) {
	missing, mark = w[0], w[1]
	if missing == 0 && mark == 0 {
		if l.Anchor == Epoch {
			return 0, floorTo(int64(now), int64(l.Per))
		}
		return 0, int64(now)
	}
	if k := (int64(now) - mark) / int64(l.Per); k > 0 {
		missing = l.refilled(missing, k)
		mark += k * int64(l.Per)
	}
	return missing, mark
}

// refilled is what is missing after k refills.
func (l *tokenBucketLimit) refilled(missing, k int64) int64 {
	if k >= l.refills(missing) {
		return 0
	}
	return missing - k*l.Refill
}

// refills is how many refills bring at least n tokens.
func (l *tokenBucketLimit) refills(n int64) int64 {
	if n <= 0 {
		return 0
	}
	return (n-1)/l.Refill + 1 // n + Refill may be more than an int64
}

// charge stores the state after a request for tokens, and returns its mark.
func (l *tokenBucketLimit) charge(w []int64, now Instant, missing, mark int64) int64 {
	if l.Strict && missing >= l.Limit {
		mark = max(mark, int64(now))
	}
	l.store(w, missing, mark)
	return mark
}

// store writes a state. Two zeros mean never seen, so a full bucket with its mark at the
// epoch is written with the mark before that. Only a clock that goes back from the epoch sees it,
// and tokens taken then come back at the epoch: the marks are the same, so the bound is.
func (l *tokenBucketLimit) store(w []int64, missing, mark int64) {
	switch {
	case missing == 0 && l.Anchor == Epoch:
		mark = 0
	case missing == 0 && mark == 0:
		mark = -int64(l.Per)
	}
	w[0], w[1] = missing, mark
}

// until is the wait until at most k tokens are missing, k < missing.
func (l *tokenBucketLimit) until(k, missing, mark int64, now Instant) time.Duration {
	return saturated(uint64(mark) - uint64(now) + uint64(l.refills(missing-k))*uint64(l.Per))
}

func (l *tokenBucketLimit) fresh(w []int64, now Instant) bool {
	missing, mark := w[0], w[1]
	if missing == 0 && mark == 0 {
		return true
	}
	n := l.refills(missing)
	if l.Anchor == FirstHit {
		n += l.refills(l.Limit)
	}
	return (int64(now)-mark)/int64(l.Per) >= n
}

// merge settles both states at now and keeps the larger of each word: as many tokens
// missing as in the emptier one, and refilled no earlier than either.
func (l *tokenBucketLimit) merge(w, other []int64, now Instant) {
	l.settle(w, now)
	l.settle(other, now)
	keepLarger(w, other)
}

// settle refills up to now, but leaves the mark at which the bucket became full, and
// puts bad numbers right.
func (l *tokenBucketLimit) settle(w []int64, now Instant) {
	missing := min(max(w[0], 0), l.mostMissing())
	mark := min(max(w[1], int64(earliest)), int64(latest))
	if l.Sessions {
		session := &w[len(w)-1]
		*session = min(max(*session, int64(earliest)), int64(latest))
	}
	if l.Anchor == Epoch {
		mark = floorTo(mark, int64(l.Per))
	}
	if missing == 0 && mark == 0 {
		clear(w)
		return
	}
	if k := min((int64(now)-mark)/int64(l.Per), l.refills(missing)); k > 0 {
		missing = l.refilled(missing, k)
		mark += k * int64(l.Per)
	}
	l.store(w, missing, mark)
}

// mostMissing is the most tokens that come within MaxFill, which is more than any bucket lacks. By
// how many the present limit may lack, a debt or a promise from before it was lowered would be cut.
func (l *tokenBucketLimit) mostMissing() int64 {
	hi, lo := bits.Mul64(uint64(MaxFill/l.Per), uint64(l.Refill))
	if hi != 0 {
		return maxCount
	}
	return int64(min(lo, maxCount))
}

// fillsInTime reports whether an empty bucket with discrete refills is full within MaxFill.
func (s *Spec) fillsInTime() bool {
	hi, lo := bits.Mul64(uint64((s.Limit+s.Refill-1)/s.Refill), uint64(s.Per))
	return hi == 0 && lo <= uint64(MaxFill)
}
