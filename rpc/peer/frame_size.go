package peer

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/wire"
)

// Sizes of what a frame has. The writer puts them in front of what it writes, and a line weighs
// asks with them before they are written: so what is weighed is what is written.

// anyLimit stands for the index of a limit in a frame that is not begun yet. No frame has that
// many.
const anyLimit = math.MaxUint32

// weigh is the size of a frame that has nothing but a, or a little more: each limit counts as often
// as it follows another one. In a frame that has its limits already a takes less.
func weigh(a *cluster.Ask) int {
	n := wire.SizeBytes(askSize(nil, math.MaxUint64, a, math.MaxInt64))
	var last *limiter.Limit
	limit := func(l *limiter.Limit) {
		if l != last {
			n, last = n+wire.SizeBytes(limitSize(l)), l
		}
	}
	for i := range a.Items {
		limit(a.Items[i].Limit)
	}
	if m := a.Move; m != nil {
		for i := range m.Entries {
			limit(m.Entries[i].Limit)
		}
		for i := range m.Charges {
			limit(m.Charges[i].Limit)
		}
		for i := range m.Holds {
			limit(m.Holds[i].Limit)
		}
	}
	return n
}

// askSize is the size of a in w. Its limits are written there first, where they are not yet.
// Nothing is written if w is nil.
func askSize(w *frameWriter, tag uint64, a *cluster.Ask, left int64) int {
	size := wire.SizeUint(tag) + wire.SizeFixed(a.RingHash) + wire.SizeUint(uint64(a.Hop)) +
		wire.SizeBool(a.Atomic) + wire.SizeUint(uint64(left)) + wire.SizeBool(a.Relay) +
		wire.SizeFixed(a.From) + sizeBoots(a.Forget) + sizeWords(a.Words) + sizeTrace(a.Trace) +
		wire.SizeFixed(a.For)
	for i := range a.Items {
		size += wire.SizeBytes(itemSize(&a.Items[i], w.indexOf(a.Items[i].Limit)))
	}
	if a.Move != nil {
		size += wire.SizeBytes(moveSize(w, a.Move))
	}
	return size
}

// indexOf is the index of l in w, or in a frame that is not begun yet.
func (w *frameWriter) indexOf(l *limiter.Limit) int {
	if w == nil {
		return anyLimit
	}
	return w.limit(l)
}

func moveSize(w *frameWriter, m *cluster.Move) int {
	size := wire.SizeFixed(m.From) + wire.SizeFixed(m.To) + wire.SizeString(m.ID) +
		wire.SizeUint(m.Term) + sizePacked(m.Claim) + wire.SizeUint(m.Sequence) +
		sizePacked(m.Begin) + sizePacked(m.Gift) + sizePacked(m.End) + sizePacked(m.Lent)
	for i := range m.Entries {
		size += wire.SizeBytes(entrySize(&m.Entries[i], w.indexOf(m.Entries[i].Limit)))
	}
	for i := range m.Taken {
		size += wire.SizeBytes(memorySize(&m.Taken[i]))
	}
	for i := range m.Charges {
		size += wire.SizeBytes(chargeSize(&m.Charges[i], w.indexOf(m.Charges[i].Limit)))
	}
	for i := range m.Holds {
		size += wire.SizeBytes(holdCopySize(&m.Holds[i], w.indexOf(m.Holds[i].Limit)))
	}
	// The tags of fields from 16 on take a byte more.
	size += marksSize(m) + longTag(sizePacked(m.Whole)) + longTag(sizePacked(m.Lack.Of)) +
		longTag(wire.SizeUint(uint64(max(0, m.Lack.Age))))
	return size + longTag(wire.SizeUint(uint64(max(0, m.Age)))) +
		longTag(wire.SizeString(m.Addr)) + longTag(sizeEpoch(m.Epoch))
}

// longTag is the size of a field with a number of 16 or more, from that of one with a lower number.
func longTag(size int) int { return size + min(size, 1) }

func entrySize(e *limiter.Entry, limit int) int {
	return wire.SizeUint(uint64(limit)) + wire.SizeString(e.Key) +
		wire.SizeString(wire.Borrow(e.State)) + wire.SizeUint(uint64(max(0, e.Age)))
}

func chargeSize(c *cluster.Charge, limit int) int {
	return wire.SizeUint(uint64(limit)) + wire.SizeString(c.Key) +
		wire.SizeUint(protowire.EncodeZigZag(c.Units)) + wire.SizeBool(c.Reset) +
		wire.SizeString(c.State) + wire.SizeUint(uint64(max(0, c.Age)))
}

func holdCopySize(h *cluster.HoldCopy, limit int) int {
	return wire.SizeUint(uint64(limit)) + wire.SizeString(h.Key) + wire.SizeFixed(h.ID.Origin) +
		wire.SizeFixed(h.ID.Sequence) + wire.SizeUint(uint64(h.Units)) +
		wire.SizeUint(uint64(max(0, h.Left))) + wire.SizeString(h.Holder) +
		wire.SizeUint(uint64(h.State)) + wire.SizeUint(uint64(h.Used)) + wire.SizeBool(h.Charge) +
		wire.SizeFixed(h.Client)
}

func memorySize(x *cluster.Memory) int {
	size := wire.SizeFixed(x.ID.Origin) + wire.SizeUint(x.ID.Sequence) +
		wire.SizeUint(uint64(x.Partition)) + wire.SizeUint(uint64(x.Age)) +
		wire.SizeBool(x.GivesBack)
	for i := range x.Decisions {
		size += wire.SizeBytes(outcomeSize(&cluster.AnswerItem{Decision: x.Decisions[i]}))
	}
	return size
}

func limitSize(l *limiter.Limit) int {
	return wire.SizeString(l.Name) + wire.SizeUint(uint64(l.Algorithm)) +
		wire.SizeUint(uint64(l.Limit)) + wire.SizeUint(uint64(l.Per)) +
		wire.SizeUint(uint64(l.Burst)) + wire.SizeUint(uint64(l.Anchor)) +
		wire.SizeUint(limitBits(l)) + wire.SizeUint(uint64(l.MaxDebt)) +
		wire.SizeUint(uint64(l.MinGap)) + wire.SizeUint(uint64(l.Refill)) +
		wire.SizeUint(uint64(l.Buckets)) + wire.SizeUint(uint64(l.Calendar)) +
		wire.SizeString(l.TimeZone) + wire.SizeString(l.Override) +
		wire.SizeUint(uint64(l.MaxDelay))
}

// sizePacked is the size of a field that holds a list of partitions.
func sizePacked(list []uint16) int {
	if len(list) == 0 {
		return 0
	}
	return wire.SizeBytes(sizePartitions(list))
}

// sizeBoots is the size of a field that holds a list of boots, or of hashes.
func sizeBoots(list []uint64) int {
	if len(list) == 0 {
		return 0
	}
	return wire.SizeBytes(8 * len(list))
}
