package limiter

import (
	"slices"
	"strings"
)

// Holds travel as entries do: Each copies those of some keys, Changed tells what has become of them
// since, Import takes them over. Entries must be told by the same pass (see Changed), so that a
// copy never has a settlement without its charge.

// Track makes the book remember which holds have changed, for Changed. It must be called before the
// book is used.
func (b *Ledger) Track() { b.tracking = true }

func (b *Ledger) tellLocked(h *Hold) {
	if b.tracking && !h.changed {
		h.changed = true
		b.changed = append(b.changed, h)
	}
}

// Changed calls entries, which is to take what has changed in the table, and then fn with a copy of
// each hold that was opened, extended or ended since Changed was last called. No hold is opened or
// ended meanwhile: so the entries have the charges of exactly those settlements that fn hears of.
func (b *Ledger) Changed(entries func(), fn func(hash uint64, h Hold)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entries()
	for i, h := range b.changed {
		h.changed = false
		fn(h.hash, *h)
		b.changed[i] = nil
	}
	b.changed = b.changed[:0]
}

// UntoldEnds calls entries, and then fn with a copy of each hold on a key that is wanted that has
// ended, and of which Changed has still to tell. No hold is opened or ended meanwhile.
func (b *Ledger) UntoldEnds(
	entries func(), wanted func(hash uint64) bool, fn func(hash uint64, h Hold),
) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entries()
	for _, h := range b.changed {
		if h.State != HoldOpen && wanted(h.hash) {
			fn(h.hash, *h)
		}
	}
}

// Each calls fn with a copy of every hold on a key that is wanted, ordered by id. fn must not use
// the book.
func (b *Ledger) Each(wanted func(hash uint64) bool, fn func(hash uint64, h Hold)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.sortedLocked(wanted) {
		fn(h.hash, *h)
	}
}

// Told is Each without the holds that have ended and that Changed has still to tell of: their
// charges come with that.
func (b *Ledger) Told(wanted func(hash uint64) bool, fn func(hash uint64, h Hold)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.sortedLocked(wanted) {
		if h.State == HoldOpen || !h.changed {
			fn(h.hash, *h)
		}
	}
}

func (b *Ledger) sortedLocked(wanted func(hash uint64) bool) (list []*Hold) {
	for _, h := range b.holds {
		if wanted(h.hash) {
			list = append(list, h)
		}
	}
	// in one order, so that imagined worlds repeat themselves
	slices.SortFunc(list, func(x, y *Hold) int { return x.ID.compare(y.ID) })
	return list
}

// Import takes h over, which comes from elsewhere, with its Deadline on this book's clock. Of what
// the book knows and h the later is kept: a hold that has ended stays so, and a deadline is only
// put off. So it is commutative and idempotent. Where the book decides on the key, what a hold has
// charged elsewhere at its end is charged here as well: a state of the key that comes along is to
// be imported after it, so it does not count twice.
func (b *Ledger) Import(now Instant, h *Hold) { b.merge(now, h, false) }

// Restore is Import of what a file says. It reports whether h was in order.
func (b *Ledger) Restore(now Instant, h *Hold) bool { return b.merge(now, h, true) }

// Unrestore drops the open holds that are known only from a file: a running node knows better.
func (b *Ledger) Unrestore() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.holds {
		if h.stored && h.State == HoldOpen {
			b.dropLocked(h)
		}
	}
}

func (b *Ledger) merge(now Instant, h *Hold, stored bool) (taken bool) {
	if h.State == HoldNone || h.State > HoldRanOut || h.Units < 0 || h.Units > MaxLimit {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.holds[h.ID]
	if own != nil && !stored {
		own.stored = false
	}
	switch {
	case own == nil:
		own = new(*h)
		own.Key, own.Holder, own.hash, own.changed = strings.Clone(h.Key), strings.Clone(
			h.Holder), Hash(h.Key), false
		own.stored = stored
		b.addLocked(own)
		if own.State == HoldOpen {
			b.table.adjustReserved(own.Limit, own.Key, own.hash, own.Units)
			return true
		}
		own.Units, own.forget = 0, now.Add(HoldRemembered)
		b.settled = append(b.settled, own.ID)
	case own.State != HoldOpen || own.Key != h.Key:
	case h.State != HoldOpen:
		b.endedElsewhereLocked(now, own, h)
	case h.Deadline > own.Deadline:
		b.touchLocked()
		own.Deadline = h.Deadline // due finds it when the old one comes
	}
	return true
}

// endedElsewhereLocked ends own, an open hold, as h says.
func (b *Ledger) endedElsewhereLocked(now Instant, own, h *Hold) {
	if b.open(own.hash) && !b.closeLocked(now, own, h.State, h.Used).Closed {
		return
	}
	b.table.adjustReserved(own.Limit, own.Key, own.hash, -own.Units)
	own.Units, own.Used = 0, h.Used
	b.endLocked(now, own, h.State)
}

// dueHolds is a heap of deadlines. One that was put off since is found out when it comes.
type dueHolds []dueHold

type dueHold struct {
	at Instant
	id HoldID
}

func (q dueHolds) Len() int           { return len(q) }
func (q dueHolds) Less(i, j int) bool { return q[i].at < q[j].at }
func (q dueHolds) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *dueHolds) Push(x any)        { *q = append(*q, x.(dueHold)) }

func (q *dueHolds) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
