package cluster

import (
	"slices"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// What a node knew before it was started anew, it knows from a file (package rpc has the form,
// Table.Save the content). It is taken as an heir's copy of a holder that is gone: it gives no
// right to decide, and a member that claims a partition gets it first, merged with what others
// have. If the partition has a holder already, the holder gets it without asking.
//
// So it does not matter which nodes of a cluster come back, in which order, and how old their files
// are: of what several know the more consumed wins. Only a file that says nothing new is not merged
// (outdated.go): it would undo what was given back and reset since.
//
// Holds come back as well, with their deadlines. One that has ended while the node was down is
// known to the node that has decided meanwhile, for limiter.HoldRemembered. If the file is older
// than that, and another member has been up since before it was written, then the cluster was never
// down, and whatever was open is known there or has ended: the file's holds are dropped.
//
// A file is no whole copy: others may have decided since it was written. All files together have
// all that was charged if each was the last of a node that was stopped in order, and none is
// missing. Else, and where counters had been forgotten before, decisions are marked (bereft.go).

// restorer has what a file said be taken by the members that should hold it. Guarded by
// partitions.mu.
type restorer struct {
	*self
	parts    *partitions
	contacts *contacts
	holder   *holder

	restored  bool            // some parts are
	returning bool            // what was restored is being sent to the members that should hold it
	returnAt  limiter.Instant // … and not before then, for some was refused
	// when the holds were written that this node has from a file, if that is long ago; 0: it has
	// none such
	storedAt limiter.Instant

	resumed bool            // there was a file
	written limiter.Instant // when that was
	secret  Secret          // that it names partitions by
	lack    []Lack          // that it has and that are not marked yet
	// written, if that is known and all that was restored is of the file; else 0
	fileAt limiter.Instant
}

// Restore is Node.Restore.
func (rs *restorer) Restore(
	age time.Duration, entries []limiter.Entry, holds []HoldCopy,
) (taken int) {
	now := rs.clock.Now()
	then := now.Add(-max(0, age))
	for i := range entries {
		e := &entries[i]
		if !rs.holder.table.Import(then, e, false) {
			continue
		}
		taken++
		rs.parts.kept[rs.partition(limiter.Hash(e.Key))].Store(true)
	}
	for i := range holds {
		h := holds[i].on(then)
		if !rs.holder.book.Restore(now, &h) {
			continue
		}
		taken++
		rs.parts.kept[rs.partition(limiter.Hash(h.Key))].Store(true)
		if age > limiter.HoldRemembered-restoreLate {
			rs.storedAt = then
		}
	}
	rs.parts.mu.Lock()
	defer rs.parts.mu.Unlock()
	rs.restored = rs.restored || taken > 0
	return taken
}

// resume notes what a file that was written so long ago says of itself.
func (rs *restorer) resume(now limiter.Instant, age time.Duration, h *FileHead) {
	rs.parts.mu.Lock()
	defer rs.parts.mu.Unlock()
	rs.secret, rs.resumed, rs.lack, rs.written = h.Secret, true, h.Lack, now.Add(-max(0, age))
	if age > 0 { // else a clock was set back, and nobody knows when that was
		rs.fileAt = rs.written
	}
	rs.parts.gone = rs.parts.gone || h.Partial
}

// lackLocked marks what the file says was forgotten, once it is known which keys that is: a node
// learns the secret of its cluster with the first configuration.
func (rs *restorer) lackLocked(r *route) {
	if rs.lack == nil || rs.parts.list == nil || r.Secret == 0 && rs.secret != 0 {
		return
	}
	if r.Secret != rs.secret { // another cluster, in which partitions have other keys
		rs.parts.gone = true
	}
	for _, l := range rs.lack {
		for _, p := range l.Of {
			if r.Secret != rs.secret || int(p) >= len(rs.parts.list) {
				continue
			}
			rs.parts.lack(int(p), rs.written.Add(-max(0, l.Age)))
			if rs.parts.list[p].state == partNone { // so it is lent, and its taker hears of that
				rs.adoptOneLocked(int(p), false)
			}
		}
	}
	rs.lack = nil
}

// restoreLate is how long it may take until the node that has decided meanwhile has been met.
const restoreLate = 10 * time.Second

// outlived notes since when p knows of members.
func (rs *restorer) outlived(p *peer, began limiter.Instant) {
	p.began.Store(int64(began))
	if rs.storedAt != 0 && began < rs.storedAt {
		rs.holder.book.Unrestore()
	}
}

// adoptLocked makes copies of what was restored, when this node learns that it is a member; others
// keep nothing of it but replicated limits.
func (rs *restorer) adoptLocked(role Role) {
	rs.restored = false
	if role != RoleMember {
		rs.holder.book.Unrestore()
	}
	for p := range rs.parts.kept {
		switch {
		case !rs.parts.kept[p].Load():
		case role == RoleMember:
			rs.adoptOneLocked(p, false)
		default:
			rs.parts.kept[p].Store(false)
		}
	}
}

// adoptOneLocked makes what is known of a partition a copy that came from a file.
func (rs *restorer) adoptOneLocked(p int, whole bool) {
	pt := &rs.parts.list[p]
	pt.copyOf, pt.restored, pt.whole = rs.boot, true, whole
	rs.parts.enterLocked(p, partCopied)
	rs.restored = true
}

// returnLocked begins to send what was restored to the holders, unless it is at it. A holder merges
// such copies with what it has, whichever node has sent them first. A member that does not hold a
// partition refuses them: it would have one copy more of many, and the next holder might never get
// it.
func (rs *restorer) returnLocked(now limiter.Instant) {
	if rs.restored && !rs.returning && !rs.stopped.Load() && now >= rs.returnAt {
		rs.returning = true
		rs.clock.AfterFunc(0, func() {
			refused := rs.returnRestored()
			rs.parts.mu.Lock()
			rs.returning = false
			if refused {
				rs.returnAt = rs.clock.Now().Add(returnAgain)
			}
			rs.parts.mu.Unlock()
		})
	}
}

// returnAgain is how long after a refusal the next look comes at whether members hold what they
// should.
const returnAgain = 200 * time.Millisecond

// returnRestored reports whether some of it was refused.
func (rs *restorer) returnRestored() bool {
	var refused [ring.Partitions]bool
	any := false
	for {
		r := &returning{secret: rs.view.Load().Secret}
		if r.to, r.fileAt = rs.nextReturn(&refused, &r.mine); r.to == nil {
			return any
		}
		said := r.mine
		if !rs.sendAll(r) {
			return any // the next tick begins again
		}
		for i := range said {
			refused[i] = refused[i] || said[i] && !r.mine[i]
			any = any || refused[i]
		}
		rs.returned(r.to, &r.mine)
	}
}

// returning is what is sent to one member of what was restored.
type returning struct {
	to   *peer
	mine [ring.Partitions]bool // which partitions; those that the member refuses are taken out

	secret Secret          // by which they were found
	fileAt limiter.Instant // restorer.fileAt
	at     limiter.Instant // when what is sent was as it says
}

// sendAll sends all of it, and reports whether it was heard.
func (rs *restorer) sendAll(r *returning) bool {
	var all []uint16
	for i, wanted := range r.mine {
		if wanted {
			all = append(all, uint16(i))
		}
	}
	r.at = rs.clock.Now()
	// First the list alone: entries of what is refused need not be sent.
	if !rs.sendTo(r, &Move{Copying: Copying{Lent: all}}) {
		return false
	}
	wanted := func(hash uint64) bool { return r.mine[rs.partition(hash)] }
	var entries []limiter.Entry
	for i := range rs.holder.table.Parts() {
		r.at = rs.clock.Now()
		rs.holder.table.Scan(r.at, i, wanted,
			func(_ uint64, e limiter.Entry) { entries = append(entries, e) })
		for len(entries) > 0 {
			m := &Move{}
			most := 0
			for size := 0; most < min(len(entries), copiesAtOnce) && size < copyBytes; most++ {
				size += len(entries[most].Key) + len(entries[most].State)
				m.Lent = append(m.Lent, uint16(rs.partition(limiter.Hash(entries[most].Key))))
			}
			if m.Entries = entries[:most]; !rs.sendTo(r, m) {
				return false
			}
			entries = entries[most:]
		}
	}
	r.at = rs.clock.Now()
	for holds := rs.stored(wanted); len(holds) > 0; {
		m := &Move{Copying: Copying{Holds: holds[:min(len(holds), copiesAtOnce)]}}
		for i := range m.Holds {
			m.Lent = append(m.Lent, uint16(rs.partition(limiter.Hash(m.Holds[i].Key))))
		}
		if !rs.sendTo(r, m) {
			return false
		}
		holds = holds[len(m.Holds):]
	}
	return true
}

// sendTo has the member merge what is in m, and reports whether it has, but for what it refuses.
func (rs *restorer) sendTo(r *returning, m *Move) bool {
	now := rs.clock.Now()
	deadline := now.Add(moveTimeout)
	slices.Sort(m.Lent)
	m.From, m.To, m.ID, m.Secret = rs.boot, r.to.boot, rs.id, r.secret
	m.Age, m.Lent = time.Duration(now-r.at), slices.Compact(m.Lent)
	if r.fileAt != 0 {
		m.Stored = time.Duration(now - r.fileAt)
	}
	calls := []Call{{
		To: *r.to.member.Load(), Deadline: deadline,
		Ask: &Ask{Hop: 1, Deadline: deadline, Move: m},
	}}
	rs.net.Call(calls)
	rs.contacts.note(now, rs.clock.Now(), r.to, &calls[0])
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
func (rs *restorer) stored(wanted func(hash uint64) bool) (holds []HoldCopy) {
	now := rs.clock.Now()
	rs.holder.book.Each(wanted, func(_ uint64,
		h limiter.Hold,
	) {
		holds = append(holds, HoldCopy{h, time.Duration(h.Deadline - now)})
	})
	return holds
}

// nextReturn is a member that should hold some of what was restored here and answers, and which
// partitions but those that were refused; nil if there is none.
func (rs *restorer) nextReturn(
	refused, mine *[ring.Partitions]bool,
) (to *peer, fileAt limiter.Instant) {
	rs.parts.mu.Lock()
	defer rs.parts.mu.Unlock()
	r, now := rs.view.Load(), rs.clock.Now()
	if r.Ring == nil || rs.stopped.Load() {
		return nil, 0
	}
	rs.restored = false
	for i := range rs.parts.list {
		if !rs.parts.list[i].restored {
			continue
		}
		rs.restored = true
		owner := r.owner(i)
		p := r.peers[owner]
		unmet := p.began.Load() == 0
		if owner != r.Self && (to == nil ||
			to == p) && !unmet && !p.gone() && !p.Open(now) && !refused[i] {
			to, mine[i] = p, true
		}
	}
	return to, rs.fileAt
}

// returned notes that p has got what was restored here of some partitions. If it is p that should
// hold them, this node need not keep them any longer, unless as its heir.
func (rs *restorer) returned(p *peer, mine *[ring.Partitions]bool) {
	rs.parts.mu.Lock()
	defer rs.parts.mu.Unlock()
	r := rs.view.Load()
	for i := range rs.parts.list {
		pt := &rs.parts.list[i]
		if !mine[i] || !pt.restored || r.Ring == nil || r.peers[r.owner(i)] != p {
			continue
		}
		pt.restored = false
		if pt.copyOf == rs.boot && pt.state < partHeld {
			rs.parts.forgetLocked(i)
		}
	}
}
