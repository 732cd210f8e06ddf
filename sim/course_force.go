package sim

import (
	"slices"
	"time"

	"penstock/limiter"
)

// Extra is what an auditor with all clocks would call so. A fixed window that begins with its first
// hit, or by one of several clocks, may lie anywhere; but each decision says when its window ends,
// so the windows that were in force are known, and each of them supplies one limit. A window that
// is forgotten before it ends is still in force, and what is admitted in another one meanwhile
// counts in it. Of a sliding log it is enough to add up what was admitted in the last period.

// inForce are the windows of one key that were in force, as clients have heard of them.
type inForce struct {
	end    time.Duration // of the last one
	opened int64         // how many
}

// carriedBy is by how much a window may end later for having been carried from one node to another.
const carriedBy = carriage

// admits notes an admission that a client has heard of now, after having waited for took. The
// window of that ends after so long.
func (f *inForce) admits(now, took, per, ends time.Duration) {
	end, near := now+ends, min(per/4, carriedBy+took)
	switch {
	case f.opened == 0, end >= f.end+per-near, now >= f.end && end > f.end+near:
		f.opened++
		f.end = end
	case end <= f.end+near:
		f.end = max(f.end, end)
	}
}

// lately is what was admitted in the last period.
type lately []admission

type admission struct {
	asked time.Duration
	cost  int64
}

// admits adds an admission that was asked for then, and reports the sum of those that were surely
// taken less than per ago.
func (l *lately) admits(now, asked, per time.Duration, cost int64) (sum int64) {
	per -= per / 500 // by the fastest clock
	*l = append(*l, admission{asked, cost})
	*l = slices.DeleteFunc(*l, func(x admission) bool { return x.asked <= now-per })
	for _, x := range *l {
		sum += x.cost
	}
	return sum
}

// audited reports whether s has windows of which clients hear when they end.
func audited(s *limiter.Spec, clocks int) bool {
	return s.Algorithm == limiter.FixedWindow && s.Calendar == 0 &&
		(s.Anchor == limiter.FirstHit || clocks > 1)
}

// supplyOf is what the limit of a key supplies, in the eyes of an auditor.
func supplyOf(s *limiter.Spec, clocks int) curve {
	if audited(s, clocks) {
		return curve{unit: 1, capacity: s.Limit, each: s.Limit}
	}
	return curveOf(s, clocks)
}
