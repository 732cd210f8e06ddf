package limiter

import (
	"fmt"
	"time"
)

// A Hold is an amount of one key that is reserved for a holder until it says what it has really
// used, or until its deadline. It is what reservations, permits and leases are made of. Until then
// it counts as spent in every window; then what was used is charged at that moment, as if it had
// been spent then. Since nothing is ever charged before and given back later, a settlement cannot
// give back what a window has forgotten already.
type Hold struct {
	ID       HoldID
	Limit    *Limit
	Key      string
	Units    int64   // reserved; of a limit that never denies, 0 where it would have refused
	Deadline Instant // then it runs out: all is charged, or nothing (Spec.Unsettled)
	// name of the holder, 0 … MaxHolder bytes; shown in lists, and bounded by MaxHolds…
	Holder string
	// Client is a mark of the client that has opened it, by which a door knows it; 0: a node did.
	// It has at most as many as there is room left for: HoldsOfClient.
	Client uint64
	Charge bool // if it expires, all is charged, in place of its limit's rule
	State  HoldState
	Used   int64 // of HoldSettled: what its holder said

	hash    uint64
	stored  bool    // read from a file, and not confirmed since by a running node
	forget  Instant // when a hold that is not open any more is forgotten
	changed bool    // since Changed was last called
}

// HoldID names a hold. Knowing the id suffices to settle the hold, so it should be drawn at random.
type HoldID struct {
	Origin, Sequence uint64
}

// HoldState says what became of a hold, or why there is none.
type HoldState uint8

const (
	HoldNone    HoldState = iota // no hold was asked for
	HoldOpen                     // units are reserved
	HoldSettled                  // its holder has said what it used
	HoldRanOut                   // its deadline came first
	HoldUnknown                  // there is none of that id, or not any more
	// it was settled with another amount; or its id is another hold's
	HoldOther
	HoldForeign   // it is another holder's
	HoldsOfLimit  // the limit has as many holds open as it may
	HoldsOfHolder // the holder has
	HoldInTheWay  // a take was refused because of what is reserved
	HoldsOfNode   // as many holds are open as there may be, of all limits together
	// the client has as many open, of the limit or of all, as there is room left for
	HoldsOfClient
)

// TooMany reports whether there is no hold because of how many are open.
func (s HoldState) TooMany() bool {
	switch s {
	case HoldsOfLimit, HoldsOfHolder, HoldsOfNode, HoldsOfClient:
		return true
	}
	return false
}

// Bounds of a Ledger.
const (
	MinTTL           = 100 * time.Millisecond
	MaxTTL           = 24 * time.Hour
	MaxHolder        = 128     // bytes
	MaxHoldsOfLimit  = 1 << 16 // open at a time, in one book
	MaxHoldsOfHolder = 1 << 14 // likewise, of one limit
	MaxHolds         = 1 << 18 // of all limits, which clients may bring along
	// HoldRemembered is how long a settled hold can be told from one that never was, as long as
	// there is room.
	HoldRemembered = time.Minute
	maxRemembered  = 1 << 16
	// lookAgain is how long after its deadline a copy is looked at again. By then the deciding node
	// has reported that it expired, or this node decides on it.
	lookAgain = 100 * time.Millisecond
)

// HoldRequest asks for a hold.
type HoldRequest struct {
	ID     HoldID // not 0
	Limit  *Limit
	Key    string
	Hash   uint64 // Hash(Key)
	Units  int64
	TTL    time.Duration
	Holder string
	Client uint64 // see Hold
	// Charge says that all is charged if the hold expires, in place of Spec.Unsettled.
	Charge bool
	// Bounded and MaxDelay are those of Request.
	Bounded  bool
	MaxDelay time.Duration
}

// Check says what is wrong with r. It is a *SpecError.
func (r *HoldRequest) Check() error {
	switch l := r.Limit; {
	case l.Consistency == Replicated:
		return &SpecError{"limit", fmt.Sprintf("%q is replicated; only a limit that one node "+
			"decides on can be held", l.Name)}
	case l.ClientTime:
		return &SpecError{"limit", fmt.Sprintf("%q goes by its clients' clocks; a hold needs the "+
			"owner's", l.Name)}
	case r.Units < 1 || r.Units > l.Capacity():
		return &SpecError{"cost", fmt.Sprintf("is %d; of limit %q 1 to %d can be held", r.Units,
			l.Name, l.Capacity())}
	case len(r.Holder) > MaxHolder:
		return &SpecError{"holder", fmt.Sprintf("has %d bytes; at most %d are accepted",
			len(r.Holder), MaxHolder)}
	}
	return CheckTTL(r.TTL)
}

// CheckTTL says whether a hold may last for d. Its error is a *SpecError.
func CheckTTL(d time.Duration) error {
	if d < MinTTL || d > MaxTTL {
		return &SpecError{"ttl_ms", fmt.Sprintf("is %d; %d (%v) to %d (%v) are accepted",
			d.Milliseconds(), MinTTL.Milliseconds(), MinTTL, MaxTTL.Milliseconds(), MaxTTL)}
	}
	return nil
}

// isOf reports whether r asks for what h is.
func (h *Hold) isOf(r *HoldRequest) bool {
	return h.Limit.sameIdentity(r.Limit) && h.Key == r.Key && h.Holder == r.Holder
}
