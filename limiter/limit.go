package limiter

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// Algorithm names the arithmetic of a limit.
type Algorithm uint8

// The algorithms. The zero value is not one of them, so a forgotten field is an error and not a surprise.
const (
	GCRA           Algorithm = 1 + iota // continuous token bucket, leaky bucket as a meter
	FixedWindow                         // one counter per window
	SlidingWindow                       // two windows, the older one weighted
	SlidingLog                          // the instant of each unit
	TokenBucket                         // token bucket with discrete refills
	LeakyBucket                         // leaky bucket as a queue: admits with a delay
	SlidingCounter                      // counters of the parts of a window
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
	Epoch    Anchor = iota // windows and refills are aligned to the Unix epoch: minute windows begin at the full minute
	FirstHit               // a window opens with the first counted request and lasts Per; a bucket is refilled Per after it, and so on
)

// OnError says what a limit answers while its owner cannot be reached.
type OnError uint8

const (
	ErrorLocal OnError = iota // decide from this node's share: limit divided by the number of members
	ErrorAllow                // admit
	ErrorDeny                 // deny
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
	// MaxFill is the longest that an empty bucket may take to fill, Burst/Limit×Per: 2^61 ns, about 73 years.
	MaxFill = 1 << 61 * time.Nanosecond
)

// Spec describes a limit. Zero fields take the default named beside them.
type Spec struct {
	Name          string        // 1 … 256 bytes of UTF-8 without control characters; part of the identity of every counter
	Algorithm     Algorithm     // required; part of the identity
	Limit         int64         // units per Per, 1 … 2^40, for a SlidingLog 1 … 2048; TokenBucket: most tokens
	Per           time.Duration // 1 ms … 366 days; part of the identity
	Burst         int64         // GCRA: most units at once, 1 … 2^40, refilled within MaxFill; default Limit. LeakyBucket: most units that wait, from 0
	Anchor        Anchor        // FixedWindow, TokenBucket: default Epoch; part of the identity
	CountRejected bool          // FixedWindow, SlidingLog, SlidingCounter: a refused request counts too, unless its cost is above Limit
	MinGap        time.Duration // SlidingLog: least time between two requests that count, 0 … Per
	Refill        int64         // TokenBucket: tokens that come every Per, 1 … 2^40; default Limit. There, both are part of the identity
	Strict        bool          // TokenBucket, FirstHit: a request that leaves the bucket empty puts the refill off by Per
	Drain         bool          // TokenBucket: a refused request takes all tokens there are
	Buckets       int           // SlidingCounter: parts of a window, 1 … 2048, of whole nanoseconds and 1 ms at least; default 60; part of the identity
	Lenient       bool          // SlidingCounter: the part that is cut by the beginning of the window does not count
	OnError       OnError       // default ErrorLocal
	OnDeny        OnDeny        // default DenyReject
	DryRun        bool          // decide and count, never deny
}

// Limit is a checked Spec with what its arithmetic needs worked out. It is immutable and shared by all goroutines.
//
// Counters belong to a limit's identity: name, algorithm, per, anchor, and where the algorithm has them buckets, or limit
// and refill of a token bucket. Two Limits with one identity use the same
// counters, so the limit, the burst and all else may change in place and keep what was consumed.
type Limit struct {
	Spec
	seed uint64 // hash of the identity: mixed with a key's hash to find shard and slot

	// GCRA: one unit occupies the bucket for interval + fraction/2^64 ns; a full burst for depth likewise.
	interval, fraction   uint64
	depth, depthFraction uint64
	stateWords           int

	meter *Limit // LeakyBucket: the GCRA that decides the same
	step  int64  // SlidingCounter: length of a part, in ns
}

// SpecError says which field of a Spec is wrong, and what it accepts.
type SpecError struct {
	Field  string // the name used in YAML and on the wire: "limit", "per", …
	Reason string
}

func (e *SpecError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// New checks s, fills its defaults in and works out what its arithmetic needs. What it refuses is a *SpecError.
func New(s Spec) (*Limit, error) {
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
	return newLimit(s), nil
}

// fill puts the defaults of its algorithm in.
func (s *Spec) fill() {
	switch {
	case s.Algorithm == GCRA && s.Burst == 0:
		s.Burst = s.Limit
	case s.Algorithm == TokenBucket && s.Refill == 0:
		s.Refill = s.Limit
	case s.Algorithm == SlidingCounter && s.Buckets == 0:
		s.Buckets = defaultBuckets
	}
}

// check accepts or refuses each field by itself, in the order in which they are written down.
func (s *Spec) check() error {
	switch {
	case len(s.Name) < 1 || len(s.Name) > MaxName:
		return &SpecError{"name", fmt.Sprintf("has %d bytes; 1 to %d are accepted", len(s.Name), MaxName)}
	case !utf8.ValidString(s.Name) || strings.ContainsFunc(s.Name, isControl):
		return &SpecError{"name", fmt.Sprintf("%q is not UTF-8 text without control characters", s.Name)}
	case s.Algorithm < GCRA || s.Algorithm > SlidingCounter:
		return &SpecError{"algorithm", "is missing or unknown; there is: " + AlgorithmNames()}
	case s.Limit < 1 || s.Limit > MaxLimit:
		return &SpecError{"limit", fmt.Sprintf("is %d; 1 to %d are accepted", s.Limit, int64(MaxLimit))}
	case s.Per < MinPer || s.Per > MaxPer:
		return &SpecError{"per", fmt.Sprintf("is %v; %v to %v are accepted", s.Per, MinPer, MaxPer)}
	case s.OnError > ErrorDeny:
		return &SpecError{"on_error", "is unknown; local, allow and deny are accepted"}
	case s.OnDeny > DenyShadow:
		return &SpecError{"on_deny", "is unknown; reject and shadow are built"}
	}
	return nil
}

// checkOwn accepts or refuses the fields that only some algorithms have.
func (s *Spec) checkOwn() error {
	windows := s.Algorithm == FixedWindow || s.Algorithm == SlidingLog || s.Algorithm == SlidingCounter
	anchored := s.Algorithm == FixedWindow || s.Algorithm == TokenBucket
	switch {
	case s.Algorithm == SlidingLog && s.Limit > MaxLog:
		return &SpecError{"limit", fmt.Sprintf("is %d; a sliding_log keeps an instant for each unit and accepts 1 to %d", s.Limit, MaxLog)}
	case s.Algorithm != GCRA && s.Algorithm != LeakyBucket && s.Burst != 0:
		return s.hasNone("burst")
	case s.Algorithm == LeakyBucket && (s.Burst < 0 || s.Burst > MaxLimit):
		return &SpecError{"burst", fmt.Sprintf("is %d; 0 to %d units may wait", s.Burst, int64(MaxLimit))}
	case s.Burst < 0 || s.Burst > MaxLimit:
		return &SpecError{"burst", fmt.Sprintf("is %d; 1 to %d are accepted, or 0 for the limit", s.Burst, int64(MaxLimit))}
	case s.Anchor > FirstHit:
		return &SpecError{"anchor", "is unknown; epoch and first_hit are built"}
	case !anchored && s.Anchor != Epoch:
		return s.hasNone("anchor")
	case !windows && s.CountRejected:
		return &SpecError{"count_rejected", fmt.Sprintf("a %v never counts what it refuses; leave it out", s.Algorithm)}
	case s.Algorithm != SlidingLog && s.MinGap != 0:
		return s.hasNone("min_gap")
	case s.MinGap < 0 || s.MinGap > s.Per:
		return &SpecError{"min_gap", fmt.Sprintf("is %v; 0 to per, %v, are accepted, since what is older is forgotten", s.MinGap, s.Per)}
	case s.Algorithm != TokenBucket && s.Refill != 0:
		return s.hasNone("refill")
	case s.Refill < 0 || s.Refill > MaxLimit:
		return &SpecError{"refill", fmt.Sprintf("is %d; 1 to %d are accepted, or 0 for the limit", s.Refill, int64(MaxLimit))}
	case s.Algorithm != TokenBucket && s.Strict:
		return s.hasNone("strict")
	case s.Strict && s.Anchor == Epoch:
		return &SpecError{"strict", "moves the refills, which an anchor at the epoch holds; leave it out, or make the anchor first_hit"}
	case s.Algorithm != TokenBucket && s.Drain:
		return s.hasNone("drain")
	case s.Algorithm != SlidingCounter && s.Buckets != 0:
		return s.hasNone("buckets")
	case s.Algorithm != SlidingCounter && s.Lenient:
		return s.hasNone("lenient")
	case s.Buckets < 0 || s.Buckets > MaxBuckets:
		return &SpecError{"buckets", fmt.Sprintf("is %d; 1 to %d are accepted, or 0 for %d", s.Buckets, MaxBuckets, defaultBuckets)}
	}
	return nil
}

func (s *Spec) hasNone(field string) error {
	return &SpecError{field, fmt.Sprintf("a %v has none; leave it out", s.Algorithm)}
}

// checkTogether refuses what is right field by field but not together, once the defaults are in.
func (s *Spec) checkTogether() error {
	switch {
	case s.Algorithm == GCRA && !fills(s.Burst, s.Limit, s.Per):
		return &SpecError{"burst", fmt.Sprintf("%d units at %d per %v take over %d years to refill; burst/limit×per must be at most 2^61 ns",
			s.Burst, s.Limit, s.Per, MaxFill/MaxPer)}
	case s.Algorithm == LeakyBucket && !fills(s.Burst+1, s.Limit, s.Per):
		return &SpecError{"burst", fmt.Sprintf("%d units at %d per %v would wait for over %d years; (burst+1)/limit×per must be at most 2^61 ns",
			s.Burst, s.Limit, s.Per, MaxFill/MaxPer)}
	case s.Algorithm == TokenBucket && !s.fillsInTime():
		return &SpecError{"refill", fmt.Sprintf("%d tokens, %d every %v, take over %d years to refill; limit/refill×per must be at most 2^61 ns",
			s.Limit, s.Refill, s.Per, MaxFill/MaxPer)}
	case s.Algorithm == SlidingCounter && (s.Per%time.Duration(s.Buckets) != 0 || s.Per/time.Duration(s.Buckets) < time.Millisecond):
		return &SpecError{"buckets", fmt.Sprintf("%d do not divide %v into equal parts of at least 1ms", s.Buckets, s.Per)}
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

// newLimit works out the rest of a Limit from a Spec without faults.
func newLimit(s Spec) *Limit {
	l := &Limit{Spec: s, seed: s.identity()}
	switch s.Algorithm {
	case GCRA:
		l.prepareGCRA()
	case FixedWindow:
		l.stateWords = fixedWindowWords
	case SlidingWindow:
		l.stateWords = slidingWindowWords
	case SlidingLog:
		l.stateWords = 1 + int(s.Limit)
	case TokenBucket:
		l.stateWords = tokenBucketWords
	case LeakyBucket:
		l.prepareQueue()
	case SlidingCounter:
		l.stateWords = 2 + s.Buckets
		l.step = int64(s.Per) / int64(s.Buckets)
	}
	return l
}

// identity hashes what a counter belongs to.
func (s *Spec) identity() uint64 {
	b := make([]byte, 0, MaxName+32)
	b = append(b, byte(s.Algorithm), byte(s.Anchor))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Per))
	switch s.Algorithm {
	case TokenBucket:
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Limit))
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Refill))
	case SlidingCounter:
		b = binary.LittleEndian.AppendUint64(b, uint64(s.Buckets))
	}
	b = append(b, s.Name...)
	return xxhash.Sum64(b)
}

// sameIdentity reports whether l and other use the same counters.
func (l *Limit) sameIdentity(other *Limit) bool {
	return l.seed == other.seed && l.Algorithm == other.Algorithm && l.Anchor == other.Anchor && l.Per == other.Per && l.Name == other.Name &&
		l.Buckets == other.Buckets && l.Refill == other.Refill && (l.Algorithm != TokenBucket || l.Limit == other.Limit)
}

// shareMark ends the name of a share. New accepts no control character, so no other limit can have such a name.
const shareMark = "\x00share"

// Share is l divided by n, for decisions that a node takes alone while the owner of a key is away: limit and burst
// are at least 1, all else is the same. Its counters are its own, so what was admitted from a share is never
// mistaken for the owner's count. n below 1 counts as 1. Share allocates.
func (l *Limit) Share(n int) *Limit {
	s := l.Spec
	s.Name = strings.TrimSuffix(s.Name, shareMark) + shareMark
	s.Limit = max(1, s.Limit/int64(max(1, n)))
	switch s.Algorithm {
	case GCRA:
		s.Burst = max(1, s.Burst/int64(max(1, n)))
		if !fills(s.Burst, s.Limit, s.Per) { // rounding down has slowed the refill more than it has cut the burst
			s.Burst = max(1, s.Limit)
		}
	case LeakyBucket:
		s.Burst = max(1, (s.Burst+1)/int64(max(1, n))) - 1
		if !fills(s.Burst+1, s.Limit, s.Per) {
			s.Burst = s.Limit - 1
		}
	case TokenBucket:
		s.Refill = max(1, s.Refill/int64(max(1, n)))
		if !s.fillsInTime() {
			s.Refill = s.Limit
		}
	}
	return newLimit(s)
}

// NeverDenies reports whether a refusal by l is hidden from its caller (dry_run, or on_deny: shadow).
func (l *Limit) NeverDenies() bool { return l.DryRun || l.OnDeny == DenyShadow }

// Capacity is the most that l admits at once: the burst of a bucket, the limit of a window. A queue admits one unit at
// once and as many as may wait.
func (l *Limit) Capacity() int64 {
	switch l.Algorithm {
	case GCRA:
		return l.Burst
	case LeakyBucket:
		return l.Burst + 1
	}
	return l.Limit
}

// countsRefused reports whether a request of that cost, which is refused, is to be kept nevertheless.
func (l *Limit) countsRefused(cost int64) bool {
	return l.CountRejected && cost <= l.Limit || l.Drain
}
