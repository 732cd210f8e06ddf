package envoy

import (
	"slices"
	"time"

	"penstock/limiter"
)

// use counts what was admitted against the leases, the oldest first, and returns what goes beyond
// them.
func (b *bucket) use(n int64) (more int64) {
	if len(b.leases) > 0 {
		b.leases[len(b.leases)-1].since += n
	}
	for _, l := range b.leases {
		some := min(n, l.units-l.used)
		l.used += some
		n -= some
	}
	return n
}

// wants reports whether the bucket needs another lease: the latest is over by half, or perhaps
// spent by four fifths.
func (b *bucket) wants(now limiter.Instant, lasts time.Duration) bool {
	if len(b.leases) == 0 {
		return true
	}
	l := b.leases[len(b.leases)-1]
	return now >= l.ends.Add(-lasts/2) || l.since*5 >= l.units*4
}

// lives reports whether the bucket has something to go on with.
func (b *bucket) lives(now limiter.Instant) bool {
	return slices.ContainsFunc(b.leases, func(l *lease) bool {
		return now < l.ends && l.since < l.units
	})
}

// leaseOf is how long a lease lasts: the window of its limit, within bounds, and for two reports at
// least.
func leaseOf(per, reportEvery time.Duration) time.Duration {
	return min(leaseLongest, max(leaseAtLeast, min(leaseAtMost, per), 2*reportEvery))
}

// needs is what a bucket will use in a lease, by what came in the last interval, and a quarter
// more.
func needs(came int64, in, lasts time.Duration) int64 {
	if in <= 0 {
		in = lasts
	}
	return max(1, int64(min(float64(came)*float64(lasts)/float64(in)*1.25, limiter.MaxLimit)))
}
