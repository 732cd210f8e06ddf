package sim

import (
	"sort"
	"time"

	"penstock/limiter"
)

// naive is the reference that the cluster is held against: a single limiter with a single map,
// written for the eye and not for speed, which shares no line with package limiter. Buckets are
// filled by pouring, not by arrival times; waits are found by trying them out.
type naive struct {
	keys map[naiveKey]*naiveState
}

type naiveKey struct{ limit, key string }

// naiveState is what is remembered of one key under one limit. Each algorithm uses some of it.
type naiveState struct {
	// buckets: what is missing, in parts: a unit is Per parts, and Limit of them refill per ns
	used     int64
	poured   limiter.Instant // buckets: when it was last refilled
	start    limiter.Instant // windows: when the current one began
	end      limiter.Instant // windows of a calendar: when it ends
	count    int64           // windows: what it counts
	previous int64           // sliding window: what the window before it counted
	naiveKinds
}

// take is what a single limiter answers to a request at now, after all that it was asked before.
func (n *naive) take(now limiter.Instant, s *limiter.Spec, key string,
	cost int64,
) limiter.Decision {
	state := n.keys[naiveKey{s.Name, key}]
	if state == nil {
		state = &naiveState{}
		n.keys[naiveKey{s.Name, key}] = state
	}
	return state.take(now, s, cost)
}

// peek is what take would answer. It changes nothing.
func (n *naive) peek(now limiter.Instant, s *limiter.Spec, key string,
	cost int64,
) limiter.Decision {
	return n.keys[naiveKey{s.Name, key}].copy().take(now, s, cost)
}

func (n *naive) reset(s *limiter.Spec, key string) { delete(n.keys, naiveKey{s.Name, key}) }

// copy is a state of its own, equal to st. A nil st is that of a key never seen.
func (st *naiveState) copy() *naiveState {
	if st == nil {
		return &naiveState{}
	}
	c := *st
	return &c
}

// take answers a request at now, and leaves the state after it.
func (st *naiveState) take(now limiter.Instant, s *limiter.Spec, cost int64) limiter.Decision {
	if s.Unlimited {
		return limiter.Decision{
			Allowed: true, Limit: limiter.MaxLimit, Remaining: limiter.MaxLimit,
			RetryAfter: limiter.Never,
		}
	}
	switch s.Algorithm {
	case limiter.GCRA:
		return st.bucket(now, s, s.Burst, cost)
	case limiter.LeakyBucket:
		return st.queue(now, s, cost)
	case limiter.FixedWindow:
		return st.window(now, s, cost)
	case limiter.SlidingWindow:
		return st.sliding(now, s, cost)
	case limiter.TokenBucket:
		return st.tokens(now, s, cost)
	case limiter.SlidingLog:
		return st.entries(now, s, cost)
	case limiter.SlidingCounter:
		return st.parts(now, s, cost)
	}
	if s.Algorithm == limiter.Concurrency { // permits are set aside, and none is ever charged
		return limiter.Decision{
			Allowed: cost <= s.Limit, Limit: s.Limit, Remaining: s.Limit,
			RetryAfter: limiter.Never,
		}
	}
	panic("sim: the reference does not know " + s.Algorithm.String())
}

// peek is what take would answer.
func (st *naiveState) peek(now limiter.Instant, s *limiter.Spec, cost int64) limiter.Decision {
	return st.copy().take(now, s, cost)
}

// bucket holds up to most units and is filled by pouring.
func (st *naiveState) bucket(now limiter.Instant, s *limiter.Spec, most,
	cost int64,
) limiter.Decision {
	unit, full := int64(s.Per), most*int64(s.Per)
	if elapsed := int64(now - st.poured); elapsed >= st.used/s.Limit+1 {
		st.used = 0
	} else {
		st.used = max(0, st.used-elapsed*s.Limit)
	}
	st.poured = now
	d := limiter.Decision{Allowed: true, Limit: most, RetryAfter: limiter.Never}
	switch {
	case cost > most:
		d.Allowed = false
	case cost > 0 && st.used+cost*unit > full:
		d.Allowed = false
		d.RetryAfter = wait(st.used+cost*unit-full, s.Limit)
	case cost > 0:
		st.used += cost * unit
	case cost < -st.used/unit: // all, which may be more than a share of fewer units has room for
		st.used = 0
	default:
		st.used += cost * unit
	}
	d.Remaining = max(0, full-st.used) / unit
	d.ResetAfter = wait(st.used, s.Limit)
	return d
}

// queue lets units leave one after the other: it admits what a bucket of one more would, and says
// how long until the first of them has its turn, which is when the bucket would have been full.
func (st *naiveState) queue(now limiter.Instant, s *limiter.Spec, cost int64) limiter.Decision {
	turn := st.copy().bucket(now, s, s.Burst+1, 0).ResetAfter
	d := st.bucket(now, s, s.Burst+1, cost)
	if cost > 0 && d.Allowed {
		d.Delay = turn
	}
	return d
}

// wait is how long it takes until parts have flowed in at rate parts per nanosecond.
func wait(parts, rate int64) time.Duration { return time.Duration((parts + rate - 1) / rate) }

func (st *naiveState) window(now limiter.Instant, s *limiter.Spec, cost int64) limiter.Decision {
	if st.count == 0 || now >= st.over(s) {
		st.count = 0
		st.open(s, now)
	}
	end := time.Duration(st.over(s) - now)
	d := limiter.Decision{Allowed: true, Limit: s.Limit, RetryAfter: limiter.Never}
	switch {
	case cost > s.Limit:
		d.Allowed = false
	case cost > 0 && st.count+cost > s.Limit:
		d.Allowed = false
		d.RetryAfter = end
		if s.CountRejected {
			st.count += cost
		}
	default:
		st.count = max(0, st.count+max(cost, -st.count))
	}
	d.Remaining = max(0, s.Limit-st.count)
	if st.count > 0 || s.Anchor == limiter.Epoch {
		d.ResetAfter = end
	}
	return d
}

// open begins the window that now lies in.
func (st *naiveState) open(s *limiter.Spec, now limiter.Instant) {
	switch {
	case s.Calendar != 0:
		if now < st.start || now >= st.end {
			st.start, st.end = calendarWindow(s, now)
		}
	case s.Anchor == limiter.Epoch:
		st.start = aligned(now, s.Per)
	default:
		st.start = now
	}
}

// over is when the window ends.
func (st *naiveState) over(s *limiter.Spec) limiter.Instant {
	if s.Calendar != 0 {
		return st.end
	}
	return st.start.Add(s.Per)
}

func (st *naiveState) sliding(now limiter.Instant, s *limiter.Spec, cost int64) limiter.Decision {
	switch this := aligned(now, s.Per); {
	case this <= st.start: // or it lies ahead, by the clock of another node
	case this == st.start.Add(s.Per):
		st.start, st.previous, st.count = this, st.count, 0
	default:
		st.start, st.previous, st.count = this, 0, 0
	}
	d := limiter.Decision{Allowed: true, Limit: s.Limit, RetryAfter: limiter.Never}
	switch {
	case cost > s.Limit:
		d.Allowed = false
	case cost > 0 && st.estimate(now, s)+cost > s.Limit:
		d.Allowed = false
		d.RetryAfter = st.waitFor(s.Limit-cost, now, s)
	case cost > 0:
		st.count += cost
	case cost < 0:
		back := min(-max(cost, -1<<62), st.count+st.previous)
		current := min(back, st.count)
		st.count -= current
		st.previous -= back - current
	}
	d.Remaining = max(0, s.Limit-st.estimate(now, s))
	d.ResetAfter = st.waitFor(0, now, s)
	return d
}

// estimate is what a sliding counter takes to lie within the last Per at some instant, if nothing
// comes until then.
func (st *naiveState) estimate(at limiter.Instant, s *limiter.Spec) int64 {
	current, previous := st.count, st.previous
	switch this := aligned(at, s.Per); {
	case this < st.start:
		return current + previous
	case this == st.start:
	case this == st.start.Add(s.Per):
		current, previous = 0, current
	default:
		return 0
	}
	inside := int64(s.Per) - int64(at-aligned(at, s.Per))
	return current + previous*inside/int64(s.Per)
}

// waitFor is the shortest wait until the estimate is at most k. The estimate only falls, so half of
// the waits can be ruled out with each try.
func (st *naiveState) waitFor(k int64, now limiter.Instant, s *limiter.Spec) time.Duration {
	return time.Duration(sort.Search(2*int(s.Per), func(d int) bool {
		return st.estimate(now.Add(time.Duration(d)), s) <= k
	}))
}

// aligned is the last multiple of per since the epoch that is not after t. No world is older than
// the epoch.
func aligned(t limiter.Instant, per time.Duration) limiter.Instant {
	return t - t%limiter.Instant(per)
}
