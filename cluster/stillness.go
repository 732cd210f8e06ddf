package cluster

import (
	"sync/atomic"
	"time"

	"penstock/cluster/dedup"
	"penstock/limiter"
)

// A process that stood still, for it was stopped or its machine did not get to it, goes on with
// what has come meanwhile as if it came now. Of a take under its client's own id that may be wrong:
// the client, which got no answer, has asked another node, and if that is longer ago than the owner
// remembers answers, it would charge the take again. So for a moment after it has stood still for
// that long, a node waits whether the client has hung up (Request.HungUp) before it decides, and an
// heir sends on nothing. The same goes for a take that the node had in hand when it was stopped,
// and has not sent to its owner yet: see decideRest.

const (
	// oldFor is for how long after it stood still a process may read what came before.
	oldFor = 500 * time.Millisecond
	// hangUpTime is for how long a node waits whether a client has hung up: what a client does
	// after its request lies behind it in the same socket.
	hangUpTime = 50 * time.Millisecond
)

// stillness is whether the process stood still. Without timers nothing is known of that.
type stillness struct {
	seen  atomic.Int64 // when the process ran, as its ticks show; 0: it has none
	until atomic.Int64 // until then what comes may be old
}

// runs notes that the process runs now: until is set before seen, which would hide a stop.
func (s *stillness) runs(now limiter.Instant) {
	if last := limiter.Instant(s.seen.Load()); last != 0 && now > last.Add(dedup.Lasts) {
		s.stood(now)
	}
	s.seen.Store(int64(now))
}

// stood notes that the process has stood still until now.
func (s *stillness) stood(now limiter.Instant) { s.until.Store(int64(now.Add(oldFor))) }

// ends notes that there will be no ticks any more.
func (s *stillness) ends() { s.seen.Store(0) }

// mayBeOld reports whether what has come may be older than owners remember.
func (s *stillness) mayBeOld(now limiter.Instant) bool {
	last := limiter.Instant(s.seen.Load())
	return int64(now) < s.until.Load() || last != 0 && now > last.Add(dedup.Lasts)
}

// woke is when what stood still went on, if what has come may be old.
func (s *stillness) woke(now limiter.Instant) limiter.Instant {
	if until := limiter.Instant(s.until.Load()); now < until {
		return until.Add(-oldFor)
	}
	return now
}

// isOver reports whether a client has hung up, as a Request's HungUp says. If the process stood
// still, it waits for a moment first, until that shows. A deadline is kept, if it has not passed
// meanwhile.
func (s *self) isOver(deadline limiter.Instant, hungUp func() bool) bool {
	if hungUp == nil {
		return false
	}
	if now := s.clock.Now(); !hungUp() && s.still.mayBeOld(now) {
		until := now.Add(hangUpTime)
		if deadline >= s.still.woke(now) {
			until = min(until, deadline)
		}
		if until > now {
			s.net.Wait(until)
		}
	}
	return hungUp()
}
