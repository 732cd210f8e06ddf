package limiter

import (
	"math/bits"
	"time"
)

// The sliding window (a counter, in full) estimates the last Per from two windows aligned to the
// epoch: what the current one has admitted, and of the one before the part that still lies inside.
//
//	estimate = current + floor(previous × (Per − elapsed) / Per)
//	admit c  iff  estimate + c ≤ Limit
//
// The product has 128 bits and is rounded down once; a float is off by one at 0.29 × 100. Only
// admitted requests count. The state is the start of the current window and the two counts. If the
// clock goes back before the start, the stored window stays the current one with nothing elapsed.
// In any span of length Per at most 2×Limit are admitted, and that only by a ramp that follows a
// burst at the last instant of a window.
const slidingWindowWords = 3

// slidingWindowLimit is the arithmetic of a sliding window.
type slidingWindowLimit Limit

func (l *slidingWindowLimit) decide(w []int64, now Instant, cost int64, d *Decision) {
	c := l.countsAt(w, now)
	switch {
	case cost > l.Limit:
		d.Allowed = false
	case cost > 0 && c.estimate > l.Limit-cost:
		d.Allowed = false
		d.RetryAfter = l.untilAtMost(&c, l.Limit-cost, now)
	case cost > 0:
		c.current += cost
		c.estimate += cost
		c.store(w)
	case cost < 0 && c.current+c.previous > 0:
		// The charges of this window come back first, then the rest of the one before.
		back := magnitude(cost)
		fromPrevious := min(c.previous, back-min(c.current, back))
		c.current -= min(c.current, back)
		c.previous -= fromPrevious
		c.weigh(int64(l.Per), now)
		c.store(w)
	}
	d.Remaining = max(0, l.Limit-c.estimate)
	if c.estimate > 0 {
		d.ResetAfter = l.untilAtMost(&c, 0, now)
	}
}

// counts are the two windows of a sliding window at one instant.
type counts struct {
	start, current, previous int64
	estimate                 int64
}

func (l *slidingWindowLimit) countsAt(w []int64, now Instant) counts {
	c := counts{start: w[0], current: w[1], previous: w[2]}
	per := int64(l.Per)
	switch age := int64(now) - c.start; {
	case c.current|c.previous == 0 || age >= 2*per:
		c = counts{start: floorTo(int64(now), per)}
	case age >= per:
		c = counts{start: c.start + per, previous: c.current}
	}
	c.weigh(per, now)
	return c
}

func (c *counts) weigh(per int64, now Instant) {
	c.estimate = c.current
	if c.previous > 0 {
		inside := per - max(0, int64(now)-c.start)
		hi, lo := bits.Mul64(uint64(c.previous), uint64(inside))
		part, _ := bits.Div64(hi, lo, uint64(per))
		c.estimate += int64(part)
	}
}

func (c *counts) store(w []int64) { w[0], w[1], w[2] = c.start, c.current, c.previous }

// untilAtMost is the wait until the estimate has fallen to k, 0 ≤ k < estimate, if nothing else
// comes. The estimate falls within the current window while the previous count fades; if the
// current count alone is above k, it has to become the previous one and fade itself.
func (l *slidingWindowLimit) untilAtMost(c *counts, k int64, now Instant) time.Duration {
	per := int64(l.Per)
	at := c.start
	if c.current <= k {
		at += per - fadeTo(c.previous, k-c.current, per)
	} else {
		at += 2*per - fadeTo(c.current, k, per)
	}
	return time.Duration(at - int64(now))
}

// fadeTo is the longest part of a window of length per that may still lie inside while floor(count
// × inside / per) is at most k: the largest inside with count × inside < (k+1) × per. k < count.
func fadeTo(count, k, per int64) int64 {
	hi, lo := bits.Mul64(uint64(k)+1, uint64(per))
	lo, borrow := bits.Sub64(lo, 1, 0)
	inside, _ := bits.Div64(hi-borrow, lo, uint64(count))
	return int64(inside)
}

func (l *slidingWindowLimit) fresh(w []int64, now Instant) bool {
	c := l.countsAt(w, now)
	// The estimate of a fading count stays 0 once it is. A clock that stands before the window may
	// still see it grow when the window begins: never, for nothing has elapsed then either.
	return c.estimate == 0
}

// merge settles both states at now and keeps the larger count of the current window, and the
// larger one of both windows (keepLargerSums). If one state is ahead (clocks that differ), the
// later window gets both, which is never looser than either.
func (l *slidingWindowLimit) merge(w, other []int64, now Instant) {
	l.settle(w, now)
	l.settle(other, now)
	keepLargerSums(w, other)
}

// settle moves a state to the window of now, and puts bad numbers right.
func (l *slidingWindowLimit) settle(w []int64, now Instant) {
	w[0] = floorTo(min(max(w[0], int64(earliest)), int64(latest)), int64(l.Per))
	w[1] = min(max(w[1], 0), maxCount)
	w[2] = min(max(w[2], 0), maxCount)
	c := l.countsAt(w, now)
	if c.estimate == 0 {
		c = counts{}
	}
	c.store(w)
}
