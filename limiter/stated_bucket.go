package limiter

import (
	"math/bits"
	"time"
)

// A stated bucket is a token bucket that refills continuously, for callers that state the whole
// limit with each request, as Gubernator's do for its leaky bucket. A request with any limit,
// period and burst meets the tokens that the ones before have left.
//
//	level = min(Burst, level + (now − at) × Limit / Per)
//	admit c  iff  c ≤ level;  then level −= c, at = now
//
// A change of the limit never adds a token: the tokens in the bucket stay as far as they fit, and
// the refill since the last charge is at the rate of the present request. While the limit stays the
// same this is gcra, to the nanosecond.
//
// The state is the instant of the last charge, the level then (2^40 − whole tokens, and a fraction
// in units of 2^-64), and the instant when the bucket is full, after which it is as never seen.
// Since that is stored, each entry of one name is forgotten in its own time, and no rate is part of
// the identity. Refills are rounded up by less than 2^-64 of a token, so that three thirds make a
// whole. If the clock goes back, tokens neither come nor go.
const statedBucketWords = 4

// level is how many tokens a bucket has.
type level struct {
	whole    int64
	fraction uint64
}

// statedBucketLimit is the arithmetic of a stated bucket.
type statedBucketLimit Limit

func (l *statedBucketLimit) decide(w []int64, now Instant, cost int64, d *Decision) {
	has := l.levelAt(w, now)
	switch {
	case cost > l.Burst:
		d.Allowed = false
	case cost > has.whole && cost > 0:
		d.Allowed = false
		d.RetryAfter = l.wait(w, now, has, cost)
	case cost > 0 || cost < 0 && has.whole < l.Burst:
		// No sum overflows: a level is at most 2^40 and a cost is above −2^63.
		has.whole -= max(cost, -MaxLimit)
		has = l.leave(w, now, has)
	}
	d.Remaining = has.whole
	if !freshStatedBucket(w, now) {
		d.ResetAfter = time.Duration(w[3] - int64(now))
	}
}

// levelAt is what the bucket has at now.
func (l *statedBucketLimit) levelAt(w []int64, now Instant) level {
	if freshStatedBucket(w, now) {
		return level{whole: l.Burst}
	}
	has := level{MaxLimit - w[1], uint64(w[2])}
	if passed := int64(now) - w[0]; passed > 0 {
		come, fits := l.refill(uint64(passed))
		if !fits {
			return level{whole: l.Burst}
		}
		var carry uint64
		has.fraction, carry = bits.Add64(has.fraction, come.fraction, 0)
		has.whole += come.whole + int64(carry)
	}
	if has.whole >= l.Burst {
		return level{whole: l.Burst}
	}
	return has
}

// refill is what comes in so many nanoseconds, ns × Limit / Per; fits says that it is less than a
// full bucket.
func (l *statedBucketLimit) refill(ns uint64) (come level, fits bool) {
	high, low := bits.Mul64(ns, uint64(l.Limit))
	if high >= uint64(l.Per) {
		return level{}, false
	}
	whole, rest := bits.Div64(high, low, uint64(l.Per))
	if whole >= uint64(l.Burst) {
		return level{}, false
	}
	fraction, rest := bits.Div64(rest, 0, uint64(l.Per))
	if rest != 0 {
		var carry uint64
		fraction, carry = bits.Add64(fraction, 1, 0)
		whole += carry
	}
	return level{int64(whole), fraction}, true
}

// leave stores what the bucket has now, and returns it. A full bucket is one that was never seen.
func (l *statedBucketLimit) leave(w []int64, now Instant, has level) level {
	if has.whole >= l.Burst {
		clear(w)
		return level{whole: l.Burst}
	}
	if freshStatedBucket(w, now) {
		w[0] = int64(now)
	}
	w[0], w[1], w[2] = max(w[0], int64(now)), MaxLimit-has.whole, int64(has.fraction)
	if w[3] = w[0] + int64(l.until(has, l.Burst)); w[3] == 0 {
		w[3] = 1 // zero means never seen
	}
	return has
}

// wait is the time from now until a bucket that is not fresh has so many tokens: it has less now.
func (l *statedBucketLimit) wait(w []int64, now Instant, has level, tokens int64) time.Duration {
	behind := uint64(max(0, w[0]-int64(now))) // the clock has gone back
	return time.Duration(min(behind+l.until(has, tokens), uint64(w[3]-int64(now))))
}

// until is the time that the tokens take which has lacks, (tokens − has) × Per / Limit, rounded up.
func (l *statedBucketLimit) until(has level, tokens int64) uint64 {
	missing := level{whole: tokens - has.whole}
	if has.fraction != 0 {
		missing = level{missing.whole - 1, -has.fraction}
	}
	// (whole + fraction/2^64) × Per in 192 bits. Of the lowest 64 it only matters whether they are
	// 0.
	carry, lowest := bits.Mul64(missing.fraction, uint64(l.Per))
	high, low := bits.Mul64(uint64(missing.whole), uint64(l.Per))
	low, c := bits.Add64(low, carry, 0)
	ns, rest := bits.Div64(high+c, low, uint64(l.Limit)) // at most MaxFill: New sees to it
	if rest != 0 || lowest != 0 {
		ns++
	}
	return ns
}

func freshStatedBucket(w []int64, now Instant) bool { return w[3] == 0 || int64(now) >= w[3] }

// mergeStatedBucket keeps the lower of two levels, as if it had been left at the later of two
// instants, and full at the later of two.
func mergeStatedBucket(w, other []int64, now Instant) {
	settleStatedBucket(w, now)
	settleStatedBucket(other, now)
	switch {
	case other[3] == 0:
	case w[3] == 0:
		copy(w, other)
	default:
		if other[1] > w[1] || other[1] == w[1] && uint64(other[2]) < uint64(w[2]) {
			w[1], w[2] = other[1], other[2]
		}
		w[0], w[3] = max(w[0], other[0]), max(w[3], other[3])
	}
}

// settleStatedBucket makes a full bucket the state of a key never seen, and puts bad numbers right.
func settleStatedBucket(w []int64, now Instant) {
	w[0] = min(max(w[0], int64(earliest)), int64(latest))
	if w[1] > MaxLimit {
		w[1], w[2] = MaxLimit, 0
	}
	w[1] = max(w[1], 0)
	w[3] = min(w[3], latestArrival)
	if freshStatedBucket(w, now) {
		clear(w)
	}
}
