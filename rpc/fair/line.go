package fair

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	// retry is how long a connection is not read after a request on it was refused: a little less
	// than the second that Retry-After names.
	retry = 900 * time.Millisecond
	// firstRetry is that of a connection that has many requests under way. It doubles up to retry
	// while all that is read is refused.
	firstRetry = 8 * time.Millisecond
	// fewBytes is how much is read at once from a connection that is read less.
	fewBytes = 512
)

// Line is the reading side of a connection. In an overload, a gate has lines of clients that use
// more than their share read less: what is not read costs nothing, and the client's system holds
// back what does not fit into the buffers of the socket. A nil *Line is read as ever.
type Line struct {
	until atomic.Int64 // when it is read again, a time since began; 0: it is read as ever
	sent  atomic.Bool  // it was refused something, and is read no more until until
	late  atomic.Bool  // what comes first was sent before until
	again atomic.Int64 // for how long it was last not read because of a refusal
}

// began is when the clock of lines began.
var began = time.Now()

// Wait returns when the line may be read, and is called before each reading. refused says that
// the client was told to try again later, and not before now.
func (l *Line) Wait() (refused bool) {
	if l == nil {
		return false
	}
	until := l.until.Load()
	if until == 0 {
		return false
	}
	left := time.Duration(until) - time.Since(began)
	if left > 0 {
		time.Sleep(left)
	} else if left < -over {
		l.until.CompareAndSwap(until, 0)
	}
	return l.sent.Swap(false)
}

// Late notes that what is read next had been sent before Wait returned.
func (l *Line) Late() { l.late.Store(true) }

// Most is how many of n bytes may be read at once.
func (l *Line) Most(n int) int {
	if l == nil || l.until.Load() == 0 {
		return n
	}
	return min(n, fewBytes)
}

// wasLate reports whether the request that was read first had been sent too early.
func (l *Line) wasLate() bool { return l != nil && l.late.Load() && l.late.Swap(false) }

// obey has the line read less, by the verdict on a request that came on it. A shared line has
// many requests under way.
func (l *Line) obey(v verdict, shared bool) {
	if l == nil {
		return
	}
	pause := l.pauseFor(v, shared)
	if pause <= 0 {
		return
	}
	until := int64(time.Since(began) + pause)
	for {
		old := l.until.Load()
		if old >= until || l.until.CompareAndSwap(old, until) {
			return
		}
	}
}

// pauseFor is for how long the line is not read after a verdict.
func (l *Line) pauseFor(v verdict, shared bool) time.Duration {
	switch {
	case !v.refused:
		l.again.Store(0)
	case !shared:
		l.sent.Store(true)
		// not all at the same time, or there would be nothing to do in between
		return max(v.pause, retry-rand.N(retry/3))
	case time.Duration(l.until.Load()) <= time.Since(began): // the first one of what was read
		again := min(retry, max(firstRetry, 2*time.Duration(l.again.Load())))
		l.again.Store(int64(again))
		return max(v.pause, again)
	}
	return v.pause
}
