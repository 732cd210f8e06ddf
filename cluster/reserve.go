package cluster

import (
	"errors"

	"penstock/limiter"
)

// A hold lives where its key does, in the ledger of the node that holds the key's partition
// (limiter.Ledger). It moves as entries do: copies of it are at the heir, and a gift brings them
// along (copy.go). All that is asked of it travels as a check of its key does, with a repeat under
// the same ID, so a settlement finds its hold wherever that has gone.

// admitHold checks what the i-th item asks about a hold, and gives a reservation its id.
func (n *Node) admitHold(i int, it *flight) error {
	if it.Hold == nil {
		return inputErrorf(i, "hold", "is missing")
	}
	if it.Terms != (Terms{}) {
		return inputErrorf(i, "terms", "are for a take; a hold is charged as its holder says")
	}
	if it.Op == OpLease && it.Limit.Consistency != limiter.Leased {
		return inputErrorf(i, "limit", "%q lends nothing; only limits with consistency leased do",
			it.Limit.Name)
	}
	terms := *it.Hold // the caller may use his again
	terms.ID.Origin &^= nodeOrigin
	it.Hold = &terms
	if (it.Op == OpReserve || it.Op == OpLease) && it.ID == (ID{}) {
		it.ID = ID{Origin: n.boot &^ nodeOrigin, Sequence: n.sequence.Add(1)}
	}
	err := it.checkHold()
	var spec *limiter.SpecError
	if errors.As(err, &spec) {
		return inputErrorf(i, spec.Field, "%s", spec.Reason)
	}
	return err
}

func (it *flight) checkHold() error {
	switch r := it.holdRequest(); {
	case it.Op == OpReserve:
		return r.Check()
	case it.Op == OpLease:
		r.Units = 1 // what there is, is known at the owner
		return r.Check()
	case it.Op == OpSettle && (it.Cost < 0 || it.Cost > limiter.MaxLimit):
		return &limiter.SpecError{
			Field:  "cost",
			Reason: "is below 0 or above 2^40; say how much was used",
		}
	case it.Op == OpExtend:
		return limiter.CheckTTL(it.Hold.TTL)
	}
	return nil
}

func (it *flight) holdRequest() limiter.HoldRequest {
	return limiter.HoldRequest{
		ID: limiter.HoldID(it.ID), Limit: it.Limit, Key: it.Key, Hash: it.hash,
		Units: it.Cost, TTL: it.Hold.TTL, Holder: it.Hold.Holder, Charge: it.Hold.Charge,
	}
}

// holdID names the hold that the item is about.
func (it *flight) holdID() limiter.HoldID {
	if it.Op == OpReserve || it.Op == OpLease {
		return limiter.HoldID(it.ID)
	}
	return limiter.HoldID(it.Hold.ID)
}

// actHold does in the book what the item asks.
func (hd *holder) actHold(now limiter.Instant, it *flight) limiter.Decision {
	if it.Hold == nil || it.checkHold() != nil { // a peer says what this release would not let in
		return limiter.Decision{RetryAfter: limiter.Never, Hold: limiter.HoldUnknown}
	}
	switch it.Op {
	case OpSettle:
		return hd.book.Settle(now, it.holdID(), it.hash, it.Hold.Holder, it.Cost)
	case OpLease:
		return hd.grantLease(now, it)
	case OpExtend:
		return hd.book.Extend(now, it.holdID(), it.hash, it.Hold.Holder, it.Hold.TTL)
	}
	var out [1]limiter.Decision
	hd.book.Open(now, []limiter.HoldRequest{it.holdRequest()}, out[:])
	return out[0]
}

// holdAll opens a hold for every item, or none.
func (hd *holder) holdAll(now limiter.Instant, items []flight, out []limiter.Decision) {
	requests := make([]limiter.HoldRequest, len(items))
	for i := range items {
		if items[i].Hold == nil || items[i].checkHold() != nil {
			for k := range out {
				out[k] = limiter.Decision{RetryAfter: limiter.Never, Hold: limiter.HoldUnknown}
			}
			return
		}
		requests[i] = items[i].holdRequest()
	}
	hd.book.Open(now, requests, out)
}

// tendHoldsLocked ends the holds whose deadline has come.
func (hd *holder) tendHoldsLocked(now limiter.Instant) {
	kept := hd.parts.keeps
	if hd.pulse.ticks++; hd.pulse.ticks%holdsKeptTicks != 0 || hd.parts.list == nil {
		kept = nil
	}
	hd.stats.RanOut.Add(uint64(hd.book.Expire(now, kept)))
}

// holdsKeptTicks is how often holds of partitions that have gone are looked for.
const holdsKeptTicks = 8

// importHolds takes copies over. Those of keys that are not kept here go with the next look
// (tendHoldsLocked).
func (ik *intake) importHolds(now limiter.Instant, m *Move) {
	for i := range m.Holds {
		h := m.Holds[i].on(now.Add(-max(0, m.Age)))
		ik.holder.book.Import(now, &h)
	}
}

// on is the hold of a copy that was made at then.
func (c *HoldCopy) on(then limiter.Instant) limiter.Hold {
	h := c.Hold
	h.Deadline = then.Add(max(0, min(c.Left, limiter.MaxTTL)))
	return h
}
