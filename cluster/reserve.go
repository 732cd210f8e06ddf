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
func (s *self) admitHold(i int, it *flight) error {
	if it.Hold == nil {
		return inputErrorf(i, "hold", "is missing")
	}
	if field := it.Terms.given(); field != "" {
		return inputErrorf(i, field, "is for a take; a hold is charged as its holder says")
	}
	if it.Op == OpLease && it.Limit.Consistency != limiter.Leased {
		return inputErrorf(i, "limit", "%q lends nothing; only limits with consistency leased do",
			it.Limit.Name)
	}
	terms := *it.Hold // the caller may use his again
	terms.ID.Origin &^= nodeOrigin
	it.Hold = &terms
	if (it.Op == OpReserve || it.Op == OpLease) && it.ID == (ID{}) {
		it.ID = ID{Origin: s.boot &^ nodeOrigin, Sequence: s.sequence.Add(1)}
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
		Units: it.Cost, TTL: it.Hold.TTL, Holder: it.Hold.Holder,
		Client: it.Hold.Client, Charge: it.Hold.Charge,
		Bounded: it.Bounded, MaxDelay: it.MaxDelay,
	}
}

// holdID names the hold that the item is about.
func (it *flight) holdID() limiter.HoldID {
	if it.Op == OpReserve || it.Op == OpLease {
		return limiter.HoldID(it.ID)
	}
	return limiter.HoldID(it.Hold.ID)
}
