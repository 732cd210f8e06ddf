package limiter

import "time"

// A fixed window counts what it admits, and forgets it all at its end. Anchored at the epoch, window k is
// [k×Per, (k+1)×Per); anchored at the first hit, it opens with the first counted request and lasts Per (a request
// exactly then opens the next one).
//
//	admit c  iff  count + c ≤ Limit
//
// The state is the start of the window and its count. A clock that goes back before the start goes on counting in
// the stored window, so an old budget is never opened again. Two windows may meet inside any span of length Per:
// at most 2×Limit are admitted in one (2×Limit − 1 from the first hit, whose opening request lies outside).
const fixedWindowWords = 2

func (l *Limit) fixedWindow(w []int64, now Instant, cost int64, d *Decision) {
	start, count := l.windowAt(w, now)
	switch {
	case cost > l.Limit:
		d.Allowed = false
	case cost > 0 && count > l.Limit-cost:
		d.Allowed = false
		d.RetryAfter = time.Duration(start + int64(l.Per) - int64(now))
		if l.CountRejected {
			count += min(cost, maxCount-count)
			w[0], w[1] = start, count
		}
	case cost > 0:
		count += cost
		w[0], w[1] = start, count
	case cost < 0 && count > 0:
		if count -= min(count, magnitude(cost)); count > 0 {
			w[0], w[1] = start, count
		} else {
			w[0], w[1] = 0, 0
			start, _ = l.windowAt(w, now) // the clock may have gone back
		}
	}
	d.Remaining = max(0, l.Limit-count)
	if l.Anchor == Epoch || count > 0 {
		d.ResetAfter = time.Duration(start + int64(l.Per) - int64(now))
	}
}

// windowAt is the window that counts at now: the stored one, or a new one if that is over or was never counted in.
func (l *Limit) windowAt(w []int64, now Instant) (start, count int64) {
	start, count = w[0], w[1]
	if count > 0 && int64(now)-start < int64(l.Per) {
		return start, count
	}
	if l.Anchor == FirstHit {
		return int64(now), 0
	}
	return floorTo(int64(now), int64(l.Per)), 0
}

func (l *Limit) freshFixedWindow(w []int64, now Instant) bool {
	return w[1] == 0 || int64(now)-w[0] >= int64(l.Per)
}

// mergeFixedWindow settles both states at now and keeps the larger of each word. In one window that is the larger
// count; of two windows (clocks that differ, or two first hits) it is the later end with the larger count, which no
// waiting makes looser than either.
func (l *Limit) mergeFixedWindow(w, other []int64, now Instant) {
	l.settleFixedWindow(w, now)
	l.settleFixedWindow(other, now)
	keepLarger(w, other)
}

// settleFixedWindow makes a window that is over the state of a key never seen, and puts bad numbers right.
func (l *Limit) settleFixedWindow(w []int64, now Instant) {
	w[0] = min(max(w[0], int64(earliest)), int64(latest))
	if l.Anchor == Epoch {
		w[0] = floorTo(w[0], int64(l.Per))
	}
	w[1] = min(max(w[1], 0), maxCount)
	if l.freshFixedWindow(w, now) {
		w[0], w[1] = 0, 0
	}
}

// maxCount bounds what a window counts (refused requests may count too), so that sums cannot overflow.
const maxCount = 1 << 61

// magnitude is -cost for a negative cost, saturating.
func magnitude(cost int64) int64 { return -max(cost, -maxCount) }

// floorTo is the last multiple of step that is not after t. step must be positive.
func floorTo(t, step int64) int64 {
	rest := t % step
	if rest < 0 {
		rest += step
	}
	return t - rest
}

// keepLarger merges word by word. A state of zeros is that of a key never seen and yields to any other.
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
