package cluster

import (
	"slices"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// A message about copies may be long on its way, and arrive when another node has held the
// partition and has begun its own copies here. Taken for news, its copy would come in the place of
// those, or be called whole: their holder would go on as if they were, and give the partition away
// to a node that has nothing of it (world 3009999820). All that it brings the later holder has
// had, for it holds the partition by a gift, or because all members have called it free. Terms
// tell the two apart. A node draws one that is higher than all it has heard of before it gives a
// partition away, it hears the highest of all members before it holds one that they have called
// free, and it draws one more when it begins to hold. So a message of a later holder always names a
// higher term than one of an earlier holder that is a member still; and one that lends copies to a
// claimer no lower one, for the claimer has named the highest that it knows. A node that is no
// member any more may have heard of terms that no other node has, and is not asked.

// heldLast says which boot has held a partition, under which term it began to, or to copy it here,
// and, of this node, which boot has given it: 0 if none has.
type heldLast struct {
	boot, term, from uint64
}

// freshLocked is m without copies of partitions that another node has held since m was made, or of
// which its sender is an outsider and this node knows better (outsider.go), but for ends of holds.
func (ik *intake) freshLocked(r *route, m *Move) *Move {
	stale := func(p uint16) bool { return ik.staleLocked(m, p) || ik.refutedLocked(r, m, p) }
	ofStale := func(key string) bool { return stale(uint16(ik.partition(limiter.Hash(key)))) }
	entry := func(e limiter.Entry) bool { return ofStale(e.Key) }
	hold := func(h HoldCopy) bool { return ofStale(h.Key) && !ik.endedBeforeLocked(m, &h) }
	taken := func(x Memory) bool { return ik.forgedLocked(r, m, &x) }
	if !slices.ContainsFunc(m.Begin, stale) && !slices.ContainsFunc(m.Whole, stale) &&
		!slices.ContainsFunc(m.Lent, stale) && !slices.ContainsFunc(m.Lack.Of, stale) &&
		!slices.ContainsFunc(m.Entries, entry) && !slices.ContainsFunc(m.Holds, hold) &&
		!slices.ContainsFunc(m.Taken, taken) {
		return m
	}
	fresh := *m // its sender may go on with m
	for _, list := range []*[]uint16{&fresh.Begin, &fresh.Whole, &fresh.Lent, &fresh.Lack.Of} {
		*list = slices.DeleteFunc(slices.Clone(*list), stale)
	}
	fresh.Entries = slices.DeleteFunc(slices.Clone(m.Entries), entry)
	fresh.Holds = slices.DeleteFunc(slices.Clone(m.Holds), hold)
	fresh.Taken = slices.DeleteFunc(slices.Clone(m.Taken), taken)
	return &fresh
}

// endedBeforeLocked reports whether h has ended at the sender of m, which has held its partition
// before this node: it had told its client so, and was replaced before it could say so here. What h
// has charged is charged once, however often that is said.
func (ik *intake) endedBeforeLocked(m *Move, h *HoldCopy) bool {
	pt := &ik.parts.list[ik.partition(limiter.Hash(h.Key))]
	return h.State != limiter.HoldOpen && pt.state == partHeld && pt.before == m.ID
}

// staleLocked reports whether a member has held partition p after m was made, by another node.
func (ik *intake) staleLocked(m *Move, p uint16) bool {
	on := ik.right.roll.Load()
	if int(p) >= len(ik.parts.list) || !on.joined() {
		return false
	}
	last := ik.parts.list[p].held
	return last.boot != m.From && m.Term < last.term && on.config.Has(ownership.Boot(last.boot))
}
