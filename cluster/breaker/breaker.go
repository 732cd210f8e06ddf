// Package breaker keeps requests from waiting for a peer that does not answer.
package breaker

import (
	"sync/atomic"
	"time"

	"penstock/limiter"
)

// A Breaker counts the calls to one peer that have failed in a row. Gossip needs seconds to notice
// a dead node; Trips calls are enough here. It opens for a Pause, lets one call through to look,
// and doubles the pause up to MaxPause while that call fails too. It knows nothing of membership: a
// peer may be alive for others and unreachable from here. The zero Breaker is closed. Its methods
// are safe for concurrent use.
type Breaker struct {
	failures atomic.Int32 // in a row
	until    atomic.Int64 // closed again (for one call) at this Instant
}

const (
	Trips    = 3
	Pause    = 100 * time.Millisecond
	MaxPause = time.Second
)

// Pass reports whether a call may be tried now. While the breaker is open it lets one call through
// per pause: the call that passes moves the pause ahead, so the others stay out until it has come
// back.
func (b *Breaker) Pass(now limiter.Instant) bool {
	n := b.failures.Load()
	if n < Trips {
		return true
	}
	until := b.until.Load()
	return int64(now) >= until && b.until.CompareAndSwap(until, int64(now.Add(pause(n))))
}

// Succeed closes the breaker: the peer has answered.
func (b *Breaker) Succeed() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
}

// Fail notes that a call was not answered.
func (b *Breaker) Fail(now limiter.Instant) {
	if n := b.failures.Add(1); n >= Trips {
		b.until.Store(int64(now.Add(pause(n))))
	}
}

// Trip opens the breaker at once: the peer is known to be away.
func (b *Breaker) Trip(now limiter.Instant) {
	if b.failures.Load() < Trips {
		b.failures.Store(Trips - 1)
	}
	b.Fail(now)
}

// Tripped reports whether the peer has not answered since Trips calls to it have failed.
func (b *Breaker) Tripped() bool { return b.failures.Load() >= Trips }

// Open reports whether calls are being kept away at now.
func (b *Breaker) Open(now limiter.Instant) bool {
	return b.failures.Load() >= Trips && int64(now) < b.until.Load()
}

func pause(failures int32) time.Duration {
	return min(Pause<<min(failures-Trips, 8), MaxPause)
}
