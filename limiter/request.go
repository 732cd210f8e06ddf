package limiter

import (
	"fmt"
	"time"
)

// Request is what is asked of a limit. Most ask for nothing but a cost.
type Request struct {
	// Cost in units. 0 reports the state and never writes; a negative cost gives back, at most all
	// that was charged; a cost above Limit.Capacity is refused for ever.
	Cost int64
	// Report charges what has been spent already. It is never refused: it leaves a debt where it
	// must, of at most the limit's MaxDebt units, and what would go beyond that is not charged.
	Report bool
	// Drain takes all that remains if the request is refused, and says how much in
	// Decision.Drained.
	Drain bool
	// Strict is Spec.Strict for this request alone.
	Strict bool
	// Bounded says that the caller waits for MaxDelay at most, 0 … LongestDelay, if that is less
	// than the limit says. A request that would be delayed for longer is refused.
	Bounded  bool
	MaxDelay time.Duration
	// At is the time on the client's clock, and counts instead of the table's if Timed is set. It
	// is for a limit with ClientTime.
	At    Millis
	Timed bool
}

// Accepts checks that l has all that r asks for. What it refuses is a *SpecError. Table.Do leaves
// out what l does not have; a door asks Accepts first and says so.
func (l *Limit) Accepts(r *Request) error {
	switch {
	case r.Bounded && (r.MaxDelay < 0 || r.MaxDelay > LongestDelay):
		return &SpecError{"max_delay_ms", fmt.Sprintf("is %d; 0 to %d (%v) are accepted",
			r.MaxDelay.Milliseconds(), LongestDelay.Milliseconds(), LongestDelay)}
	case r.Strict && l.Delays():
		return &SpecError{
			"strict",
			"puts a refill off, and on_deny: delay has promised the units of the next ones",
		}
	case r.Strict && (l.Algorithm != TokenBucket || l.Anchor != FirstHit):
		return &SpecError{
			"strict",
			"puts a refill off, and is for a token_bucket with anchor first_hit",
		}
	case r.Drain && l.CountRejected && !l.Drain:
		return &SpecError{
			"drain",
			"is not for a limit with count_rejected, which counts what it refuses as it is",
		}
	case r.Timed && !l.ClientTime:
		return &SpecError{
			"at_ms",
			"is for a limit with client_time; this one goes by its owner's clock",
		}
	}
	return nil
}

// answer is decide for a request with all that it may ask for. What a request asks for beyond a
// cost is what another limit on the same state would do, or several decisions in a row.
func (l *Limit) answer(w []int64, now Instant, r *Request, d *Decision) {
	as := l
	if r.Strict && l.strict != nil {
		as = l.strict
	}
	switch {
	case l.ClientTime:
		(*clientBucketLimit)(l).answer(w, now, r, d)
	case l.Sessions && len(w) > tokenBucketWords:
		l.sessionBucket(w, now, r, d)
	case r.Report && r.Cost > 0:
		l.report(w, now, r.Cost, d)
	case r.Bounded && (l.Delays() || l.Algorithm == LeakyBucket):
		r.answerInTime(l, w, now, d)
	default:
		as.decide(w, now, r.Cost, d)
		if !d.Allowed && (r.Drain || l.Drain) {
			as.drain(w, now, r.Cost, d)
		}
	}
}

// drain takes all that remains, for a request that was refused. A limit that counts what it refuses
// has done so.
func (l *Limit) drain(w []int64, now Instant, cost int64, d *Decision) {
	n := d.Remaining
	if n == 0 || l.CountRejected {
		return
	}
	l.decide(w, now, n, d)
	drained := d.Allowed // else it was refused for a gap
	l.decide(w, now, cost, d)
	if drained {
		d.Drained = n
	}
}

// report charges a cost as far as capacity and debt reach.
func (l *Limit) report(w []int64, now Instant, cost int64, d *Decision) {
	l.debtor.decide(w, now, 0, d)
	if n := min(cost, d.Remaining); n > 0 {
		l.debtor.decide(w, now, n, d)
	}
	l.decide(w, now, 0, d)
	d.Allowed, d.RetryAfter = true, Never // a window that has drained refuses even 0
}

// prepareRequests makes the limits that decide requests with Strict, and reports.
func (l *Limit) prepareRequests() {
	s := l.Spec
	if s.Algorithm == TokenBucket && s.Anchor == FirstHit && !s.Strict && !s.Delays() {
		strict := s
		strict.Strict = true
		l.strict = bareLimit(strict)
	}
	// A hold may be admitted with a delay, and is charged by a report.
	beyond := s.MaxDebt + s.waiting()
	switch s.Algorithm {
	case GCRA, LeakyBucket:
		s.Burst += beyond
	default:
		s.Limit += beyond
	}
	s.MinGap, s.Strict = 0, false
	if l.debtor = l; s != l.Spec {
		l.debtor = bareLimit(s)
	}
}

// charging is r, or if it gives back, the question of what there is.
func (r *Request) charging() *Request {
	if r.Cost >= 0 {
		return r
	}
	return &Request{At: r.At, Timed: r.Timed}
}

// writes reports whether r, which was answered d, may have changed the state of its key.
func (r *Request) writes(l *Limit, d *Decision) bool {
	return d.Allowed || d.Drained > 0 || r.Strict || l.CountRejected || l.Drain || l.Strict
}
