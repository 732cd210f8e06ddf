package limiter

import (
	"fmt"
	"math"
	"strconv"
	"time"
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

// Unsettled says what is charged for a hold that runs out (see Ledger).
type Unsettled uint8

const (
	UnsettledCharge  Unsettled = iota // all of it
	UnsettledRelease                  // nothing
)

// OnDeny says what the caller is told when the limit refuses.
type OnDeny uint8

const (
	DenyReject       OnDeny = iota // the refusal
	DenyShadow                     // "allowed", with Decision marked as shadowed
	DenyTag                        // "allowed", and the request is marked: Answers.Tag
	DenyDeprioritize               // "allowed", in a lower tier: Answers.Tier
	DenyDelay                      // "allowed", with a Decision.Delay of up to Spec.MaxDelay
)

// Marks reports whether what is refused goes on with a mark (Answers.Tag, Answers.Tier).
func (on OnDeny) Marks() bool { return on == DenyTag || on == DenyDeprioritize }

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
	// OnDeny DenyDelay, of a GCRA or a TokenBucket: the longest that a caller may have to wait,
	// 1 ms … 1 h; default Per, and at most 5 s
	MaxDelay time.Duration
	DryRun   bool // decide and count, never deny
	// what callers are told beside yes and no
	Answers Answers
	// name of the limit above, 1 … 256 bytes: a check charges it too, under the key up to its last
	// slash (ParentKey); "": none is. See Ancestors
	Parent string
	// the pattern of the Override that this limit comes from, up to 256 bytes; "" for a limit
	// itself. New sets it
	Override string
	// Override is "plan " and the name of a plan (see Plan). New sets it
	Planned bool
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
