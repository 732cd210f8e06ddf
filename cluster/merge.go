package cluster

import (
	"bytes"
	"slices"

	"penstock/limiter"
)

// mergeLocked takes in copies that come beside those in order, but for partitions that are lent
// with them and that this node does not hold. What others have copies of is copied once more only
// where something was not known here: mostly a file says nothing new.
func (ik *intake) mergeLocked(now limiter.Instant, m *Move, a *MoveAnswer) {
	a.Refused = ik.parts.unheldLocked(m.Lent)
	ik.holder.recent.Learn(now, m.Taken) // first: entries may be freer for what was given back
	changes := ik.holder.book.Changes()
	ik.importHolds(now, m, true)
	var news []uint16
	for i := range m.Entries {
		p := uint16(ik.partition(limiter.Hash(m.Entries[i].Key)))
		if !slices.Contains(a.Refused, p) && !ik.parts.outlives(now, m, p) &&
			ik.mergesLocked(now, m, &m.Entries[i]) {
			news = append(news, p)
		}
	}
	ik.importHolds(now, m, false)
	ik.holdsPassed(m)
	if len(m.Holds) > 0 && ik.holder.book.Changes() != changes {
		news = slices.Clone(m.Lent)
	}
	if len(m.Lent) > 0 {
		ik.copier.keepers.copyLentLocked(distinct(news))
	}
	ik.stats.Copied.Add(uint64(len(m.Entries)))
	a.Applied = true
}

// mergesLocked merges e with what is known here, and reports whether that is more than before.
func (ik *intake) mergesLocked(now limiter.Instant, m *Move, e *limiter.Entry) bool {
	if len(m.Lent) == 0 || e.IsCell() {
		ik.importLocked(now, m, e, nil)
		return true
	}
	table, hash := ik.holder.table, limiter.Hash(e.Key)
	before := table.Entry(now, e.Limit, e.Key, hash)
	ik.importLocked(now, m, e, nil)
	after := table.Entry(now, e.Limit, e.Key, hash)
	return !bytes.Equal(before.State, after.State)
}
