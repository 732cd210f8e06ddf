package rpc

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"penstock/cluster"
	"penstock/limiter"
)

// Sizes of what a frame has. The writer puts them in front of what it writes, and a line weighs
// asks with them before they are written: so what is weighed is what is written.

// anyLimit stands for the index of a limit in a frame that is not begun yet. No frame has that
// many.
const anyLimit = math.MaxUint32

// weigh is the size of a frame that has nothing but a, or a little more: each limit counts as often
// as it follows another one. In a frame that has its limits already a takes less.
func weigh(a *cluster.Ask) int {
	n := sizeBytes(askSize(nil, math.MaxUint64, a, math.MaxInt64))
	var last *limiter.Limit
	limit := func(l *limiter.Limit) {
		if l != last {
			n, last = n+sizeBytes(limitSize(l)), l
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
	size := sizeUint(
		tag,
	) + sizeFixed(
		a.RingHash,
	) + sizeUint(
		uint64(a.Hop),
	) + sizeBool(
		a.Atomic,
	) + sizeUint(
		uint64(left),
	) +
		sizeBool(
			a.Relay,
		) + sizeFixed(
		a.From,
	) + sizeBoots(
		a.Forget,
	) + sizeWords(
		a.Words,
	)
	for i := range a.Items {
		size += sizeBytes(itemSize(&a.Items[i], w.indexOf(a.Items[i].Limit)))
	}
	if a.Move != nil {
		size += sizeBytes(moveSize(w, a.Move))
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
	size := sizeFixed(
		m.From,
	) + sizeFixed(
		m.To,
	) + sizeString(
		m.ID,
	) + sizeUint(
		m.Term,
	) + sizePacked(
		m.Claim,
	) + sizeUint(
		m.Sequence,
	) +
		sizePacked(
			m.Begin,
		) + sizePacked(
		m.Gift,
	) + sizePacked(
		m.End,
	) + sizePacked(
		m.Lent,
	)
	for i := range m.Entries {
		size += sizeBytes(entrySize(&m.Entries[i], w.indexOf(m.Entries[i].Limit)))
	}
	for i := range m.Taken {
		size += sizeBytes(memorySize(&m.Taken[i]))
	}
	for i := range m.Charges {
		size += sizeBytes(chargeSize(&m.Charges[i], w.indexOf(m.Charges[i].Limit)))
	}
	for i := range m.Holds {
		size += sizeBytes(holdCopySize(&m.Holds[i], w.indexOf(m.Holds[i].Limit)))
	}
	// The tags of fields from 16 on take a byte more.
	size += longTag(sizePacked(m.Whole)) + longTag(sizePacked(m.Lack.Of)) + longTag(sizeUint(uint64(max(0, m.Lack.Age))))
	return size + longTag(
		sizeUint(uint64(max(0, m.Age))),
	) + longTag(
		sizeString(m.Addr),
	) + longTag(
		sizeEpoch(m.Epoch),
	)
}

// longTag is the size of a field whose number is 16 or more, from that of one with a lower number.
func longTag(size int) int { return size + min(size, 1) }

func entrySize(e *limiter.Entry, limit int) int {
	return sizeUint(
		uint64(limit),
	) + sizeString(
		e.Key,
	) + sizeOf(
		e.State,
	) + sizeUint(
		uint64(max(0, e.Age)),
	)
}

func chargeSize(c *cluster.Charge, limit int) int {
	return sizeUint(
		uint64(limit),
	) + sizeString(
		c.Key,
	) + sizeUint(
		protowire.EncodeZigZag(c.Units),
	) + sizeBool(
		c.Reset,
	)
}

func holdCopySize(h *cluster.HoldCopy, limit int) int {
	return sizeUint(
		uint64(limit),
	) + sizeString(
		h.Key,
	) + sizeFixed(
		h.ID.Origin,
	) + sizeFixed(
		h.ID.Sequence,
	) + sizeUint(
		uint64(h.Units),
	) +
		sizeUint(
			uint64(max(0, h.Left)),
		) + sizeString(
		h.Holder,
	) + sizeUint(
		uint64(h.State),
	) + sizeUint(
		uint64(h.Used),
	) + sizeBool(
		h.Charge,
	)
}

func memorySize(x *cluster.Memory) int {
	size := sizeFixed(
		x.ID.Origin,
	) + sizeUint(
		x.ID.Sequence,
	) + sizeUint(
		uint64(x.Partition),
	) + sizeUint(
		uint64(x.Age),
	)
	for i := range x.Decisions {
		size += sizeBytes(outcomeSize(&cluster.AnswerItem{Decision: x.Decisions[i]}))
	}
	return size
}

func limitSize(l *limiter.Limit) int {
	return sizeString(
		l.Name,
	) + sizeUint(
		uint64(l.Algorithm),
	) + sizeUint(
		uint64(l.Limit),
	) + sizeUint(
		uint64(l.Per),
	) +
		sizeUint(
			uint64(l.Burst),
		) + sizeUint(
		uint64(l.Anchor),
	) + sizeUint(
		limitBits(l),
	) + sizeUint(
		uint64(l.MaxDebt),
	) +
		sizeUint(
			uint64(l.MinGap),
		) + sizeUint(
		uint64(l.Refill),
	) + sizeUint(
		uint64(l.Buckets),
	) +
		sizeUint(
			uint64(l.Calendar),
		) + sizeString(
		l.TimeZone,
	) + sizeString(
		l.Override,
	)
}

// sizePacked is the size of a field that holds a list of partitions.
func sizePacked(list []uint16) int {
	if len(list) == 0 {
		return 0
	}
	return sizeBytes(sizePartitions(list))
}

// sizeBoots is the size of a field that holds a list of boots, or of hashes.
func sizeBoots(list []uint64) int {
	if len(list) == 0 {
		return 0
	}
	return sizeBytes(8 * len(list))
}
