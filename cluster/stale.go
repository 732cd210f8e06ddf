package cluster

import (
	"slices"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// A message that begins copies may be long on its way, and arrive when another node has held the
// partition, and has begun its own copies here. Taken for news, it would come in the place of
// those: their holder would go on as if they were whole, and give the partition away to a node that
// has nothing of it (world 3009999820). Terms tell the two apart. A node draws one that is higher
// than all it has heard of before it gives a partition away, and it hears the highest of all
// members before it holds one that they have called free. So a message of a later holder never
// names a lower term than a message of an earlier one that is a member still. One that is none may
// have heard of terms that no other node has, and is not asked.

// heldLast says which boot has held a partition, and the highest term that it had heard of by then.
type heldLast struct {
	boot, term uint64
}

// freshLocked is m without the copies that it begins of partitions that another node has held
// since.
func (ik *intake) freshLocked(m *Move) *Move {
	stale := func(p uint16) bool { return ik.staleLocked(m, p) }
	if !slices.ContainsFunc(m.Begin, stale) {
		return m
	}
	begun := memberOf(m.Begin)
	dropped := func(p uint16) bool { return begun(p) && stale(p) }
	fresh := *m // its sender may go on with m
	fresh.Begin = slices.DeleteFunc(slices.Clone(m.Begin), dropped)
	fresh.Whole = slices.DeleteFunc(slices.Clone(m.Whole), dropped)
	fresh.Lack.Of = slices.DeleteFunc(slices.Clone(m.Lack.Of), dropped)
	fresh.Entries = slices.DeleteFunc(slices.Clone(m.Entries), func(e limiter.Entry) bool {
		return dropped(uint16(ik.partition(limiter.Hash(e.Key))))
	})
	return &fresh
}

// staleLocked reports whether a member has held partition p after the sender of m, which says that
// it does.
func (ik *intake) staleLocked(m *Move, p uint16) bool {
	on := ik.right.roll.Load()
	if int(p) >= len(ik.parts.list) || !on.joined() {
		return false
	}
	last := ik.parts.list[p].held
	return last.boot != m.From && m.Term < last.term && on.config.Has(ownership.Boot(last.boot))
}
