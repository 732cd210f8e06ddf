package cluster

import (
	"errors"
	"slices"
	"time"

	"penstock/limiter"
)

// Copies travel in messages to one peer, one after the other: the next is made when the one before
// was taken in, and what was not answered is sent again as it was. So they arrive in order, each
// once, whatever becomes of messages and answers, and a slow peer is sent less: what changes twice
// meanwhile travels once.
//
//  1. If a copy of a partition is wanted, every entry is sent: the table is looked through part by
//     part.
//  2. Every tick, what has changed since is sent, and before it the answers to what was given back.
//  3. If the peer should hold the partition, and has all of it, it is given: this node stops
//     deciding, passes through the table's locks for the last changes, and sends them and the takes
//     of the last two seconds. From then on the peer decides; for the time in between, askers are
//     told to wait a moment.
//
// A look through the table gives way to checks: it works for a seventh of the time (giveWay).
//
// Nothing is lost if either of the two dies in the middle: until the gift is taken its entries stay
// here, and after that the giver is told of every change, until another member has a whole copy.
const (
	// entries in a message: checks on the same line wait until they are taken in
	copiesAtOnce = 250
	copyBytes    = 1 << 19 // and about their size
	// of the table, looked through while partitions.mu and the lock of the book are held
	partsAtOnce   = 64
	keysAtOnce    = 4096    // some 0.2 ms
	copiesWaiting = 1 << 16 // entries waiting for a peer; beyond it all is copied anew
	giftsAtOnce   = 256     // partitions in a gift
	// remembered decisions in a message; a gift with more takes no more partitions
	takenAtOnce    = 4000
	moveTimeout    = 200 * time.Millisecond
	moveTimeoutMax = time.Second // at most, of a peer that is far away (outbox.patience)
	// of what a message takes, so much may be work, and not the way there
	giveWayMost = 5 * time.Millisecond
	// refusedRests is how long a peer is not given again what it has refused, unless it claims it:
	// a gift takes the time of a round trip in which no one decides, and a member that has not
	// heard yet that it should hold a partition claims it as soon as it has.
	refusedRests = time.Second
)

// copier copies and gives partitions to other members. Guarded by partitions.mu.
type copier struct {
	*self
	right    *right
	parts    *partitions
	claims   *claimer
	contacts *contacts
	holder   *holder

	keepers keepers
	moves   uint64 // sequence of the last message about copies
	met     *route // its peers hear what is charged to replicated limits
	// partitions of which others are being told that denials end: they are not given away before
	// that
	parting map[uint16]int
}

// collectLocked sorts what has changed in the table into the outboxes.
func (cp *copier) collectLocked(now limiter.Instant) {
	cp.parts.passes++
	cp.keepers.dropSealedLocked()
	cp.holder.book.Changed(func() {
		cp.holder.table.Changed(now, func(hash uint64, e limiter.Entry) {
			cp.eachCopy(hash, func(c *changes) {
				c.pending = append(c.pending, waitingEntry{e, now})
			})
			if len(e.State) == 0 && cp.parts.list != nil {
				cp.emptiedLocked(cp.partition(hash), waitingEntry{e, now})
			}
		})
	}, func(hash uint64, h limiter.Hold) {
		cp.eachCopy(hash, func(c *changes) { c.addHold(h) })
	})
	cp.collectBackLocked(now)
	for _, p := range cp.keepers.outboxes {
		o := p.out
		o.dropOldBack(now)
		if o.changes.len() > copiesWaiting {
			cp.copyAnewLocked(p)
		}
	}
}

// eachCopy calls f where a change of the key with this hash belongs.
func (cp *copier) eachCopy(hash uint64, f func(*changes)) {
	if cp.parts.list != nil {
		cp.keepers.eachCopy(cp.partition(hash), f)
	}
}

// collectBackLocked sorts what was given back since it was called last into the outboxes. An entry
// that a peer gets may be freer for it, so it is called after the entry was read, and before that
// is sent: a peer that decides next, and is asked for the same once more, knows of it.
func (cp *copier) collectBackLocked(now limiter.Instant) {
	cp.holder.recent.NewlyGivenBack(now, func(x Memory) {
		if cp.parts.list != nil {
			cp.keepers.eachCopy(int(x.Partition),
				func(c *changes) { c.back = append(c.back, waitingMemory{x, now}) })
		}
	})
}

// copyAnewLocked gives up what waits for p. A gift that has begun stays: it will not grow.
func (cp *copier) copyAnewLocked(p *peer) {
	if len(p.out.gift) > 0 {
		return
	}
	for _, e := range p.out.pending {
		p.out.keepEmptied(e)
	}
	p.out.changes, p.out.sealed, p.out.looking, p.out.begun = changes{}, changes{}, false, nil
	p.out.whole, p.out.due, p.out.lent = nil, true, nil
	for i := range cp.parts.list {
		pt := &cp.parts.list[i]
		if s := pt.slotOf(p, true); s != nil {
			s.copied = copyWanted
		}
		if pt.former == p { // what waited was its as well
			cp.keepers.endLocked(p, uint16(i))
			pt.former = nil
		}
	}
}

// takeBackLocked has no copies begin at p that p is not known to have heard of: this node is about
// to hold nothing. Said later, they would come in the place of those of the next holder.
func (cp *copier) takeBackLocked(p *peer) {
	o, last := p.out, new(Move)
	if o.last != nil {
		*last = *o.last // p may be reading that
	}
	begun := memberOf(slices.Concat(last.Begin, o.begun))
	for i := range cp.parts.list {
		pt := &cp.parts.list[i]
		if s := pt.slotOf(p, true); s != nil && pt.state == partHeld && begun(uint16(i)) {
			*s = slot{}
		}
	}
	of := func(e *limiter.Entry) bool { return begun(uint16(cp.partition(limiter.Hash(e.Key)))) }
	o.begun, o.whole = nil, slices.DeleteFunc(o.whole, begun)
	o.pending = slices.DeleteFunc(o.pending, func(e waitingEntry) bool { return of(&e.Entry) })
	if o.last == nil {
		return
	}
	last.Begin, last.Whole = nil, slices.DeleteFunc(slices.Clone(last.Whole), begun)
	last.Entries = slices.DeleteFunc(slices.Clone(last.Entries),
		func(e limiter.Entry) bool { return of(&e) })
	o.last = last
}

// forgetWaitingLocked drops what waits for other members under the secret of before, where it names
// partitions that have other keys now. The entries themselves are here, and are given back as if
// they came from a file.
func (cp *copier) forgetWaitingLocked() {
	for _, p := range cp.keepers.outboxes {
		*p.out = outbox{busy: p.out.busy, due: true, spread: p.out.spread, doubled: p.out.doubled}
	}
}

// startPushesLocked sends to every peer what there is to be said.
func (cp *copier) startPushesLocked() {
	if cp.stopped.Load() {
		return
	}
	now, r := cp.clock.Now(), cp.view.Load()
	for _, p := range cp.keepers.outboxes {
		o := p.out
		if o.waits() && !o.busy && (!p.Open(now) || cp.contacts.detours(now, r, p)) {
			o.busy = true
			cp.clock.AfterFunc(0, func() { cp.push(p) })
		}
	}
}

// push says to p what there is to be said, until there is nothing more or it does not answer. There
// is one push per peer.
func (cp *copier) push(p *peer) {
	for {
		now := cp.clock.Now()
		cp.parts.mu.Lock()
		r := cp.view.Load()
		var m *Move
		if r.has(p) && !cp.stopped.Load() {
			m = cp.composeLocked(now, r, p)
		}
		if m == nil {
			looking := (p.out.looking || p.out.telling) && r.has(p) && !cp.stopped.Load()
			p.out.busy = looking
			cp.parts.mu.Unlock()
			if !looking {
				return
			}
			cp.giveWay(p, now)
			continue
		}
		p.out.last = m
		deadline := now.Add(p.out.patience())
		calls := moveCall(p, deadline, m) // a peer that got it before may be reading m
		// more nobody believes: what has waited for longer counts as younger, so it is stricter
		calls[0].Ask.Move.Age = min(time.Duration(now-p.out.at), mostAge)
		cp.parts.mu.Unlock()

		cp.contacts.Call(calls)
		sent := now
		now = cp.clock.Now()
		if !calls[0].Passed {
			cp.contacts.note(sent, now, p, &calls[0])
		}

		cp.parts.mu.Lock()
		p.out.waited(sent, now, deadline, calls[0].Err)
		p.out.unsure = p.out.unsure || !errors.Is(calls[0].Err, ErrUnsent)
		p.out.busy = cp.answeredLocked(now, p, m, &calls[0])
		again, looking := p.out.busy, p.out.looking
		cp.parts.mu.Unlock()
		if !again {
			return
		}
		if looking {
			cp.giveWay(p, sent)
		}
	}
}

// answeredLocked follows what became of m, which c has brought to p. It reports whether the next
// message, or the same one, should be sent at once, and not by the next tick.
func (cp *copier) answeredLocked(now limiter.Instant, p *peer, m *Move, c *Call) bool {
	o := p.out
	switch a := c.Answer; {
	case m.Secret != cp.view.Load().Secret: // all has been moved since, and m with it
		o.last, o.unsure = nil, false
		return false
	case c.Err == nil && a.Move != nil && a.Move.Applied:
		cp.parts.lentTaken(p, m.Sequence)
		o.last, o.unsure = nil, false
		cp.takenLocked(now, p, m, a.Move)
		return true
	case len(m.Gift) > 0 && !o.unsure: // the gift never got there: that is as good as a refusal
		o.last = nil
		cp.takenLocked(now, p, m, &MoveAnswer{Refused: m.Gift})
		o.ended = slices.Concat(m.End, o.ended)
		o.charges = slices.Concat(m.Charges, o.charges)
		cp.copyAnewLocked(p)
		return false
	case len(m.Gift) > 0 && errors.Is(c.Err, ErrGone): // it may have been taken, and passed on
		o.last, o.unsure = nil, false
		cp.ungiveLocked(p, m)
		return false
	}
	return c.Err != nil && !p.Open(now)
}

// moveCall is a call that says a copy of m to p, in one piece of memory.
func moveCall(p *peer, deadline limiter.Instant, m *Move) []Call {
	one := new(struct {
		calls [1]Call
		ask   Ask
		move  Move
	})
	one.move = *m
	one.ask = Ask{Hop: 1, Deadline: deadline, Move: &one.move}
	one.calls[0] = Call{To: *p.member.Load(), Ask: &one.ask, Deadline: deadline}
	return one.calls[:]
}

// giveWay rests six times as long as has gone by since then: to look through the table, and for
// others to take a message in. Of looks for several peers each rests for all. Copying ahead is in
// no hurry: of a node that joins the holder decides until the copy is whole, and the heir of before
// keeps its own. It rests half as long where no other member has a whole copy: what is held would
// be lost with this node. While a member leaves, all rest as long as they work: it is stopped in a
// few seconds, must have handed over all that it holds by then, and keeps what it gave until there
// is another copy. So does a node that lends copies to a claimer: until that one has them no node
// decides.
func (cp *copier) giveWay(p *peer, since limiter.Instant) {
	now := cp.clock.Now()
	r := cp.view.Load()
	leaves := r != nil && (r.Me().State == StateLeaving ||
		slices.ContainsFunc(r.members, (*peer).leaving))
	rest := time.Duration(6)
	cp.parts.mu.Lock()
	switch {
	case leaves, p.out.lends:
		rest = 1
	case p.out.needed:
		rest = 3
	}
	looks := 0
	for _, p := range cp.keepers.outboxes {
		if p.out.looking {
			looks++
		}
	}
	cp.parts.mu.Unlock()
	cp.net.Wait(now.Add(rest * time.Duration(max(1, looks)) * min(time.Duration(now-since),
		giveWayMost)))
}

// composeLocked makes the next message to p, or none.
func (cp *copier) composeLocked(now limiter.Instant, r *route, p *peer) *Move {
	o := p.out
	if o.last != nil {
		return o.last
	}
	m := Move{From: cp.boot, To: p.boot, ID: cp.id, Term: cp.parts.term, Secret: r.Secret}
	if len(o.gift) == 0 && o.due {
		cp.lookAndSealLocked(now, r, p)
	}
	m.Begin, m.End, o.begun, o.ended = distinct(o.begun), distinct(o.ended), nil, nil
	o.dropEnded(m.End, cp.partition)
	o.at = now
	if o.back = m.addTaken(now, o.back); len(o.back) == 0 {
		m.Entries, o.pending = takeEntries(now, o.pending)
	}
	o.settled = m.addEnds(o.at, o.settled, o.pending)
	if len(o.back)+len(o.pending)+len(o.settled) == 0 {
		o.opened = m.addHolds(o.at, o.opened)
	}
	m.Complete = len(o.back)+len(o.pending)+len(o.settled)+len(o.opened) == 0
	if m.Complete {
		o.taken = m.addTaken(now, o.taken)
	}
	whole := m.Complete && len(o.taken) == 0
	// a gift names its own term, and copies that begin the highest (stale.go)
	if whole && len(o.gift) > 0 && len(m.Begin) == 0 {
		m.Gift, m.Term, m.Epoch, o.gift = o.gift, o.term, o.epoch, nil
	}
	if whole {
		m.Lent, m.Whole, o.lent, o.whole = o.lent, o.whole, nil, nil
		m.Known = cp.parts.wholeOf(m.Whole, m.Lent)
	}
	m.Pass = cp.parts.passes
	if o.telling && o.told == 0 {
		cp.spreadLocked(r) // what is charged so far is in what will be known, and is not told twice
	}
	m.Charges = cp.holder.tell(now, &o.spread)
	copies := len(m.Begin) + len(m.End) + len(m.Lent) + len(m.Whole) + len(m.Entries) + len(m.Holds)
	if copies+len(m.Charges)+len(m.Taken)+len(m.Gift) == 0 {
		return nil
	}
	cp.parts.tellBreaks(now, &m)
	cp.moves++
	m.Sequence = cp.moves
	said := m // mostly there is nothing to say
	return &said
}

// distinct is list without repeats: while a peer does not answer, a copy may begin or end there
// again and again, and a message lists each partition once.
func distinct(list []uint16) []uint16 {
	slices.Sort(list)
	return slices.Compact(list)
}

// lookAndSealLocked looks for what p is to be given next, and seals it once nothing else is on its
// way before it.
func (cp *copier) lookAndSealLocked(now limiter.Instant, r *route, p *peer) {
	o := p.out
	cp.lookLocked(now, p)
	if len(o.pending)+len(o.opened) > 0 || len(o.begun) > 0 || o.looking {
		return
	}
	cp.lentLocked(p)
	o.lends = false
	rests := cp.sealLocked(now, r, p)
	// What came to be wanted during a look waits for the next one.
	o.due = len(o.gift) > 0 || rests || cp.wantsLocked(p)
}
