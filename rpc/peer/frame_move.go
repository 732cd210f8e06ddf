package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/ring"
	"penstock/rpc/wire"
)

// Field numbers of peer.proto for what is said about partitions.
const (
	moveFrom, moveTo, moveID, moveTerm, moveClaim, moveSequence, moveBegin, moveEntries, moveGift, moveTaken, moveEnd, moveLent, moveCharges, moveHolds = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14

	moveAge, moveAddr, moveEpoch, moveLacking, moveLackAge, moveWhole = 18, 19, 20, 21, 22, 23

	entryLimit, entryKey, entryState, entryAge = 1, 2, 3, 4

	chargeLimit, chargeKey, chargeUnits, chargeReset = 1, 2, 3, 4

	memoryOrigin, memorySequence, memoryPartition, memoryAge, memoryDecisions = 1, 2, 3, 4, 5

	movedTerm, movedStandings, movedRefused, movedApplied, movedUp, movedEpoch = 1, 2, 3, 4, 6, 7
)

// Field numbers of a copy of a hold.
const (
	holdLimit, holdKey, holdOrigin, holdSequence, holdUnits, holdLeft, holdHolder, holdState, holdUsed, holdCharge = 1, 2, 3, 4, 5, 6, 7, 8, 9, 11
)

// maxMemory is the most items that an ask may have, and so the most answers that one memory has.
const maxMemory = cluster.MaxItems

// appendMove appends the fields of m to an ask of the frame, which has all limits of m by now
// (askSize).
func (w *frameWriter) appendMove(b []byte, m *cluster.Move) []byte {
	b = wire.AppendFixed(b, moveFrom, m.From)
	b = wire.AppendFixed(b, moveTo, m.To)
	b = wire.AppendString(b, moveID, m.ID)
	b = wire.AppendUint(b, moveTerm, m.Term)
	b = appendPartitions(b, moveClaim, m.Claim)
	b = wire.AppendUint(b, moveSequence, m.Sequence)
	b = appendPartitions(b, moveBegin, m.Begin)
	for i := range m.Entries {
		e := &m.Entries[i]
		limit, age := uint64(w.limit(e.Limit)), uint64(max(0, e.Age))
		b = wire.AppendHead(b, moveEntries, entrySize(e, int(limit)))
		b = wire.AppendUint(b, entryLimit, limit)
		b = wire.AppendString(b, entryKey, e.Key)
		if len(e.State) > 0 {
			b = append(wire.AppendHead(b, entryState, len(e.State)), e.State...)
		}
		b = wire.AppendUint(b, entryAge, age)
	}
	b = appendPartitions(b, moveGift, m.Gift)
	for i := range m.Taken {
		b = appendMemory(b, &m.Taken[i])
	}
	b = appendPartitions(b, moveEnd, m.End)
	b = appendPartitions(b, moveLent, m.Lent)
	for i := range m.Charges {
		c := &m.Charges[i]
		limit, units := uint64(w.limit(c.Limit)), protowire.EncodeZigZag(c.Units)
		b = wire.AppendHead(b, moveCharges, chargeSize(c, int(limit)))
		b = wire.AppendUint(b, chargeLimit, limit)
		b = wire.AppendString(b, chargeKey, c.Key)
		b = wire.AppendUint(b, chargeUnits, units)
		b = wire.AppendBool(b, chargeReset, c.Reset)
	}
	for i := range m.Holds {
		b = w.appendHoldCopy(b, &m.Holds[i])
	}
	b = wire.AppendUint(b, moveAge, uint64(max(0, m.Age)))
	b = wire.AppendString(b, moveAddr, m.Addr)
	b = appendEpoch(b, moveEpoch, m.Epoch)
	b = appendPartitions(b, moveLacking, m.Lack.Of)
	b = wire.AppendUint(b, moveLackAge, uint64(max(0, m.Lack.Age)))
	return appendMarks(appendPartitions(b, moveWhole, m.Whole), m)
}

func (w *frameWriter) appendHoldCopy(b []byte, h *cluster.HoldCopy) []byte {
	limit := uint64(w.limit(h.Limit))
	left := uint64(max(0, h.Left))
	b = wire.AppendHead(b, moveHolds, holdCopySize(h, int(limit)))
	b = wire.AppendUint(b, holdLimit, limit)
	b = wire.AppendString(b, holdKey, h.Key)
	b = wire.AppendFixed(b, holdOrigin, h.ID.Origin)
	b = wire.AppendFixed(b, holdSequence, h.ID.Sequence)
	b = wire.AppendUint(b, holdUnits, uint64(h.Units))
	b = wire.AppendUint(b, holdLeft, left)
	b = wire.AppendString(b, holdHolder, h.Holder)
	b = wire.AppendUint(b, holdState, uint64(h.State))
	b = wire.AppendUint(b, holdUsed, uint64(h.Used))
	return wire.AppendBool(b, holdCharge, h.Charge)
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
		}
	}
	if f.Err != nil {
		return h, f.Err
	}
	if err := r.checkHoldCopy(&h, limit); err != nil {
		return h, err
	}
	h.Limit = r.limits[limit].limit
	return h, nil
}

// checkHoldCopy says what is wrong with h, which names a limit of the frame by its number.
func (r *frameReader) checkHoldCopy(h *cluster.HoldCopy, limit uint64) error {
	switch {
	case limit >= uint64(len(r.limits)):
		return fmt.Errorf("has a hold with limit %d; this frame has brought %d limits so far",
			limit, len(r.limits))
	case len(h.Key) < cluster.MinKey || len(h.Key) > cluster.MaxKey:
		return fmt.Errorf("has a hold with a key of %d bytes; %d to %d are accepted", len(h.Key),
			cluster.MinKey, cluster.MaxKey)
	case len(h.Holder) > limiter.MaxHolder:
		return fmt.Errorf("has a hold with a holder of %d bytes; at most %d are accepted",
			len(h.Holder), limiter.MaxHolder)
	}
	return nil
}

// appendHold writes what an item says about a hold.
func appendHold(b []byte, h *cluster.HoldTerms) []byte {
	b = wire.AppendHead(b, itemHold, holdSize(h))
	b = wire.AppendFixed(b, askedOrigin, h.ID.Origin)
	b = wire.AppendFixed(b, askedSequence, h.ID.Sequence)
	b = wire.AppendUint(b, askedTTL, uint64(max(0, h.TTL)))
	b = wire.AppendString(b, askedHolder, h.Holder)
	return wire.AppendBool(b, askedCharge, h.Charge)
}

func holdSize(h *cluster.HoldTerms) int {
	return wire.SizeFixed(h.ID.Origin) + wire.SizeFixed(h.ID.Sequence) +
		wire.SizeUint(uint64(max(0, h.TTL))) + wire.SizeString(h.Holder) + wire.SizeBool(h.Charge)
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
		}
	}
	if f.Err == nil && len(h.Holder) > limiter.MaxHolder {
		return h, fmt.Errorf("has a holder of %d bytes; at most %d are accepted", len(h.Holder),
			limiter.MaxHolder)
	}
	return h, f.Err
}

func sizeOf(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	return wire.SizeBytes(len(b))
}

func appendMemory(b []byte, x *cluster.Memory) []byte {
	b = wire.AppendHead(b, moveTaken, memorySize(x))
	b = wire.AppendFixed(b, memoryOrigin, x.ID.Origin)
	b = wire.AppendUint(b, memorySequence, x.ID.Sequence)
	b = wire.AppendUint(b, memoryPartition, uint64(x.Partition))
	b = wire.AppendUint(b, memoryAge, uint64(x.Age))
	for i := range x.Decisions {
		b = appendOutcome(b, memoryDecisions, &cluster.AnswerItem{Decision: x.Decisions[i]})
	}
	return b
}

// appendPartitions writes a packed list.
func appendPartitions(b []byte, num protowire.Number, list []uint16) []byte {
	if len(list) == 0 {
		return b
	}
	b = wire.AppendHead(b, num, sizePartitions(list))
	for _, p := range list {
		b = protowire.AppendVarint(b, uint64(p))
	}
	return b
}

func sizePartitions(list []uint16) (size int) {
	for _, p := range list {
		size += protowire.SizeVarint(uint64(p))
	}
	return size
}

// readPartitions appends a list, packed or a single one of a list that is not.
func readPartitions(list []uint16, f *wire.Fields) ([]uint16, error) {
	if f.Wire == protowire.VarintType {
		return appendPartition(list, f.Value)
	}
	for b := f.Bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return nil, wire.ErrMessage
		}
		var err error
		if list, err = appendPartition(list, v); err != nil {
			return nil, err
		}
		b = b[n:]
	}
	return list, nil
}

func appendPartition(list []uint16, v uint64) ([]uint16, error) {
	if v >= ring.Partitions {
		return nil, fmt.Errorf("names partition %d; there are 0 to %d", v, ring.Partitions-1)
	}
	if len(list) == ring.Partitions {
		return nil, fmt.Errorf("lists more than the %d partitions there are", ring.Partitions)
	}
	return append(list, uint16(v)), nil
}

// readMove reads what an ask says about partitions. Keys and states lie in b.
func (r *frameReader) readMove(b []byte) (*cluster.Move, error) {
	m, err := new(cluster.Move), error(nil)
	f := wire.Fields{Rest: b}
	for f.Next() && err == nil {
		switch f.Num {
		case moveClaim, moveBegin, moveGift, moveEnd, moveLent, moveWhole, moveLacking:
			list := partitionsIn(m, f.Num)
			*list, err = readPartitions(*list, &f)
		case moveFrom:
			m.From = f.Value
		case moveTo:
			m.To = f.Value
		case moveAge:
			m.Age = time.Duration(min(f.Value, math.MaxInt64))
		case moveLackAge:
			m.Lack.Age = time.Duration(min(f.Value, math.MaxInt64))
		case moveAddr:
			m.Addr = string(f.Bytes)
		case moveEpoch:
			m.Epoch, err = r.memo.readEpoch(f.Bytes)
		case moveID:
			m.ID = string(f.Bytes)
		case moveTerm:
			m.Term = f.Value
		case moveSequence:
			m.Sequence = f.Value
		case moveEntries:
			var e limiter.Entry
			if e, err = r.readEntry(f.Bytes); e.Limit != nil {
				m.Entries = append(m.Entries, e)
			}
		case moveTaken:
			var x cluster.Memory
			x, err = readMemory(f.Bytes)
			m.Taken = append(m.Taken, x)
		case moveCharges:
			var c cluster.Charge
			if c, err = r.readCharge(f.Bytes); c.Limit != nil {
				m.Charges = append(m.Charges, c)
			}
		case moveHolds:
			var h cluster.HoldCopy
			if h, err = r.readHoldCopy(f.Bytes); h.Limit != nil {
				m.Holds = append(m.Holds, h)
			}
		default:
			err = readMark(m, f.Num, &f)
		}
	}
	return m, errors.Join(err, f.Err)
}

// partitionsIn is the list of partitions with a field number.
func partitionsIn(m *cluster.Move, num protowire.Number) *[]uint16 {
	switch num {
	case moveClaim:
		return &m.Claim
	case moveBegin:
		return &m.Begin
	case moveGift:
		return &m.Gift
	case moveEnd:
		return &m.End
	case moveLent:
		return &m.Lent
	case moveWhole:
		return &m.Whole
	}
	return &m.Lack.Of
}

// readEntry reads the copy of an entry. Its Limit is nil if this node cannot make it: then it can
// do nothing with the state either.
func (r *frameReader) readEntry(b []byte) (e limiter.Entry, err error) {
	limit := uint64(0)
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case entryLimit:
			limit = f.Value
		case entryKey:
			e.Key = wire.Borrow(f.Bytes)
		case entryState:
			e.State = f.Bytes
		case entryAge:
			e.Age = time.Duration(min(f.Value, math.MaxInt64))
		}
	}
	switch {
	case f.Err != nil:
		return e, f.Err
	case limit >= uint64(len(r.limits)):
		return e, fmt.Errorf("has an entry with limit %d; this frame has brought %d limits so far",
			limit, len(r.limits))
	case len(e.Key) < cluster.MinKey || len(e.Key) > cluster.MaxKey:
		return e, fmt.Errorf("has an entry with a key of %d bytes; %d to %d are accepted",
			len(e.Key), cluster.MinKey, cluster.MaxKey)
	}
	e.Limit = r.limits[limit].limit
	return e, nil
}

// readCharge is the same for a charge.
func (r *frameReader) readCharge(b []byte) (c cluster.Charge, err error) {
	limit := uint64(0)
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case chargeLimit:
			limit = f.Value
		case chargeKey:
			c.Key = wire.Borrow(f.Bytes)
		case chargeUnits:
			c.Units = protowire.DecodeZigZag(f.Value)
		case chargeReset:
			c.Reset = f.Value != 0
		}
	}
	switch {
	case f.Err != nil:
		return c, f.Err
	case limit >= uint64(len(r.limits)):
		return c, fmt.Errorf("has a charge with limit %d; this frame has brought %d limits so far",
			limit, len(r.limits))
	case len(c.Key) < cluster.MinKey || len(c.Key) > cluster.MaxKey:
		return c, fmt.Errorf("has a charge with a key of %d bytes; %d to %d are accepted",
			len(c.Key), cluster.MinKey, cluster.MaxKey)
	}
	c.Limit = r.limits[limit].limit
	return c, nil
}

func readMemory(b []byte) (x cluster.Memory, err error) {
	f := wire.Fields{Rest: b}
	for f.Next() {
		switch f.Num {
		case memoryOrigin:
			x.ID.Origin = f.Value
		case memorySequence:
			x.ID.Sequence = f.Value
		case memoryPartition:
			x.Partition = uint16(min(f.Value, math.MaxUint16))
		case memoryAge:
			x.Age = time.Duration(f.Value)
		case memoryDecisions:
			if len(x.Decisions) == maxMemory {
				return x, fmt.Errorf("remembers more than the %d decisions that an ask can have",
					maxMemory)
			}
			it, err := readOutcome(f.Bytes)
			if err != nil {
				return x, err
			}
			x.Decisions = append(x.Decisions, it.Decision)
		}
	}
	return x, f.Err
}

func moveAnswerSize(m *cluster.MoveAnswer) int {
	size := wire.SizeUint(m.Term) + wire.SizeBool(m.Applied) + wire.SizeUint(uint64(max(0, m.Up))) +
		sizeEpoch(m.Epoch)
	if n := len(m.Standings); n > 0 {
		size += wire.SizeBytes(n)
	}
	if len(m.Refused) > 0 {
		size += wire.SizeBytes(sizePartitions(m.Refused))
	}
	return size
}

func appendMoveAnswer(b []byte, m *cluster.MoveAnswer) []byte {
	b = wire.AppendHead(b, answerMove, moveAnswerSize(m))
	b = wire.AppendUint(b, movedTerm, m.Term)
	if n := len(m.Standings); n > 0 {
		b = wire.AppendHead(b, movedStandings, n)
		for _, s := range m.Standings {
			b = append(b, byte(s))
		}
	}
	b = appendPartitions(b, movedRefused, m.Refused)
	b = wire.AppendBool(b, movedApplied, m.Applied)
	b = wire.AppendUint(b, movedUp, uint64(max(0, m.Up)))
	return appendEpoch(b, movedEpoch, m.Epoch)
}

// appendBoots writes a packed list.
func appendBoots(b []byte, num protowire.Number, list []uint64) []byte {
	if len(list) == 0 {
		return b
	}
	b = wire.AppendHead(b, num, 8*len(list))
	for _, boot := range list {
		b = protowire.AppendFixed64(b, boot)
	}
	return b
}

func readMoveAnswer(b []byte, memo *lineageMemo) (*cluster.MoveAnswer, error) {
	m := new(cluster.MoveAnswer)
	f := wire.Fields{Rest: b}
	var err error
	for f.Next() && err == nil {
		switch f.Num {
		case movedTerm:
			m.Term = f.Value
		case movedStandings:
			for _, s := range f.Bytes {
				// What is not known is busy: nobody takes the partition for free.
				m.Standings = append(m.Standings, standing(s))
			}
		case movedRefused:
			m.Refused, err = readPartitions(m.Refused, &f)
		case movedApplied:
			m.Applied = f.Value != 0
		case movedUp:
			m.Up = time.Duration(f.Value)
		case movedEpoch:
			m.Epoch, err = memo.readEpoch(f.Bytes)
		}
	}
	return m, errors.Join(err, f.Err)
}

// readBoots appends a packed list, or a single one of a list that is not; more than mostBoots are
// not read.
func readBoots(list []uint64, f *wire.Fields) []uint64 {
	if f.Wire == protowire.Fixed64Type {
		return append(list, f.Value)
	}
	for b := f.Bytes; len(b) >= 8 && len(list) < mostBoots; b = b[8:] {
		list = append(list, binary.LittleEndian.Uint64(b))
	}
	return list
}

const mostBoots = 1 << 16

// standing takes what it does not know for busy, which decides nothing.
func standing(b byte) cluster.Standing {
	if s := cluster.Standing(b); s <= cluster.StandingBereft {
		return s
	}
	return cluster.StandingBusy
}
