package cluster

import (
	"slices"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// What a node knew before it was started anew, it knows from a file (package rpc has the form,
// Table.Save the content). It is taken as the copy that an heir has of a holder which is gone: it
// gives no right to decide, and whoever claims a partition gets it first, merged with what others
// have. If somebody holds the partition already, that one gets it without asking.
//
// So it does not matter which nodes of a cluster come back, in which order, and how old their files
// are: of what several know the more consumed wins. The price is that what was given back or reset
// while a node was down may come back with it.
//
// Holds come back as well, with their deadlines. One that has ended while the node was down is
// known to who has decided meanwhile, for limiter.HoldRemembered. If the file is older than that,
// and anybody has been up since before it was written, then the cluster was never down, and
// whatever was open is known there or has ended: the file's holds are dropped.

// Restore takes over entries and holds that were written so long ago. It must be called before the
// first SetView. It returns how many were in order.
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
	n.mu.Lock()
	defer n.mu.Unlock()
	n.restored = n.restored || taken > 0
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

// adoptLocked makes copies of what was restored, when this node learns that it is a member; others
// keep nothing of it but replicated limits.
func (n *Node) adoptLocked(role Role) {
	n.restored = false
	if role != RoleMember {
		n.book.Unrestore()
	}
	for p := range n.holdings.kept {
		switch {
		case !n.holdings.kept[p].Load():
		case role == RoleMember:
			n.parts[p].copyOf, n.parts[p].restored, n.parts[p].whole = n.boot, true, true
			n.restored = true
		default:
			n.holdings.kept[p].Store(false)
		}
	}
}

// unheldLocked lists those of some partitions that this node does not hold.
func (n *Node) unheldLocked(parts []uint16) (unheld []uint16) {
	for _, p := range parts {
		if int(p) >= len(n.parts) || !n.holdings.held[p].Load() {
			unheld = append(unheld, p)
		}
	}
	return unheld
}

// returnLocked begins to send what was restored to who holds it, unless it is at it. Copies that
// the receiver gets in this way are merged with what it has; it need not know who has sent them
// first. Who does not hold a partition refuses them: it would have one copy more of many, and
// whoever holds it then might never get it.
func (n *Node) returnLocked(now limiter.Instant) {
	if n.restored && !n.returning && !n.stopped && now >= n.returnAt {
		n.returning = true
		n.clock.AfterFunc(0, func() {
			refused := n.returnRestored()
			n.mu.Lock()
			n.returning = false
			if refused {
				n.returnAt = n.clock.Now().Add(returnAgain)
			}
			n.mu.Unlock()
		})
	}
}

// returnAgain is how long after a refusal the next look is whether who should hold something does.
const returnAgain = 200 * time.Millisecond

// returnRestored reports whether some of it was refused.
func (n *Node) returnRestored() bool {
	var refused [ring.Partitions]bool
	any := false
	for {
		r := &returning{Node: n}
		if r.to = n.nextReturn(&refused, &r.mine); r.to == nil {
			return any
		}
		said := r.mine
		if !r.all() {
			return any // the next tick begins again
		}
		for i := range said {
			refused[i] = refused[i] || said[i] && !r.mine[i]
			any = any || refused[i]
		}
		n.returned(r.to, &r.mine)
	}
}

// returning is what is sent to one member of what was restored.
type returning struct {
	*Node
	to   *peer
	mine [ring.Partitions]bool // which partitions; those that the member refuses are taken out
	at   limiter.Instant       // when what is sent was as it says
}

// all sends all of it, and reports whether it was heard.
func (r *returning) all() bool {
	var all []uint16
	for i, wanted := range r.mine {
		if wanted {
			all = append(all, uint16(i))
		}
	}
	r.at = r.clock.Now()
	if !r.send(&Move{Lent: all}) { // so what is refused need not be sent first
		return false
	}
	wanted := func(hash uint64) bool { return r.mine[ring.Partition(hash)] }
	var entries []limiter.Entry
	for i := range r.table.Parts() {
		r.at = r.clock.Now()
		r.table.Scan(r.at, i, wanted, func(_ uint64, e limiter.Entry) { entries = append(entries, e) })
		for len(entries) > 0 {
			m := &Move{}
			most := 0
			for size := 0; most < min(len(entries), copiesAtOnce) && size < copyBytes; most++ {
				size += len(entries[most].Key) + len(entries[most].State)
				m.Lent = append(m.Lent, uint16(ring.Partition(limiter.Hash(entries[most].Key))))
			}
			if m.Entries = entries[:most]; !r.send(m) {
				return false
			}
			entries = entries[most:]
		}
	}
	r.at = r.clock.Now()
	for holds := r.stored(wanted); len(holds) > 0; {
		m := &Move{Holds: holds[:min(len(holds), copiesAtOnce)]}
		for i := range m.Holds {
			m.Lent = append(m.Lent, uint16(ring.Partition(limiter.Hash(m.Holds[i].Key))))
		}
		if !r.send(m) {
			return false
		}
		holds = holds[len(m.Holds):]
	}
	return true
}

// send has the member merge what is in m, and reports whether it has, but for what it refuses.
func (r *returning) send(m *Move) bool {
	n, now := r.Node, r.clock.Now()
	deadline := now.Add(moveTimeout)
	slices.Sort(m.Lent)
	m.From, m.To, m.ID, m.Age, m.Lent = n.boot, r.to.boot, n.id, time.Duration(now-r.at), slices.Compact(m.Lent)
	calls := []Call{{To: *r.to.member.Load(), Deadline: deadline, Ask: &Ask{Hop: 1, Deadline: deadline, Move: m}}}
	n.net.Call(calls)
	n.note(now, n.clock.Now(), r.to, &calls[0])
	if calls[0].Err != nil || calls[0].Answer.Move == nil || !calls[0].Answer.Move.Applied {
		return false
	}
	for _, i := range calls[0].Answer.Move.Refused {
		if int(i) < len(r.mine) {
			r.mine[i] = false
		}
	}
	return true
}

// stored are the holds on some keys.
func (n *Node) stored(wanted func(hash uint64) bool) (holds []HoldCopy) {
	now := n.clock.Now()
	n.book.Each(wanted, func(_ uint64, h limiter.Hold) { holds = append(holds, HoldCopy{h, time.Duration(h.Deadline - now)}) })
	return holds
}

// nextReturn is a member that should hold some of what was restored here and answers, and which
// partitions but those that were refused; nil if there is none.
func (n *Node) nextReturn(refused, mine *[ring.Partitions]bool) (to *peer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r, now := n.view.Load(), n.clock.Now()
	if r.Ring == nil || n.stopped {
		return nil
	}
	n.restored = false
	for i := range n.parts {
		if !n.parts[i].restored {
			continue
		}
		n.restored = true
		owner := r.owner(i)
		p := r.peers[owner]
		unmet := p.began.Load() == 0
		if owner != r.Self && (to == nil || to == p) && !unmet && !p.gone() && !p.open(now) && !refused[i] {
			to, mine[i] = p, true
		}
	}
	return to
}

// returned notes that p has got what was restored here of some partitions. If it is p that should
// hold them, this node need not keep them any longer, unless as its heir.
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
