package cluster

import (
	"slices"
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

// Holds is Node.Holds.
func (hd *holder) Holds(hash uint64) bool { return hd.parts.holds(hash) && hd.right.Deciding() }

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

// views make the View of what gossip names and what has been agreed. Guarded by partitions.mu.
type views struct {
	agreed *agreement

	hinted   atomic.Pointer[View]     // the members that gossip names
	reviewed *ownership.Configuration // that the View was made of last
	rings    func(ids []string) (*ring.Ring, error)
}

// SetView makes v the View of all requests that begin from now on.
// Where members agree it only says which nodes are there, and where: members and owners are agreed.
func (n *Node) SetView(v *View) {
	n.parts.mu.Lock()
	now := n.clock.Now()
	if !n.right.on {
		n.setViewLocked(now, v)
	} else {
		n.views.hinted.Store(v)
		n.reviewLocked(now)
	}
	n.parts.mu.Unlock()
	n.Membership().electAnew()
	switch leaving := v.Me().State == StateLeaving; {
	case !n.right.on:
	case !leaving:
		n.Membership().Stay()
	case !n.right.leaves.Swap(true):
		n.agreed.agree(0, ownership.Leave{}, ownership.Poll{})
	}
}

// reviewLocked makes the View of what has been agreed, with what gossip says of where members are.
func (n *Node) reviewLocked(now limiter.Instant) {
	v, old := n.views.hinted.Load(), n.view.Load()
	if v == nil {
		return
	}
	roll := n.right.roll.Load()
	if roll.joined() && roll.config != n.views.reviewed {
		n.parts.bereave(n.views.reviewed, roll.config)
		n.views.reviewed = roll.config
	}
	members := slices.Clone(v.Members)
	for i := range members {
		if m := &members[i]; m.Role == RoleMember &&
			(i != v.Self || m.State != StateLeaving || !roll.lonely()) {
			m.State, m.Zone = roll.stateOf(m), roll.zoneOf(m.ID)
		}
	}
	if roll != nil && roll.config != nil {
		for i := range roll.config.Members {
			switch x, k := &roll.config.Members[i], v.Find(roll.config.Members[i].ID); {
			case k < 0:
				members = append(members, n.views.unheardLocked(old, x))
			case !sameProcess(x.Boot, members[k].Boot): // gossip has not heard of its restart, or is ahead
				members[k] = n.views.unheardLocked(old, x)
			}
		}
	}
	if !slices.Equal(members, v.Members) {
		agreed, err := NewViewOn(n.id, members, func(ids []string) (*ring.Ring, error) {
			if old != nil && old.Ring != nil && slices.Equal(old.Ring.Members(), ids) {
				return old.Ring, nil
			}
			return n.views.rings(ids)
		})
		if err != nil {
			return // members that no ring can have
		}
		v = agreed
	}
	if old == nil || !slices.Equal(old.Members, v.Members) {
		n.setViewLocked(now, v)
	} else {
		old.beginLives(now, roll)
		n.claims.tendLocked() // what was not answered in the epoch before may be now
		n.copier.startPushesLocked()
	}
}

// unheardLocked is a member of the configuration of which gossip says nothing, as far as this node
// knows it.
func (vs *views) unheardLocked(old *route, x *ownership.Member) Member {
	if old != nil {
		i := old.Find(x.ID)
		if i >= 0 && sameProcess(x.Boot, old.Members[i].Boot) && old.Members[i].PeerAddr != "" {
			m := old.Members[i]
			m.State, m.Zone = stateOf(x), x.Zone
			return m
		}
	}
	a := vs.agreed
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, heard := a.seats[x.Boot]; heard {
		m := Member{ID: x.ID, Boot: s.process, PeerAddr: s.addr, State: stateOf(x), Zone: x.Zone}
		m.Features = OwnFeatures
		return m
	}
	return Member{
		ID: x.ID, Boot: uint64(x.Boot), State: stateOf(x), Zone: x.Zone,
		Features: OwnFeatures,
	}
}

// setViewLocked makes v the View of all requests that begin from now on.
func (n *Node) setViewLocked(now limiter.Instant, v *View) {
	n.pulse.rouseLocked()
	r := &route{View: v, peers: make([]*peer, len(v.Members))}
	old := n.view.Load()
	for i, k := 0, 0; i < len(v.Members); i++ {
		m := &v.Members[i]
		for old != nil && k < len(old.Members) && old.Members[k].ID < m.ID {
			k++
		}
		if old != nil && k < len(old.Members) && old.Members[k].ID == m.ID &&
			old.Members[k].Boot == m.Boot {
			r.peers[i] = old.peers[k]
			r.peers[i].member.Store(m)
		} else {
			r.peers[i] = newPeer(m, now)
		}
	}
	r.members = r.others()
	r.beginLives(now, n.right.roll.Load())
	if v.Me().State == StateLeaving && (old == nil || old.Me().State != StateLeaving) {
		n.awaits.beside = n.awaits.othersLocked(old)
	}
	n.copier.outboxes = slices.DeleteFunc(n.copier.outboxes,
		func(p *peer) bool { return !r.has(p) })
	n.intake.partFormerLocked(now, r, old)
	n.view.Store(r)
	n.notices.partLocked(r)
	if n.parts.list == nil && v.Me().Role == RoleMember {
		n.parts.list = make([]part, ring.Partitions)
	}
	if old == nil {
		n.restorer.adoptLocked(v.Me().Role)
	}
	n.awaits.awaitLocked(now, r)
	if n.parts.list == nil {
		return
	}
	n.copier.retargetLocked(now, r)
	if !n.right.on {
		n.parts.holdOwnLocked(r)
		return
	}
	n.contacts.countSilentLocked(now, r) // who has come may not be reached
	n.claims.tendLocked()
	n.copier.startPushesLocked()
}

// holdOwnLocked has a node that agrees with nobody hold what it owns: nobody else could.
func (ps *partitions) holdOwnLocked(r *route) {
	for p := range ps.list {
		if r.Ring != nil && r.owner(p) == r.Self && !ps.held[p].Load() {
			ps.holdLocked(p, ps.nextTermLocked())
		}
	}
}

// retargetLocked decides anew who gets copies of what this node holds: the member that should hold
// the partition, or, of what it should hold itself, the heir.
func (cp *copier) retargetLocked(now limiter.Instant, r *route) {
	for p := range cp.parts.list {
		pt := &cp.parts.list[p]
		if pt.second.to != nil && !r.has(pt.second.to) {
			pt.second = slot{}
		}
		if pt.former != nil && !r.has(pt.former) {
			pt.former = nil
		}
		if pt.to != nil && !r.has(pt.to) {
			pt.to = nil
			if pt.giving { // whether it arrived nobody knows: claim it again
				cp.parts.givingLocked(pt, false)
				pt.copyOf = cp.boot
				cp.parts.unsettled = true
			}
		}
		if pt.hint != "" && r.Find(pt.hint) < 0 {
			pt.hint = ""
		}
		pt.lost = cp.parts.lostSince(now, r, pt)
		if !cp.parts.held[p].Load() {
			continue
		}
		cp.retargetPartLocked(r, p)
	}
}

// retargetPartLocked is retargetLocked for one partition, which is held here.
func (cp *copier) retargetPartLocked(r *route, p int) {
	first, second := cp.targets(r, p)
	cp.aimLocked(p, first, second)
	cp.dueLocked(&cp.parts.list[p]) // it may be time to give what has been copied for long
}

// dueLocked has the next pushes to those that get copies of pt look for what is to be done about
// it.
func (cp *copier) dueLocked(pt *part) {
	if pt.to != nil {
		cp.outboxLocked(pt.to).due = true
	}
	if pt.second.to != nil {
		cp.outboxLocked(pt.second.to).due = true
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

// others are the peers that are members, from this node's place in the circle on: so not everybody
// asks the same one first.
func (r *route) others() (others []*peer) {
	for i := 1; i < len(r.peers); i++ {
		if k := (r.Self + i) % len(r.peers); r.Members[k].Role == RoleMember {
			others = append(others, r.peers[k])
		}
	}
	return others
}

// has reports whether p is a peer of this View.
func (r *route) has(p *peer) bool {
	i := r.Find(p.id)
	return i >= 0 && r.peers[i] == p
}

func (r *route) hasBoot(boot uint64) bool {
	for i := range r.Members {
		if r.Members[i].Boot == boot {
			return true
		}
	}
	return false
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
