package peer

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/wire"
)

func (w *frameWriter) appendHoldCopy(b []byte, h *cluster.HoldCopy) []byte {
	b, begin := wire.Open(b, moveHolds)
	b = wire.AppendUint(b, holdLimit, w.limit(h.Limit))
	b = wire.AppendString(b, holdKey, h.Key)
	b = wire.AppendFixed(b, holdOrigin, h.ID.Origin)
	b = wire.AppendFixed(b, holdSequence, h.ID.Sequence)
	b = wire.AppendUint(b, holdUnits, uint64(h.Units))
	b = wire.AppendUint(b, holdLeft, uint64(max(0, h.Left)))
	b = wire.AppendString(b, holdHolder, h.Holder)
	b = wire.AppendUint(b, holdState, uint64(h.State))
	b = wire.AppendUint(b, holdUsed, uint64(h.Used))
	b = wire.AppendBool(b, holdCharge, h.Charge)
	return wire.Close(wire.AppendFixed(b, holdClient, h.Client), begin)
}

// readHoldCopy reads the copy of a hold. Its Limit is nil if this node cannot make it.
func (r *frameReader) readHoldCopy(b []byte) (h cluster.HoldCopy, err error) {
	limit := uint64(0)
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case holdLimit:
			limit = f.Value
		case holdKey:
			h.Key = wire.Borrow(f.Bytes)
		case holdOrigin:
			h.ID.Origin = f.Value
		case holdSequence:
			h.ID.Sequence = f.Value
		case holdUnits:
			h.Units = int64(f.Value)
		case holdLeft:
			h.Left = time.Duration(f.Value)
		case holdHolder:
			h.Holder = wire.Borrow(f.Bytes)
		case holdState:
			h.State = limiter.HoldState(min(f.Value, math.MaxUint8))
		case holdUsed:
			h.Used = int64(f.Value)
		case holdCharge:
			h.Charge = f.Value != 0
		case holdClient:
			h.Client = f.Value
		}
	}
	if f.Err == nil {
		h.Limit, f.Err = r.limitOf("a hold", limit, h.Key)
	}
	return h, cmp.Or(f.Err, checkHolder("a hold with a holder", h.Holder))
}

func checkHolder(what, holder string) error {
	if len(holder) > limiter.MaxHolder {
		return fmt.Errorf("has %s of %d bytes; at most %d are accepted", what, len(holder),
			limiter.MaxHolder)
	}
	return nil
}

// appendHold writes what an item says about a hold.
func appendHold(b []byte, h *cluster.HoldTerms) []byte {
	b, begin := wire.Open(b, itemHold)
	b = wire.AppendFixed(b, askedOrigin, h.ID.Origin)
	b = wire.AppendFixed(b, askedSequence, h.ID.Sequence)
	b = wire.AppendUint(b, askedTTL, uint64(max(0, h.TTL)))
	b = wire.AppendString(b, askedHolder, h.Holder)
	b = wire.AppendBool(b, askedCharge, h.Charge)
	return wire.Close(wire.AppendFixed(b, askedClient, h.Client), begin)
}

func readHold(b []byte) (*cluster.HoldTerms, error) {
	h := new(cluster.HoldTerms)
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case askedOrigin:
			h.ID.Origin = f.Value
		case askedSequence:
			h.ID.Sequence = f.Value
		case askedTTL:
			h.TTL = time.Duration(f.Value)
		case askedHolder:
			h.Holder = wire.Borrow(f.Bytes)
		case askedCharge:
			h.Charge = f.Value != 0
		case askedClient:
			h.Client = f.Value
		}
	}
	return h, cmp.Or(f.Err, checkHolder("a holder", h.Holder))
}
