package cluster

import (
	"slices"
	"time"

	"penstock/cluster/dedup"
	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

// outbox is what is to be said to one peer about partitions. Guarded by partitions.mu.
type outbox struct {
	busy bool // push is at work
	// there may be copies to begin, to complete, to lend or to give: look at all partitions
	due bool
	changes
	// what had changed last of partitions that are being given to another peer: if that refuses
	// them, it belongs in the copies of this one as well
	sealed  changes
	emptied []waitingEntry // as good as never seen, before the copy of their partition has begun
	news
	look
	spread
	gift    []uint16                   // not held any more; to be sent when all else has been
	taken   []waitingMemory            // of the gift, to be sent before it
	term    uint64                     // of the gift
	epoch   ownership.Epoch            // in which it is given
	fences  uint64                     // of the node when it stopped deciding for the gift
	refused map[uint16]limiter.Instant // not to be given before, unless the peer claims it
	last    *Move                      // sent, and not known to be taken in
	at      limiter.Instant            // to which the times in last are relative
	unsure  bool                       // it may have been
	// how often the time for an answer was, since answers came too late
	doubled uint8
}

// changes are what a copy is to be told, in this order.
type changes struct {
	back    []waitingMemory // what was given back: before the entries that it has changed
	pending []waitingEntry  // in the order in which they changed
	// holds that have ended: each travels with the last entry of its key, which has its charge
	settled []limiter.Hold
	opened  []limiter.Hold // holds that have not: they travel after the last
}

// look is how far a look through the table is, for what is copyBegun.
type look struct {
	part    int  // of the table: those before it have been looked through
	looking bool // it is not over
	lends   bool // the peer claims some of what is copied
	needed  bool // no other member has a whole copy of some of it
}

// spread is what is to be said of replicated limits (replica.go).
type spread struct {
	charges []Charge
	known   []waitingEntry // to a peer that has just come
	told    int            // parts of the table that were looked through for that
	telling bool           // there are more
}

// news are partitions to be named by the next messages to a peer.
type news struct {
	begun []uint16 // from then on it gets copies
	ended []uint16 // it need not keep copies any more
	// without a holder: it has got all that this node has, with what waits before it
	lent  []uint16
	whole []uint16 // it has a whole copy, with what waits before it
}

// waitingEntry is an entry as it was at some instant. It may wait for seconds: for answers to what
// was sent before, or for a peer that is silent.
type waitingEntry struct {
	limiter.Entry
	at limiter.Instant
}

// waitingMemory is an answer as old as it was at some instant.
type waitingMemory struct {
	Memory
	at limiter.Instant
}

// memory is x as old as it is by now.
func (x *waitingMemory) memory(now limiter.Instant) Memory {
	m := x.Memory
	m.Age += time.Duration(now - x.at)
	return m
}

// isOld reports whether it is not remembered here any more, so a peer need not hear of it.
func (x *waitingMemory) isOld(now limiter.Instant) bool { return x.memory(now).Age >= dedup.Lasts }

// dropOldBack drops what was given back so long ago that nobody remembers it: a peer that is silent
// for long needs no new copies because of it.
func (o *outbox) dropOldBack(now limiter.Instant) {
	o.back = slices.DeleteFunc(o.back, func(x waitingMemory) bool { return x.isOld(now) })
}

// unheardLocked is what was given back in the partitions wanted and p is not known to have heard
// of, and how many decisions that is. Of a copy that has not begun it is all that is remembered.
func (cp *copier) unheardLocked(
	now limiter.Instant, p *peer, wanted *[ring.Partitions]bool,
) (list []Memory, decisions int) {
	add := func(x waitingMemory) {
		if wanted[x.Partition] && !x.isOld(now) {
			list = append(list, x.memory(now))
			decisions += len(x.Decisions)
		}
	}
	o := cp.keepers.outboxLocked(p)
	if o.last != nil {
		for _, x := range o.last.Taken {
			add(waitingMemory{x, o.at})
		}
	}
	for _, x := range o.back {
		add(x)
	}
	cp.holder.recent.GivenBack(now, func(i uint16) bool {
		pt := &cp.parts.list[i]
		s := pt.slotOf(p, pt.state == partHeld)
		return wanted[i] && s != nil && s.copied == copyWanted
	}, func(x Memory) { add(waitingMemory{x, now}) })
	return list, decisions
}

// keepEmptied keeps e until the copy of its partition begins, if it is as good as never seen.
func (o *outbox) keepEmptied(e waitingEntry) {
	if len(e.State) == 0 && len(o.emptied) < copiesWaiting {
		o.emptied = append(o.emptied, e)
	}
}

func (c *changes) addHold(h limiter.Hold) {
	if h.State == limiter.HoldOpen {
		c.opened = append(c.opened, h)
	} else {
		c.settled = append(c.settled, h)
	}
}

// split takes the changes of some partitions out of c. partition says which one a hash belongs to.
func (c *changes) split(some func(p int) bool, partition func(hash uint64) int) (taken changes) {
	of := func(key string) bool { return some(partition(limiter.Hash(key))) }
	c.back, taken.back = split(c.back, func(x waitingMemory) bool { return some(int(x.Partition)) })
	c.pending, taken.pending = split(c.pending, func(e waitingEntry) bool { return of(e.Key) })
	c.settled, taken.settled = split(c.settled, func(h limiter.Hold) bool { return of(h.Key) })
	c.opened, taken.opened = split(c.opened, func(h limiter.Hold) bool { return of(h.Key) })
	return taken
}

func split[T any](list []T, is func(T) bool) (others, those []T) {
	for _, x := range list {
		if is(x) {
			those = append(those, x)
		} else {
			others = append(others, x)
		}
	}
	return others, those
}

// add adds what has changed later.
func (c *changes) add(later changes) {
	c.back, c.pending = append(c.back, later.back...), append(c.pending, later.pending...)
	c.settled = append(c.settled, later.settled...)
	c.opened = append(c.opened, later.opened...)
}

func (c *changes) len() int { return len(c.back) + len(c.pending) + len(c.settled) + len(c.opened) }

// addEndsOf adds those ends of holds of which the charges are in some entries. An entry that has
// the charge of a hold, and came without its end, would have a member that decides next charge it
// again when the hold runs out. An end without that entry would have it forget the charge.
func (o *outbox) addEndsOf(entries []waitingEntry, ends []limiter.Hold) {
	if len(ends) == 0 || len(entries) == 0 {
		return
	}
	has := keysOf(entries)
	for _, h := range ends {
		if has[h.Key] {
			o.addHold(h)
		}
	}
}

// waits reports whether there is something to be said, or an answer to come.
func (o *outbox) waits() bool {
	return o.due || len(o.ended) > 0 || o.telling || len(o.known)+len(o.charges) > 0 ||
		len(o.back)+len(o.pending) > 0 || len(o.gift) > 0 || o.last != nil ||
		len(o.settled)+len(o.opened) > 0
}

// begin announces copies of partitions. That they were ended may wait to be said still, to a peer
// that did not answer meanwhile: said now, it would have the peer forget what it gets.
func (o *outbox) begin(list []uint16) {
	if len(list) == 0 {
		return
	}
	begun := memberOf(list)
	o.ended, o.whole = slices.DeleteFunc(o.ended, begun), slices.DeleteFunc(o.whole, begun)
	o.begun = append(o.begun, list...)
}

// dropEnded drops what waits of partitions that the peer keeps no more: it forgets them, and what
// came after that would begin another copy, which nobody ends.
func (o *outbox) dropEnded(list []uint16, partition func(hash uint64) int) {
	if len(list) == 0 || len(o.pending)+len(o.settled)+len(o.opened) == 0 {
		return
	}
	ended := memberOf(list)
	of := func(key string) bool { return ended(uint16(partition(limiter.Hash(key)))) }
	ofHold := func(h limiter.Hold) bool { return of(h.Key) }
	o.pending = slices.DeleteFunc(o.pending, func(e waitingEntry) bool { return of(e.Key) })
	o.settled = slices.DeleteFunc(o.settled, ofHold)
	o.opened = slices.DeleteFunc(o.opened, ofHold)
}

// rest keeps a partition from being given before then.
func (o *outbox) rest(i uint16, until limiter.Instant) {
	if o.refused == nil {
		o.refused = make(map[uint16]limiter.Instant)
	}
	o.refused[i] = until
}

// patience is how long an answer is waited for. A message that is sent again is as far on its way
// as the first one was, so on a line with a longer round trip no answer would ever be heard.
func (o *outbox) patience() time.Duration { return min(moveTimeout<<o.doubled, moveTimeoutMax) }

// waited learns from the fate of a message how long to wait for the next answer: longer after none
// has come in time, less long after one has come in half of it.
func (o *outbox) waited(sent, now, deadline limiter.Instant, err error) {
	switch {
	case err != nil && now >= deadline && o.patience() < moveTimeoutMax:
		o.doubled++
	case err == nil && o.doubled > 0 && now-sent < (deadline-sent)/2:
		o.doubled--
	}
}

// takeEntries takes as many entries off a list as travel well at once, as old as they are by now.
// Mostly that is all, and the room is used again.
func takeEntries(
	now limiter.Instant, list []waitingEntry,
) (taken []limiter.Entry, rest []waitingEntry) {
	if len(list) == 0 {
		return nil, list
	}
	n, size := 0, 0
	for ; n < len(list) && n < copiesAtOnce && size < copyBytes; n++ {
		size += len(list[n].Key) + len(list[n].State)
	}
	taken = make([]limiter.Entry, n)
	for i := range taken {
		taken[i] = list[i].Entry
		taken[i].Age = time.Duration(now - list[i].at)
	}
	if n == len(list) && cap(list) <= 4*copiesAtOnce {
		clear(list)
		return taken, list[:0]
	}
	return taken, list[n:]
}

// slot is where a copy of a partition goes.
type slot struct {
	to     *peer
	copied copyState
}

// slotOf is where p stands among the members that get copies of a partition, nil if it is none of
// them. Only a holder keeps a second copy up to date.
func (pt *part) slotOf(p *peer, held bool) *slot {
	switch {
	case pt.to == p:
		return &pt.slot
	case held && pt.second.to == p:
		return &pt.second
	}
	return nil
}

// wholeBeside reports whether a member that answers has a whole copy, beside the one of s.
func (pt *part) wholeBeside(s *slot) bool {
	other := &pt.slot
	if s == other {
		other = &pt.second
	}
	return other.wholeAt() || pt.former != nil && !pt.former.silent
}

// wholeAt reports whether a member that answers has a whole copy.
func (s *slot) wholeAt() bool { return s.to != nil && s.copied == copyTaken && !s.to.silent }

// addHolds takes as many holds off a list as travel well at once, with what was left of them at
// some time.
func (m *Move) addHolds(at limiter.Instant, list []limiter.Hold) (rest []limiter.Hold) {
	n := min(len(list), copiesAtOnce)
	for _, h := range list[:n] {
		m.Holds = append(m.Holds, HoldCopy{h, time.Duration(h.Deadline - at)})
	}
	return list[n:]
}

// addEnds is addHolds for holds that have ended. The end of a hold travels with the last of the
// entries of its key that wait, which has the charge: those of which more entries follow wait too.
func (m *Move) addEnds(
	at limiter.Instant, ends []limiter.Hold, follow []waitingEntry,
) (rest []limiter.Hold) {
	if len(ends) == 0 || len(follow) == 0 {
		return m.addHolds(at, ends)
	}
	waits := keysOf(follow)
	var due []limiter.Hold
	for _, h := range ends {
		if waits[h.Key] {
			rest = append(rest, h)
		} else {
			due = append(due, h)
		}
	}
	return append(m.addHolds(at, due), rest...)
}

func keysOf(list []waitingEntry) map[string]bool {
	keys := make(map[string]bool, len(list))
	for i := range list {
		keys[list[i].Key] = true
	}
	return keys
}

// addTaken takes as many memories off a list as travel well at once. A key that is asked for often
// brings more than a peer would read in one message.
func (m *Move) addTaken(now limiter.Instant, list []waitingMemory) (rest []waitingMemory) {
	n := 0
	for decisions := 0; n < len(list) && decisions < takenAtOnce; n++ {
		decisions += len(list[n].Decisions)
		m.Taken = append(m.Taken, list[n].memory(now))
	}
	return list[n:]
}
