package fair

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// retry is how long a connection is not read after a request on it was refused: a little less
	// than the second that Retry-After names.
	retry = 900 * time.Millisecond
	// firstRetry is that of a connection that has many requests under way. It doubles up to retry
	// while some of what is read is refused, and becomes less with each request that is not.
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
	full  atomic.Bool  // the last reading brought as much as there was room for

	ended atomic.Pointer[chan struct{}] // closed with the connection; nil: nothing waits for that
}

// began is when the clock of lines began.
var began = time.Now()

// Wait returns when the line may be read, and is called before each reading. refused says that
// the client was told to try again later, and not before now.
func (l *Line) Wait() (refused bool) {
	if l == nil {
		return false
	}
	l.Yield()
	until := l.until.Load()
	if until == 0 {
		return false
	}
	left := time.Duration(until) - time.Since(began)
	if left > 0 {
		l.sleep(left)
	} else if left < -over {
		l.until.CompareAndSwap(until, 0)
	}
	return l.sent.Swap(false)
}

// Hold waits while the line is not read. It is for requests that were read before.
func (l *Line) Hold() {
	if l == nil {
		return
	}
	if until := l.until.Load(); until != 0 {
		l.sleep(time.Duration(until) - time.Since(began))
	}
}

// sleep waits for so long, or until the line has ended.
func (l *Line) sleep(left time.Duration) {
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.end():
	}
}

// end is closed when the line has ended.
func (l *Line) end() chan struct{} {
	if l.ended.Load() == nil {
		c := make(chan struct{})
		l.ended.CompareAndSwap(nil, &c)
	}
	return *l.ended.Load()
}

// End is for a connection that is closed: what it holds must not wait until it is read again. It is
// called once.
func (l *Line) End() { close(l.end()) }

// Ended reports whether the connection is closed.
func (l *Line) Ended() bool {
	select {
	case <-l.end():
		return true
	default:
		return false
	}
}

// Got notes that a reading had room for most bytes and brought n.
func (l *Line) Got(n, most int) {
	if full := n > 0 && n == most; l.full.Load() != full {
		l.full.Store(full)
	}
}

// Yield lets the goroutines that wait for a processor go first if the client has sent more than was
// read at once. Otherwise the goroutine of the connection would go on as long as the runtime lets
// it, which is 10 ms, since no reading has it wait: 400 such connections would keep a client with
// one request waiting for seconds. It is called before each reading, and before each request
// where a reading brings many that are decided one after the other.
func (l *Line) Yield() {
	if l.behind() {
		runtime.Gosched()
	}
}

// behind reports whether the client has sent more than was read at once.
func (l *Line) behind() bool { return l != nil && l.full.Load() }

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
	now := time.Since(began)
	pause := l.pauseFor(now, v, shared)
	if pause <= 0 {
		return
	}
	until := int64(now + pause)
	for {
		old := l.until.Load()
		if old >= until || l.until.CompareAndSwap(old, until) {
			return
		}
	}
}

// pauseFor is for how long the line is not read after a verdict.
func (l *Line) pauseFor(now time.Duration, v verdict, shared bool) time.Duration {
	switch {
	case !v.refused:
		if again := l.again.Load(); again > 0 {
			l.again.Store(again - again/32 - 1)
		}
	case !shared:
		l.sent.Store(true)
		// not all at the same time, or there would be nothing to do in between
		return max(v.pause, retry-rand.N(retry/3))
	case time.Duration(l.until.Load()) <= now: // the first one of what was read
		again := min(retry, max(firstRetry, 2*time.Duration(l.again.Load())))
		l.again.Store(int64(again))
		return max(v.pause, again)
	}
	return v.pause
}
