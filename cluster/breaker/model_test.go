package breaker

import (
	"math/rand/v2"
	"testing"
	"time"

	"penstock/limiter"
)

// naive is a breaker that remembers calls: how many have failed in a row, and when the last one
// failed or was let through to look.
type naive struct {
	row  int
	last limiter.Instant
}

func (n *naive) fail(now limiter.Instant) { n.row, n.last = n.row+1, now }

// away is how long calls are kept away after the last one: it doubles with each that fails.
func (n *naive) away() time.Duration {
	pause := Pause
	for range n.row - Trips {
		pause *= 2
		if pause >= MaxPause {
			return MaxPause
		}
	}
	return pause
}

func (n *naive) open(now limiter.Instant) bool {
	return n.row >= Trips && now < n.last.Add(n.away())
}

// Promise: whatever comes of calls, and in whatever order, a breaker is open as long as its
// failures in a row say, and then lets one call through per pause.
func TestBreakerAgainstNaive(t *testing.T) {
	for seed := range uint64(100) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var b Breaker
		var n naive
		now := limiter.Instant(draw.Int64N(1<<41) - 1<<40)
		jump := func() time.Duration {
			return pick(draw, []time.Duration{
				0, 1, Pause - 1, Pause, 2 * Pause, 4 * Pause, 8 * Pause, MaxPause - 1, MaxPause,
			})
		}
		for range 200 {
			now = now.Add(jump())
			if got := b.Open(now); got != n.open(now) {
				t.Fatalf("open: %t, after %d failures", got, n.row)
			}
			switch draw.IntN(9) {
			case 0:
				n.row = 0
				b.Succeed()
			case 1: // the peer is away, as if enough calls had failed
				n.row = max(n.row, Trips-1)
				n.fail(now)
				b.Trip(now)
			case 2, 3, 4, 5:
				n.fail(now)
				b.Fail(now)
			default:
				passes := !n.open(now)
				if passes {
					n.last = now // it looks, and the others wait for it
				}
				if got := b.Pass(now); got != passes {
					t.Fatalf("a call passes: %t, after %d failures", got, n.row)
				}
			}
			if got := b.Open(now); got != n.open(now) {
				t.Fatalf("open: %t, after %d failures", got, n.row)
			}
			if got := b.Tripped(); got != (n.row >= Trips) {
				t.Fatalf("tripped: %t, after %d failures", got, n.row)
			}
		}
	}
}

func pick[T any](draw *rand.Rand, from []T) T { return from[draw.IntN(len(from))] }
