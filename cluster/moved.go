package cluster

import (
	"penstock/limiter"
	"penstock/ring"
)

// The secret of a cluster says in which partition a key is. A node learns it with its first
// configuration, which may be after it has read a file; and it gets another one if its cluster
// gives way to another. Then each key that it knows is in another partition. Such a node holds
// none, so what it has are copies, and it keeps them as if they came from a file: they give it no
// right to decide, and are handed to the members that hold their partitions now.
//
// Takes of the last two seconds stay remembered in the partitions of before: where two clusters
// become one, a take that is repeated within that time may be charged at its new owner once more.

// movesLocked reports whether keys are in other partitions by v than before.
func (rs *restorer) movesLocked(old *route, v *View) bool {
	if old == nil {
		return v.Secret != 0 && v.Me().Role == RoleMember
	}
	return v.Secret != old.Secret && rs.parts.list != nil
}

// moveLocked makes r the route, and finds the partitions of what is in the table and the ledger
// anew.
func (rs *restorer) moveLocked(r *route) {
	if old := rs.view.Load(); old != nil && old.Secret != 0 {
		rs.fileAt, rs.parts.leftovers = 0, nil // what it has is not of its file alone
	}
	rs.holder.table.Discard() // what is not kept must not come back in another partition
	for p := range rs.parts.kept {
		rs.parts.kept[p].Store(true) // or a sweep would remove what is moved
	}
	rs.view.Store(r)
	found := rs.foundLocked()
	if rs.parts.list == nil { // adoptLocked follows
		for p := range found {
			rs.parts.kept[p].Store(found[p])
		}
		return
	}
	whole, lacked := rs.parts.copiedLocked()
	for p := range found {
		pt := &rs.parts.list[p]
		*pt = part{term: pt.term, state: pt.state}
		if !found[p] {
			rs.parts.forgetLocked(p)
			continue
		}
		rs.parts.bereftAt[p].Store(0)
		if lacked != 0 {
			rs.parts.lack(p, lacked)
		}
		rs.adoptOneLocked(p, whole)
	}
}

// foundLocked are the partitions of all that is known here.
func (rs *restorer) foundLocked() (found [ring.Partitions]bool) {
	all := func(uint64) bool { return true }
	now := rs.clock.Now()
	for i := range rs.holder.table.Parts() {
		rs.holder.table.Scan(now, i, all,
			func(hash uint64, _ limiter.Entry) { found[rs.partition(hash)] = true })
	}
	rs.holder.book.Each(all,
		func(hash uint64, _ limiter.Hold) { found[rs.partition(hash)] = true })
	return found
}

// copiedLocked reports whether all copies here are whole, and when counters of one of them were
// forgotten last.
func (ps *partitions) copiedLocked() (whole bool, lacked limiter.Instant) {
	whole = true
	for p := range ps.list {
		if pt := &ps.list[p]; pt.state != partNone {
			whole = whole && pt.whole
			lacked = max(lacked, limiter.Instant(ps.bereftAt[p].Load()))
		}
	}
	return whole, lacked
}
