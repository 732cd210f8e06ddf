package limiter

import (
	"math"
	"time"
)

// A fixed window counts what it admits, and forgets it all at its end. Anchored at the epoch,
// window k is [k×Per, (k+1)×Per). Anchored at the first hit, it opens with the first counted
// request and lasts Per (a request exactly then opens the next one). A calendar has windows of its
// own, from a minute to a year, in a time zone (see zone).
//
//	admit c  iff  count + c ≤ Limit
//
// The state is the start of the window and its count. If the clock goes back before the start, the
// stored window goes on counting, so an old budget is never opened again. Two windows may meet
// inside any span of length Per: at most 2×Limit are admitted in one (2×Limit − 1 from the first
// hit, because the opening request lies outside). Windows of a calendar have several lengths: it is
// 2×Limit in any span that is no longer than the shorter of two neighbours.
//
// With Drain the count of a window that has refused a request is Limit + 1 at least, and it then
// refuses a cost of 0 too. So a caller that charges later learns that the limit is used up.
// (Envoy's rate limits on the cost of a response.)
const fixedWindowWords = 2

// fixedWindowLimit is the arithmetic of a fixed window.
type fixedWindowLimit Limit

func (l *fixedWindowLimit) decide(w []int64, now Instant, cost int64, d *Decision) {
	start, end, count := l.windowAt(w, now)
	switch {
	case cost > 0 && count > l.Limit-cost:
		if cost <= l.Limit {
			d.RetryAfter = time.Duration(end - int64(now))
		}
		count = l.refuse(w, start, count, cost, d)
	case cost > 0:
		count += cost
		w[0], w[1] = start, count
	case cost == 0 && l.Drain && count > l.Limit:
		d.Allowed = false
		d.RetryAfter = time.Duration(end - int64(now))
	case cost < 0 && count > 0:
		if l.Drain && count == l.Limit+1 { // the mark of a refusal, which nobody has taken
			count = l.Limit
		}
		if count -= min(count, magnitude(cost)); count > 0 {
			w[0], w[1] = start, count
		} else {
			w[0], w[1] = 0, 0
			_, end, _ = l.windowAt(w, now) // the clock may have gone back
		}
	}
	d.Remaining = max(0, l.Limit-count)
	if l.Anchor == Epoch || count > 0 {
		d.ResetAfter = time.Duration(end - int64(now))
	}
}

// refuse refuses a cost, and returns the count after that: a refusal may be counted, or drain.
func (l *fixedWindowLimit) refuse(w []int64, start, count, cost int64, d *Decision) int64 {
	d.Allowed = false
	switch {
	case l.Drain:
		d.Drained = max(0, l.Limit-count)
		count = max(count, l.Limit+1)
		w[0], w[1] = start, count
	case l.CountRejected && cost <= l.Limit:
		count += min(cost, maxCount-count)
		w[0], w[1] = start, count
	}
	return count
}

// windowAt is the window that counts at now: the stored one, or a new one if that is over or was
// never counted in.
func (l *fixedWindowLimit) windowAt(w []int64, now Instant) (start, end, count int64) {
	if w[1] > 0 {
		if start, end = l.windowOf(w[0]); int64(now) < end {
			return start, end, w[1]
		}
	}
	start, end = l.windowOf(int64(now))
	return start, end, 0
}

// windowOf is the window that t lies in, or begins.
func (l *fixedWindowLimit) windowOf(t int64) (start, end int64) {
	switch {
	case l.zone != nil:
		return l.zone.window(l.Calendar, t)
	case l.Anchor == Epoch:
		t = floorTo(t, int64(l.Per))
	}
	return t, t + int64(l.Per)
}

func (l *fixedWindowLimit) fresh(w []int64, now Instant) bool {
	_, _, count := l.windowAt(w, now)
	return count == 0
}

// merge settles both states at now and keeps the larger of each word. In one window that
// is the larger count; of two windows (clocks that differ, or two first hits) it is the later end
// with the larger count, which no waiting makes looser than either.
func (l *fixedWindowLimit) merge(w, other []int64, now Instant) {
	l.settle(w, now)
	l.settle(other, now)
	keepLarger(w, other)
}

// settle makes a window that is over the state of a key never seen, and puts bad numbers
// right.
func (l *fixedWindowLimit) settle(w []int64, now Instant) {
	w[0], _ = l.windowOf(min(max(w[0], int64(earliest)), int64(latest)))
	w[1] = min(max(w[1], 0), maxCount)
	if l.fresh(w, now) {
		w[0], w[1] = 0, 0
	}
}

// maxCount bounds what a window counts (refused requests may count too), so that sums cannot
// overflow.
const maxCount = 1 << 61

// magnitude is -cost for a negative cost, saturating at the largest number there is: a bucket with
// ClientTime may be that large.
func magnitude(cost int64) int64 { return -max(cost, -math.MaxInt64) }

// floorTo is the last multiple of step that is not after t. step must be positive.
func floorTo(t, step int64) int64 {
	rest := t % step
	if rest < 0 {
		rest += step
	}
	return t - rest
}

// keepLargerSums merges a state of a time and, after it, counts of windows, the newest first: the
// sum of the newest k becomes the larger one, for each k. Nothing less is as strict as both. The
// larger count of each window would be more: a state that has travelled and comes back stands a
// little later, perhaps in the next window, and would count once more.
func keepLargerSums(w, other []int64) {
	seen, otherSeen := !zero(w), !zero(other)
	switch {
	case !otherSeen:
	case !seen:
		copy(w, other)
	default:
		w[0] = max(w[0], other[0])
		var sum, otherSum, before int64
		for i := range other[1:] {
			sum, otherSum = sum+w[1+i], otherSum+other[1+i]
			larger := max(sum, otherSum)
			w[1+i], before = larger-before, larger
		}
	}
}

// keepLarger merges word by word. A state of zeros is that of a key never seen and yields to any
// other.
func keepLarger(w, other []int64) {
	seen, otherSeen := !zero(w), !zero(other)
	switch {
	case !otherSeen:
	case !seen:
		copy(w, other)
	default:
		for i, x := range other {
			w[i] = max(w[i], x)
		}
	}
}

func zero(w []int64) bool {
	for _, x := range w {
		if x != 0 {
			return false
		}
	}
	return true
}
