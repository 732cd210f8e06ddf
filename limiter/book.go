package limiter

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Hold is an amount of one key that is set aside for a holder until it says what it has really
// used, or until its deadline. It is what reservations, permits and leases are made of. Until then
// it counts as spent in every window; then what was used is charged at that moment, as if it had
// been spent then. Since nothing is ever charged before and given back later, a settlement cannot
// give back what a window has forgotten already.
type Hold struct {
	ID       HoldID
	Limit    *Limit
	Key      string
	Units    int64   // set aside; of a limit that never denies, 0 where it would have refused
	Deadline Instant // then it runs out: all is charged, or nothing (Spec.Unsettled)
	// name of the holder, 0 … MaxHolder bytes; shown in lists, and bounded by MaxHolds…
	Holder string
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
	HoldOpen                     // units are set aside
	HoldSettled                  // its holder has said what it used
	HoldRanOut                   // its deadline came first
	HoldUnknown                  // there is none of that id, or not any more
	// it was settled with another amount; or its id is another hold's
	HoldOther
	HoldForeign   // it is another holder's
	HoldsOfLimit  // the limit has as many holds open as it may
	HoldsOfHolder // the holder has
	HoldInTheWay  // a take was refused because of what is set aside
	HoldsOfNode   // as many holds are open as there may be, of all limits together
)

// Bounds of a Book.
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

// A Book keeps the holds on the keys of a Table. It may be used by many goroutines.
type Book struct {
	table *Table
	// whether this book decides on a key's holds; other holds are copies
	open func(hash uint64) bool

	mu       sync.Mutex // guards below; taken before a lock of the table, never after
	holds    map[HoldID]*Hold
	count    map[holders]int
	due      dueHolds
	settled  []HoldID // not open any more, oldest first
	changed  []*Hold
	tracking bool
}

// holders are all holders, all of a limit, or one of them.
type holders struct {
	limit, holder string
	one           bool
}

// NewBook makes an empty book on t. open says which keys it decides on; nil: all.
func NewBook(t *Table, open func(hash uint64) bool) *Book {
	if open == nil {
		open = func(uint64) bool { return true }
	}
	return &Book{table: t, open: open, holds: make(map[HoldID]*Hold), count: make(map[holders]int)}
}

// HoldRequest asks for a hold.
type HoldRequest struct {
	ID     HoldID // not 0
	Limit  *Limit
	Key    string
	Hash   uint64 // Hash(Key)
	Units  int64
	TTL    time.Duration
	Holder string
	// Charge says that all is charged if the hold expires, in place of Spec.Unsettled.
	Charge bool
}

// Check says what is wrong with r. It is a *SpecError.
func (r *HoldRequest) Check() error {
	switch l := r.Limit; {
	case l.Consistency == Replicated:
		return &SpecError{"limit", fmt.Sprintf("%q is replicated; only a limit that one node decides on can be held", l.Name)}
	case l.ClientTime:
		return &SpecError{"limit", fmt.Sprintf("%q goes by its clients' clocks; a hold needs the owner's", l.Name)}
	case r.Units < 1 || r.Units > l.Capacity():
		return &SpecError{"cost", fmt.Sprintf("is %d; of limit %q 1 to %d can be held", r.Units, l.Name, l.Capacity())}
	case len(r.Holder) > MaxHolder:
		return &SpecError{"holder", fmt.Sprintf("has %d bytes; at most %d are accepted", len(r.Holder), MaxHolder)}
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

// Open opens all holds, or none, and reports which. Requests must have passed Check. out gets for
// each what it got or would have got. The same request under the same id gets the same answer. If
// one is Closed, all are.
func (b *Book) Open(now Instant, requests []HoldRequest, out []Decision) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := make([]Item, len(requests))
	again, which := 0, 0 // are open already, and one of them
	for i := range requests {
		r := &requests[i]
		items[i] = Item{Limit: r.Limit, Key: r.Key, Hash: r.Hash, Request: Request{Cost: r.Units}}
		switch h := b.holds[r.ID]; {
		case h == nil:
		case h.State == HoldOpen && h.isOf(r):
			again, which = again+1, i
		default:
			return refuseHolds(out, requests, i, HoldOther)
		}
	}
	if again == len(requests) {
		for i := range requests {
			if out[i] = b.table.Peek(now, requests[i].Limit, requests[i].Key, requests[i].Hash, 0); !out[i].Closed {
				out[i].Allowed, out[i].Hold = b.holds[requests[i].ID].Units > 0, HoldOpen
			}
		}
		return !out[0].Closed
	}
	if again > 0 { // it was opened with others
		return refuseHolds(out, requests, which, HoldOther)
	}
	if i, state := b.crowdedLocked(requests); state != HoldNone {
		return refuseHolds(out, requests, i, state)
	}
	if !b.table.setAsideAll(now, items, out) {
		return false
	}
	for i := range requests {
		r := &requests[i]
		h := &Hold{
			ID: r.ID, Limit: r.Limit, Key: strings.Clone(r.Key), Holder: strings.Clone(r.Holder),
			Deadline: now.Add(r.TTL), Charge: r.Charge, State: HoldOpen, hash: r.Hash,
		}
		if out[i].Allowed {
			h.Units = r.Units
		}
		out[i].Hold = HoldOpen
		b.addLocked(h)
		b.tellLocked(h)
	}
	return true
}

// isOf reports whether r asks for what h is.
func (h *Hold) isOf(r *HoldRequest) bool {
	return h.Limit.sameIdentity(r.Limit) && h.Key == r.Key && h.Holder == r.Holder
}

// refuseHolds answers that none was opened, because of the i-th.
func refuseHolds(out []Decision, requests []HoldRequest, i int, state HoldState) bool {
	for k := range out {
		out[k] = Decision{Limit: requests[k].Limit.Capacity(), RetryAfter: asideRetry}
	}
	out[i].Hold = state
	return false
}

// crowdedLocked finds a request for which there are too many holds.
func (b *Book) crowdedLocked(requests []HoldRequest) (int, HoldState) {
	for i := range requests {
		r := &requests[i]
		switch {
		case b.count[holders{}]+len(requests) > MaxHolds:
			return i, HoldsOfNode
		case b.count[holders{limit: r.Limit.Name}]+len(requests) > MaxHoldsOfLimit:
			return i, HoldsOfLimit
		case b.count[holders{r.Limit.Name, r.Holder, true}]+len(requests) > MaxHoldsOfHolder:
			return i, HoldsOfHolder
		}
	}
	return 0, HoldNone
}

// Settle charges what the holder of the hold has used, 0 or more, and releases the rest. Permits
// (Concurrency) charge nothing. Decision.Hold says what became of it: HoldSettled, also if it had
// been settled with the same amount before, or why not.
func (b *Book) Settle(now Instant, id HoldID, hash uint64, holder string, used int64) Decision {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, d := b.findLocked(id, hash, holder)
	switch {
	case h == nil:
		return d
	case h.State == HoldSettled && h.Used != used:
		d.Hold = HoldOther
		return d
	case h.State != HoldOpen:
		d = b.table.Peek(now, h.Limit, h.Key, h.hash, 0)
		d.Hold = h.State
		return d
	}
	return b.closeLocked(now, h, HoldSettled, used)
}

// Extend puts the deadline off, to ttl from now. A deadline that is later than that already stays.
func (b *Book) Extend(now Instant, id HoldID, hash uint64, holder string, ttl time.Duration) Decision {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, d := b.findLocked(id, hash, holder)
	if h == nil {
		return d
	}
	d = b.table.Peek(now, h.Limit, h.Key, h.hash, 0)
	if d.Hold = h.State; h.State == HoldOpen && !d.Closed && h.Deadline < now.Add(ttl) {
		h.Deadline, h.stored = now.Add(ttl), false
		b.tellLocked(h)
	}
	return d
}

// findLocked returns the hold, or what to answer instead.
func (b *Book) findLocked(id HoldID, hash uint64, holder string) (*Hold, Decision) {
	h := b.holds[id]
	switch {
	case !b.open(hash):
		return nil, Decision{Closed: true}
	case h == nil || h.hash != hash:
		return nil, Decision{Hold: HoldUnknown}
	case holder != "" && h.Holder != holder:
		return nil, Decision{Hold: HoldForeign}
	}
	return h, Decision{Limit: h.Limit.Capacity()}
}

// closeLocked ends an open hold.
func (b *Book) closeLocked(now Instant, h *Hold, state HoldState, used int64) Decision {
	charge := used
	if h.Limit.Algorithm == Concurrency {
		charge = 0
	}
	d := b.table.putBack(now, h.Limit, h.Key, h.hash, h.Units, charge)
	if d.Closed {
		return d
	}
	h.Units, h.Used = 0, used
	b.endLocked(now, h, state)
	b.tellLocked(h)
	d.Hold = state
	return d
}

// endLocked makes h a hold that is not open any more, and is remembered for a while.
func (b *Book) endLocked(now Instant, h *Hold, state HoldState) {
	b.countLocked(h, -1)
	h.State, h.forget = state, now.Add(HoldRemembered)
	b.settled = append(b.settled, h.ID)
}

func (b *Book) addLocked(h *Hold) {
	b.holds[h.ID] = h
	if h.State == HoldOpen {
		b.countLocked(h, 1)
		heap.Push(&b.due, dueHold{h.Deadline, h.ID})
	}
}

func (b *Book) countLocked(h *Hold, by int) {
	for _, k := range [3]holders{{}, {limit: h.Limit.Name}, {h.Limit.Name, h.Holder, true}} {
		if b.count[k] += by; b.count[k] == 0 {
			delete(b.count, k)
		}
	}
}

// Tend expires the holds past their deadline, and forgets those that ended a while ago, and all
// holds of keys that are no longer kept here (nil: all are kept). The caller runs it from a timer.
func (b *Book) Tend(now Instant, kept func(hash uint64) bool) (ranOut int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.due) > 0 && b.due[0].at <= now {
		x := heap.Pop(&b.due).(dueHold)
		h := b.holds[x.id]
		switch {
		case h == nil || h.State != HoldOpen: // it was settled
		case h.Deadline > now: // it was put off
			heap.Push(&b.due, dueHold{h.Deadline, x.id})
		case !b.open(h.hash): // the deciding node has to know
			heap.Push(&b.due, dueHold{now.Add(lookAgain), x.id})
		default:
			b.runOutLocked(now, h)
			ranOut++
		}
	}
	for len(b.settled) > 0 {
		h := b.holds[b.settled[0]]
		if h != nil && h.forget > now && len(b.settled) <= maxRemembered {
			break
		}
		if h != nil && h.State != HoldOpen {
			delete(b.holds, h.ID)
		}
		b.settled = b.settled[1:]
	}
	// most of it was settled long before its deadline
	if len(b.due) > 2*len(b.holds)+maxRemembered/16 {
		b.due = slices.DeleteFunc(b.due, func(x dueHold) bool { h := b.holds[x.id]; return h == nil || h.State != HoldOpen })
		heap.Init(&b.due)
	}
	if kept != nil {
		for _, h := range b.holds {
			if !kept(h.hash) {
				b.dropLocked(h)
			}
		}
	}
	return ranOut
}

func (b *Book) runOutLocked(now Instant, h *Hold) {
	used := h.Units
	if h.Limit.Unsettled == UnsettledRelease && !h.Charge {
		used = 0
	}
	b.closeLocked(now, h, HoldRanOut, used)
}

func (b *Book) dropLocked(h *Hold) {
	if h.State == HoldOpen {
		b.countLocked(h, -1)
		b.table.adjustAside(h.Limit, h.Key, h.hash, -h.Units)
	}
	delete(b.holds, h.ID)
}

// Get is a copy of the hold of that id, as far as one is open, or remembered.
func (b *Book) Get(id HoldID) (h Hold, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own := b.holds[id]; own != nil {
		return *own, true
	}
	return h, false
}

// Len is how many holds are open, or remembered.
func (b *Book) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.holds)
}

// On lists the open holds on a key under l, those that run out first in front.
func (b *Book) On(l *Limit, key string) (list []Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.holds {
		if h.State == HoldOpen && h.Key == key && h.Limit.sameIdentity(l) {
			list = append(list, *h)
		}
	}
	slices.SortFunc(list, func(x, y Hold) int {
		switch {
		case x.Deadline != y.Deadline:
			return int(max(-1, min(1, x.Deadline-y.Deadline)))
		case x.ID.Sequence < y.ID.Sequence:
			return -1
		}
		return 1
	})
	return list
}
