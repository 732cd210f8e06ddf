package cluster

import (
	"sync"
	"sync/atomic"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

// Who decides for a key is not who a View says, but who holds its partition; and of those there is
// one at a time. Views only say who should. They come late, early and in any order, so they cannot
// say who does.
//
// 	claim.go    a member that should hold a partition asks all others whether somebody does. If
//              nobody does, it holds
//	            it from then on; if somebody does, it gets it as a gift.
// 	copy.go     who holds a partition keeps a copy of its entries at its heir, or at the member
//              that should hold it. A
// 	            gift is the end of a copy: the holder stops deciding, and the last changes travel
// 	            with the right to
//	            decide.
// 	agree.go    whoever has not the right to decide any more decides nothing, and who was evicted
//              holds nothing.
//
// All this is done by partition, never by key, and costs a check nothing but the look whether its
// partition is held.

// A part is what a member knows about one partition.
type part struct {
	term uint64 // no claim and no gift up to this term is accepted any more
	// boot of the holder whose entries are copied here; own boot: this node held it itself; 0: of
	// nobody
	copyOf uint64
	hint   string // id of the node that holds it, as far as is known

	slot        // who gets copies first
	second slot // … and second (keepers.go)
	// who has a whole copy from before, and may forget it as soon as another one has one
	former *peer
	// of the holder that copyOf names, over its table: what is here is from that one, or earlier
	// ones
	pass uint64
	// boot of the last claimer that has got the copy of a partition whose holder is gone
	lentTo uint64
	lost   limiter.Instant // since when the holder that copyOf names is not in the View; 0: it is

	// What is small stands together: there are thousands of parts, in each of a thousand nodes of
	// the simulator.
	giving bool // not held any more, and not yet taken: a gift is under way to whom it is copied
	// nothing but what that holder says is in the copy, so what it says replaces it; else they are
	// merged
	pure     bool
	restored bool // from a file, and who should hold it may not know of it yet
	whole    bool // what is here is all that the holder had, up to its last messages
	// whole, since this node gave it to the holder that copyOf names, which has not begun to copy
	// it back
	gave bool
}

// copyState says how much of a partition its copy has.
type copyState uint8

const (
	copyWanted copyState = iota // nothing yet
	copyBegun                   // what has changed, and the parts of the table that were looked at
	copyWhole                   // all, with what waits to be sent
	copyTaken                   // all, and it has said so
)

// holdings say what this node holds. Whoever decides reads held under the lock of the key's shard
// in the table, and without a lock else; all changes are made under Node.mu.
type holdings struct {
	held [ring.Partitions]atomic.Bool
	// held, copied or being given away: its entries stay in the table
	kept [ring.Partitions]atomic.Bool
	n    atomic.Int32 // held

	given atomic.Int32 // being given away

	passes uint64 // over what has changed in the table (collectLocked); guarded by Node.mu

	// a member has gone since this node became one, and it may have held anything (bereft.go)
	gone bool
	// answered is the configuration in which all members have answered a claim of this node, if
	// they have: only then does it take gifts in it (acceptsLocked).
	answered *ownership.Configuration
	bereft   atomic.Bool // some of bereftAt is set
	// Instant at which somebody began to hold it with nothing, though something was forgotten; 0:
	// nobody did
	bereftAt [ring.Partitions]atomic.Int64
}

// partitions are what this node knows of each partition.
type partitions struct {
	*self
	right   *right
	copier  *copier
	notices *notices

	// guards below, and makes SetView one at a time; taken before a lock of the table, never after
	mu   sync.Mutex
	list []part // by partition; nil if this node is no member
	term uint64 // the highest that was heard of
	// how often this node has had to let go of all that it held, or would have held
	fences    uint64
	unsettled bool // something has changed since the last claim found nothing to claim
	holdings
}

func (ps *partitions) holds(hash uint64) bool { return ps.held[ring.Partition(hash)].Load() }

// HoldsPartition is Node.HoldsPartition.
func (ps *partitions) HoldsPartition(p int) bool { return ps.held[p].Load() }

func (ps *partitions) keeps(hash uint64) bool { return ps.kept[ring.Partition(hash)].Load() }

// Held is Node.Held.
func (ps *partitions) Held() int {
	held := int(ps.n.Load() + ps.given.Load())
	if r := ps.right.roll.Load(); ps.right.leaves.Load() && r.joined() {
		held++
	}
	return held
}

// holdLocked begins to decide for p under term.
func (ps *partitions) holdLocked(p int, term uint64) {
	pt := &ps.list[p]
	pt.term = max(pt.term, term)
	ps.givingLocked(pt, false)
	pt.copyOf, pt.hint, pt.lentTo, pt.lost, pt.restored = ps.boot, "", 0, 0, false
	pt.whole, pt.gave = true, false
	if !ps.held[p].Swap(true) {
		ps.n.Add(1)
	}
	ps.kept[p].Store(true)
}

// dropLocked stops deciding for p. Decisions under way may still be taken; who has to know them all
// passes through the table's locks after this (limiter.Table.Changed).
func (ps *partitions) dropLocked(p int) {
	if ps.held[p].Swap(false) {
		ps.n.Add(-1)
		ps.unsettled = true
	}
}

// givingLocked notes whether a partition is under way to somebody.
func (ps *partitions) givingLocked(pt *part, giving bool) {
	switch {
	case giving && !pt.giving:
		ps.given.Add(1)
	case !giving && pt.giving:
		ps.given.Add(-1)
	}
	pt.giving = giving
}

// forgetLocked lets go of the entries of p.
func (ps *partitions) forgetLocked(p int) {
	ps.list[p].copyOf, ps.list[p].whole, ps.list[p].gave = 0, false, false
	ps.bereftAt[p].Store(0)
	ps.kept[p].Store(false)
}

// A term is a count and, in its low bits, a part of the boot that drew it. The count grows by one
// with each claim, and a node that hears of a higher one goes on from there. A thousand claims a
// second raise it by 2^32 in fifty days.
const (
	termBits = 24
	// maxTermJump is how many counts a member may be ahead of what this node has heard of. More is
	// no term of this protocol: a single message must not use up the counts that there are.
	maxTermJump = 1 << 32
	maxTerm     = 1<<(64-termBits) - 1 // the highest count
)

// nextTermLocked is a term higher than all that were heard of, and no other node's: its low bits
// are of the boot. There is none above the highest; it stays there.
func (ps *partitions) nextTermLocked() uint64 {
	ps.term = min(ps.term>>termBits+1, maxTerm)<<termBits | ps.boot&(1<<termBits-1)
	return ps.term
}

// heardLocked goes on from a term that a member has named. It reports false, and does not, if the
// member cannot have come by it.
func (ps *partitions) heardLocked(term uint64) bool {
	if term>>termBits > ps.term>>termBits+maxTermJump {
		return false
	}
	ps.term = max(ps.term, term)
	return true
}

// holdOwnLocked has a node that agrees with nobody hold what it owns: nobody else could.
func (ps *partitions) holdOwnLocked(r *route) {
	for p := range ps.list {
		if r.Ring != nil && r.owner(p) == r.Self && !ps.held[p].Load() {
			ps.holdLocked(p, ps.nextTermLocked())
		}
	}
}

// lostSince is since when nobody in r is the boot that pt is a copy of.
func (ps *partitions) lostSince(now limiter.Instant, r *route, pt *part) limiter.Instant {
	switch {
	case pt.copyOf == 0 || pt.copyOf == ps.boot || r.hasBoot(pt.copyOf):
		return 0
	case pt.lost != 0:
		return pt.lost
	}
	return now
}

// copyLives is how long a copy is kept whose holder is gone. By then its heirs have asked for it.
const copyLives = time.Minute

// tidyLocked lets go of copies that have outlived their holder.
func (ps *partitions) tidyLocked(now limiter.Instant) {
	for p := range ps.list {
		pt := &ps.list[p]
		if pt.lost != 0 && now >= pt.lost.Add(copyLives) && !ps.held[p].Load() {
			pt.lost = 0
			ps.forgetLocked(p)
		}
	}
}

// fence makes the node hold nothing. What it held it claims again as soon as it may.
func (ps *partitions) fence() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.fenceLocked()
}

func (ps *partitions) fenceLocked() {
	if r := ps.view.Load(); ps.list == nil || r == nil || !ps.right.on {
		return // nobody could have taken anything over
	}
	ps.fences++
	if ps.Held() == 0 {
		return
	}
	for p := range ps.list {
		ps.dropLocked(p)
		ps.copier.dueLocked(&ps.list[p])
	}
	ps.stats.Fenced.Add(1)
	ps.notices.partLocked(ps.view.Load())
}

// emptied reports whether this node may leave: it holds nothing, and whoever holds what is copied
// here has another copy, or it was lent to whom takes it over. So a crash right after it has left
// loses no more than one before.
func (ps *partitions) emptied() bool {
	if ps.n.Load()+ps.given.Load() > 0 {
		return false
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	roll := ps.right.roll.Load()
	for p := range ps.list {
		pt := &ps.list[p]
		if pt.copyOf != 0 && pt.copyOf != ps.boot &&
			(pt.lentTo == 0 || roll.hasProcess(pt.copyOf)) {
			return false
		}
	}
	return true
}

// whereabouts is the id of the node that holds the key with this hash, as far as this one knows
// without holding it; or empty. A node that was said to hold it and is gone holds nothing: then it
// is the owner, which takes it over.
func (ps *partitions) whereabouts(view *route, hash uint64) string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.list != nil {
		if hint := ps.list[ring.Partition(hash)].hint; hint != "" && hint != ps.id &&
			view.reaches(hint) {
			return hint
		}
	}
	if o := view.Owner(hash); o >= 0 && o != view.Self {
		return view.Members[o].ID
	}
	return ""
}

// unheldLocked lists those of some partitions that this node does not hold.
func (ps *partitions) unheldLocked(parts []uint16) (unheld []uint16) {
	for _, p := range parts {
		if int(p) >= len(ps.list) || !ps.held[p].Load() {
			unheld = append(unheld, p)
		}
	}
	return unheld
}
