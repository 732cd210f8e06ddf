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
//
// Holds come back as well, with their deadlines. One that has ended while the node was down is known to who has decided meanwhile,
// for limiter.HoldRemembered. If the file is older than that, and anybody has been up since before it was written, then the cluster was
// never down, and whatever was open is known there or has ended: the file's holds are dropped.

// Restore takes over entries and holds that were written so long ago. It must be called before the first SetView. It returns how
// many were in order.
func (n *Node) Restore(age time.Duration, entries []limiter.Entry, holds []HoldCopy) (taken int) {
	now := n.clock.Now()
	then := now.Add(-max(0, age))
	for i := range entries {
		e := &entries[i]
		if !n.table.Import(then, e, false) {
			continue
		}
		taken++
		n.holdings.kept[ring.Partition(limiter.Hash(e.Key))].Store(true)
	}
	for i := range holds {
		h := holds[i].on(then)
		if !n.book.Restore(now, &h) {
			continue
		}
		taken++
		n.holdings.kept[ring.Partition(limiter.Hash(h.Key))].Store(true)
		if age > limiter.HoldRemembered-restoreLate {
			n.storedAt = then
		}
	}
	return taken
}

// restoreLate is how long it may take until whoever has decided meanwhile has been met.
const restoreLate = 10 * time.Second

// outlived notes since when p has been up.
func (n *Node) outlived(p *peer, began limiter.Instant) {
	p.began.Store(int64(began))
	if n.storedAt != 0 && began < n.storedAt {
		n.book.Unrestore()
	}
}

// adoptLocked makes copies of what was restored, when this node learns that it is a member; others keep nothing of it but
// replicated limits.
func (n *Node) adoptLocked(role Role) {
	if role != RoleMember {
		n.book.Unrestore()
	}
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

// returnLocked begins to send what was restored to who should hold it, unless it is at it. Copies that the receiver gets in this
// way are merged, whatever it holds by then; it need not know who has sent them first.
func (n *Node) returnLocked() {
	if n.restored && !n.returning && !n.stopped {
		n.returning = true
		n.clock.AfterFunc(0, func() {
			n.returnRestored()
			n.mu.Lock()
			n.returning = false
			n.mu.Unlock()
		})
	}
}

func (n *Node) returnRestored() {
	for p, mine := n.nextReturn(); p != nil; p, mine = n.nextReturn() {
		wanted := func(hash uint64) bool { return mine[ring.Partition(hash)] }
		var entries []limiter.Entry
		for i := range n.table.Parts() {
			n.table.Scan(n.clock.Now(), i, wanted, func(_ uint64, e limiter.Entry) { entries = append(entries, e) })
			for len(entries) > 0 {
				most := 0
				for size := 0; most < min(len(entries), copiesAtOnce) && size < copyBytes; most++ {
					size += len(entries[most].Key) + len(entries[most].State)
				}
				if !n.sendCopies(p, entries[:most], nil) {
					return // the next tick begins again
				}
				entries = entries[most:]
			}
		}
		for holds := n.storedFor(p, wanted); len(holds) > 0; {
			most := min(len(holds), copiesAtOnce)
			if !n.sendCopies(p, nil, holds[:most]) {
				return
			}
			holds = holds[most:]
		}
		n.returned(p, &mine)
	}
}

// storedFor are the holds on some keys that p should know of, unless it knows better or not what a hold is.
func (n *Node) storedFor(p *peer, wanted func(hash uint64) bool) (holds []HoldCopy) {
	if p.member.Load().Features&FeatureHolds == 0 {
		return nil
	}
	now := n.clock.Now()
	n.book.Each(wanted, func(_ uint64, h limiter.Hold) { holds = append(holds, HoldCopy{h, time.Duration(h.Deadline - now)}) })
	return holds
}

// nextReturn is a member that should hold some of what was restored here and answers, and which partitions; nil if there is none.
func (n *Node) nextReturn() (to *peer, mine [ring.Partitions]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r, now := n.view.Load(), n.clock.Now()
	if r.Ring == nil || n.stopped {
		return nil, mine
	}
	n.restored = false
	for i := range n.parts {
		if !n.parts[i].restored {
			continue
		}
		n.restored = true
		owner := r.owner(i)
		p := r.peers[owner]
		unmet := p.began.Load() == 0 && r.Members[owner].Features&FeatureHolds != 0
		if owner != r.Self && (to == nil || to == p) && !unmet && !n.gone(now, p) && !p.open(now) {
			to, mine[i] = p, true
		}
	}
	return to, mine
}

// sendCopies has p merge some entries and holds, and reports whether it has.
func (n *Node) sendCopies(p *peer, entries []limiter.Entry, holds []HoldCopy) bool {
	now := n.clock.Now()
	deadline := now.Add(moveTimeout)
	calls := []Call{{
		To: *p.member.Load(), Deadline: deadline,
		Ask: &Ask{Hop: 1, Deadline: deadline, Move: &Move{From: n.boot, To: p.boot, ID: n.id, Entries: entries, Holds: holds}},
	}}
	n.net.Call(calls)
	n.note(now, n.clock.Now(), p, &calls[0])
	return calls[0].Err == nil && calls[0].Answer.Move != nil && calls[0].Answer.Move.Applied
}

// returned notes that p has got what was restored here of some partitions. If it is p that should hold them, this node need not
// keep them any longer, unless as its heir.
func (n *Node) returned(p *peer, mine *[ring.Partitions]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.view.Load()
	for i := range n.parts {
		pt := &n.parts[i]
		if !mine[i] || !pt.restored || r.Ring == nil || r.peers[r.owner(i)] != p {
			continue
		}
		pt.restored = false
		if pt.copyOf == n.boot && !n.holdings.held[i].Load() && !pt.giving {
			n.forgetLocked(i)
		}
	}
}
