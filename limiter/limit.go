package limiter

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Limit is a checked Spec with what its arithmetic needs worked out. It is immutable and shared by
// all goroutines.
//
// Counters belong to a limit's identity: name, algorithm, per, anchor, calendar and time zone, and
// where the algorithm has them buckets, or limit, refill, client_time and sessions of a token
// bucket; of a GCRA, a leaky bucket, a stated window or bucket, name and algorithm alone. Two
// Limits with one identity use the same counters, so the limit, the burst, the override and all
// else may change in place and keep what was consumed. What belongs to the identity cannot: a limit
// with another algorithm, or a window of another period, begins with fresh counters, and as long as
// the old ones of a key would count, a Decision that makes new ones says so (Decision.Restarted).
type Limit struct {
	Spec
	overrides []override // see For
	networks  bool       // one of them has a network for a pattern
	seed      uint64     // hash of the identity: mixed with a key's hash to find shard and slot
	ruleSeed  uint64     // the same, of limit and override: see rules
	// newcomers of one seed share cells of the sketch, and if the limit is stated, those of one
	// limit
	sketchSeed uint64

	// GCRA: one unit occupies the bucket for interval + fraction/2^64 ns; a full burst for depth
	// likewise.
	interval, fraction   uint64
	depth, depthFraction uint64
	stateWords           int

	meter *gcraLimit // LeakyBucket: the GCRA that decides the same
	step  int64      // SlidingCounter, Concurrency: length of a part, in ns

	zone zone // FixedWindow: local time, if its windows are those of a calendar

	candidate *Limit // see Candidate
	given     Spec   // see Given

	strict *Limit // decides requests with Strict, nil where there are none
	debtor *Limit // decides reports
}

// New checks s and the exceptions from it, fills its defaults in and works out what its arithmetic
// needs. What it refuses is a *SpecError.
func New(given Spec, overrides ...Override) (*Limit, error) {
	s := given
	if s.Per == 0 && s.Calendar <= Years {
		s.Per = s.Calendar.Per()
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := s.checkOwn(); err != nil {
		return nil, err
	}
	s.fill()
	if err := s.checkTogether(); err != nil {
		return nil, err
	}
	l := newLimit(s)
	if err := l.override(given, overrides); err != nil {
		return nil, err
	}
	l.given = given
	return l, nil
}

// Given is the Spec that New was given for l, without the defaults.
func Given(l *Limit) Spec { return l.given }

// newLimit works out the rest of a Limit from a Spec without faults.
func newLimit(s Spec) *Limit {
	l := bareLimit(s)
	l.prepareRequests()
	return l
}

// bareLimit is a Limit that only decides.
func bareLimit(s Spec) *Limit {
	l := &Limit{Spec: s, seed: s.identity()}
	l.sketchSeed, l.ruleSeed = l.seed, l.seed
	if s.Override != "" {
		l.ruleSeed ^= xxhash.Sum64String(s.Override)
	}
	switch s.Algorithm {
	case GCRA:
		(*gcraLimit)(l).prepare()
	case FixedWindow:
		l.stateWords = fixedWindowWords
		if s.Calendar != 0 {
			l.zone, _ = zoneNamed(s.TimeZone)
		}
	case SlidingWindow:
		l.stateWords = slidingWindowWords
	case SlidingLog:
		l.stateWords = 1 + int(s.Limit)
	case TokenBucket:
		l.stateWords = s.bucketWords()
	case LeakyBucket:
		(*leakyBucketLimit)(l).prepare()
	case SlidingCounter, Concurrency:
		l.stateWords = 2 + s.Buckets
		l.step = int64(s.Per) / int64(s.Buckets)
	case StatedWindow, StatedBucket:
		l.prepareStated()
	}
	return l
}

// identity hashes what a counter belongs to.
func (s *Spec) identity() uint64 {
	b := make([]byte, 0, MaxName+32)
	b = append(b, byte(s.Algorithm), byte(s.Anchor))
	if s.perApart() {
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Per))
	}
	switch s.Algorithm {
	case TokenBucket:
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Limit))
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Refill))
		b = fmt.Appendf(b, "%t,%t,", s.ClientTime, s.Sessions)
	case SlidingCounter, Concurrency:
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Buckets))
	}
	if s.Calendar != 0 && !s.stated() {
		b = fmt.Appendf(b, "%v,%s,", s.Calendar, s.TimeZone)
	}
	b = append(b, s.Name...)
	return xxhash.Sum64(b)
}

// perApart reports whether limits with different periods have different counters. The arrival time
// of a GCRA and of a queue is an instant, which means the same under any period: a change keeps the
// debt, in time. (Under redis-cell's CL.THROTTLE it does, too.) Limits without a name are apart
// nevertheless: nobody has changed one into the other.
func (s *Spec) perApart() bool {
	return !s.stated() && (s.Nameless || s.Algorithm != GCRA && s.Algorithm != LeakyBucket)
}

// Identity is a hash of what the counters of l belong to: limits that use the same counters have
// the same.
func (l *Limit) Identity() uint64 { return l.seed }

// sameIdentity reports whether l and other use the same counters.
func (l *Limit) sameIdentity(other *Limit) bool {
	return l.seed == other.seed && l.Algorithm == other.Algorithm && l.Anchor == other.Anchor &&
		l.Name == other.Name && l.sameWindows(&other.Spec) && l.sameBucket(&other.Spec)
}

// sameWindows reports whether the windows of s and other, of one algorithm, are the same.
func (s *Spec) sameWindows(other *Spec) bool {
	apart := s.perApart()
	return apart == other.perApart() && (!apart || s.Per == other.Per) &&
		(s.stated() || s.Calendar == other.Calendar && s.TimeZone == other.TimeZone)
}

// sameBucket reports whether sub-windows and buckets of s and other, of one algorithm, are the
// same.
func (s *Spec) sameBucket(other *Spec) bool {
	return s.Buckets == other.Buckets && s.Refill == other.Refill &&
		s.ClientTime == other.ClientTime && s.Sessions == other.Sessions &&
		(s.Algorithm != TokenBucket || s.Limit == other.Limit)
}

// sameRule reports whether entries of l and other belong to one rule: they have one identity, and
// one override.
func (l *Limit) sameRule(other *Limit) bool {
	return l.Override == other.Override && l.sameIdentity(other)
}

// shareMark ends the name of a share. New accepts no control character, so no other limit can have
// such a name.
const shareMark = "\x00share"

// Share is l divided by n, for decisions that a node takes alone while the owner of a key is away:
// limit and burst are at least 1, all else is the same. Its counters are its own, so what was
// admitted from a share is never mistaken for the owner's count. n below 1 counts as 1. Share
// allocates.
func (l *Limit) Share(n int) *Limit {
	s := l.Spec
	s.Name = strings.TrimSuffix(s.Name, shareMark) + shareMark
	s.Limit = max(1, s.Limit/int64(max(1, n)))
	switch s.Algorithm {
	case GCRA, StatedBucket:
		s.Burst = max(1, s.Burst/int64(max(1, n)))
		// rounding down has slowed the refill more than it has cut the burst
		if !fills(s.Burst+s.waiting(), s.Limit, s.Per) {
			s.Burst = max(1, s.Limit)
		}
	case LeakyBucket:
		s.Burst = max(1, (s.Burst+1)/int64(max(1, n))) - 1
		if !fills(s.Burst+1, s.Limit, s.Per) {
			s.Burst = s.Limit - 1
		}
	case TokenBucket:
		s.Refill = max(1, s.Refill/int64(max(1, n)))
		if with := s; !s.ClientTime {
			if with.Limit += s.waiting(); !with.fillsInTime() {
				s.Refill = s.Limit
			}
		}
	}
	if s.MaxDebt /= int64(max(1, n)); !s.paysInTime() {
		s.MaxDebt = 0
	}
	return newLimit(s)
}

func (l *Limit) isShare() bool { return strings.HasSuffix(l.Name, shareMark) }

// isLocal reports whether a node's states under l are its alone: those of a share, or of a
// replicated limit.
func (l *Limit) isLocal() bool { return l.Consistency == Replicated || l.isShare() }

// NeverDenies reports whether a refusal by l is no denial for its caller: dry_run, or on_deny:
// shadow, tag or deprioritize.
func (l *Limit) NeverDenies() bool {
	return l.DryRun || l.OnDeny != DenyReject && !l.Delays()
}

// Capacity is the most that l admits at once: the burst of a bucket, the limit of a window. A queue
// admits one unit at once and as many as may wait.
func (l *Limit) Capacity() int64 {
	switch l.Algorithm {
	case GCRA, StatedBucket:
		return l.Burst
	case LeakyBucket:
		return l.Burst + 1
	}
	return l.Limit
}

// countsRefused reports whether a request of that cost, which is refused, is to be kept
// nevertheless.
func (l *Limit) countsRefused(cost int64) bool {
	return l.CountRejected && cost <= l.Limit || l.Drain
}
