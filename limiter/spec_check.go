package limiter

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// fill puts the defaults of its algorithm in.
func (s *Spec) fill() {
	switch s.Algorithm {
	case GCRA, StatedBucket:
		s.Burst = cmp.Or(s.Burst, s.Limit)
	case TokenBucket:
		s.Refill = cmp.Or(s.Refill, s.Limit)
	case SlidingCounter:
		s.Buckets = cmp.Or(s.Buckets, defaultBuckets)
	case Concurrency:
		s.Buckets = cmp.Or(s.Buckets, concurrencyBuckets)
	}
	if s.Consistency == Replicated && s.MaxDebt == 0 {
		// What several nodes admit at once is more than there is; it must be remembered until it is
		// paid.
		for s.MaxDebt = s.mostOwed(); s.MaxDebt > 0 && !s.paysInTime(); s.MaxDebt /= 2 {
		}
	}
	if s.Delays() && s.MaxDelay == 0 {
		s.MaxDelay = min(s.Per, DefaultDelay)
	}
	s.Answers.fill(s.OnDeny)
	s.Strict = s.Strict || s.Sessions
	if s.Calendar != 0 && s.TimeZone == "" {
		s.TimeZone = "UTC"
	}
}

// check accepts or refuses each field by itself, in the order in which they are written down.
func (s *Spec) check() error {
	switch {
	case len(s.Name) < 1 || len(s.Name) > MaxName:
		return &SpecError{"name", fmt.Sprintf("has %d bytes; 1 to %d are accepted", len(s.Name),
			MaxName)}
	case !utf8.ValidString(s.Name) || strings.ContainsFunc(s.Name, isControl):
		return &SpecError{"name", fmt.Sprintf("%q is not UTF-8 text without control characters",
			s.Name)}
	case s.Algorithm < GCRA || s.Algorithm > Concurrency:
		return &SpecError{"algorithm", "is missing or unknown; there is: " + AlgorithmNames()}
	case s.Limit < 1 || s.Limit > s.mostTokens():
		return &SpecError{"limit", fmt.Sprintf("is %d; 1 to %d are accepted", s.Limit,
			s.mostTokens())}
	case s.Per < MinPer || s.Per > s.longestPer():
		return &SpecError{"per", fmt.Sprintf("is %v; %v to %v are accepted", s.Per, MinPer,
			s.longestPer())}
	}
	return s.checkChoices()
}

// checkChoices accepts or refuses the fields that are one of a few words, and those of an override.
func (s *Spec) checkChoices() error {
	switch {
	case s.OnError > ErrorDeny:
		return &SpecError{"on_error", "is unknown; local, allow and deny are accepted"}
	case s.Consistency > Leased:
		return &SpecError{"consistency", "is unknown; exact, leased and replicated are accepted"}
	case s.OnPartition > PartitionOpen:
		return &SpecError{"on_partition", "is unknown; proportional, deny and open are accepted"}
	case s.Unsettled > UnsettledRelease:
		return &SpecError{"unsettled", "is unknown; charge and release are accepted"}
	case s.OnDeny > DenyDelay:
		return &SpecError{
			"on_deny", "is unknown; reject, shadow, tag, deprioritize and delay are accepted",
		}
	case len(s.Override) > MaxPattern:
		return &SpecError{"override", fmt.Sprintf("has %d bytes; at most %d are accepted",
			len(s.Override), MaxPattern)}
	case s.Planned && !strings.HasPrefix(s.Override, planWord):
		return &SpecError{"planned", "is for the override of a plan"}
	case s.Unlimited && s.Override == "":
		return &SpecError{
			"unlimited",
			"is for an override; a limit that limits nothing can be left out",
		}
	}
	return s.Answers.check(s.OnDeny)
}

// algorithms is a set of them, one bit each.
type algorithms uint16

func setOf(list ...Algorithm) (all algorithms) {
	for _, a := range list {
		all |= 1 << a
	}
	return all
}

func (all algorithms) has(a Algorithm) bool { return all>>a&1 != 0 }

// The algorithms that have fields of their own.
var (
	buckets    = setOf(GCRA, LeakyBucket, StatedBucket)
	calendars  = setOf(FixedWindow, StatedWindow)
	counted    = setOf(FixedWindow, SlidingLog, SlidingCounter)
	anchored   = setOf(FixedWindow, TokenBucket)
	divided    = setOf(SlidingCounter, Concurrency)
	everywhere = ^algorithms(0)
	indebted   = everywhere &^ setOf(StatedWindow, StatedBucket, Concurrency)
)

// ownFields are the fields that only some algorithms have, or that depend on others, in the order
// in which they are checked. A field stands here twice if another one has to be checked in between.
var ownFields = [...]struct {
	name string
	has  algorithms         // those with the field: for all others it must be zero
	set  func(s *Spec) bool // the field is not zero; nil if has is everywhere
	// why the value is refused, of an algorithm that has the field; empty if it is accepted
	reason func(s *Spec) string
}{
	{"limit", everywhere, nil, (*Spec).refuseLog},
	{"burst", buckets, func(s *Spec) bool { return s.Burst != 0 }, (*Spec).refuseBurst},
	{"anchor", everywhere, nil, (*Spec).refuseAnchor},
	{"anchor", anchored, func(s *Spec) bool { return s.Anchor != Epoch }, nil},
	{"per", everywhere, nil, (*Spec).refuseCalendar},
	{"anchor", everywhere, nil, (*Spec).refuseCalendarAnchor},
	{"per", everywhere, nil, (*Spec).refuseCalendarPer},
	{"time_zone", everywhere, nil, (*Spec).refuseTimeZone},
	{"count_rejected", everywhere, nil, (*Spec).refuseCountRejected},
	{"min_gap", setOf(SlidingLog), func(s *Spec) bool {
		return s.MinGap != 0
	}, (*Spec).refuseMinGap},
	{"refill", setOf(TokenBucket), func(s *Spec) bool {
		return s.Refill != 0
	}, (*Spec).refuseRefill},
	{"strict", setOf(TokenBucket), func(s *Spec) bool { return s.Strict }, (*Spec).refuseStrict},
	{"drain", setOf(TokenBucket, FixedWindow), func(s *Spec) bool { return s.Drain }, nil},
	{"client_time", setOf(TokenBucket), func(s *Spec) bool { return s.ClientTime }, nil},
	{"per", everywhere, nil, (*Spec).refuseClientPer},
	{"sessions", setOf(TokenBucket), func(s *Spec) bool {
		return s.Sessions
	}, (*Spec).refuseSessions},
	{"max_debt", indebted, func(s *Spec) bool { return s.MaxDebt != 0 }, nil},
	{"on_deny", everywhere, nil, (*Spec).refuseDelay},
	{"max_delay", everywhere, nil, (*Spec).refuseMaxDelay},
	{"consistency", everywhere, nil, (*Spec).refuseConsistency},
	{"unsettled", everywhere, nil, (*Spec).refuseUnsettled},
	{"replication", everywhere, nil, (*Spec).refuseReplication},
	{"max_debt", everywhere, nil, (*Spec).refuseMaxDebt},
	{"buckets", divided, func(s *Spec) bool { return s.Buckets != 0 }, nil},
	{"lenient", setOf(SlidingCounter), func(s *Spec) bool { return s.Lenient }, nil},
	{"buckets", divided, nil, (*Spec).refuseBuckets},
	{"parent", everywhere, nil, (*Spec).refuseParent},
}

// checkOwn accepts or refuses the fields that only some algorithms have, or that depend on others.
func (s *Spec) checkOwn() error {
	for i := range ownFields {
		field := &ownFields[i]
		if !field.has.has(s.Algorithm) {
			if field.set != nil && field.set(s) {
				return &SpecError{
					field.name,
					fmt.Sprintf("a %v has none; leave it out", s.Algorithm),
				}
			}
			continue
		}
		if field.reason == nil {
			continue
		}
		if reason := field.reason(s); reason != "" {
			return &SpecError{field.name, reason}
		}
	}
	return nil
}

func (s *Spec) refuseLog() string {
	if s.Algorithm == SlidingLog && s.Limit > MaxLog {
		return fmt.Sprintf(
			"is %d; a sliding_log keeps an instant for each unit and accepts 1 to %d", s.Limit,
			MaxLog)
	}
	return ""
}

func (s *Spec) refuseBurst() string {
	switch {
	case s.Burst >= 0 && s.Burst <= MaxLimit:
		return ""
	case s.Algorithm == LeakyBucket:
		return fmt.Sprintf("is %d; 0 to %d units may wait", s.Burst, int64(MaxLimit))
	}
	return fmt.Sprintf("is %d; 1 to %d are accepted, or 0 for the limit", s.Burst, int64(MaxLimit))
}

func (s *Spec) refuseAnchor() string {
	if s.Anchor > FirstHit {
		return "is unknown; epoch and first_hit are accepted"
	}
	return ""
}

func (s *Spec) refuseCalendar() string {
	switch {
	case s.Calendar > Years:
		return "is not a window of a calendar; minute, hour, day, week, month and year are accepted"
	case s.Calendar != 0 && !calendars.has(s.Algorithm):
		return fmt.Sprintf("a %v has no windows of a calendar; write a length, like 24h",
			s.Algorithm)
	}
	return ""
}

func (s *Spec) refuseCalendarAnchor() string {
	if s.Calendar != 0 && s.Anchor != Epoch {
		return "is the calendar for windows of one; leave it out, or write a length, like 24h"
	}
	return ""
}

func (s *Spec) refuseCalendarPer() string {
	if s.Calendar != 0 && s.Per != s.Calendar.Per() {
		return fmt.Sprintf("is %v; windows of a calendar have their own length, leave it out",
			s.Per)
	}
	return ""
}

func (s *Spec) refuseTimeZone() string {
	switch {
	case s.TimeZone == "":
		return ""
	case s.Calendar == 0:
		return "is for windows of a calendar: per minute, hour, day, week, month or year"
	case !isZone(s.TimeZone):
		return fmt.Sprintf("%.40q is unknown; names of the IANA database are accepted, like "+
			"Europe/Berlin or UTC", s.TimeZone)
	}
	return ""
}

func (s *Spec) refuseCountRejected() string {
	if s.CountRejected && !counted.has(s.Algorithm) {
		return fmt.Sprintf("a %v never counts what it refuses; leave it out", s.Algorithm)
	}
	return ""
}

func (s *Spec) refuseMinGap() string {
	if s.MinGap < 0 || s.MinGap > s.Per {
		return fmt.Sprintf("is %v; 0 to per, %v, are accepted, since what is older is forgotten",
			s.MinGap, s.Per)
	}
	return ""
}

func (s *Spec) refuseRefill() string {
	if s.Refill < 0 || s.Refill > s.mostTokens() {
		return fmt.Sprintf("is %d; 1 to %d are accepted, or 0 for the limit", s.Refill,
			s.mostTokens())
	}
	return ""
}

func (s *Spec) refuseStrict() string {
	if s.Strict && s.Anchor == Epoch {
		return "moves the refills, which an anchor at the epoch holds; leave it out, or make the " +
			"anchor first_hit"
	}
	return ""
}

func (s *Spec) refuseClientPer() string {
	if s.ClientTime && s.Per%time.Millisecond != 0 {
		return fmt.Sprintf("is %v; a bucket with client_time counts in whole milliseconds", s.Per)
	}
	return ""
}

func (s *Spec) refuseSessions() string {
	if s.Sessions && s.Anchor == Epoch {
		return "begin when a request is admitted, and need the anchor first_hit"
	}
	return ""
}

func (s *Spec) refuseConsistency() string {
	switch {
	case s.Consistency == Replicated && !indebted.has(s.Algorithm):
		return fmt.Sprintf("a %v cannot be replicated, since it has no max_debt; use exact",
			s.Algorithm)
	case s.Consistency == Leased && !s.canLease():
		return fmt.Sprintf("leased units of a %v would be spent without what it keeps to "+
			"(delays, gaps, counting refusals, permits); use exact", s.Algorithm)
	}
	return ""
}

func (s *Spec) refuseUnsettled() string {
	if s.Consistency == Leased && s.Unsettled != UnsettledCharge {
		return "release would give back what a node has spent of a lease before it died; use " +
			"charge, or consistency exact"
	}
	return ""
}

func (s *Spec) refuseReplication() string {
	if s.Sync && s.Consistency == Replicated {
		return "sync waits for an heir, which a replicated limit does not have; use async"
	}
	return ""
}

func (s *Spec) refuseMaxDebt() string {
	switch {
	case s.MaxDebt < 0 || s.MaxDebt > MaxLimit:
		return fmt.Sprintf("is %d; 0 to %d are accepted", s.MaxDebt, int64(MaxLimit))
	case s.Algorithm == SlidingLog && s.MaxDebt > MaxLog:
		return fmt.Sprintf("is %d; a sliding_log accepts 0 to %d", s.MaxDebt, MaxLog)
	}
	return ""
}

func (s *Spec) refuseBuckets() string {
	if s.Buckets < 0 || s.Buckets > MaxBuckets {
		return fmt.Sprintf("is %d; 1 to %d are accepted, or 0 for the default", s.Buckets,
			MaxBuckets)
	}
	return ""
}

// canLease reports whether units may be spent elsewhere and later than they were counted.
func (s *Spec) canLease() bool {
	switch s.Algorithm {
	case LeakyBucket, Concurrency:
		return false
	}
	return s.MinGap == 0 && !s.CountRejected && !s.Drain && !s.Strict && !s.ClientTime &&
		!s.Sessions
}

// mostTokens bounds limit and refill. A bucket with ClientTime has those of Smyte's limiter, where
// there are no debts.
func (s *Spec) mostTokens() int64 {
	if s.ClientTime && s.Algorithm == TokenBucket && s.MaxDebt == 0 && s.Consistency != Replicated {
		return math.MaxInt64
	}
	return MaxLimit
}

func (s *Spec) longestPer() time.Duration {
	if s.ClientTime && s.Algorithm == TokenBucket {
		return MaxClientPer
	}
	return MaxPer
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
