package cluster

import (
	"slices"

	"penstock/limiter"
)

// A member that lies may say that it holds what another one does, to have the copies of that one
// forgotten or changed. Of partitions that it owns, or is one of the two to own next, it can: it
// may have held them, for after one or two members have come, the holder of before is next. Of
// others it is an outsider, and is not believed where this node knows better:
//
//   - of a partition that this node holds, with the right to decide, no outsider has copies to
//     begin. What an earlier holder has was merged before, and what is in a file comes without a
//     Sequence, and is lent;
//   - the copy of the owner is replaced by no outsider's. If one has held the partition since, for
//     more members have come, it is heard as soon as the owner has said that its copies end, or a
//     configuration has come by which it owns the partition no more: until then the message waits
//     at its sender;
//   - if the owner's copy is whole, it lacks nothing that an outsider has.
//
// The same holds for answers that it says were remembered. Of partitions in which it is believed,
// they answer no take of another (package dedup).

// outsiderLocked reports whether m is of a member that neither owns partition p nor is one of the
// two that own it next.
func (ik *intake) outsiderLocked(r *route, m *Move, p uint16) bool {
	if int(p) >= len(ik.parts.list) || r == nil || r.Ring == nil || !ik.right.roll.Load().joined() {
		return false
	}
	for _, i := range [...]int{r.owner(int(p)), r.heir(int(p)), r.secondHeir(int(p))} {
		if i >= 0 && r.Members[i].Boot == m.From {
			return false
		}
	}
	return true
}

// keepsOwnersLocked reports whether the copy of partition p here is that of a member that owns p
// and keeps the copy up to date.
func (ik *intake) keepsOwnersLocked(r *route, p uint16) bool {
	pt, owner := &ik.parts.list[p], &r.Members[r.owner(int(p))]
	in := ik.inbox[owner.Boot]
	return pt.state == partCopied && pt.copyOf == owner.Boot && in != nil && in.begun[p] &&
		ik.right.roll.Load().has(owner.ID, owner.Boot)
}

// refutedLocked reports whether m is of an outsider, and this node decides for partition p or has a
// whole copy of its owner: so m has nothing to say of p.
func (ik *intake) refutedLocked(r *route, m *Move, p uint16) bool {
	if !ik.outsiderLocked(r, m, p) {
		return false
	}
	pt := &ik.parts.list[p]
	return pt.state == partHeld && ik.right.Deciding() || pt.whole && ik.keepsOwnersLocked(r, p)
}

// forgedLocked reports whether m is of an outsider that says it remembers x, and this node knows
// better. One that was a member before may have given something back until its right ended; such an
// answer admits nothing.
func (ik *intake) forgedLocked(r *route, m *Move, x *Memory) bool {
	return ik.refutedLocked(r, m, x.Partition) &&
		(!x.GivesBack || ik.right.roll.Load().has(m.ID, m.From))
}

// refusesLocked reports whether m is not taken in at all: it begins copies in the place of those of
// an owner, or its sender would know that there are copies of what it does not hold.
func (ik *intake) refusesLocked(r *route, m *Move) bool {
	if m.Sequence != 0 {
		return slices.ContainsFunc(m.Begin, func(p uint16) bool {
			return ik.outsiderLocked(r, m, p) && ik.keepsOwnersLocked(r, p) && !ik.staleLocked(m, p)
		})
	}
	refuted := func(key string) bool {
		return ik.refutedLocked(r, m, uint16(ik.partition(limiter.Hash(key))))
	}
	taken := func(x Memory) bool { return ik.forgedLocked(r, m, &x) }
	return slices.ContainsFunc(m.Taken, taken) || len(m.Lent) == 0 && (slices.ContainsFunc(
		m.Entries, func(e limiter.Entry) bool { return refuted(e.Key) }) ||
		slices.ContainsFunc(m.Holds, func(h HoldCopy) bool { return refuted(h.Key) }))
}
