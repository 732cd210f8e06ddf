package cluster

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"penstock/limiter"
)

// A member that others cannot reach must stop deciding before one of them begins to. So:
//
//   - every member looks at its clock each tick; if much more than a tick has gone by, it was stopped, and whatever it
//     held may be held by others by now: it holds nothing until it has claimed it again (fence);
//   - it asks the others for a sign of life, a few in each tick, one after the other; if for contactLasts it has sent nothing that
//     was answered to more than half of the members that there should be, it is cut off, and does the same: who hears others and
//     is not heard by them is cut off too;
//   - the others take a member for gone if nobody listens at its address any more, or if it was silent for goneAfter: that
//     long ago it was sent something that it has not answered, and no sign of life has come since. That is longer than
//     contactLasts, and by then it has stopped. Who is cut off says so, and that is no such sign: a link may be cut one way only.
//
// What a cut off member answers then is up to the limit's on_partition.
//
// A node asks no more in a large cluster than in a small one. Of more than about a hundred members
// it takes longer than contactLasts to ask them all; so long is what contact lasts there, and
// silence has to last a tenth longer than that: 12.5 ms a member, of a thousand 12.5 s. (To ask
// more often would cost every node some percent of a core; to go by what others have heard would
// not do, for a node that hears all may be heard by nobody.) Processes that die are noticed as
// quickly as ever, and nodes that were stopped by themselves.
const (
	tickEvery    = 100 * time.Millisecond
	stallAfter   = 300 * time.Millisecond
	probeEvery   = 200 * time.Millisecond
	probeTimeout = 400 * time.Millisecond
	contactLasts = 1200 * time.Millisecond
	goneAfter    = 1500 * time.Millisecond
	probesAtOnce = 8
	// forgetAfter is how long a member that vanished counts among those that there should be.
	forgetAfter = 10 * time.Minute
)

// peer is what a node remembers of another one, from View to View while its boot lives.
type peer struct {
	breaker
	id     string
	boot   uint64
	member atomic.Pointer[Member] // as the latest View has it
	heard  atomic.Int64           // Instant of its last sign of life
	sound  atomic.Int64           // and of the last when it was not cut off from most members
	hears  atomic.Int64           // Instant at which it was last sent something that it answered: then it was reached
	left   atomic.Bool            // nobody of this boot listens at its address
	cutOff atomic.Bool            // it has said last that it is cut off from most members
	leaves atomic.Bool            // it has said that it is leaving, whatever the View says: news may be late
	began  atomic.Int64           // Instant of its start, or a little later; 0: it has not said so
	missed atomic.Int64           // Instant at which it was first sent something that it did not answer as one that may decide, since sound; 0: it answers
	ring   atomic.Uint64          // Ring hash of its View, as it has said last
	rival  atomic.Pointer[string] // id of the rival that it has, as it has said last; nil: none
	asked  limiter.Instant        // when it was last probed; guarded by Node.mu, as is all that follows
	came   limiter.Instant        // when a View first named it as ACTIVE
	voter  bool                   // its id was ACTIVE, or may have been, and has not left since: it is missed while it is JOINING, too
	fresh  bool                   // new: the others may not know of it yet, so it does not count among those who make a majority
	asking bool                   // a probe is under way
	silent bool                   // gone, as of the last tick
	out    *outbox                // nil: nothing has been said yet about partitions (Node.outboxLocked)
}

func newPeer(m *Member, now limiter.Instant) *peer {
	p := &peer{id: m.ID, boot: m.Boot}
	p.member.Store(m)
	p.heard.Store(int64(now))
	p.sound.Store(int64(now))
	p.hears.Store(int64(now))
	return p
}

// met notes a sign of life. Of who is cut off from most members it is contact, and no more: what
// that one holds is nobody's by now, and its heirs do not wait for it.
func (p *peer) met(now limiter.Instant, cutOff bool) {
	if int64(now) > p.heard.Load() {
		p.heard.Store(int64(now))
	}
	if p.left.Load() {
		p.left.Store(false)
	}
	if p.cutOff.Load() != cutOff {
		p.cutOff.Store(cutOff)
	}
	if cutOff {
		return
	}
	if int64(now) > p.sound.Load() {
		p.sound.Store(int64(now))
	}
	if p.missed.Load() != 0 {
		p.missed.Store(0)
	}
}

// leaving reports whether p leaves: it has said so itself, or others have.
func (p *peer) leaving() bool { return p.leaves.Load() || p.member.Load().State == StateLeaving }

// reached notes that what was sent at some instant was answered.
func (p *peer) reached(sent limiter.Instant) {
	if int64(sent) > p.hears.Load() {
		p.hears.Store(int64(sent))
	}
}

// miss notes that what was sent at some instant was not answered.
func (p *peer) miss(sent limiter.Instant) { p.missed.CompareAndSwap(0, int64(sent)) }

// gone reports whether p is taken for gone. A node that has not begun to tick does not ask again
// whoever was silent once, so silence says nothing to it; nor to one that was stopped itself.
func (n *Node) gone(now limiter.Instant, p *peer) bool {
	if p.left.Load() {
		return true
	}
	if n.agreed.on {
		return false // a silent member is evicted first
	}
	missed := p.missed.Load()
	return missed != 0 && now > limiter.Instant(missed).Add(time.Duration(n.patience.Load())) &&
		(n.agent.Load() || n.ticked.Load() != 0 && !n.stalled(now))
}

// paceLocked finds out how long contact lasts and silence has to, in a cluster as large as this
// one.
func (n *Node) paceLocked(r *route) (contact time.Duration) {
	members := max(len(r.members)+1, int(n.expected.Load()))
	contact = max(contactLasts, tickEvery*time.Duration(members)/probesAtOnce)
	n.patience.Store(int64(contact + max(goneAfter-contactLasts, contact/10)))
	return contact
}

// stalled reports whether this node has been stopped for so long that it must not decide before its
// next tick.
func (n *Node) stalled(now limiter.Instant) bool {
	ticked := n.ticked.Load()
	return !n.agreed.on && ticked != 0 && now > limiter.Instant(ticked).Add(stallAfter)
}

// fence makes the node hold nothing. What it held it claims again as soon as it may.
func (n *Node) fence() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fenceLocked()
}

// LetGo makes a node that leaves, or whose name is another one's, hold nothing any more, though
// nobody may have taken it over: its heirs will, from their copies.
func (n *Node) LetGo() { n.fence() }

func (n *Node) fenceLocked() {
	if r := n.view.Load(); n.parts == nil || r == nil || n.soloLocked(r) {
		return // nobody could have taken anything over
	}
	n.fences++
	if n.Held() == 0 {
		return
	}
	for p := range n.parts {
		n.dropLocked(p)
		n.dueLocked(&n.parts[p])
	}
	n.stats.Fenced.Add(1)
	n.partLocked(n.view.Load())
}

// tick is the node's pulse.
func (n *Node) tick() {
	now := n.clock.Now()
	n.mu.Lock()
	n.tickLocked(now)
	sweep := n.sweepLocked(now)
	n.mu.Unlock()
	if sweep > 0 {
		n.table.Sweep(now, sweep)
	}
}

func (n *Node) tickLocked(now limiter.Instant) {
	if n.stalled(now) {
		n.fenceLocked()
		n.pardonLocked(now)
		n.resumed = now
	}
	if n.parts != nil { // an agent asks nobody for signs of life, so silence says nothing to it
		n.ticked.Store(int64(now))
	}
	r := n.view.Load()
	if r != nil {
		n.awaitLocked(now, r)
		n.spreadLocked(r)
		n.settleOwedLocked()
	}
	if r != nil && n.parts != nil && !n.soloLocked(r) {
		n.countContactsLocked(now, r)
		if r.Me().State == StateLeaving { // who should get what it holds may be gone, or leave as well, and no View say so in time
			n.retargetLocked(now, r)
		}
		n.probeMissingLocked(now, r)
		n.probeLocked(now, r)
		n.collectLocked(now)
		n.returnLocked(now)
		n.startPushesLocked()
		if n.unsettled {
			n.tendLocked()
		}
		if n.ticks%64 == 0 {
			n.tidyLocked(now)
		}
	} else if r != nil {
		n.probeMissingLocked(now, r)
		n.collectLocked(now)
		n.startPushesLocked()
	}
	n.tendHoldsLocked(now)
	n.tendLeases(now)
	n.denials.Sweep(now)
	n.watches.Sweep(now, n.ticks)
	n.lookBusyLocked()
	n.nextTickLocked(r)
}

// sweepLocked is how many places of the table are to be looked at now: in half a minute every key
// is looked at once, and none waits long for it. It follows what was collected, so what a refund or
// a reset made as good as new is told before it is removed.
func (n *Node) sweepLocked(now limiter.Instant) int {
	elapsed := time.Duration(now - n.swept)
	if elapsed < n.sweepEvery {
		return 0
	}
	n.swept = now
	return max(256, int(int64(n.table.Stats().Slots)*min(elapsed, dozeEvery).Milliseconds()/sweepRound.Milliseconds()))
}

// sweepRound is how long it takes to look at every key.
const sweepRound = 30 * time.Second

// countContactsLocked finds out whether this node is with the majority. Of two equal halves the one
// with the smallest id goes on; of a cluster of two, both do.
func (n *Node) countContactsLocked(now limiter.Instant, r *route) {
	if n.agreed.on {
		n.countAgreedLocked(now, r)
		return
	}
	contact := n.paceLocked(r)
	s, fresh, leaving := newSides(n.id), 0, 0
	if r.Me().State == StateLeaving { // the others do not miss it: it goes on deciding while it reaches those who would take over
		s, leaving = sides{}, 1
	}
	came := r.peers[r.Self].came
	isNew := came == 0 || now < came.Add(freshLasts) // then those who say that they are cut off do not count it
	for i, p := range r.peers {
		if gone := n.gone(now, p); gone != p.silent {
			p.silent, n.unsettled = gone, true // heirs take over, or need not any more
		}
		switch m := &r.Members[i]; {
		case i == r.Self || !p.missable(m):
		case now > limiter.Instant(p.hears.Load()).Add(contact) || isNew && p.cutOff.Load():
			s.miss(m.ID)
		case p.leaves.Load(): // some may have heard so, and not miss it
			leaving++
		case p.fresh || m.State != StateActive:
			fresh++
		default:
			s.reach(m.ID)
		}
	}
	for id, since := range n.lost {
		if now >= since.Add(forgetAfter) {
			delete(n.lost, id)
		} else {
			s.miss(id)
		}
	}
	for _, id := range n.awaited {
		if _, lost := n.lost[id]; !lost && r.Find(id) < 0 {
			s.miss(id)
		}
	}
	n.expected.Store(int32(s.reached + fresh + leaving + s.missed))
	n.knowRivalLocked(now, r, contact, s)
	n.tied.Store(n.Rival() != "")
	minority := s.minority()
	if !minority && fresh > 0 {
		n.acceptFreshLocked(now, r, contact)
	}
	if minority && !n.minority.Swap(true) {
		n.fenceLocked()
	} else if !minority && n.minority.Swap(false) {
		n.resumed = now
		n.tendLocked()
	}
}

// missable reports whether p, which a View names as m, counts as missing when it is not reached:
// who is ACTIVE, and who was before it crashed and is JOINING again. The other side may count it
// the moment it is ACTIVE, and this node is cut off from that news.
func (p *peer) missable(m *Member) bool {
	return m.Role == RoleMember && (m.State == StateActive || m.State == StateJoining && p.voter)
}

// electLocked finds out whether p, which a View names as m, is to be missed while it is JOINING: if
// who had its id before was, and has not left. Who is named before this node is ACTIVE itself may
// have been there for long.
func (n *Node) electLocked(p *peer, m *Member, old *route) {
	before := -1
	if old != nil {
		before = old.Find(m.ID)
	}
	_, lost := n.lost[m.ID]
	switch {
	case m.State == StateActive:
		p.voter = true
	case before < 0:
		p.voter = lost || old == nil || old.Me().State == StateJoining || slices.Contains(n.awaited, m.ID)
	case old.peers[before] != p:
		was := old.peers[before]
		p.voter = was.voter && !was.leaves.Load() && old.Members[before].State != StateLeaving
	}
}

// acceptFreshLocked lets those count who have come, for this node is with the majority, and all
// others of it have heard of them as well: they have said so, or it was long enough ago. Who joins
// those who are cut off is known to nobody else, and never counts as long as they are.
func (n *Node) acceptFreshLocked(now limiter.Instant, r *route, contact time.Duration) {
	known := !slices.ContainsFunc(r.members, func(p *peer) bool {
		return now <= limiter.Instant(p.hears.Load()).Add(contact) && p.ring.Load() != r.RingHash()
	})
	for i, p := range r.peers {
		if p.fresh && r.Members[i].State == StateActive {
			p.fresh = !known && now < p.came.Add(freshLasts)
		}
	}
}

// freshLasts is for how long at most a node that is with the majority waits until others say that
// they know whom it knows. Where Views change all the time, two may never be equal.
const freshLasts = 5 * time.Second

// sides are those who should be there: with whom this node has contact, and with whom it has not.
type sides struct {
	reached, missed int
	here, there     string // the smallest ids of both
}

// newSides has nobody but the node itself.
func newSides(id string) sides { return sides{reached: 1, here: id} }

func (s *sides) reach(id string) {
	if s.reached++; s.here == "" || id < s.here {
		s.here = id
	}
}

func (s *sides) miss(id string) {
	if s.missed++; s.there == "" || id < s.there {
		s.there = id
	}
}

// minority reports whether the node must not decide: it reaches fewer than half, or the half
// without the smallest id; of two, both may.
func (s *sides) minority() bool {
	return s.reached < s.missed || s.reached == s.missed && s.reached > 1 && s.here > s.there
}

// soloLocked reports whether nobody else could hold anything: there is no other member, and none is
// missed.
func (n *Node) soloLocked(r *route) bool {
	return !n.agreed.on && r.alone() && len(n.lost)+len(n.awaited) == 0 && n.rival.Load() == nil
}

// expectLocked notes who has vanished without leaving. That somebody leaves it may have missed in
// the Views, when it has just come itself, and heard from that one: who leaves goes on answering
// for a while.
func (n *Node) expectLocked(now limiter.Instant, v *View, old *route) {
	if old != nil {
		for i, m := range old.Members {
			if p := old.peers[i]; p.missable(&m) && m.ID != n.id && v.Find(m.ID) < 0 && !p.leaves.Load() {
				n.lost[m.ID] = now
			}
		}
	}
	for _, m := range v.Members {
		delete(n.lost, m.ID)
	}
}

// acquaintLocked notes which boots are strangers no more, and which have gone.
func (n *Node) acquaintLocked(now limiter.Instant, r, old *route) {
	for _, m := range r.Members {
		delete(n.strangers, m.Boot)
		delete(n.acquainted, m.Boot)
		delete(n.former, m.Boot)
	}
	if old == nil {
		return
	}
	for i, p := range old.peers {
		if m := &old.Members[i]; m.Role == RoleMember && !r.has(p) && !r.hasBoot(m.Boot) {
			if p.leaves.Load() || m.State == StateLeaving { // it has given away what it held, and only what it says from now on is a sign of life
				p.sound.Store(int64(now.Add(-forgetAfter)))
			}
			n.former[m.Boot] = formerPeer{p, now}
			if id := p.rival.Load(); id != nil && *id != n.id && r.Find(*id) < 0 { // what it held may be held here by now
				n.haveRivalLocked(now, *id)
			}
		}
	}
}

// formerPeer is a member that no View names any more. It may have been declared dead by mistake, or
// while it was stopped, and hold something that it has been given, or has claimed, since it goes
// on.
type formerPeer struct {
	*peer
	since limiter.Instant
}

// bootsOf is which boots of members are in v, as one number.
func bootsOf(v *View) (sum uint64) {
	for _, m := range v.Members {
		if m.Role == RoleMember {
			x := (m.Boot ^ m.Boot>>31) * 0x9e3779b97f4a7c15
			sum += x ^ x>>29
		}
	}
	return sum
}

// knownLocked lists the boots of all members that may hold something, as far as this node knows,
// for a claimer who knows others. Who is cut off tells whoever asks anything of it of those as well
// that are missed: a newcomer may never have heard of them, and must not take over what they hold.
// When that one came says nothing: what this node knows of the others may have come later.
func (n *Node) knownLocked(now limiter.Instant, r *route, missed bool) (boots []uint64) {
	for i, m := range r.Members {
		if m.Role == RoleMember && (i == r.Self || missed || !n.gone(now, r.peers[i])) {
			boots = append(boots, m.Boot)
		}
	}
	for b, f := range n.former {
		if _, lost := n.lost[f.id]; missed && lost {
			boots = append(boots, b)
		}
	}
	for b, since := range n.strangers {
		if now < since.Add(strangerLasts) {
			boots = append(boots, b)
		}
	}
	slices.Sort(boots)
	return boots
}

// strangerLasts is how long a boot that has claimed, or that somebody has told of, and that no View
// has named since, is taken for somebody who may hold something.
const strangerLasts = 10 * time.Second

// probeLocked asks the next few members for a sign of life.
func (n *Node) probeLocked(now limiter.Instant, r *route) {
	every := probeEvery
	if n.calmLocked() {
		every = calmProbeEvery
	}
	for range min(probesAtOnce, len(r.members)) {
		n.probing = (n.probing + 1) % len(r.members)
		if p := r.members[n.probing]; now >= p.asked.Add(every) {
			n.probePeerLocked(now, p)
		}
	}
}

// probeMissingLocked asks the members again for a sign of life that have not answered, or at whose
// address nobody listened.
func (n *Node) probeMissingLocked(now limiter.Instant, r *route) {
	for _, p := range r.members {
		if (p.missed.Load() != 0 || p.left.Load()) && now >= p.asked.Add(probeEvery) {
			n.probePeerLocked(now, p)
		}
	}
}

// pardonLocked forgets who has not answered while this node was stopped itself. That it has reached
// nobody meanwhile says nothing either: else it would take itself for cut off, and admit from its
// shares what the others have used up. It holds nothing, and whether it can reach them it finds out
// as after its start.
func (n *Node) pardonLocked(now limiter.Instant) {
	if r := n.view.Load(); r != nil {
		for _, p := range r.members {
			p.missed.Store(0)
			p.reached(now - 1) // which is not an answer since it goes on
		}
	}
}

func (n *Node) probePeerLocked(now limiter.Instant, p *peer) {
	if p.asking || n.stopped {
		return
	}
	p.asking, p.asked = true, now
	n.clock.AfterFunc(0, func() { n.probe(p) })
}

func (n *Node) probe(p *peer) {
	sent := n.clock.Now()
	deadline := sent.Add(probeTimeout)
	calls := moveCall(p, deadline, &Move{From: n.boot, To: p.boot, ID: n.id, Addr: n.peerAddr(), CutOff: n.minority.Load()})
	n.net.Call(calls)
	now := n.clock.Now()
	n.note(sent, now, p, &calls[0])
	n.mu.Lock()
	defer n.mu.Unlock()
	p.asking = false
	if calls[0].Err == nil && calls[0].Answer.CutOff { // it is asked for nothing else, and knows others
		n.learnWhomLocked(now, n.view.Load(), calls)
	}
}

// note learns from the fate of a call, which was made at sent, whether its peer lives.
func (n *Node) note(sent, now limiter.Instant, p *peer, c *Call) {
	switch {
	case c.Err != nil && now >= c.Deadline && c.Deadline < sent.Add(fairTime):
		// Whoever asks for an answer within microseconds learns nothing of the peer by not getting
		// one.
	case c.Err != nil && now > c.Deadline.Add(tickEvery): // this node was stopped itself
		p.fail(now)
	case c.Err == nil:
		p.met(now, c.Answer.CutOff)
		if c.Answer.CutOff {
			p.miss(sent)
		}
		p.reached(sent)
		p.succeed()
		if p.ring.Load() != c.Answer.RingHash {
			p.ring.Store(c.Answer.RingHash)
		}
		n.toldOfRival(p, c.Answer.Rival)
		if p.leaves.Load() != c.Answer.Leaving {
			p.leaves.Store(c.Answer.Leaving)
		}
		if m := c.Answer.Move; m != nil && m.Up > 0 {
			n.outlived(p, now.Add(-m.Up))
		}
	case errors.Is(c.Err, ErrGone):
		if !p.left.Swap(true) {
			n.mu.Lock()
			n.tendLocked()
			n.mu.Unlock()
		}
		n.isGone(p)
		p.trip(now)
	case errors.Is(c.Err, ErrBroken):
		p.miss(sent)
		n.suspect(now, p)
	default:
		p.miss(sent)
		p.fail(now)
	}
}

// suspect looks at once whether the owner of a key that this node is asked for, without being it,
// is gone.
func (n *Node) suspect(now limiter.Instant, p *peer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.suspectLocked(now, p)
}

func (n *Node) suspectLocked(now limiter.Instant, p *peer) {
	if now >= p.asked.Add(suspectAgain) {
		n.probePeerLocked(now, p)
	}
}

const (
	suspectAgain = 20 * time.Millisecond
	// fairTime is the least that a peer must have had to answer before its silence counts against
	// it.
	fairTime = 100 * time.Millisecond
)
