package cluster

import (
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// What a node knew before it was started anew, it knows from a file (package rpc has the form, Table.Save the content). It is
// taken as the copy that an heir has of a holder which is gone: it gives no right to decide, and whoever claims a partition
// gets it first, merged with what others have. If somebody holds the partition already, that one gets it without asking.
//
// So it does not matter which nodes of a cluster come back, in which order, and how old their files are: of what several
// know the more consumed wins. The price is that what was given back or reset while a node was down may come back with it.

// Restore takes over entries that were written so long ago. It must be called before the first SetView. It returns how many
// were in order.
func (n *Node) Restore(age time.Duration, entries []limiter.Entry) (taken int) {
	then := n.clock.Now().Add(-max(0, age))
	for i := range entries {
		e := &entries[i]
		if !n.table.Import(then, e, false) {
			continue
		}
		taken++
		n.holdings.kept[ring.Partition(limiter.Hash(e.Key))].Store(true)
	}
	return taken
}

// adoptLocked makes copies of what was restored, when this node learns that it is a member; others keep nothing of it but
// replicated limits.
func (n *Node) adoptLocked(role Role) {
	for p := range n.holdings.kept {
		switch {
		case !n.holdings.kept[p].Load():
		case role == RoleMember:
			n.parts[p].copyOf, n.parts[p].restored = n.boot, true
			n.restored = true
		default:
			n.holdings.kept[p].Store(false)
		}
	}
}

// returnLocked has who should hold what was restored here get it.
func (n *Node) returnLocked(now limiter.Instant, r *route) {
	if !n.restored || r.Ring == nil {
		return
	}
	n.restored = false
	for i := range n.parts {
		pt := &n.parts[i]
		if !pt.restored {
			continue
		}
		n.restored = true
		owner := r.owner(i)
		if p := r.peers[owner]; owner != r.Self && pt.to == nil && !n.gone(now, p) {
			pt.to, pt.copied = p, copyWanted
			n.dueLocked(pt)
		}
	}
}

// returnedLocked notes that p has got what was restored here of partition i. If it is p that should hold it, this node
// need not keep it any longer.
func (n *Node) returnedLocked(r *route, p *peer, i int) {
	if pt := &n.parts[i]; pt.restored && r.Ring != nil && r.peers[r.owner(i)] == p {
		pt.restored = false
		if pt.copyOf == n.boot && !n.holdings.held[i].Load() && !pt.giving {
			n.forgetLocked(i)
		}
	}
}
