package cluster

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

// The holder of a partition decides for its keys, and at each instant a partition has one holder.
// A View only says which member should hold it. Views come late, early and in any order, so they
// cannot say which one does.
//
//   - claim.go: a member that should hold a partition asks all others whether one of them does. If
//     none does, it holds the partition from then on. If one does, it gets the partition as a gift.
//   - copy.go: the holder keeps a copy of the entries at its heir, or at the member that should
//     hold the partition. A gift is the end of a copy: the holder stops deciding, and the last
//     changes travel with the right to decide.
//   - agree.go: a member that has lost its right decides nothing, and an evicted one holds nothing.
//
// All this is done by partition, never by key. It costs a check one look at whether its partition
// is held.

// partState is how this node stands to a partition. enterLocked is the only function that changes
// it.
//
//	none   → copied   a copy begins to arrive, or a file has entries of it
//	none   → held     all members have called it free
//	copied → held     all have called it free, or a gift has arrived
//	held   → giving   another member should hold it, and has a whole copy
//	held   → copied   this node has lost its right
//	giving → copied   the gift is taken and this node is its heir, or the gift's fate is unknown
//	giving → none     the gift is taken, and this node is no heir
//	giving → held     the gift is refused
//	copied → none     no holder or claimer needs this copy any longer
type partState uint8

const (
	partNone   partState = iota // nothing of it is kept here
	partCopied                  // entries are kept for the member that holds it, or that claims it
	partHeld                    // this node decides for its keys
	partGiving                  // this node has stopped deciding, and a gift is under way
)

func (s partState) String() string { return [...]string{"none", "copied", "held", "giving"}[s] }

// A part is what a member knows about one partition.
type part struct {
	term   uint64 // no claim and no gift up to this term is accepted any more
	hint   string // id of the member that holds it, as far as is known
	before string // and of the one that has held it before

	slot        // the member that gets copies first
	second slot // … and second (keepers.go)
	// has a whole copy from before, and keeps it until another member has one
	former *peer
	// boot of the holder of the entries here; own boot: this node was; 0: of no one
	copyOf uint64
	held   heldLast // by which boot it was last, as far as is known
	// of copyOf over its table: what is here was found in that pass, or before
	pass   uint64
	lentTo uint64          // boot of the last claimer that has got this copy, as its holder is gone
	lentOf uint64          // boot of the holder of which a whole copy was lent to this node
	lost   limiter.Instant // since when copyOf is not in the View; 0: it is

	// Small fields stand together: there are thousands of parts in each node of the simulator.
	state    partState
	pure     bool // the copy has nothing but what copyOf says, so its entries replace those here
	mixed    bool // since it has begun, another node has said something of it
	restored bool // from a file, and the member that should hold it may not know of it yet
	whole    bool // what is here is all that the holder had, up to its last messages
	gave     bool // whole since this node gave it to copyOf, which has not begun to copy it back
	ended    bool // it is being given, and the taker needs no copy here
	leavings bool // it was forgotten, and the table may not have removed its entries yet
}

// copyState says how much of a partition its copy has.
type copyState uint8

const (
	copyWanted copyState = iota // nothing yet
	copyAgain                   // what has changed; all of it is to be copied once more
	// what has changed, and all if the member says so: it has given the partition to this node
	copyAsked
	copyBegun // what has changed, and the parts of the table that were looked at
	copyWhole // all, with what waits to be sent
	copyTaken // all, and it has said so
)

// holdings are what other goroutines read of the states. A decision reads held under the lock of
// the key's shard in the table. All changes are made under partitions.mu.
type holdings struct {
	held  [ring.Partitions]atomic.Bool // the state is partHeld
	kept  [ring.Partitions]atomic.Bool // the state is not partNone: entries stay in the table
	n     atomic.Int32                 // partitions held
	given atomic.Int32                 // partitions being given away

	passes uint64 // over what has changed in the table (collectLocked); guarded by partitions.mu

	// gone: a member has gone since this node became one, and it may have held anything
	// (bereft.go).
	gone bool
	// answered is the configuration in which all members have answered a claim of this node, if
	// they have: only then does it take gifts in it (acceptsLocked).
	answered *ownership.Configuration
	bereft   atomic.Bool // some of bereftAt is set
	// bereftAt is when a holder began without the counters of the one before; 0: none did.
	bereftAt [ring.Partitions]atomic.Int64
}

// partitions are what this node knows of each partition.
type partitions struct {
	*self
	right *right

	// guards below, and makes SetView one at a time; taken before a lock of the table, never after
	mu   sync.Mutex
	list []part // by partition; nil if this node is not a member
	term uint64 // the highest that was heard of
	// how often this node has had to let go of all that it held, or would have held
	fences    uint64
	unsettled bool // something has changed since the last claim found nothing to claim
	// Instant since when members have been there without a break, this one or those of before
	// (await.go)
	since     atomic.Int64
	leftovers map[uint16]*leftover // by partition (leftovers.go)
	holdings
}

func (ps *partitions) holds(hash uint64) bool { return ps.held[ps.partition(hash)].Load() }

// HoldsPartition is Node.HoldsPartition.
func (ps *partitions) HoldsPartition(p int) bool { return ps.held[p].Load() }

func (ps *partitions) keeps(hash uint64) bool { return ps.kept[ps.partition(hash)].Load() }

// Held is Node.Held.
func (ps *partitions) Held() int {
	held := int(ps.n.Load() + ps.given.Load())
	if r := ps.right.roll.Load(); ps.right.leaves.Load() && r.joined() {
		held++
	}
	return held
}

// enterLocked brings partition p into another state.
func (ps *partitions) enterLocked(p int, to partState) {
	from := ps.list[p].state
	if to == partGiving && from != partHeld || to == partNone && from == partHeld {
		panic(fmt.Sprintf("cluster: partition %d goes from %v to %v", p, from, to))
	}
	ps.list[p].state = to
	if from != partGiving && to == partGiving {
		ps.given.Add(1)
	}
	if held := to == partHeld; ps.held[p].Swap(held) != held {
		ps.stats.Shifted.Add(1)
		if held {
			ps.n.Add(1)
		} else {
			ps.n.Add(-1)
			ps.unsettled = true
		}
	}
	if from == partGiving && to != partGiving {
		ps.given.Add(-1)
	}
	ps.kept[p].Store(to != partNone)
}

// holdLocked begins to decide for p under term.
func (ps *partitions) holdLocked(p int, term uint64) {
	pt := &ps.list[p]
	pt.term = max(pt.term, term)
	pt.before = cmp.Or(pt.hint, pt.before)
	pt.copyOf, pt.hint, pt.lentTo, pt.lost, pt.restored = ps.boot, "", 0, 0, false
	pt.whole, pt.gave, pt.lentOf = true, false, 0
	pt.held = heldLast{boot: ps.boot, term: ps.nextTermLocked()}
	delete(ps.leftovers, uint16(p))
	ps.enterLocked(p, partHeld)
}

// dropLocked stops deciding for p, if this node does. Decisions under way may still be taken. A
// pass through the table's locks after this meets them all (limiter.Table.Changed).
func (ps *partitions) dropLocked(p int) {
	if ps.list[p].state == partHeld {
		ps.enterLocked(p, partCopied)
	}
}

// forgetLocked ends a copy of p. Entries that are from a file as well stay, until the member that
// should hold p has got them.
func (ps *partitions) forgetLocked(p int) {
	if pt := &ps.list[p]; pt.restored {
		pt.copyOf, pt.whole, pt.gave = ps.boot, false, false
		return
	}
	ps.list[p].copyOf, ps.list[p].whole, ps.list[p].gave = 0, false, false
	ps.list[p].lentOf, ps.list[p].leavings = 0, true
	ps.bereftAt[p].Store(0)
	delete(ps.leftovers, uint16(p))
	ps.enterLocked(p, partNone)
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

// holdOwnLocked has a node that is given its View hold what it owns: no other node could.
func (ps *partitions) holdOwnLocked(now limiter.Instant, r *route) {
	for p := range ps.list {
		if r.Ring != nil && r.owner(p) == r.Self && !ps.held[p].Load() {
			ps.beginLocked(now, p, ps.gone)
			ps.holdLocked(p, ps.nextTermLocked())
		}
	}
}

// lostSince is since when r does not have the boot that pt is a copy of.
func (ps *partitions) lostSince(now limiter.Instant, r *route, pt *part) limiter.Instant {
	switch {
	case pt.copyOf == 0 || pt.copyOf == ps.boot || r.hasBoot(pt.copyOf):
		return 0
	case pt.lost != 0:
		return pt.lost
	}
	return now
}

// copyLives is how long a copy is kept after its holder has gone. By then its heirs have asked for
// it.
const copyLives = time.Minute

// tidyLocked lets go of copies that have outlived their holder.
func (ps *partitions) tidyLocked(now limiter.Instant) {
	for p := range ps.list {
		pt := &ps.list[p]
		if pt.lost != 0 && now >= pt.lost.Add(copyLives) && pt.state != partHeld {
			pt.lost = 0
			ps.forgetLocked(p)
		}
	}
}

// emptied reports whether this node may leave: it holds nothing, and of what is copied here the
// holder has another copy, or the copy was lent to the member that takes over. So a crash right
// after this node has left loses no more than one before.
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
			(roll.hasProcess(pt.copyOf) || !roll.hasProcess(pt.lentTo)) {
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
		if hint := ps.list[ps.partition(hash)].hint; hint != "" && hint != ps.id &&
			view.reaches(hint) {
			return hint
		}
	}
	if o := view.Owner(hash); o >= 0 && o != view.Self {
		return view.Members[o].ID
	}
	return ""
}

// formerly is the id of the node that held the key with this hash before it came to this one, as
// far as is known; or empty.
func (ps *partitions) formerly(hash uint64) string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.list == nil {
		return ""
	}
	pt := &ps.list[ps.partition(hash)]
	return cmp.Or(pt.hint, pt.before)
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
