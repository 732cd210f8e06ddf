package peer

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/wire"
)

// Field numbers of peer.proto for what is said about partitions.
const (
	moveFrom, moveTo, moveID, moveTerm, moveClaim             = 1, 2, 3, 4, 5
	moveSequence, moveBegin, moveEntries, moveGift, moveTaken = 6, 7, 8, 9, 10
	moveEnd, moveLent, moveCharges, moveHolds                 = 11, 12, 13, 14

	moveAge, moveAddr, moveEpoch, moveLacking, moveLackAge, moveWhole = 18, 19, 20, 21, 22, 23

	entryLimit, entryKey, entryState, entryAge = 1, 2, 3, 4

	chargeLimit, chargeKey, chargeUnits, chargeReset, chargeState, chargeAge = 1, 2, 3, 4, 5, 6

	memoryOrigin, memorySequence, memoryPartition, memoryAge, memoryDecisions = 1, 2, 3, 4, 5
	memoryGivesBack                                                           = 6

	movedTerm, movedStandings, movedRefused, movedApplied, movedUp, movedEpoch = 1, 2, 3, 4, 6, 7
	movedWhole, movedBlank                                                     = 8, 9
)

// Field numbers of a copy of a hold.
const (
	holdLimit, holdKey, holdOrigin, holdSequence, holdUnits = 1, 2, 3, 4, 5
	holdLeft, holdHolder, holdState, holdUsed, holdCharge   = 6, 7, 8, 9, 11
	holdClient                                              = 12
)

// maxRecords bounds what a move costs in memory: of its records, each decision of a memory one, a
// frame of 4 MiB has room for two million, which would become 150 MiB and more. A member sends
// fewer than this at once, by the bounds of copies, memories and holds in cluster.
const maxRecords = 1 << 15

// mostExpected is for how many entries room is made when the first one was read. Copies in order
// have no more.
const mostExpected = 256

// maxMemory is the most items that an ask may have, and so the most answers that one memory has.
const maxMemory = cluster.MaxItems

// appendMove appends m to an ask of the frame, which has all limits of m by now.
func (w *frameWriter) appendMove(b []byte, m *cluster.Move) []byte {
	b, begin := wire.Open(b, askMove)
	b = wire.AppendFixed(b, moveFrom, m.From)
	b = wire.AppendFixed(b, moveTo, m.To)
	b = wire.AppendString(b, moveID, m.ID)
	b = wire.AppendUint(b, moveTerm, m.Term)
	b = appendPartitions(b, moveClaim, m.Claim)
	b = wire.AppendUint(b, moveSequence, m.Sequence)
	b = appendPartitions(b, moveBegin, m.Begin)
	for i := range m.Entries {
		b = w.appendEntry(b, &m.Entries[i])
	}
	b = appendPartitions(b, moveGift, m.Gift)
	for i := range m.Taken {
		b = appendMemory(b, &m.Taken[i])
	}
	b = appendPartitions(b, moveEnd, m.End)
	b = appendPartitions(b, moveLent, m.Lent)
	for i := range m.Charges {
		b = w.appendCharge(b, &m.Charges[i])
	}
	for i := range m.Holds {
		b = w.appendHoldCopy(b, &m.Holds[i])
	}
	b = wire.AppendUint(b, moveAge, uint64(max(0, m.Age)))
	b = wire.AppendString(b, moveAddr, m.Addr)
	b = appendEpoch(b, moveEpoch, m.Epoch)
	b = appendPartitions(b, moveLacking, m.Lack.Of)
	b = wire.AppendUint(b, moveLackAge, uint64(max(0, m.Lack.Age)))
	return wire.Close(appendMarks(appendPartitions(b, moveWhole, m.Whole), m), begin)
}

func (w *frameWriter) appendEntry(b []byte, e *limiter.Entry) []byte {
	b, begin := wire.Open(b, moveEntries)
	b = wire.AppendUint(b, entryLimit, w.limit(e.Limit))
	b = wire.AppendString(b, entryKey, e.Key)
	b = wire.AppendString(b, entryState, wire.Borrow(e.State))
	return wire.Close(wire.AppendUint(b, entryAge, uint64(max(0, e.Age))), begin)
}

func (w *frameWriter) appendCharge(b []byte, c *cluster.Charge) []byte {
	b, begin := wire.Open(b, moveCharges)
	b = wire.AppendUint(b, chargeLimit, w.limit(c.Limit))
	b = wire.AppendString(b, chargeKey, c.Key)
	b = wire.AppendUint(b, chargeUnits, protowire.EncodeZigZag(c.Units))
	b = wire.AppendBool(b, chargeReset, c.Reset)
	b = wire.AppendString(b, chargeState, c.State)
	return wire.Close(wire.AppendUint(b, chargeAge, uint64(max(0, c.Age))), begin)
}

func appendMemory(b []byte, x *cluster.Memory) []byte {
	b, begin := wire.Open(b, moveTaken)
	b = wire.AppendFixed(b, memoryOrigin, x.ID.Origin)
	b = wire.AppendUint(b, memorySequence, x.ID.Sequence)
	b = wire.AppendUint(b, memoryPartition, uint64(x.Partition))
	b = wire.AppendUint(b, memoryAge, uint64(x.Age))
	for i := range x.Decisions {
		b = appendOutcome(b, memoryDecisions, &cluster.AnswerItem{Decision: x.Decisions[i]})
	}
	return wire.Close(wire.AppendBool(b, memoryGivesBack, x.GivesBack), begin)
}

// readMove reads what an ask says about partitions. Keys and states lie in b.
func (r *frameReader) readMove(b []byte) (*cluster.Move, error) {
	m, err := new(cluster.Move), error(nil)
	r.records = 0
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
		case moveEntries, moveTaken, moveCharges, moveHolds, moveKnown:
			err = r.readRecord(m, &f)
		default:
			readMark(m, f.Num, &f)
		}
	}
	return m, errors.Join(err, f.Err)
}

// readRecord reads what a move tells of one key, or of the copies of one member. A key under a
// limit that this node cannot make is left out.
func (r *frameReader) readRecord(m *cluster.Move, f *wire.Fields) (err error) {
	r.records++
	switch b := f.Bytes; f.Num {
	case moveEntries:
		var e limiter.Entry
		if e, err = r.readEntry(b); e.Limit == nil {
			break
		}
		if m.Entries == nil { // mostly they are alike, and nothing follows
			m.Entries = make([]limiter.Entry, 0, min(1+len(f.Rest)/(len(b)+2), mostExpected))
		}
		m.Entries = append(m.Entries, e)
	case moveTaken:
		var x cluster.Memory
		x, err = readMemory(b)
		m.Taken = append(m.Taken, x)
		r.records += len(x.Decisions)
	case moveKnown:
		var k cluster.Known
		k, err = readKnown(wire.Fields{Rest: b})
		m.Known = append(m.Known, k)
	case moveCharges:
		var c cluster.Charge
		if c, err = r.readCharge(b); c.Limit != nil {
			m.Charges = append(m.Charges, c)
		}
	case moveHolds:
		var h cluster.HoldCopy
		if h, err = r.readHoldCopy(b); h.Limit != nil {
			m.Holds = append(m.Holds, h)
		}
	}
	if err == nil && r.records > maxRecords {
		err = fmt.Errorf("has more than %d records, decisions among them", maxRecords)
	}
	return err
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
	if f.Err == nil {
		e.Limit, f.Err = r.limitOf("an entry", limit, e.Key)
	}
	return e, f.Err
}

// limitOf is the limit of that number, under which what has a key; nil if this node cannot make it.
func (r *frameReader) limitOf(what string, limit uint64, key string) (*limiter.Limit, error) {
	switch {
	case limit >= uint64(len(r.limits)):
		return nil, fmt.Errorf("has %s with limit %d; this frame has brought %d limits so far",
			what, limit, len(r.limits))
	case len(key) < cluster.MinKey || len(key) > cluster.MaxKey:
		return nil, fmt.Errorf("has %s with a key of %d bytes; %d to %d are accepted",
			what, len(key), cluster.MinKey, cluster.MaxKey)
	}
	return r.limits[limit].limit, nil
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
		case chargeState:
			c.State = wire.Borrow(f.Bytes)
		case chargeAge:
			c.Age = time.Duration(min(f.Value, math.MaxInt64))
		}
	}
	if f.Err == nil {
		c.Limit, f.Err = r.limitOf("a charge", limit, c.Key)
	}
	return c, f.Err
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
		case memoryGivesBack:
			x.GivesBack = f.Value != 0
		}
	}
	return x, f.Err
}
