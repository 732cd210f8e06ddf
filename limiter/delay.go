package limiter

import (
	"fmt"
	"math/bits"
	"time"
)

// A limit with OnDeny DenyDelay takes the units of a request beyond it from the future. The request
// is admitted, and its caller waits for Decision.Delay before it goes on: until the bucket would
// have had the units. The state then is a debt, in the same words as without a delay:
//
//	delay = the wait until the limit would admit c, 0 if it does now
//	admit c  iff  c ≤ capacity and delay ≤ MaxDelay
//	else RetryAfter = delay − MaxDelay, and the state is untouched
//
// Requests go on in the order in which they were decided, since each wait is counted from the debt
// that the requests before have left. So the bound of the algorithm holds for the moments at which
// callers go on, however they ask: in any closed span T at most Burst + floor(T/e) units of a GCRA
// go on, and in a half-open one at most Limit + Refill×ceil(T/Per) of a token bucket.
//
// The moments were promised, and stay. Units that are given back while callers wait would be given
// to later requests at the moments of those that wait, beyond the bound. So they are lost, and are
// only given back when no caller waits. Reset is the exception: it forgets those that wait as well.

// Bounds of Spec.MaxDelay.
const (
	MinDelay     = time.Millisecond
	LongestDelay = time.Hour
	// DefaultDelay bounds the default: a caller that waits holds a connection, and 5 s are less
	// than the time that proxies and clients give a request.
	DefaultDelay = 5 * time.Second
	// maxWaiting bounds how many units may wait, rounded up.
	maxWaiting = MaxLimit + 1
)

var delaying = setOf(GCRA, TokenBucket)

// Delays reports whether requests beyond the limit are admitted with a delay.
func (s *Spec) Delays() bool { return s.OnDeny == DenyDelay }

// refuseDelay refuses on_deny: delay where the future has no units that could be promised.
func (s *Spec) refuseDelay() string {
	switch {
	case !s.Delays():
		return ""
	case s.Algorithm == LeakyBucket:
		return "delay is what a leaky_bucket does anyway: burst is how many units may wait; " +
			"leave on_deny out"
	case !delaying.has(s.Algorithm):
		return fmt.Sprintf("delay is for gcra and token_bucket, whose units come back one after "+
			"the other; a %v has reject, shadow, tag and deprioritize", s.Algorithm)
	case s.Strict || s.Drain || s.Sessions || s.ClientTime:
		return "delay promises units of the next refills, which strict, drain, sessions and " +
			"client_time change; leave one of them out"
	case s.Consistency != Exact:
		return "delay needs the one node that decides for a key, since two would promise the " +
			"same units; use consistency: exact"
	}
	return ""
}

// ParseMaxDelay reads how long a caller may have to wait, as ParsePer does. 0 would be none, and
// not the default.
func ParseMaxDelay(text string) (time.Duration, error) {
	d, err := ParsePer(text)
	if err == nil && d == 0 {
		err = fmt.Errorf("is %v; %v to %v are accepted", d, MinDelay, LongestDelay)
	}
	return d, err
}

func (s *Spec) refuseMaxDelay() string {
	switch {
	case s.MaxDelay == 0:
		return ""
	case !s.Delays():
		return "is for on_deny: delay"
	case s.MaxDelay < MinDelay || s.MaxDelay > LongestDelay:
		return fmt.Sprintf("is %v; %v to %v are accepted", s.MaxDelay, MinDelay, LongestDelay)
	}
	return ""
}

// checkWaiting refuses a delay in which more units would wait than can be counted. Defaults are in.
func (s *Spec) checkWaiting() error {
	n, ok := s.waitingUnits()
	switch {
	case !s.Delays():
		return nil
	case !ok || n > maxWaiting:
		return &SpecError{"max_delay", fmt.Sprintf("in %v more than 2^40 units would come back "+
			"and could wait; give a shorter one", s.MaxDelay)}
	case !s.paysInTime():
		return &SpecError{"max_delay", fmt.Sprintf("%v, a full bucket and max_debt at %d per %v "+
			"take over %d years to refill; together it must be at most 2^61 ns",
			s.MaxDelay, s.Limit, s.Per, MaxFill/MaxPer)}
	}
	return nil
}

// waitingUnits is the most units that wait at a time, rounded up. ok is false if they are too many
// to be a number.
func (s *Spec) waitingUnits() (n int64, ok bool) {
	if !s.Delays() {
		return 0, true
	}
	units, times, over := uint64(s.Limit), uint64(s.MaxDelay), uint64(s.Per)
	if s.Algorithm == TokenBucket {
		units, times, over = uint64(s.Refill), (times-1)/over+1, 1
	}
	hi, lo := bits.Mul64(units, times)
	if hi >= over {
		return 0, false
	}
	quotient, _ := bits.Div64(hi, lo, over)
	return int64(min(quotient, 1<<62)) + 1, true
}

// waiting is waitingUnits of a Spec without faults.
func (s *Spec) waiting() int64 {
	n, _ := s.waitingUnits()
	return n
}

// delays decides, into d, a request that its limit would admit after a wait, which is above 0. The
// longest delay is 0 where requests are not delayed. It reports whether the request is admitted.
func (d *Decision) delays(wait, longest uint64) bool {
	if wait <= longest {
		d.Delay = time.Duration(wait)
		return true
	}
	d.Allowed = false
	d.RetryAfter = saturated(wait - longest)
	return false
}

// answerInTime is answer for a caller that waits for r.MaxDelay at most, of a limit that delays.
func (r *Request) answerInTime(l *Limit, w []int64, now Instant, d *Decision) {
	r.decideInTime(l, w, now, d)
	if n := d.Remaining; !d.Allowed && r.Drain && n > 0 {
		l.decide(w, now, n, d)
		r.decideInTime(l, w, now, d)
		d.Drained = n
	}
}

// decideInTime is decide with the bound of r. A refusal says by Delay how long the caller would
// have to wait.
func (r *Request) decideInTime(l *Limit, w []int64, now Instant, d *Decision) {
	var before [tokenBucketWords]int64 // no state of a limit that delays has more words
	copy(before[:], w)
	l.decide(w, now, r.Cost, d)
	turn := d.Delay
	switch {
	case d.Allowed && turn <= r.MaxDelay, !d.Allowed && d.RetryAfter == Never:
		return
	case d.Allowed:
		copy(w, before[:])
		l.decide(w, now, 0, d)
		d.Allowed = false
	case l.Algorithm == LeakyBucket:
		turn = d.ResetAfter // what is before it
	default:
		turn = d.RetryAfter + l.MaxDelay
	}
	d.Delay, d.RetryAfter = turn, max(d.RetryAfter, turn-r.MaxDelay)
}

// delayOfAnother is how long the holder of r, which is open, waits when it asks again. Its moment
// is not kept, so it is told that of a hold which would be opened now: never an earlier one.
func (r *HoldRequest) delayOfAnother(now Instant, t *Table) time.Duration {
	if !r.Limit.Delays() {
		return 0
	}
	if d := t.Peek(now, r.Limit, r.Key, r.Hash, r.Units); d.Allowed {
		return d.Delay
	}
	return r.Limit.MaxDelay
}
