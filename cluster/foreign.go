package cluster

import (
	"slices"

	"penstock/limiter"
)

// A member that lies may say that it holds what another one does, to have the copies of that one
// forgotten or changed. It can say so of what it owns or is one of the two to own next, for then it
// may have held that: after one or two members have come, the holder of before is next. Of what
// others own it is not believed where this node knows better:
//
//   - of a partition that this node holds, with the right to decide, no other member has copies to
//     begin. What an earlier holder has was merged before, and what is in a file comes beside the
//     order, and lent;
//   - the copy of the owner is replaced by no such member's. If one has held the partition since,
//     for more members have come, it is heard as soon as the owner has said that its copies end, or
//     a configuration has come by which it owns the partition no more: until then the message waits
//     at its sender;
//   - if the owner's copy is whole, nothing that such a member has is lacking in it.

// foreignLocked reports whether partition p is held here, or has a whole copy of its owner here,
// and m is of a member that is not to hold it.
func (ik *intake) foreignLocked(r *route, m *Move, p uint16) bool {
	if !ik.strangeLocked(r, m, p) {
		return false
	}
	pt := &ik.parts.list[p]
	return pt.state == partHeld && ik.right.Deciding() || pt.whole && ik.ownersLocked(r, p)
}

// strangeLocked reports whether m is of a member that neither owns partition p nor is one of the
// two that own it next.
func (ik *intake) strangeLocked(r *route, m *Move, p uint16) bool {
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

// ownersLocked reports whether the owner of partition p is a member that keeps the copy of it here.
func (ik *intake) ownersLocked(r *route, p uint16) bool {
	pt, owner := &ik.parts.list[p], &r.Members[r.owner(int(p))]
	in := ik.inbox[owner.Boot]
	return pt.state == partCopied && pt.copyOf == owner.Boot && in != nil && in.begun[p] &&
		ik.right.roll.Load().has(owner.ID, owner.Boot)
}

// usurpsLocked reports whether m begins copies in the place of those of the owner, or would have it
// confirmed that there are copies of what its sender does not hold.
func (ik *intake) usurpsLocked(r *route, m *Move) bool {
	if m.Sequence != 0 {
		return slices.ContainsFunc(m.Begin, func(p uint16) bool {
			return ik.strangeLocked(r, m, p) && ik.ownersLocked(r, p) && !ik.staleLocked(m, p)
		})
	}
	foreign := func(key string) bool {
		return ik.foreignLocked(r, m, uint16(ik.partition(limiter.Hash(key))))
	}
	return len(m.Lent) == 0 && (slices.ContainsFunc(m.Entries,
		func(e limiter.Entry) bool { return foreign(e.Key) }) ||
		slices.ContainsFunc(m.Holds, func(h HoldCopy) bool { return foreign(h.Key) }))
}
