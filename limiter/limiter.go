// Package limiter decides. Follow one decision:
//
//  1. A Spec describes a limit in the words of its owner ("login: 10 per minute"). New checks it
//     once and returns an immutable *Limit that carries everything its arithmetic needs.
//  2. A Table keeps one small state per limit and key. Take locks the shard of the key, hands the
//     state to the limit's algorithm together with now and the cost, stores what comes back, and
//     returns the Decision.
//  3. Nothing here reads a clock, waits, logs or draws a random number: a decision is a function of
//     (state, now, request), and the same bits come out in production, in a test and in the
//     simulator.
//
// Every algorithm is integer arithmetic on a few int64 words that saturates instead of overflowing.
// All words zero is the state of a key that was never seen, so an entry that has decayed to zero is
// removed without loss.
//
// What an algorithm keeps of a key, in bytes beside the key's own; what its arithmetic costs, in
// nanoseconds, for requests that are admitted and refused; and the most that it admits within a
// span of the limit's period, of a limit of L. The bytes are those of a limit of 100:
//
//	algorithm                 bytes  yes  no  most in a period
//	token_bucket              16       8   8  2L, strict 2L−1
//	token_bucket/client_time  24      13  12  as many, by the clients' clocks; sessions: 32 bytes
//	gcra                      8        6   7  2L−1
//	gcra/fraction             16      13  12  2L−1; where the limit does not divide the period
//	leaky_bucket              8        8   9  in as gcra; out L, evenly
//	fixed_window              16       9  10  2L, from the first hit 2L−1
//	fixed_window/day          16      18  17  2L; of a calendar with daylight saving
//	fixed_window/month        16      44  45  2L; the same
//	sliding_log               808     34  28  L; 8 + 8L bytes
//	sliding_window            24      11  12  2L, by a ramp after a burst
//	sliding_counter           496     41  18  L, lenient 2L; 16 bytes + 8 per bucket
//	concurrency               144     26  14  (L are out at once); the same
//	stated_window             24       9   9  as fixed_window from the first hit
//	stated_bucket             32      11  17  as gcra
//
// The times are the least of twelve runs on one core of an AMD EPYC, shared with others; what is
// found in the table comes on top (see bench/). They are measured by:
//
//	go test -run '^$' -bench Decide -count 12 ./limiter
package limiter

import (
	"time"

	"github.com/cespare/xxhash/v2"
)

// Instant is a moment: nanoseconds since the Unix epoch on the clock of the deciding node. That
// clock is read once at the door and never steps (rpc anchors it to the wall once and then follows
// the monotonic clock). So a window can be aligned to the epoch, and setting the wall clock by an
// hour changes no decision.
type Instant int64

// Millis is a moment on the clock of a client: milliseconds since the Unix epoch. Clients may say
// anything up to the end of an int64, where nanoseconds would have ended in the year 2262.
type Millis int64

// Millis is the whole millisecond that t lies in.
func (t Instant) Millis() Millis {
	return Millis(floorTo(int64(t), int64(time.Millisecond)) / int64(time.Millisecond))
}

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

// Never is the RetryAfter of a request that no amount of waiting admits, and of one that was
// admitted.
const Never time.Duration = -1

// Decision is the answer to one request. Durations are in nanoseconds; doors round up to their own
// unit.
type Decision struct {
	Allowed bool
	// the most that can be admitted at once: the limit of a window, the burst of a bucket
	Limit     int64
	Remaining int64 // whole units that could still be admitted at this instant, 0 … Limit
	// smallest wait after which the same cost is admitted if nothing else comes, or Never
	RetryAfter time.Duration
	// ResetAfter is the wait until the state equals that of a key never seen, 0 if it does already.
	// Units that are reserved count as if they were charged now. Of a fixed window that is aligned
	// to the epoch it is always the time to the window's end.
	ResetAfter time.Duration
	// Delay is how long an admitted caller must wait first (OnDeny DenyDelay, LeakyBucket). Of a
	// refused request with a MaxDelay it is how long the caller would have to wait.
	Delay time.Duration
	// units that a refused request has taken (Drain); Remaining is what is left then
	Drained int64
	// when the session began (token buckets with Sessions), on the clock that the request went by
	Session Millis
	Hold    HoldState // what became of a hold (see Ledger), or HoldInTheWay
	// Restarted says that the key's counters were reset: the key has counters that still count
	// under a limit of this name with another identity (algorithm, period and so on).
	Restarted bool
	// nothing was decided, nothing else is set: the key is not this table's (see Table.Guard)
	Closed bool
}

// Together is the one answer to a request that several limits have a say in ("10 a minute, and 2 s
// between two"; see Table.TakeAll): allowed if all allow it, with what remains under the tightest,
// and the longest of all waits. Once a limit admits a request, it goes on to do so while nothing
// comes, so that wait is exact. ds has one decision at least.
func Together(ds []Decision) Decision {
	sum := ds[0]
	for _, d := range ds[1:] {
		if d.Remaining < sum.Remaining {
			sum.Limit, sum.Remaining = d.Limit, d.Remaining
		}
		switch {
		case sum.Allowed, !d.Allowed && d.RetryAfter == Never:
			sum.RetryAfter = d.RetryAfter
		case !d.Allowed && sum.RetryAfter != Never:
			sum.RetryAfter = max(sum.RetryAfter, d.RetryAfter)
		}
		sum.Allowed, sum.Restarted = sum.Allowed && d.Allowed, sum.Restarted || d.Restarted
		sum.ResetAfter, sum.Delay = max(sum.ResetAfter, d.ResetAfter), max(sum.Delay, d.Delay)
	}
	return sum
}

// Hash is the public hash of a key, the same on all nodes. It is computed once at the door and
// passed on: its top bits pick the partition (ring). Shard and slot of a Table are picked by a hash
// under a secret of the table (seed.go). Only the key is
// hashed, not the limit's name, so that all limits of one key live on one owner and "10 a minute
// and 1000 a day for alice" is one message, decided at once or not at all.
func Hash(key string) uint64 { return xxhash.Sum64String(key) }
