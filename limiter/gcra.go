package limiter

import (
	"math"
	"math/bits"
	"time"
)

// GCRA, the generic cell rate algorithm: a token bucket that refills continuously, or a leaky
// bucket used as a meter, in one number. The state is the theoretical arrival time, TAT: the
// instant at which the bucket will be full again. A unit moves it ahead by the emission interval e
// = Per/Limit, time passing brings it nearer, and a request is admitted if the TAT after it is at
// most Burst×e away.
//
//	ahead = max(0, TAT − now)
//	admit c  iff  ahead + c×e ≤ Burst×e;  then TAT = now + ahead + c×e
//
// Nothing but a future instant is stored, so a clock that goes back gives nothing twice: it only
// makes TAT be farther away. In any closed span T at most Burst + floor(T/e) units are admitted.
//
// The interval is exact. Where Limit divides Per it is a whole number of nanoseconds and the state
// is one word. Else (7 a minute, or 3,000,000 a second) it is carried on in units of 2^-64 ns and
// the state is a second word: the fraction of TAT. Rounding to whole nanoseconds instead, as Redis
// modules do, admits 0.04 % too much at 700,000 a second and everything above 10^9. A door that has
// to imitate floor(period/count) to the digit asks for Per = count × floor(period/count), which is
// exactly that interval.
const (
	gcraWords         = 1
	gcraFractionWords = 2
)

// gcraLimit is the arithmetic of GCRA.
type gcraLimit Limit

func (l *gcraLimit) prepare() {
	per, limit, burst := uint64(l.Per), uint64(l.Limit), uint64(l.Burst)
	l.interval = per / limit
	l.fraction, _ = bits.Div64(per%limit, 0, limit)
	carry, rest := bits.Mul64(burst, l.fraction)
	l.depth, l.depthFraction = burst*l.interval+carry, rest
	l.stateWords = gcraWords
	if l.fraction != 0 {
		l.stateWords = gcraFractionWords
	}
}

func (l *gcraLimit) decide(w []int64, now Instant, cost int64, d *Decision) {
	if l.fraction != 0 {
		l.decideFraction(w, now, cost, d)
		return
	}
	ahead := aheadOf(w[0], now)
	switch {
	case cost > l.Burst:
		d.Allowed = false
	case cost > 0:
		need := uint64(cost) * l.interval
		if ahead > l.depth-need && !d.delays(ahead-(l.depth-need), uint64(l.MaxDelay)) {
			break
		}
		ahead = arrive(w, now, ahead+need)
	case cost < 0 && ahead > l.depth && l.MaxDelay > 0: // callers wait: see delay.go
	case cost < 0 && ahead > 0:
		if over, back := bits.Mul64(-uint64(cost), l.interval); over == 0 && back < ahead {
			ahead = arrive(w, now, ahead-back)
		} else {
			ahead, w[0] = 0, 0
		}
	}
	if ahead < l.depth {
		d.Remaining = int64((l.depth - ahead) / l.interval)
	}
	d.ResetAfter = saturated(ahead)
}

// decideFraction is gcra with 64 more bits behind the point.
func (l *gcraLimit) decideFraction(w []int64, now Instant, cost int64, d *Decision) {
	ahead := span{ns: aheadOf(w[0], now)}
	if ahead.ns > 0 || w[0] == int64(now) {
		ahead.fraction = uint64(w[1]) // else it is over
	}
	depth := span{l.depth, l.depthFraction}
	switch {
	case cost > l.Burst:
		d.Allowed = false
	case cost > 0:
		need := l.units(uint64(cost))
		most := depth.minus(need)
		if most.less(ahead) && !d.delays(ahead.minus(most).roundUp(), uint64(l.MaxDelay)) {
			break
		}
		ahead = ahead.plus(need)
		ahead.ns, w[1] = arrive(w, now, ahead.ns), int64(ahead.fraction)
	case cost < 0 && depth.less(ahead) && l.MaxDelay > 0: // callers wait: see delay.go
	case cost < 0 && ahead != span{}:
		// Interval + 1 is at least what a unit gives back: if that many fit into 64 bits, units
		// does not overflow.
		back := ahead
		if over, _ := bits.Mul64(-uint64(cost), l.interval+1); over == 0 {
			back = l.units(-uint64(cost))
		}
		if back.less(ahead) {
			ahead = ahead.minus(back)
			ahead.ns, w[1] = arrive(w, now, ahead.ns), int64(ahead.fraction)
		} else {
			ahead, w[0], w[1] = span{}, 0, 0
		}
	}
	if ahead.less(depth) {
		d.Remaining = depth.minus(ahead).over(span{l.interval, l.fraction})
	}
	d.ResetAfter = saturated(ahead.roundUp())
}

// units is the time that n units occupy. It must fit.
func (l *gcraLimit) units(n uint64) span {
	carry, rest := bits.Mul64(n, l.fraction)
	return span{n*l.interval + carry, rest}
}

func freshGCRA(w []int64, now Instant) bool {
	// A fraction counts until the whole nanosecond after it.
	return w[0] < int64(now) || w[0] == 0 || w[0] == int64(now) && (len(w) == 1 || w[1] == 0)
}

// mergeGCRA keeps the later arrival time.
func mergeGCRA(w, other []int64) {
	if other[0] == 0 {
		return
	}
	switch {
	case w[0] == 0 || other[0] > w[0]:
		copy(w, other)
	case other[0] == w[0] && len(w) > 1:
		w[1] = int64(max(uint64(w[1]), uint64(other[1])))
	}
}

// refitGCRA takes over a state written while the interval was of the other kind (see refit).
func refitGCRA(w, old []int64) {
	w[0] = min(old[0], latestArrival)
	if len(w) > 1 {
		copy(w[1:], old[1:])
	} else if len(old) > 1 && old[1] != 0 {
		w[0]++ // up, so that nothing is given back
	}
}

// latestArrival is later than any instant that gcra stores (see within).
const latestArrival = int64(latest) + int64(MaxFill)

// aheadOf is the time from now until tat, 0 if that is over. A TAT of 0 is that of a key never
// seen.
func aheadOf(tat int64, now Instant) uint64 {
	if tat == 0 || tat <= int64(now) {
		return 0
	}
	return uint64(tat) - uint64(now)
}

// arrive stores the TAT that lies ahead of now, and returns how far. Zero is taken, it means never
// seen; so an arrival at the epoch itself is put off by a nanosecond.
func arrive(w []int64, now Instant, ahead uint64) uint64 {
	if uint64(now)+ahead == 0 {
		ahead++
	}
	w[0] = int64(uint64(now) + ahead)
	return ahead
}

func saturated(ns uint64) time.Duration {
	return time.Duration(min(ns, math.MaxInt64))
}

// span is a length of time, ns + fraction/2^64 nanoseconds.
type span struct{ ns, fraction uint64 }

func (a span) plus(b span) span {
	f, carry := bits.Add64(a.fraction, b.fraction, 0)
	return span{a.ns + b.ns + carry, f}
}

// minus is a − b; b must not be longer.
func (a span) minus(b span) span {
	f, borrow := bits.Sub64(a.fraction, b.fraction, 0)
	return span{a.ns - b.ns - borrow, f}
}

func (a span) less(b span) bool {
	return a.ns < b.ns || a.ns == b.ns && a.fraction < b.fraction
}

func (a span) roundUp() uint64 {
	if a.fraction != 0 {
		return a.ns + 1
	}
	return a.ns
}

// over is floor(a/e), which must be below 2^63. Division of 128 by 128 bits: shift the divisor
// until its upper word is normal, divide by that word, and the guess is at most one too high
// (Hacker's Delight, 9-5).
func (a span) over(e span) int64 {
	if e.ns == 0 {
		_, r := bits.Div64(0, a.ns, e.fraction)
		q, _ := bits.Div64(r, a.fraction, e.fraction)
		return int64(q)
	}
	shift := uint(bits.LeadingZeros64(e.ns))
	top := e.ns<<shift | e.fraction>>(64-shift)
	q, _ := bits.Div64(a.ns>>1, a.ns<<63|a.fraction>>1, top)
	q >>= 63 - shift
	if q != 0 {
		q--
	}
	carry, rest := bits.Mul64(q, e.fraction)
	if left := a.minus(span{q*e.ns + carry, rest}); !left.less(e) {
		q++
	}
	return int64(q)
}
