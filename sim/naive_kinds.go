package sim

import (
	"slices"
	"time"

	"penstock/limiter"
)

// naiveKinds is what the naive limiter remembers for the algorithms that keep more than a few
// numbers. Slices are never written into: copies of a state share them.
type naiveKinds struct {
	missing int64             // token bucket: tokens that are not there
	mark    limiter.Instant   // token bucket: the last refill
	phased  bool              // token bucket: it has a mark
	log     []limiter.Instant // sliding log: one entry per unit, oldest first
	counts  []part            // sliding counter: oldest first
}

// part is what a sliding counter has counted in one of its sub-windows.
type part struct {
	begin limiter.Instant
	count int64
}

// tokens is a bucket that gets Refill tokens at every mark.
func (st *naiveState) tokens(now limiter.Instant, s *limiter.Spec, cost int64) limiter.Decision {
	missing, mark := st.tokensAt(now, s)
	d := limiter.Decision{Allowed: true, Limit: s.Limit, RetryAfter: limiter.Never}
	switch {
	case cost > 0 && cost > s.Limit-missing:
		d.Allowed = false
		if s.Drain {
			d.Drained = s.Limit - missing
			missing = s.Limit
		}
		if s.Drain || s.Strict && missing == s.Limit {
			mark = st.keepTokens(now, s, missing, mark)
		}
		if cost <= s.Limit {
			d.RetryAfter = untilTokens(now, s, missing-(s.Limit-cost), mark)
		}
	case cost > 0:
		missing += cost
		mark = st.keepTokens(now, s, missing, mark)
	case cost < 0 && missing > 0:
		missing = max(0, missing+max(cost, -s.Limit))
		st.missing, st.mark, st.phased = missing, mark, true
	}
	d.Remaining = s.Limit - missing
	if missing > 0 {
		d.ResetAfter = untilTokens(now, s, missing, mark)
	}
	return d
}

// tokensAt is the bucket as it stands at now.
func (st *naiveState) tokensAt(now limiter.Instant, s *limiter.Spec) (missing int64,
	mark limiter.Instant,
) {
	missing, mark = st.missing, st.mark
	if !st.phased || s.Anchor == limiter.Epoch && missing == 0 {
		missing, mark = 0, now
		if s.Anchor == limiter.Epoch {
			mark = aligned(now, s.Per)
		}
	}
	if marks := int64(now-mark) / int64(s.Per); marks > 0 {
		mark = mark.Add(time.Duration(marks) * s.Per)
		missing -= min(missing, min(marks, missing)*s.Refill)
	}
	return missing, mark
}

// keepTokens is the bucket after a request for tokens; where the bucket is strict, an empty one
// waits a whole Per.
func (st *naiveState) keepTokens(now limiter.Instant, s *limiter.Spec, missing int64,
	mark limiter.Instant,
) limiter.Instant {
	if s.Strict && missing == s.Limit {
		mark = max(mark, now)
	}
	st.missing, st.mark, st.phased = missing, mark, true
	return mark
}

// untilTokens is the wait until n more tokens have come.
func untilTokens(now limiter.Instant, s *limiter.Spec, n int64,
	mark limiter.Instant,
) time.Duration {
	return time.Duration(mark.Add(time.Duration((n+s.Refill-1)/s.Refill)*s.Per) - now)
}

// forgettable reports whether a node may have forgotten when a full bucket gets its refills: it has
// stood full for as long as an empty one takes to fill.
func (st *naiveState) forgettable(now limiter.Instant, s *limiter.Spec) bool {
	if s.Algorithm != limiter.TokenBucket || s.Anchor != limiter.FirstHit || !st.phased {
		return false
	}
	fill := (st.missing+s.Refill-1)/s.Refill + (s.Limit+s.Refill-1)/s.Refill
	return int64(now-st.mark)/int64(s.Per) >= fill
}

// entries is a log that has the instant of every unit, of which those of the last Per count.
func (st *naiveState) entries(now limiter.Instant, s *limiter.Spec, cost int64) limiter.Decision {
	live := st.log
	for len(live) > 0 && live[0].Add(s.Per) <= now {
		live = live[1:]
	}
	d := limiter.Decision{Allowed: true, Limit: s.Limit, RetryAfter: limiter.Never}
	switch {
	case cost > s.Limit:
		d.Allowed = false
	case cost > 0:
		d.Allowed = int64(len(live))+cost <= s.Limit &&
			(len(live) == 0 || live[len(live)-1].Add(s.MinGap) <= now)
		if d.Allowed || s.CountRejected {
			st.enter(live, now, s, cost)
			live = st.log
		}
		if !d.Allowed {
			at := now
			if stay := int(s.Limit - cost); len(live) > stay {
				at = live[len(live)-1-stay].Add(s.Per)
			}
			if len(live) > 0 {
				at = max(at, live[len(live)-1].Add(s.MinGap))
			}
			d.RetryAfter = time.Duration(at - now)
		}
	case cost < 0:
		live = live[:max(0, int64(len(live))+max(cost, -limiter.MaxLog*2))]
		st.log = live
	}
	d.Remaining = max(0, s.Limit-int64(len(live)))
	if len(live) > 0 {
		d.ResetAfter = time.Duration(live[len(live)-1].Add(s.Per) - now)
	}
	return d
}

// enter adds units to a log.
func (st *naiveState) enter(live []limiter.Instant, now limiter.Instant, s *limiter.Spec,
	units int64,
) {
	st.log = slices.Clone(live)
	for range units {
		st.log = append(st.log, now)
	}
	st.bound(s.Limit)
}

// bound has a log know the instants of its newest units alone, of which there are as many as its
// limit: older ones, for refusals that count and for debts, count as long as the oldest of those.
func (st *naiveState) bound(limit int64) {
	older := max(0, len(st.log)-int(limit))
	for i := range older {
		st.log[i] = st.log[older]
	}
	st.log = st.log[max(0, older-limiter.MaxLog):]
}

// parts is a counter per sub-window, of which those count that reach into the last Per.
func (st *naiveState) parts(now limiter.Instant, s *limiter.Spec, cost int64) limiter.Decision {
	counts := st.counts
	for len(counts) > 0 && partEnd(counts[0], s) <= now {
		counts = counts[1:]
	}
	sum := sumOf(counts)
	d := limiter.Decision{Allowed: true, Limit: s.Limit, RetryAfter: limiter.Never}
	switch {
	case cost > s.Limit:
		d.Allowed = false
	case cost > 0:
		d.Allowed = sum+cost <= s.Limit
		if d.Allowed || s.CountRejected {
			st.countIn(counts, now, s, cost)
			counts, sum = st.counts, sum+cost
		}
		if !d.Allowed {
			d.RetryAfter = untilParts(now, counts, s, s.Limit-cost)
		}
	case cost < 0:
		counts = slices.Clone(counts)
		back := min(sum, -max(cost, -1<<62))
		sum -= back
		for i := len(counts) - 1; i >= 0; i-- {
			taken := min(back, counts[i].count)
			counts[i].count -= taken
			back -= taken
		}
		if sum == 0 {
			counts = nil
		}
		st.counts = counts
	}
	d.Remaining = max(0, s.Limit-sum)
	if sum > 0 {
		d.ResetAfter = untilParts(now, counts, s, 0)
	}
	return d
}

func (st *naiveState) countIn(counts []part, now limiter.Instant, s *limiter.Spec, n int64) {
	begin := aligned(now, s.Per/time.Duration(s.Buckets))
	counts = slices.Clone(counts)
	// it may lie ahead, by the clock of another node
	if i := len(counts) - 1; i >= 0 && counts[i].begin >= begin {
		counts[i].count += n
	} else {
		counts = append(counts, part{begin, n})
	}
	st.counts = counts
}

// partEnd is when a sub-window no longer counts. The one that the beginning of the last Per cuts
// counts in full, or lenient not at all.
func partEnd(p part, s *limiter.Spec) limiter.Instant {
	if s.Lenient {
		return p.begin.Add(s.Per + 1)
	}
	return p.begin.Add(s.Per + s.Per/time.Duration(s.Buckets))
}

// untilParts is the wait until at most k units count.
func untilParts(now limiter.Instant, counts []part, s *limiter.Spec, k int64) time.Duration {
	at := now
	for sum := sumOf(counts); sum > k; counts = counts[1:] {
		if counts[0].count > 0 {
			at = partEnd(counts[0], s)
		}
		sum -= counts[0].count
	}
	return time.Duration(at - now)
}

func sumOf(counts []part) (sum int64) {
	for _, p := range counts {
		sum += p.count
	}
	return sum
}
