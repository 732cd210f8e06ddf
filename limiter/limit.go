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
	SlidingCounter                      // two windows, the older one weighted
)

func (a Algorithm) String() string {
	switch a {
	case GCRA:
		return "gcra"
	case FixedWindow:
		return "fixed_window"
	case SlidingCounter:
		return "sliding_counter"
	}
	return "algorithm(" + strconv.Itoa(int(a)) + ")"
}

// Anchor says where a fixed window begins.
type Anchor uint8

const (
	Epoch    Anchor = iota // windows are aligned to the Unix epoch: minute windows begin at the full minute
	FirstHit               // a window opens with the first counted request and lasts Per
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
	Limit         int64         // units per Per, 1 … 2^40
	Per           time.Duration // 1 ms … 366 days; part of the identity
	Burst         int64         // GCRA: most units at once, 1 … 2^40, refilled within MaxFill; default Limit
	Anchor        Anchor        // FixedWindow: default Epoch; part of the identity
	CountRejected bool          // FixedWindow: a refused request counts too, unless its cost is above Limit
	OnError       OnError       // default ErrorLocal
	OnDeny        OnDeny        // default DenyReject
	DryRun        bool          // decide and count, never deny
}

// Limit is a checked Spec with what its arithmetic needs worked out. It is immutable and shared by all goroutines.
//
// Counters belong to a limit's identity (name, algorithm, per, anchor). Two Limits with one identity use the same
// counters, so the limit, the burst and all else may change in place and keep what was consumed.
type Limit struct {
	Spec
	seed uint64 // hash of the identity: mixed with a key's hash to find shard and slot

	// GCRA: one unit occupies the bucket for interval + fraction/2^64 ns; a full burst for depth likewise.
	interval, fraction   uint64
	depth, depthFraction uint64
	stateWords           int
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
	if s.Algorithm == GCRA && s.Burst == 0 {
		s.Burst = s.Limit
	}
	if s.Algorithm == GCRA && !fills(s.Burst, s.Limit, s.Per) {
		return nil, &SpecError{"burst", fmt.Sprintf("%d units at %d per %v take over %d years to refill; burst/limit×per must be at most 2^61 ns",
			s.Burst, s.Limit, s.Per, MaxFill/MaxPer)}
	}
	return newLimit(s), nil
}

// check accepts or refuses each field by itself, in the order in which they are written down.
func (s *Spec) check() error {
	switch {
	case len(s.Name) < 1 || len(s.Name) > MaxName:
		return &SpecError{"name", fmt.Sprintf("has %d bytes; 1 to %d are accepted", len(s.Name), MaxName)}
	case !utf8.ValidString(s.Name) || strings.ContainsFunc(s.Name, isControl):
		return &SpecError{"name", fmt.Sprintf("%q is not UTF-8 text without control characters", s.Name)}
	case s.Algorithm < GCRA || s.Algorithm > SlidingCounter:
		return &SpecError{"algorithm", "is missing or unknown; gcra, fixed_window and sliding_counter are built"}
	case s.Limit < 1 || s.Limit > MaxLimit:
		return &SpecError{"limit", fmt.Sprintf("is %d; 1 to %d are accepted", s.Limit, int64(MaxLimit))}
	case s.Per < MinPer || s.Per > MaxPer:
		return &SpecError{"per", fmt.Sprintf("is %v; %v to %v are accepted", s.Per, MinPer, MaxPer)}
	case s.Algorithm != GCRA && s.Burst != 0:
		return &SpecError{"burst", fmt.Sprintf("a %v has none; leave it out", s.Algorithm)}
	case s.Burst < 0 || s.Burst > MaxLimit:
		return &SpecError{"burst", fmt.Sprintf("is %d; 1 to %d are accepted, or 0 for the limit", s.Burst, int64(MaxLimit))}
	case s.Anchor > FirstHit:
		return &SpecError{"anchor", "is unknown; epoch and first_hit are built"}
	case s.Algorithm != FixedWindow && s.Anchor != Epoch:
		return &SpecError{"anchor", fmt.Sprintf("a %v has none; leave it out", s.Algorithm)}
	case s.Algorithm != FixedWindow && s.CountRejected:
		return &SpecError{"count_rejected", fmt.Sprintf("a %v never counts what it refuses; leave it out", s.Algorithm)}
	case s.OnError > ErrorDeny:
		return &SpecError{"on_error", "is unknown; local, allow and deny are accepted"}
	case s.OnDeny > DenyShadow:
		return &SpecError{"on_deny", "is unknown; reject and shadow are built"}
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
	case SlidingCounter:
		l.stateWords = slidingCounterWords
	}
	return l
}

// identity hashes what a counter belongs to.
func (s *Spec) identity() uint64 {
	b := make([]byte, 0, MaxName+16)
	b = append(b, byte(s.Algorithm), byte(s.Anchor))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Per))
	b = append(b, s.Name...)
	return xxhash.Sum64(b)
}

// sameIdentity reports whether l and other use the same counters.
func (l *Limit) sameIdentity(other *Limit) bool {
	return l.seed == other.seed && l.Algorithm == other.Algorithm && l.Anchor == other.Anchor && l.Per == other.Per && l.Name == other.Name
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
	if s.Algorithm == GCRA {
		s.Burst = max(1, s.Burst/int64(max(1, n)))
		if !fills(s.Burst, s.Limit, s.Per) { // rounding down has slowed the refill more than it has cut the burst
			s.Burst = max(1, s.Limit)
		}
	}
	return newLimit(s)
}

// Capacity is the most that l admits at once: the burst of a bucket, the limit of a window.
func (l *Limit) Capacity() int64 {
	if l.Algorithm == GCRA {
		return l.Burst
	}
	return l.Limit
}
