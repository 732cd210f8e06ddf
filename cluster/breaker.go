package cluster

import (
	"sync/atomic"
	"time"

	"penstock/limiter"
)

// A breaker keeps requests from waiting for a peer that does not answer. Gossip needs seconds to
// notice a dead node; three calls in a row that fail are enough here. It opens for a tenth of a
// second, lets one call through to look, and doubles the pause up to a second while that call fails
// too. It knows nothing of membership: a peer may be alive for others and unreachable from here.
type breaker struct {
	failures atomic.Int32 // in a row
	until    atomic.Int64 // closed again (for one call) at this Instant
}

const (
	breakerTrips    = 3
	breakerPause    = 100 * time.Millisecond
	breakerPauseMax = time.Second
)

// pass reports whether a call may be tried now. While the breaker is open it lets one call through
// per pause: the call that passes moves the pause ahead, so the others stay out until it has come
// back.
func (b *breaker) pass(now limiter.Instant) bool {
	n := b.failures.Load()
	if n < breakerTrips {
		return true
	}
	until := b.until.Load()
	return int64(now) >= until && b.until.CompareAndSwap(until, int64(now.Add(pause(n))))
}

func (b *breaker) succeed() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
}

func (b *breaker) fail(now limiter.Instant) {
	if n := b.failures.Add(1); n >= breakerTrips {
		b.until.Store(int64(now.Add(pause(n))))
	}
}

// trip opens the breaker at once: the peer is known to be away.
func (b *breaker) trip(now limiter.Instant) {
	if b.failures.Load() < breakerTrips {
		b.failures.Store(breakerTrips - 1)
	}
	b.fail(now)
}

// open reports whether calls are being kept away at now.
func (b *breaker) open(now limiter.Instant) bool {
	return b.failures.Load() >= breakerTrips && int64(now) < b.until.Load()
}

func pause(failures int32) time.Duration {
	return min(breakerPause<<min(failures-breakerTrips, 8), breakerPauseMax)
}
