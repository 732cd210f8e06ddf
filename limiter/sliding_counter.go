package limiter

import "time"

// The sliding counter counts in sub-windows of Per/Buckets, aligned to the epoch, and add up those
// that lie in the last Per. They come between the sliding log, which keeps each instant, and the
// two windows of the sliding window.
//
//	admit c  iff  sum of the counters in force + c ≤ Limit
//
// The oldest sub-window is mostly cut by the beginning of the last Per. Harsh, which is the
// default, it counts as a whole: a counter that begins at S is in force from S until S + Per +
// Per/Buckets, that instant excluded. So no more than Limit are ever admitted in a span of length
// Per, and a refusal may last Per/Buckets too long. Lenient, it does not count: in force from S to
// S + Per, that instant included. So no more than Limit are admitted in Per less one sub-window,
// and up to 2×Limit in Per.
//
// If the clock goes back before the last sub-window that was counted in, it counts as standing at
// its beginning. The state is where that sub-window begins, and the Buckets + 1 counters, the
// newest first. A decision adds them up, so its cost grows with Buckets.

const (
	// MaxBuckets is the most sub-windows that a limit may have: a state of 16 KiB, as that of the
	// longest log.
	MaxBuckets     = 2048
	defaultBuckets = 60
)

// maxCounter bounds a counter (refused requests may count too), so that sums cannot overflow.
const maxCounter = 1 << 50

// slidingCounterLimit is the arithmetic of a sliding counter and of concurrency.
type slidingCounterLimit Limit

func (l *slidingCounterLimit) decide(w []int64, now Instant, cost int64, d *Decision) {
	at, sum := l.inForce(w, now)
	switch {
	case cost > l.Limit:
		d.Allowed = false
	case cost > 0:
		d.Allowed = sum <= l.Limit-cost
		if d.Allowed || l.CountRejected {
			sum += l.countIn(w, at, sum, cost)
		}
		if !d.Allowed {
			d.RetryAfter = l.untilSumAtMost(w, l.Limit-cost, now)
		}
	case cost < 0 && sum > 0:
		l.roll(w, at)
		back := takeBack
		if l.Algorithm == Concurrency {
			back = takeOldest
		}
		sum -= back(w[1:], magnitude(cost))
		if sum == 0 {
			clear(w)
		}
	}
	d.Remaining = max(0, l.Limit-sum)
	if sum > 0 {
		d.ResetAfter = l.untilSumAtMost(w, 0, now)
	}
}

// inForce is the instant that counts, now or where a clock that has gone back is held, and the sum
// at it.
func (l *slidingCounterLimit) inForce(w []int64, now Instant) (at, sum int64) {
	at = max(int64(now), w[0])
	for _, c := range w[1 : 1+l.countersInForce(w[0], at)] {
		sum += c
	}
	if sum == 0 { // in a window that is ahead all counters are in force, so there is none
		at = int64(now)
	}
	return at, sum
}

// countersInForce is how many counters are in force at an instant not before the newest sub-window.
func (l *slidingCounterLimit) countersInForce(newest, at int64) int {
	length := int64(l.Per)
	if !l.Lenient {
		length += l.step - 1
	}
	if at-newest > length {
		return 0
	}
	return int((length-(at-newest))/l.step) + 1
}

// roll makes the sub-window of at the newest, and drops what is no longer in force.
func (l *slidingCounterLimit) roll(w []int64, at int64) {
	newest, c := floorTo(at, l.step), w[1:]
	keep := l.countersInForce(w[0], at)
	if steps := (newest - w[0]) / l.step; steps > 0 {
		first := int(min(steps, int64(len(c))))
		keep = min(first+keep, len(c))
		copy(c[first:], c)
		clear(c[:first])
	}
	clear(c[keep:])
	w[0] = newest
}

// countIn adds cost to the sub-window of at, and returns how much it added. sum is what is in
// force.
func (l *slidingCounterLimit) countIn(w []int64, at, sum, cost int64) int64 {
	if sum == 0 {
		clear(w)
		w[0] = floorTo(at, l.step)
	} else {
		l.roll(w, at)
	}
	cost = min(cost, maxCounter-w[1])
	w[1] += cost
	return cost
}

// takeBack takes n out of the counters, the newest first, and returns how much there was.
func takeBack(counters []int64, n int64) (taken int64) {
	for i, c := range counters {
		part := min(c, n-taken)
		counters[i] -= part
		taken += part
	}
	return taken
}

// untilSumAtMost is the wait until the sum has fallen to k, which it exceeds: until that counter is
// over which, with all that are newer, makes more than k.
func (l *slidingCounterLimit) untilSumAtMost(w []int64, k int64, now Instant) time.Duration {
	i, sum := 0, w[1]
	for sum <= k {
		i++
		sum += w[1+i]
	}
	over := w[0] - int64(i)*l.step + int64(l.Per) + l.step
	if l.Lenient {
		over += 1 - l.step
	}
	return time.Duration(over - int64(now))
}

func (l *slidingCounterLimit) fresh(w []int64, now Instant) bool {
	_, sum := l.inForce(w, now)
	return sum == 0
}

// merge settles both states at now and keeps, of the newest k sub-windows together, the larger
// count, for each k (keepLargerSums). If one state is ahead (clocks that differ), the counts of the
// other move along, which is never looser than either.
func (l *slidingCounterLimit) merge(w, other []int64, now Instant) {
	l.settle(w, now)
	l.settle(other, now)
	keepLargerSums(w, other)
}

// settle moves a state to the sub-window of now, and puts bad numbers right.
func (l *slidingCounterLimit) settle(w []int64, now Instant) {
	w[0] = floorTo(min(max(w[0], int64(earliest)), int64(latest)), l.step)
	for i, c := range w[1:] {
		w[1+i] = min(max(c, 0), maxCounter)
	}
	if at, sum := l.inForce(w, now); sum > 0 {
		l.roll(w, at)
	} else {
		clear(w)
	}
}
