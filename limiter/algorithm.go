package limiter

import "time"

// An algorithm is a file with a pure function on a few words of state, and four facts about them:
// when a state is as good as never seen, how two states merge, how many words there are, and for
// how long what was admitted counts. Its methods belong to a type of its own, like gcraLimit. Such
// a type is a Limit under another name, so the conversion between them costs nothing. This file is
// the list of algorithms. A new one needs a line in each switch; nothing else distinguishes them.

// words is the length of a state of l.
func (l *Limit) words() int { return l.stateWords }

// decide answers into d a request of cost at now, and leaves the state after it in w, which has
// l.words() words. It is the whole of a decision: same words, same now, same cost, same answer. now
// must be within bounds (see within). A cost of 0 and a refusal leave w as it was, except where a
// limit counts or drains what it rejects, or is strict.
//
// d is a parameter and no result because a Decision is too large for the compiler to keep in
// registers: handed up through three functions it would be copied three times.
func (l *Limit) decide(w []int64, now Instant, cost int64, d *Decision) {
	*d = Decision{Allowed: true, Limit: l.Capacity(), RetryAfter: Never}
	switch l.Algorithm {
	case GCRA:
		(*gcraLimit)(l).decide(w, now, cost, d)
	case FixedWindow:
		(*fixedWindowLimit)(l).decide(w, now, cost, d)
	case SlidingLog:
		(*slidingLogLimit)(l).decide(w, now, cost, d)
	case TokenBucket:
		if l.ClientTime {
			(*clientBucketLimit)(l).answer(w, now, &Request{Cost: cost}, d)
		} else {
			(*tokenBucketLimit)(l).decide(w, now, cost, d)
		}
	case LeakyBucket:
		(*leakyBucketLimit)(l).decide(w, now, cost, d)
	case SlidingCounter, Concurrency:
		(*slidingCounterLimit)(l).decide(w, now, cost, d)
	case StatedWindow:
		(*statedWindowLimit)(l).decide(w, now, cost, d)
	case StatedBucket:
		(*statedBucketLimit)(l).decide(w, now, cost, d)
	default:
		(*slidingWindowLimit)(l).decide(w, now, cost, d)
	}
}

// fresh reports whether a key in state w is treated from now on like one that was never seen. Its
// entry can be removed without loss, as long as the clock does not go back before now. (One loss
// there is: the phase of a token bucket, see there.)
func (l *Limit) fresh(w []int64, now Instant) bool {
	switch l.Algorithm {
	case GCRA, LeakyBucket:
		return freshGCRA(w, now)
	case FixedWindow:
		return (*fixedWindowLimit)(l).fresh(w, now)
	case SlidingLog:
		return (*slidingLogLimit)(l).fresh(w, now)
	case TokenBucket:
		if l.ClientTime {
			return (*clientBucketLimit)(l).fresh(w, now)
		}
		return (*tokenBucketLimit)(l).fresh(w, now)
	case SlidingCounter, Concurrency:
		return (*slidingCounterLimit)(l).fresh(w, now)
	case StatedWindow:
		return freshStatedWindow(w, now)
	case StatedBucket:
		return freshStatedBucket(w, now)
	default:
		return (*slidingWindowLimit)(l).fresh(w, now)
	}
}

// CountsFor is how long what a limit has admitted counts at most: after that, a key that nobody has
// asked for since is treated as if it had never been seen. By clocks that go back, and by those of
// clients (Spec.ClientTime), it may count for longer. It is 0 if nothing is counted.
func (l *Limit) CountsFor() time.Duration {
	if l.Unlimited {
		return 0
	}
	switch l.Algorithm {
	case FixedWindow:
		if l.Calendar != 0 {
			return l.Per + clockChange
		}
	case SlidingLog, StatedWindow:
	case SlidingCounter, Concurrency:
		return l.Per + l.Per/time.Duration(l.Buckets)
	case TokenBucket:
		marks := (l.Limit+l.MaxDebt+l.Refill-1)/l.Refill + 1
		return time.Duration(marks)*l.Per + l.MaxDelay
	case GCRA, LeakyBucket, StatedBucket:
		fill := float64(l.Per) * float64(l.Capacity()+l.MaxDebt) / float64(l.Limit)
		return time.Duration(fill) + l.MaxDelay + time.Microsecond // float64 is short of some ns
	default:
		return 2 * l.Per
	}
	return l.Per
}

// clockChange is by how much a window of a calendar may last longer than it is called, on days on
// which clocks are set back, and a little more.
const clockChange = 3 * time.Hour

// merge makes w the state of a key of which both w and other are true: more consumed wins. At one
// now it is commutative, associative and idempotent, and admits nothing that w or other would have
// refused. It may change other. Both have l.words() words.
func (l *Limit) merge(w, other []int64, now Instant) {
	switch l.Algorithm {
	case GCRA, LeakyBucket:
		mergeGCRA(w, other)
	case FixedWindow:
		(*fixedWindowLimit)(l).merge(w, other, now)
	case SlidingLog:
		(*slidingLogLimit)(l).merge(w, other, now)
	case TokenBucket:
		if l.ClientTime {
			(*clientBucketLimit)(l).merge(w, other, now)
		} else {
			(*tokenBucketLimit)(l).merge(w, other, now)
		}
	case SlidingCounter, Concurrency:
		(*slidingCounterLimit)(l).merge(w, other, now)
	case StatedWindow:
		mergeStatedWindow(w, other, now)
	case StatedBucket:
		mergeStatedBucket(w, other, now)
	default:
		(*slidingWindowLimit)(l).merge(w, other, now)
	}
}

// refit writes into w, which has l.words() words, a state that was written when the limit had other
// parameters or that came from elsewhere, and may be shorter or longer. It never gives back what
// was consumed.
func (l *Limit) refit(w, old []int64) {
	clear(w)
	if len(old) == 0 {
		return
	}
	switch {
	case l.Algorithm == GCRA || l.Algorithm == LeakyBucket:
		refitGCRA(w, old)
	case l.Algorithm == SlidingLog && len(w) != len(old):
		refitSlidingLog(w, old)
	default:
		copy(w, old)
	}
}

// Bounds of the instants that the arithmetic works with, the years 1896 to 2116: wide enough that
// sums and differences of two instants and a period cannot overflow. A clock beyond them stands
// still at the bound, so nothing refills there and nothing is admitted twice.
const (
	earliest Instant = -1 << 61
	latest   Instant = 1 << 62
)

func within(now Instant) Instant { return min(max(now, earliest), latest) }
