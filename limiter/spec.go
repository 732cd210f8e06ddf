package limiter

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Algorithm names the arithmetic of a limit.
type Algorithm uint8

// The algorithms. The zero value is not one of them, so a forgotten field is an error and not a
// surprise.
const (
	GCRA           Algorithm = 1 + iota // continuous token bucket, leaky bucket as a meter
	FixedWindow                         // one counter per window
	SlidingWindow                       // two windows, the older one weighted
	SlidingLog                          // the instant of each unit
	TokenBucket                         // token bucket with discrete refills
	LeakyBucket                         // leaky bucket as a queue: admits with a delay
	SlidingCounter                      // counters of the parts of a window
	StatedWindow                        // fixed window; each request states its limit and period
	// continuous token bucket; each request states its limit, period and burst
	StatedBucket
	Concurrency // permits that are out at once
)

// String is the name that files, requests and errors use.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) && a != 0 {
		return algorithmNames[a]
	}
	return "algorithm(" + strconv.Itoa(int(a)) + ")"
}

// Anchor says where a fixed window begins, or when a token bucket is refilled.
type Anchor uint8

const (
	// windows and refills are aligned to the Unix epoch: minute windows begin at the full minute
	Epoch Anchor = iota
	// a window opens with the first counted request and lasts Per; a bucket is refilled Per after
	// it, and so on
	FirstHit
)

// OnError says what a limit answers while its owner cannot be reached.
type OnError uint8

const (
	// decide from this node's share: limit divided by the number of members
	ErrorLocal OnError = iota
	ErrorAllow         // admit
	ErrorDeny          // deny
)

// Consistency says which node of a cluster decides.
type Consistency uint8

const (
	Exact Consistency = iota // the one that holds the key
	// any node that is asked: each tells the others its admissions ten times a second
	Replicated
	// the key's owner, and for a while other nodes, from units that it has reserved for them
	Leased
)

// OnPartition says what a node answers that is cut off from most of its cluster.
type OnPartition uint8

const (
	// decide from this node's share: limit divided by the number of members
	PartitionProportional OnPartition = iota
	PartitionDeny                     // deny
	// decide as if this node were alone: each such node admits up to the limit
	PartitionOpen
)

// Unsettled says what is charged for a hold that runs out (see Book).
type Unsettled uint8

const (
	UnsettledCharge  Unsettled = iota // all of it
	UnsettledRelease                  // nothing
)

// OnDeny says what the caller is told when the limit refuses.
type OnDeny uint8

const (
	DenyReject OnDeny = iota // the refusal
	DenyShadow               // "allowed", with Decision marked as shadowed
)

// Bounds of a Spec.
const (
	MaxName  = 256 // bytes
	MaxLimit = 1 << 40
	MinPer   = time.Millisecond
	MaxPer   = 366 * 24 * time.Hour
	// MaxClientPer is the longest period of a bucket with ClientTime: 2^31−1 s, as in Smyte's
	// limiter.
	MaxClientPer = math.MaxInt32 * time.Second
	MaxZone      = 64 // bytes
	// MaxFill is the longest that an empty bucket may take to fill, Burst/Limit×Per: 2^61 ns, about
	// 73 years.
	MaxFill = 1 << 61 * time.Nanosecond
)

// Spec describes a limit. Zero fields take the default named beside them.
type Spec struct {
	// 1 … 256 bytes of UTF-8 without control characters; part of the identity of every counter
	Name      string
	Algorithm Algorithm // required; part of the identity
	// units per Per, 1 … 2^40, for a SlidingLog 1 … 2048; TokenBucket: most tokens, with ClientTime
	// up to 2^63−1
	Limit int64
	// 1 ms … 366 days, with ClientTime up to MaxClientPer; part of the identity, but of a GCRA and
	// a LeakyBucket. Calendar sets it. Concurrency: when an unreturned permit expires
	Per time.Duration
	// GCRA, StatedBucket: most units at once, 1 … 2^40, refilled within MaxFill; default Limit.
	// LeakyBucket: most units that wait, from 0
	Burst  int64
	Anchor Anchor // FixedWindow, TokenBucket: default Epoch; part of the identity
	// FixedWindow, Epoch, and StatedWindow: windows of a calendar, instead of Per; part of the
	// identity
	Calendar Calendar
	// Calendar: its time zone, by its name in the IANA database; default UTC; part of the identity
	TimeZone string
	// FixedWindow, SlidingLog, SlidingCounter: a refused request counts too, unless its cost is
	// above Limit
	CountRejected bool
	MinGap        time.Duration // SlidingLog: least time between two requests that count, 0 … Per
	// TokenBucket: tokens that come every Per, as many as Limit may be; default Limit. There, both
	// are part of the identity
	Refill int64
	// TokenBucket, FirstHit: a request that leaves the bucket empty puts the refill off by Per
	Strict bool
	// TokenBucket, FixedWindow: a refused request takes all that is left; see there
	Drain bool
	// TokenBucket: requests may state their time (Request.At), and are believed; part of the
	// identity
	ClientTime bool
	// TokenBucket, FirstHit: strict, and a decision says when its session began (Decision.Session);
	// part of the identity
	Sessions bool
	// SlidingCounter, Concurrency: parts of Per, 1 … 2048, of whole nanoseconds and 1 ms at least;
	// default 60, and 16; part of the identity
	Buckets int
	// SlidingCounter: the part that is cut by the beginning of the window does not count
	Lenient bool
	// most units that a report may charge beyond what there is, 0 … 2^40
	MaxDebt int64
	// cost of a hold that expires; default UnsettledCharge. A permit of Concurrency costs nothing
	Unsettled Unsettled
	OnError   OnError // default ErrorLocal
	// default Exact; Replicated needs an algorithm that can have a MaxDebt, and gets one
	Consistency Consistency
	OnPartition OnPartition // default PartitionProportional
	// in a cluster: a charge is answered when the key's heir has a copy of it, so a crash forgets
	// none
	Sync   bool
	OnDeny OnDeny // default DenyReject
	DryRun bool   // decide and count, never deny
	// the pattern of the Override that this limit comes from, up to 256 bytes; "" for a limit
	// itself. New sets it
	Override string
	// Name is shared by all limits that have none of their own: GCRA, LeakyBucket: the period is
	// part of the identity
	Nameless bool
	// a request has brought the limit along: it takes no room that configured limits need. See
	// MaxInline
	Inline bool
	// the keys of that override are always admitted, and nothing is counted. New sets it
	Unlimited bool
}

// SpecError says which field of a Spec is wrong, and what it accepts.
type SpecError struct {
	Field  string // the name used in YAML and on the wire: "limit", "per", …
	Reason string
}

func (e *SpecError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// fill puts the defaults of its algorithm in.
func (s *Spec) fill() {
	switch {
	case (s.Algorithm == GCRA || s.Algorithm == StatedBucket) && s.Burst == 0:
		s.Burst = s.Limit
	case s.Algorithm == TokenBucket && s.Refill == 0:
		s.Refill = s.Limit
	case s.Algorithm == SlidingCounter && s.Buckets == 0:
		s.Buckets = defaultBuckets
	case s.Algorithm == Concurrency && s.Buckets == 0:
		s.Buckets = concurrencyBuckets
	}
	if s.Consistency == Replicated && s.MaxDebt == 0 {
		// What several nodes admit at once is more than there is; it must be remembered until it is
		// paid.
		for s.MaxDebt = s.mostOwed(); s.MaxDebt > 0 && !s.paysInTime(); s.MaxDebt /= 2 {
		}
	}
	s.Strict = s.Strict || s.Sessions
	if s.Calendar != 0 && s.TimeZone == "" {
		s.TimeZone = "UTC"
	}
}

// check accepts or refuses each field by itself, in the order in which they are written down.
func (s *Spec) check() error {
	switch {
	case len(s.Name) < 1 || len(s.Name) > MaxName:
		return &SpecError{"name", fmt.Sprintf("has %d bytes; 1 to %d are accepted", len(s.Name), MaxName)}
	case !utf8.ValidString(s.Name) || strings.ContainsFunc(s.Name, isControl):
		return &SpecError{"name", fmt.Sprintf("%q is not UTF-8 text without control characters", s.Name)}
	case s.Algorithm < GCRA || s.Algorithm > Concurrency:
		return &SpecError{"algorithm", "is missing or unknown; there is: " + AlgorithmNames()}
	case s.Limit < 1 || s.Limit > s.mostTokens():
		return &SpecError{"limit", fmt.Sprintf("is %d; 1 to %d are accepted", s.Limit, s.mostTokens())}
	case s.Per < MinPer || s.Per > s.longestPer():
		return &SpecError{"per", fmt.Sprintf("is %v; %v to %v are accepted", s.Per, MinPer, s.longestPer())}
	case s.OnError > ErrorDeny:
		return &SpecError{"on_error", "is unknown; local, allow and deny are accepted"}
	case s.Consistency > Leased:
		return &SpecError{"consistency", "is unknown; exact, leased and replicated are accepted"}
	case s.OnPartition > PartitionOpen:
		return &SpecError{"on_partition", "is unknown; proportional, deny and open are accepted"}
	case s.Unsettled > UnsettledRelease:
		return &SpecError{"unsettled", "is unknown; charge and release are accepted"}
	case s.OnDeny > DenyShadow:
		return &SpecError{"on_deny", "is unknown; reject and shadow are accepted"}
	case len(s.Override) > MaxPattern:
		return &SpecError{"override", fmt.Sprintf("has %d bytes; at most %d are accepted", len(s.Override), MaxPattern)}
	case s.Unlimited && s.Override == "":
		return &SpecError{"unlimited", "is for an override; a limit that limits nothing can be left out"}
	}
	return nil
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
	{"min_gap", setOf(SlidingLog), func(s *Spec) bool { return s.MinGap != 0 }, (*Spec).refuseMinGap},
	{"refill", setOf(TokenBucket), func(s *Spec) bool { return s.Refill != 0 }, (*Spec).refuseRefill},
	{"strict", setOf(TokenBucket), func(s *Spec) bool { return s.Strict }, (*Spec).refuseStrict},
	{"drain", setOf(TokenBucket, FixedWindow), func(s *Spec) bool { return s.Drain }, nil},
	{"client_time", setOf(TokenBucket), func(s *Spec) bool { return s.ClientTime }, nil},
	{"per", everywhere, nil, (*Spec).refuseClientPer},
	{"sessions", setOf(TokenBucket), func(s *Spec) bool { return s.Sessions }, (*Spec).refuseSessions},
	{"max_debt", indebted, func(s *Spec) bool { return s.MaxDebt != 0 }, nil},
	{"consistency", everywhere, nil, (*Spec).refuseConsistency},
	{"unsettled", everywhere, nil, (*Spec).refuseUnsettled},
	{"replication", everywhere, nil, (*Spec).refuseReplication},
	{"max_debt", everywhere, nil, (*Spec).refuseMaxDebt},
	{"buckets", divided, func(s *Spec) bool { return s.Buckets != 0 }, nil},
	{"lenient", setOf(SlidingCounter), func(s *Spec) bool { return s.Lenient }, nil},
	{"buckets", divided, nil, (*Spec).refuseBuckets},
}

// checkOwn accepts or refuses the fields that only some algorithms have, or that depend on others.
func (s *Spec) checkOwn() error {
	for i := range ownFields {
		field := &ownFields[i]
		if !field.has.has(s.Algorithm) {
			if field.set != nil && field.set(s) {
				return &SpecError{field.name, fmt.Sprintf("a %v has none; leave it out", s.Algorithm)}
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
		return fmt.Sprintf("is %d; a sliding_log keeps an instant for each unit and accepts 1 to %d", s.Limit, MaxLog)
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
		return "is no window of a calendar; minute, hour, day, week, month and year are accepted"
	case s.Calendar != 0 && !calendars.has(s.Algorithm):
		return fmt.Sprintf("a %v has no windows of a calendar; write a length, like 24h", s.Algorithm)
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
		return fmt.Sprintf("is %v; windows of a calendar have their own length, leave it out", s.Per)
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
		return fmt.Sprintf("%.40q is unknown; names of the IANA database are accepted, like Europe/Berlin or UTC", s.TimeZone)
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
		return fmt.Sprintf("is %v; 0 to per, %v, are accepted, since what is older is forgotten", s.MinGap, s.Per)
	}
	return ""
}

func (s *Spec) refuseRefill() string {
	if s.Refill < 0 || s.Refill > s.mostTokens() {
		return fmt.Sprintf("is %d; 1 to %d are accepted, or 0 for the limit", s.Refill, s.mostTokens())
	}
	return ""
}

func (s *Spec) refuseStrict() string {
	if s.Strict && s.Anchor == Epoch {
		return "moves the refills, which an anchor at the epoch holds; leave it out, or make the anchor first_hit"
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
		return fmt.Sprintf("a %v cannot be replicated, since it has no max_debt; use exact", s.Algorithm)
	case s.Consistency == Leased && !s.canLease():
		return fmt.Sprintf("leased units of a %v would be spent without what it keeps to (delays, gaps, counting refusals, permits); use exact", s.Algorithm)
	}
	return ""
}

func (s *Spec) refuseUnsettled() string {
	if s.Consistency == Leased && s.Unsettled != UnsettledCharge {
		return "release would give back what a node has spent of a lease before it died; use charge, or consistency exact"
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
		return fmt.Sprintf("is %d; 1 to %d are accepted, or 0 for the default", s.Buckets, MaxBuckets)
	}
	return ""
}

// canLease reports whether units may be spent elsewhere and later than they were counted.
func (s *Spec) canLease() bool {
	switch s.Algorithm {
	case LeakyBucket, Concurrency:
		return false
	}
	return s.MinGap == 0 && !s.CountRejected && !s.Drain && !s.Strict && !s.ClientTime && !s.Sessions
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

// checkTogether refuses what is right field by field but not together, once the defaults are in.
func (s *Spec) checkTogether() error {
	switch {
	case (s.Algorithm == GCRA || s.Algorithm == StatedBucket) && !fills(s.Burst, s.Limit, s.Per):
		return &SpecError{"burst", fmt.Sprintf("%d units at %d per %v take over %d years to refill; burst/limit×per must be at most 2^61 ns",
			s.Burst, s.Limit, s.Per, MaxFill/MaxPer)}
	case s.Algorithm == LeakyBucket && !fills(s.Burst+1, s.Limit, s.Per):
		return &SpecError{"burst", fmt.Sprintf("%d units at %d per %v would wait for over %d years; (burst+1)/limit×per must be at most 2^61 ns",
			s.Burst, s.Limit, s.Per, MaxFill/MaxPer)}
	case s.Algorithm == TokenBucket && !s.ClientTime && !s.fillsInTime():
		return &SpecError{"refill", fmt.Sprintf("%d tokens, %d every %v, take over %d years to refill; limit/refill×per must be at most 2^61 ns",
			s.Limit, s.Refill, s.Per, MaxFill/MaxPer)}
	case s.MaxDebt > 0 && !s.paysInTime():
		return &SpecError{"max_debt", fmt.Sprintf("%d units at %d per %v take over %d years to pay; with what a full bucket has it must be at most 2^61 ns",
			s.MaxDebt, s.Limit, s.Per, MaxFill/MaxPer)}
	case s.Buckets != 0 && (s.Per%time.Duration(s.Buckets) != 0 || s.Per/time.Duration(s.Buckets) < time.Millisecond):
		return &SpecError{"buckets", fmt.Sprintf("%d do not divide %v into equal parts of at least 1ms; divisors from 1 to %d are accepted",
			s.Buckets, s.Per, min(MaxBuckets, s.Per/time.Millisecond))}
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// fills reports whether burst units at limit per per refill within MaxFill.
func fills(burst, limit int64, per time.Duration) bool {
	hi, lo := bits.Mul64(uint64(burst), uint64(per))
	most, rest := bits.Mul64(uint64(MaxFill), uint64(limit))
	return hi < most || hi == most && lo <= rest
}

// paysInTime reports whether the bucket of s is full within MaxFill also from its largest debt on.
func (s Spec) paysInTime() bool {
	switch s.Algorithm {
	case GCRA:
		return fills(s.Burst+s.MaxDebt, s.Limit, s.Per)
	case LeakyBucket:
		return fills(s.Burst+1+s.MaxDebt, s.Limit, s.Per)
	case TokenBucket:
		s.Limit += s.MaxDebt
		return s.fillsInTime()
	}
	return true
}

// mostOwed is the debt that a replicated limit may have: what a hundred nodes admit at once.
func (s *Spec) mostOwed() int64 {
	if s.Algorithm == SlidingLog {
		return MaxLog - s.Limit
	}
	return min(100*max(s.Limit, s.Burst), MaxLimit)
}
