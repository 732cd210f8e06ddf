package limiter

import (
	"container/heap"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Ledger keeps the holds on the keys of a Table. It may be used by many goroutines.
type Ledger struct {
	table *Table
	// whether this book decides on a key's holds; other holds are copies
	open func(hash uint64) bool

	mu       sync.Mutex // guards below; taken before a lock of the table, never after
	holds    map[HoldID]*Hold
	count    map[holders]int
	most     bounds
	due      dueHolds
	settled  []HoldID // not open any more, oldest first
	changed  []*Hold
	tracking bool

	changes atomic.Uint64 // of what Get, On and Each tell; see Changes
}

// holders are all holders, all of a limit, or one of them; or of these those that one client names.
type holders struct {
	limit, holder string
	one           bool
	client        uint64
}

// bounds say how many holds may be open at a time in one book.
type bounds struct{ all, limit, holder int }

// NewLedger makes an empty book on t. open says which keys it decides on; nil: all.
func NewLedger(t *Table, open func(hash uint64) bool) *Ledger {
	if open == nil {
		open = func(uint64) bool { return true }
	}
	return &Ledger{
		table: t, open: open, holds: make(map[HoldID]*Hold),
		count: make(map[holders]int),
		most:  bounds{MaxHolds, MaxHoldsOfLimit, MaxHoldsOfHolder},
	}
}

// Open opens all holds, or none, and reports which. Requests must have passed Check. out gets for
// each what it got or would have got. The same request under the same id gets the same answer. If
// one is Closed, all are.
func (b *Ledger) Open(now Instant, requests []HoldRequest, out []Decision) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := make([]Item, len(requests))
	again, which := 0, 0 // are open already, and one of them
	for i := range requests {
		r := &requests[i]
		items[i] = Item{Limit: r.Limit, Key: r.Key, Hash: r.Hash, Request: Request{
			Cost: r.Units, Bounded: r.Bounded, MaxDelay: r.MaxDelay,
		}}
		switch h := b.holds[r.ID]; {
		case h == nil:
		case h.State == HoldOpen && h.isOf(r):
			again, which = again+1, i
		default:
			return refuseHolds(out, requests, i, HoldOther)
		}
	}
	if again == len(requests) {
		return b.openAgainLocked(now, requests, out)
	}
	if again > 0 { // it was opened with others
		return refuseHolds(out, requests, which, HoldOther)
	}
	if i, state := b.tooManyLocked(requests); state != HoldNone {
		return refuseHolds(out, requests, i, state)
	}
	if !b.table.reserveAll(now, items, out) {
		return false
	}
	for i := range requests {
		r := &requests[i]
		h := &Hold{
			ID: r.ID, Limit: r.Limit, Key: strings.Clone(r.Key), Holder: strings.Clone(r.Holder),
			Client: r.Client, Deadline: now.Add(r.TTL), Charge: r.Charge, State: HoldOpen,
			hash: r.Hash,
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

// openAgainLocked is Open of requests that are all open already.
func (b *Ledger) openAgainLocked(now Instant, requests []HoldRequest, out []Decision) bool {
	for i := range requests {
		r := &requests[i]
		if out[i] = b.table.Peek(now, r.Limit, r.Key, r.Hash, 0); out[i].Closed {
			for k := range out {
				out[k] = Decision{Closed: true}
			}
			return false
		}
		out[i].Allowed, out[i].Hold = b.holds[r.ID].Units > 0, HoldOpen
		out[i].Delay = r.delayOfAnother(now, b.table)
	}
	return true
}

// refuseHolds answers that none was opened, because of the i-th.
func refuseHolds(out []Decision, requests []HoldRequest, i int, state HoldState) bool {
	for k := range out {
		out[k] = Decision{Limit: requests[k].Limit.Capacity(), RetryAfter: reservedRetry}
	}
	out[i].Hold = state
	return false
}

func ofHolder(l *Limit, name string) holders {
	return holders{limit: l.Name, holder: name, one: true}
}

// tooManyLocked finds a request for which there are too many holds.
func (b *Ledger) tooManyLocked(requests []HoldRequest) (int, HoldState) {
	n := len(requests)
	for i := range requests {
		r := &requests[i]
		ofLimit := holders{limit: r.Limit.Name}
		leftOfAll := b.most.all - b.count[holders{}] - n
		leftOfLimit := b.most.limit - b.count[ofLimit] - n
		switch {
		case leftOfAll < 0:
			return i, HoldsOfNode
		case leftOfLimit < 0:
			return i, HoldsOfLimit
		case !b.fairLocked(r.Client, holders{}, leftOfAll-n),
			!b.fairLocked(r.Client, ofLimit, leftOfLimit-n):
			return i, HoldsOfClient
		case b.count[ofHolder(r.Limit, r.Holder)]+n > b.most.holder:
			return i, HoldsOfHolder
		}
	}
	return 0, HoldNone
}

// fairLocked reports whether a client has no more holds, of all or of a limit, than there is room
// left for. So one client leaves half of the room to others. Of k clients that want all of it, each
// gets the same in the end, and as much is left: a part of k+1. This is the dynamic threshold by
// which ports of a switch share its memory (Choudhury and Hahne, 1998).
func (b *Ledger) fairLocked(client uint64, of holders, left int) bool {
	of.client = client
	return client == 0 || b.count[of] <= left
}

// Settle charges what the holder of the hold has used, 0 or more, and releases the rest. Permits
// (Concurrency) charge nothing. Decision.Hold says what became of it: HoldSettled, also if it had
// been settled with the same amount before, or why not.
func (b *Ledger) Settle(now Instant, id HoldID, hash uint64, holder string, used int64) Decision {
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
func (b *Ledger) Extend(
	now Instant, id HoldID, hash uint64, holder string, ttl time.Duration,
) Decision {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, d := b.findLocked(id, hash, holder)
	if h == nil {
		return d
	}
	d = b.table.Peek(now, h.Limit, h.Key, h.hash, 0)
	if d.Hold = h.State; h.State == HoldOpen && !d.Closed && h.Deadline < now.Add(ttl) {
		h.Deadline, h.stored = now.Add(ttl), false
		b.touchLocked()
		b.tellLocked(h)
	}
	return d
}

// findLocked returns the hold, or what to answer instead.
func (b *Ledger) findLocked(id HoldID, hash uint64, holder string) (*Hold, Decision) {
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
func (b *Ledger) closeLocked(now Instant, h *Hold, state HoldState, used int64) Decision {
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
func (b *Ledger) endLocked(now Instant, h *Hold, state HoldState) {
	b.touchLocked()
	b.countLocked(h, -1)
	h.State, h.forget = state, now.Add(HoldRemembered)
	b.settled = append(b.settled, h.ID)
}

func (b *Ledger) addLocked(h *Hold) {
	b.touchLocked()
	b.holds[h.ID] = h
	if h.State == HoldOpen {
		b.countLocked(h, 1)
		heap.Push(&b.due, dueHold{h.Deadline, h.ID})
	}
}

func (b *Ledger) countLocked(h *Hold, by int) {
	of := [5]holders{
		{},
		{limit: h.Limit.Name},
		ofHolder(h.Limit, h.Holder),
		{client: h.Client},
		{limit: h.Limit.Name, client: h.Client},
	}
	counted := of[:]
	if h.Client == 0 { // that would be the first ones once more
		counted = of[:3]
	}
	for _, k := range counted {
		if b.count[k] += by; b.count[k] == 0 {
			delete(b.count, k)
		}
	}
}

// Expire expires the holds past their deadline, and forgets those that ended a while ago, and all
// holds of keys that are no longer kept here (nil: all are kept). The caller runs it from a timer.
func (b *Ledger) Expire(now Instant, kept func(hash uint64) bool) (ranOut int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ranOut = b.expireLocked(now)
	b.forgetLocked(now)
	if kept != nil {
		for _, h := range b.holds {
			if !kept(h.hash) {
				b.dropLocked(h)
			}
		}
	}
	return ranOut
}

// expireLocked expires the holds past their deadline that this ledger decides on, and counts them.
func (b *Ledger) expireLocked(now Instant) (ranOut int) {
	for len(b.due) > 0 && b.due[0].at <= now {
		x := heap.Pop(&b.due).(dueHold)
		h := b.holds[x.id]
		switch {
		case h == nil || h.State != HoldOpen: // it was settled
		case h.Deadline > now: // it was put off
			heap.Push(&b.due, dueHold{h.Deadline, x.id})
		case !b.open(h.hash) || !b.runOutLocked(now, h): // the deciding node has to know
			heap.Push(&b.due, dueHold{now.Add(lookAgain), x.id})
		default:
			ranOut++
		}
	}
	return ranOut
}

// forgetLocked forgets holds that ended a while ago, and deadlines of holds that are settled.
func (b *Ledger) forgetLocked(now Instant) {
	for len(b.settled) > 0 {
		h := b.holds[b.settled[0]]
		if h != nil && h.forget > now && len(b.settled) <= maxRemembered {
			break
		}
		if h != nil && h.State != HoldOpen {
			b.touchLocked()
			delete(b.holds, h.ID)
		}
		b.settled = b.settled[1:]
	}
	// most of it was settled long before its deadline
	if len(b.due) > 2*len(b.holds) {
		b.due = slices.DeleteFunc(b.due, func(x dueHold) bool {
			h := b.holds[x.id]
			return h == nil || h.State != HoldOpen
		})
		heap.Init(&b.due)
	}
}

// runOutLocked reports false, and has changed nothing, if the table does not decide on the key any
// more.
func (b *Ledger) runOutLocked(now Instant, h *Hold) bool {
	used := h.Units
	if h.Limit.Unsettled == UnsettledRelease && !h.Charge {
		used = 0
	}
	return !b.closeLocked(now, h, HoldRanOut, used).Closed
}

func (b *Ledger) dropLocked(h *Hold) {
	if h.State == HoldOpen {
		b.countLocked(h, -1)
		b.table.adjustReserved(h.Limit, h.Key, h.hash, -h.Units)
	}
	b.touchLocked()
	delete(b.holds, h.ID)
}

// Changes grows with every change of a hold: so two equal counts say that nothing has changed.
func (b *Ledger) Changes() uint64 { return b.changes.Load() }

func (b *Ledger) touchLocked() { b.changes.Add(1) }

// Get is a copy of the hold of that id, as far as one is open, or remembered.
func (b *Ledger) Get(id HoldID) (h Hold, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own := b.holds[id]; own != nil {
		return *own, true
	}
	return h, false
}

// Len is how many holds are open, or remembered.
func (b *Ledger) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.holds)
}

// On lists the open holds on a key under l, those that run out first in front.
func (b *Ledger) On(l *Limit, key string) (list []Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.holds {
		if h.State == HoldOpen && h.Key == key && h.Limit.sameIdentity(l) {
			list = append(list, *h)
		}
	}
	slices.SortFunc(list, firstToRunOut)
	return list
}
