// Package limiter decides. Follow one decision:
//
//  1. A Spec describes a limit in the words of its owner ("login: 10 per minute"). New checks it once and
//     returns an immutable *Limit that carries everything its arithmetic needs.
//  2. A Table keeps one small state per limit and key. Take locks the shard of the key, hands the state to the
//     limit's algorithm together with now and the cost, stores what comes back, and returns the Decision.
//  3. Nothing here reads a clock, waits, logs or draws a random number: a decision is a function of
//     (state, now, request), and the same bits come out in production, in a test and in the simulator.
//
// Every algorithm is integer arithmetic on a few int64 words that saturates instead of overflowing. All words zero
// is the state of a key that was never seen, so an entry that has decayed to zero is removed without loss.
package limiter

import (
	"time"

	"github.com/cespare/xxhash/v2"
)

// Instant is a moment: nanoseconds since the Unix epoch on the clock of the node that decides. That clock is read
// once at the door and never steps (rpc anchors it to the wall once and then follows the monotonic clock), so a
// window can be aligned to the epoch and an operator who sets the clock by an hour changes no decision.
type Instant int64

// Add returns the instant d later, saturating at the ends of time.
func (t Instant) Add(d time.Duration) Instant {
	s := t + Instant(d)
	switch {
	case d > 0 && s < t:
		return 1<<63 - 1
	case d < 0 && s > t:
		return -1 << 63
	}
	return s
}

// Never is the RetryAfter of a request that no amount of waiting admits, and of one that was admitted.
const Never time.Duration = -1

// Decision is the answer to one request. Durations are in nanoseconds; doors round up to their own unit.
type Decision struct {
	Allowed    bool
	Limit      int64         // the most that can be admitted at once: the limit of a window, the burst of a bucket
	Remaining  int64         // whole units that could still be admitted at this instant, 0 … Limit
	RetryAfter time.Duration // smallest wait after which the same cost is admitted if nothing else comes, or Never
	// ResetAfter is the wait until the state equals that of a key never seen, 0 if it does already. Of a fixed window
	// that is aligned to the epoch it is always the time to the window's end.
	ResetAfter time.Duration
	Delay      time.Duration // how long an admitted caller must wait first (queues only)
}

// Hash is the one hash of a key. It is computed once at the door and passed on: its remainder picks the partition
// (ring), its mix with the limit picks shard and slot (Table). Only the key is hashed, not the limit's name, so
// that all limits of one key live on one owner and "10 a minute and 1000 a day for alice" is one message, decided
// at once or not at all.
func Hash(key string) uint64 { return xxhash.Sum64String(key) }
