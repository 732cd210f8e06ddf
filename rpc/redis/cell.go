package redis

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/resp"
)

// CL.THROTTLE answers as redis-cell does. A key has one arrival time there, whatever the numbers of
// a command: they say what that time means now, so a change of burst, count or period keeps the
// debt in time.
//
//	e = floor(period / count) in ns;  dvt = e × (max_burst + 1)
//	new = max(arrival, now) + quantity × e
//	allowed iff new − dvt ≤ now;  then arrival = new
//	[refused, max_burst + 1, (dvt − ttl) / e, new − dvt − now or −1, ttl],  ttl = arrival − now
//
// A limit with a period of count × e has exactly that interval, so the limiter decides, and only
// the words of the reply are made here. Where redis-cell ends in an overflow or an error of its
// store, this answers by the limiter instead: a quantity below 0 gives back at most what was taken,
// and is never refused.

// cellRate is what a command asks for.
type cellRate struct {
	burst    int64 // max_burst + 1
	count    int64
	interval time.Duration // e
}

//lint:ignore ST1005 this is redis-cell's text, byte for byte
var errZeroRate = errors.New("Zero rates are not supported")

// readCellRate says which number is beyond what can be counted: redis-cell takes it, and overflows.
func readCellRate(burst, count, period int64) (cellRate, error) {
	const longest = int64(limiter.MaxFill / time.Second)
	switch {
	case count == 0 || period == 0:
		return cellRate{}, errZeroRate
	case burst < 0 || burst >= limiter.MaxLimit:
		return cellRate{}, fmt.Errorf("max_burst is %d; 0 to %d are accepted", burst,
			int64(limiter.MaxLimit-1))
	case count < 1:
		return cellRate{}, fmt.Errorf("count per period is %d; 1 to %d are accepted", count,
			int64(math.MaxInt64))
	case period < 1 || period > longest:
		return cellRate{}, fmt.Errorf("period is %d; 1 to %d seconds are accepted", period, longest)
	}
	interval := int64(float64(period*int64(time.Second)) / float64(count)) // they divide so
	if interval == 0 {
		return cellRate{}, errZeroRate
	}
	if interval > int64(limiter.MaxPer) {
		return cellRate{}, fmt.Errorf(
			"count per period is %d in %d seconds; at least 1 in %d days is accepted", count,
			period, limiter.MaxPer/(24*time.Hour))
	}
	if high, low := bits.Mul64(uint64(interval), uint64(burst+1)); high != 0 ||
		low > uint64(limiter.MaxFill) {
		return cellRate{}, fmt.Errorf("max_burst is %d; at %d per %d seconds that takes over %d "+
			"years to refill",
			burst, count, period, limiter.MaxFill/limiter.MaxPer)
	}
	return cellRate{burst + 1, count, time.Duration(interval)}, nil
}

// limit is the rate in numbers that a limit may have. Interval times count is about the period, and
// a fraction of both is as good as all of them.
func (r *cellRate) limit() commandLimit {
	count := min(r.count, limiter.MaxLimit, max(1, int64(limiter.MaxPer/r.interval)))
	if per := time.Duration(count) * r.interval; per < limiter.MinPer {
		count = int64((limiter.MinPer + r.interval - 1) / r.interval)
	}
	return commandLimit{count: count, more: r.burst, per: time.Duration(count) * r.interval}
}

// appendCell writes the five numbers of a decision on quantity by l.
func appendCell(b []byte, d *cluster.Decision, l *limiter.Limit, quantity int64) []byte {
	allowed, retry, remaining := d.Allowed, d.RetryAfter, d.Remaining
	if d.Limit == l.Burst { // else a node on its own has decided, by its share
		interval := l.Per / time.Duration(l.Limit)
		dvt := interval * time.Duration(l.Burst)
		remaining = cellRemaining(d, dvt, interval)
		// a smaller burst made the debt larger than it may be
		if over := d.ResetAfter - dvt; quantity == 0 && over > 0 {
			allowed, retry = false, over
		}
	}
	refused := int64(1)
	if allowed {
		refused = 0
	}
	b = append(b, "*5\r\n"...)
	b = resp.AppendInt(b, refused)
	b = resp.AppendInt(b, d.Limit)
	b = resp.AppendInt(b, remaining)
	b = resp.AppendInt(b, cellSeconds(retry))
	return resp.AppendInt(b, cellSeconds(d.ResetAfter))
}

// cellRemaining is how many units are left, as redis-cell counts: in whole microseconds of both,
// which is more than the limit where a unit takes few of them. Below one microsecond it divides by
// zero; the limiter's own count stands there.
func cellRemaining(d *cluster.Decision, dvt, interval time.Duration) int64 {
	if interval < time.Microsecond {
		return d.Remaining
	}
	next := dvt - d.ResetAfter
	if next <= -interval {
		return 0
	}
	return int64(float64(next/time.Microsecond) / float64(interval/time.Microsecond))
}

// cellSeconds is d in seconds as redis-cell counts: whole milliseconds, rounded up to seconds.
func cellSeconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	s := int64(d.Seconds())
	if d%time.Second >= time.Millisecond {
		s++
	}
	return s
}
