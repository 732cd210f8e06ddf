package door

import (
	"math"
	"math/bits"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// UntilMore is the wait until more remains than now: for a denial, until what was asked for; for a
// bucket, until the next unit or refill; else until the window is over.
//
// A bucket is full after ResetAfter, and the wait ends before that by the time in which the units
// come that may still be missing then. So a debt, or a mark that lies far ahead of a client's
// clock, counts as ResetAfter does. Of a token bucket in debt the answer does not say whether the
// last of its refills brings as much as the others: then the wait is for one refill more.
func UntilMore(d *cluster.Decision) time.Duration {
	if !d.Allowed && d.RetryAfter >= 0 {
		return d.RetryAfter
	}
	rest, bucket := refillTime(counted(d), d.Limit-d.Remaining-1)
	if !bucket || d.ResetAfter == 0 {
		return d.ResetAfter
	}
	// A lease knows ResetAfter as it was when the lease began: that may be less.
	return max(1, d.ResetAfter-rest)
}

// counted is the limit that d was decided by: a fallback decides by a share of its limit, the bound
// of which is the units of all shares.
func counted(d *cluster.Decision) *limiter.Limit {
	if d.Source != cluster.SourceFallback || d.Limit <= 0 || d.Bound < d.Limit ||
		d.Bound/d.Limit > math.MaxInt32 {
		return d.Rule
	}
	share := d.Rule.Share(int(d.Bound / d.Limit))
	if share.Capacity() != d.Limit { // on_partition: open decides by the whole limit
		return d.Rule
	}
	return share
}

// refillTime is the time in which so many units come to a bucket, rounded down. bucket says that l
// is one.
func refillTime(l *limiter.Limit, units int64) (_ time.Duration, bucket bool) {
	per, of := uint64(l.Per), uint64(l.Limit)
	switch l.Algorithm {
	case limiter.GCRA, limiter.LeakyBucket, limiter.StatedBucket:
	case limiter.TokenBucket:
		units, of = units/l.Refill, 1
	default:
		return 0, false
	}
	high, low := bits.Mul64(uint64(max(0, units)), per)
	if high >= of {
		return math.MaxInt64, true
	}
	rest, _ := bits.Div64(high, low, of)
	return time.Duration(min(rest, math.MaxInt64)), true
}
