package limiter

import (
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"
)

// A stated window is a fixed window from the first hit for callers that state the whole limit with
// each request, as Gubernator's do. A request with any limit and period meets the counts under the
// ones before.
//
//	the window of a request is [start, start + Per), or of a calendar, the one that start
//	lies in; and no longer than the last charged request has said
//	admit c  iff  count + c ≤ Limit
//
// A window opens at the beginning of the millisecond of its first charge, so that ends written in
// milliseconds are equal.
//
// A refund beyond what was taken is a credit: it may be taken on top of Limit until the window is
// over.
//
// The state is the start of the window, its count and its end. Since the end is stored, each entry
// of one name is forgotten in its own time, and no period is part of the identity. If the clock
// goes back, the stored window goes on counting. While the period stays the same, at most 2×Limit,
// plus the refunds, are admitted in any span of length Per.
const statedWindowWords = 3

// statedWindowLimit is the arithmetic of a stated window.
type statedWindowLimit Limit

func (l *statedWindowLimit) decide(w []int64, now Instant, cost int64, d *Decision) {
	start, count := floorTo(int64(now), int64(time.Millisecond)), int64(0)
	start, end := l.windowFrom(start)
	over := end // when the next window may open
	if _, stated := l.windowFrom(w[0]); w[1] != 0 && int64(now) < min(w[2], stated) {
		start, count, end = w[0], w[1], stated
		over = min(w[2], end)
	}
	switch left := l.Limit - count; {
	case cost > left && cost > 0:
		d.Allowed = false
		if cost <= l.Limit {
			d.RetryAfter = time.Duration(over - int64(now))
		}
	case cost != 0:
		if count = max(count+max(cost, -maxCount), -maxCount); count != 0 {
			w[0], w[1], w[2] = start, count, end
			over = end
		} else {
			clear(w)
		}
	}
	d.Remaining = max(0, l.Limit-count)
	if count != 0 {
		d.ResetAfter = time.Duration(over - int64(now))
	}
}

// windowFrom is the window that t opens. One of a calendar has opened before.
func (l *statedWindowLimit) windowFrom(t int64) (start, end int64) {
	if l.zone != nil {
		return l.zone.window(l.Calendar, t)
	}
	return t, t + int64(l.Per)
}

func freshStatedWindow(w []int64, now Instant) bool { return w[1] == 0 || int64(now) >= w[2] }

// mergeStatedWindow keeps of two windows the later start and end and the larger count, which is the
// smaller credit.
func mergeStatedWindow(w, other []int64, now Instant) {
	settleStatedWindow(w, now)
	settleStatedWindow(other, now)
	keepLarger(w, other)
	settleStatedWindow(w, now)
}

// settleStatedWindow makes a window that is over the state of a key never seen, and puts bad
// numbers right.
func settleStatedWindow(w []int64, now Instant) {
	over := freshStatedWindow(w, now) // before its end is put right, which could make it live again
	w[0] = min(max(w[0], int64(earliest)), int64(latest))
	w[1] = min(max(w[1], -maxCount), maxCount)
	w[2] = min(max(w[2], w[0]), w[0]+int64(MaxPer))
	if over || freshStatedWindow(w, now) {
		clear(w)
	}
}

// land lays a window of the calendar that was in force at now on the boundaries of this clock. Else
// it would lie in the window before, and be over, or end before the calendar's.
func (l *statedWindowLimit) land(w []int64, now Instant) {
	w[0] = min(max(w[0], int64(earliest)), int64(latest))
	switch _, end := l.windowFrom(w[0]); {
	case end-w[0] <= int64(inStep):
		w[0] = end
	case end <= int64(now):
		w[0], _ = l.windowFrom(int64(now))
	}
	if _, end := l.windowFrom(w[0]); end-int64(inStep) <= w[2] {
		w[2] = max(w[2], end)
	}
}

// stated reports whether each request states the whole limit anew.
func (s *Spec) stated() bool { return s.Algorithm == StatedWindow || s.Algorithm == StatedBucket }

// prepareStated gives newcomers that state different limits different cells in the sketch: in a
// window or at a rate of another, a key would be admitted its used units again.
func (l *Limit) prepareStated() {
	l.stateWords = statedWindowWords
	if l.Calendar != 0 {
		l.zone, _ = zoneNamed(l.TimeZone)
	}
	if l.Algorithm == StatedBucket {
		l.stateWords = statedBucketWords
	}
	b := []byte(l.TimeZone)
	for _, x := range []int64{int64(l.seed), l.Limit, int64(l.Per), l.Burst, int64(l.Calendar)} {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	l.sketchSeed = xxhash.Sum64(b)
}

// credits reports whether what is given back beyond what was taken is kept.
func (l *Limit) credits() bool { return l.Algorithm == StatedWindow }

// inCredit reports whether w, a state of l, is a credit.
func (l *Limit) inCredit(w []int64) bool { return l.credits() && w[1] < 0 }
