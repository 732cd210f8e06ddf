package cluster

import (
	"errors"
	"sync/atomic"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// Who has the right to decide is agreed (agree.go). What a node finds out by itself is who answers
// it:
//
//   - it asks the others for a sign of life, a few in each tick, one after the other;
//   - who does not answer gets no copies for as long, and another member gets them;
//   - where nobody listens at an address any more the process is gone: its heirs need not wait
//     until it is evicted, which this node then demands (isGone).
//
// A node asks no more in a large cluster than in a small one.
const (
	tickEvery    = 100 * time.Millisecond
	probeEvery   = 200 * time.Millisecond
	probeTimeout = 400 * time.Millisecond
	probesAtOnce = 8
	// formerLasts is how long a node knows members that are none any more: who leaves goes on
	// saying what it has charged.
	formerLasts = 10 * time.Minute
)

// contacts find out which members answer. Guarded by partitions.mu.
type contacts struct {
	*self
	right    *right
	agreed   *agreement
	parts    *partitions
	copier   *copier
	claims   *claimer
	restorer *restorer
	pulse    *pulse

	probing int             // index in route.members of the member that was probed last
	healed  limiter.Instant // when this node was last cut off no more
}

// peer is what a node remembers of another one, from View to View while its boot lives.
type peer struct {
	breaker
	id     string
	boot   uint64
	member atomic.Pointer[Member] // as the latest View has it
	heard  atomic.Int64           // Instant of its last sign of life
	left   atomic.Bool            // nobody of this boot listens at its address
	// it has said that it is leaving, whatever the View says: news may be late
	leaves atomic.Bool
	// Instant of its start, or a little later; 0: it has not said so
	began atomic.Int64
	// Instant at which it was first sent something that it did not answer as one that may decide,
	// since it last did; 0: it answers
	missed atomic.Int64
	// when it was last probed; guarded by Node.mu, as is all that follows
	asked  limiter.Instant
	asking bool           // a probe is under way
	silent bool           // it has not answered for heirAnswers, as of the last tick
	quits  bool           // it leaves, as of the last tick
	life   ownership.Boot // of its process, in the configuration
	// it has not answered for two seconds (ownership.Params.Mass), and the agreement was told so
	unreached bool
	claimed   claimed // its claims in the latest epoch
	// nil: nothing has been said yet about partitions (Node.outboxLocked)
	out *outbox
}

func newPeer(m *Member, now limiter.Instant) *peer {
	p := &peer{id: m.ID, boot: m.Boot}
	p.member.Store(m)
	p.heard.Store(int64(now))
	return p
}

// met notes a sign of life.
func (p *peer) met(now limiter.Instant) {
	if int64(now) > p.heard.Load() {
		p.heard.Store(int64(now))
	}
	if p.left.Load() {
		p.left.Store(false)
	}
}

// answered notes that p has answered what was sent at some instant. One that is cut off from most
// members is missed nevertheless, as is one that is heard and does not answer: they take no copies.
func (p *peer) answered(sent, now limiter.Instant, cutOff bool) {
	p.met(now)
	switch {
	case cutOff:
		p.miss(sent)
	case p.missed.Load() != 0:
		p.missed.Store(0)
	}
}

// beginLives has members of new boots be missed from now on, if their process is.
func (r *route) beginLives(now limiter.Instant, roll *roll) {
	for _, p := range r.peers {
		m, found := roll.member(p.id)
		if !found || m.Boot == p.life {
			continue
		}
		p.life = m.Boot
		if p.missed.Load() != 0 {
			p.missed.Store(int64(now))
		}
	}
}

// leaving reports whether p leaves: it has said so itself, or others have.
func (p *peer) leaving() bool { return p.leaves.Load() || p.member.Load().State == StateLeaving }

// miss notes that what was sent at some instant was not answered.
func (p *peer) miss(sent limiter.Instant) { p.missed.CompareAndSwap(0, int64(sent)) }

// gone reports whether the process of p exists no more: its machine says so. One that is silent is
// evicted before others hold what it held.
func (p *peer) gone() bool { return p.left.Load() }

// fence makes the node hold nothing. What it held it claims again as soon as it may.
func (ps *partitions) fence() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.fenceLocked()
}

// Relinquish makes a node that leaves, or whose name is another one's, hold nothing any more,
// though nobody may have taken it over: its heirs will, from their copies.
func (n *Node) Relinquish() { n.parts.fence() }

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

// tick is the node's pulse.
func (n *Node) tick() {
	now := n.clock.Now()
	n.parts.mu.Lock()
	n.tickLocked(now)
	sweep := n.pulse.sweepLocked(now)
	n.parts.mu.Unlock()
	if sweep > 0 {
		n.holder.table.Sweep(now, sweep)
	}
}

func (n *Node) tickLocked(now limiter.Instant) {
	r := n.view.Load()
	if r != nil {
		n.awaits.awaitLocked(now, r)
		n.copier.spreadLocked(r)
		n.debts.chargeDebtsLocked()
		n.contacts.probeMissingLocked(now, r)
		if n.right.on {
			n.keepCopiesLocked(now, r)
		}
		n.copier.collectLocked(now)
		n.copier.startPushesLocked()
	}
	n.holder.tendHoldsLocked(now)
	n.local.tendLeases(now)
	n.local.denials.Sweep(now)
	n.notices.watches.Sweep(now, n.pulse.ticks)
	n.pulse.lookBusyLocked()
	n.pulse.nextTickLocked(n.mayDozeLocked(r))
}

// keepCopiesLocked looks who answers, and what is to be copied, claimed, given back or forgotten.
func (n *Node) keepCopiesLocked(now limiter.Instant, r *route) {
	n.contacts.countSilentLocked(now, r)
	n.contacts.probeLocked(now, r)
	n.restorer.returnLocked(now)
	if n.parts.unsettled {
		n.claims.tendLocked()
	}
	if n.pulse.ticks%64 == 0 {
		n.intake.forgetFormerLocked(now)
		n.parts.tidyLocked(now)
	}
}

// sweepLocked is how many places of the table are to be looked at now: in half a minute every key
// is looked at once, and none waits long for it. It follows what was collected, so what a refund or
// a reset made as good as new is told before it is removed.
func (pl *pulse) sweepLocked(now limiter.Instant) int {
	elapsed := time.Duration(now - pl.swept)
	if elapsed < pl.sweepEvery {
		return 0
	}
	pl.swept = now
	return max(256, int(int64(pl.holder.table.Stats().Slots)*min(elapsed,
		dozeEvery).Milliseconds()/sweepRound.Milliseconds()))
}

// sweepRound is how long it takes to look at every key.
const sweepRound = 30 * time.Second

// partFormerLocked notes which boots of members the View names no more.
func (ik *intake) partFormerLocked(now limiter.Instant, r, old *route) {
	for _, m := range r.Members {
		delete(ik.former, m.Boot)
	}
	if old == nil {
		return
	}
	for i, p := range old.peers {
		if m := &old.Members[i]; m.Role == RoleMember && !r.has(p) && !r.hasBoot(m.Boot) {
			ik.former[m.Boot] = formerPeer{p, now}
		}
	}
}

// forgetFormerLocked ends what is remembered of boots that the View has not named for long.
func (ik *intake) forgetFormerLocked(now limiter.Instant) {
	for boot, f := range ik.former {
		if now >= f.since.Add(formerLasts) {
			delete(ik.former, boot)
			delete(ik.inbox, boot)
		}
	}
}

// formerPeer is a member that the View names no more.
type formerPeer struct {
	*peer
	since limiter.Instant
}

// probeLocked asks the next few members for a sign of life.
func (ct *contacts) probeLocked(now limiter.Instant, r *route) {
	every := probeEvery
	if ct.pulse.calmLocked() {
		every = calmProbeEvery
	}
	for range min(probesAtOnce, len(r.members)) {
		ct.probing = (ct.probing + 1) % len(r.members)
		if p := r.members[ct.probing]; now >= p.asked.Add(every) {
			ct.probePeerLocked(now, p)
		}
	}
}

// probeMissingLocked asks the members again for a sign of life that have not answered, or at whose
// address nobody listened.
func (ct *contacts) probeMissingLocked(now limiter.Instant, r *route) {
	for _, p := range r.members {
		if (p.missed.Load() != 0 || p.left.Load()) && now >= p.asked.Add(probeEvery) {
			ct.probePeerLocked(now, p)
		}
	}
}

func (ct *contacts) probePeerLocked(now limiter.Instant, p *peer) {
	if p.asking || ct.stopped.Load() {
		return
	}
	p.asking, p.asked = true, now
	ct.clock.AfterFunc(0, func() { ct.probe(p) })
}

func (ct *contacts) probe(p *peer) {
	sent := ct.clock.Now()
	deadline := sent.Add(probeTimeout)
	calls := moveCall(p, deadline, &Move{From: ct.boot, To: p.boot, ID: ct.id, Addr: ct.peerAddr()})
	ct.net.Call(calls)
	now := ct.clock.Now()
	ct.note(sent, now, p, &calls[0])
	ct.parts.mu.Lock()
	defer ct.parts.mu.Unlock()
	p.asking = false
}

// note learns from the fate of a call, which was made at sent, whether its peer lives.
func (ct *contacts) note(sent, now limiter.Instant, p *peer, c *Call) {
	switch {
	case c.Err != nil && now >= c.Deadline && c.Deadline < sent.Add(fairTime):
		// Whoever asks for an answer within microseconds learns nothing of the peer by not getting
		// one.
	case c.Err != nil && now > c.Deadline.Add(tickEvery): // this node was stopped itself
		p.fail(now)
	case c.Err == nil:
		p.answered(sent, now, c.Answer.CutOff)
		p.succeed()
		if was := p.leaves.Load(); was != c.Answer.Leaving {
			p.leaves.Store(c.Answer.Leaving)
			if was {
				ct.staysAfterAll(p)
			}
		}
		if m := c.Answer.Move; m != nil && m.Up > 0 {
			ct.restorer.outlived(p, now.Add(-m.Up))
		}
	case errors.Is(c.Err, ErrGone):
		if !p.left.Swap(true) {
			ct.parts.mu.Lock()
			ct.claims.tendLocked()
			ct.parts.mu.Unlock()
		}
		ct.agreed.isGone(p)
		p.trip(now)
	case errors.Is(c.Err, ErrBroken):
		p.miss(sent)
		ct.suspect(now, p)
	default:
		p.miss(sent)
		p.fail(now)
	}
}

// staysAfterAll has what p should hold be given to it, which was not while it was leaving.
func (ct *contacts) staysAfterAll(p *peer) {
	ct.parts.mu.Lock()
	defer ct.parts.mu.Unlock()
	if p.out != nil {
		p.out.due = true
	}
}

// suspect looks at once whether the owner of a key that this node is asked for, without being it,
// is gone.
func (ct *contacts) suspect(now limiter.Instant, p *peer) {
	ct.parts.mu.Lock()
	defer ct.parts.mu.Unlock()
	ct.suspectLocked(now, p)
}

func (ct *contacts) suspectLocked(now limiter.Instant, p *peer) {
	if now >= p.asked.Add(suspectAgain) {
		ct.probePeerLocked(now, p)
	}
}

const (
	suspectAgain = 20 * time.Millisecond
	// fairTime is the least that a peer must have had to answer before its silence counts against
	// it.
	fairTime = 100 * time.Millisecond
)
