package cluster

import (
	"errors"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// Members agree on the right to decide (agree.go). What a node finds out by itself is which members
// answer it:
//
//   - it asks the others for a sign of life, a few in each tick, one after the other;
//   - a member that does not answer gets no copies for as long, and another member gets them;
//   - where no process listens at an address any more the member is gone: its heirs need not wait
//     until it is evicted, which this node then demands (isGone).
//
// A node asks no more in a large cluster than in a small one.
const (
	tickEvery    = 100 * time.Millisecond
	probeEvery   = 200 * time.Millisecond
	probeTimeout = 400 * time.Millisecond
	probesAtOnce = 8
	// formerLasts is how long a node knows members that are none any more: a leaving node goes on
	// saying what it has charged.
	formerLasts = 10 * time.Minute
)

// contacts find out which members answer, and bring calls to those that do not (detour.go).
// Guarded by partitions.mu.
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

// Relinquish makes a node hold nothing any more, because it leaves or another node has its name.
// Its heirs take over from their copies.
func (n *Node) Relinquish() {
	n.parts.mu.Lock()
	defer n.parts.mu.Unlock()
	n.fenceLocked()
}

// fenceLocked makes the node hold nothing. It claims what it held again as soon as it may.
func (n *Node) fenceLocked() {
	r := n.view.Load()
	if n.parts.list == nil || r == nil || !n.right.on {
		return // no other node could have taken anything over
	}
	n.parts.fences++
	if n.parts.Held() == 0 {
		return
	}
	for _, p := range n.copier.keepers.outboxes {
		n.copier.takeBackLocked(p)
	}
	var held []uint16
	for p := range n.parts.list {
		if n.parts.list[p].state == partHeld {
			held = append(held, uint16(p))
		}
		n.parts.dropLocked(p)
		n.copier.keepers.dueLocked(&n.parts.list[p])
	}
	n.copier.leaveLocked(n.clock.Now(), held)
	n.stats.Fenced.Add(1)
	n.notices.partLocked(r)
}

// probeLocked asks the next few members for a sign of life.
func (ct *contacts) probeLocked(now limiter.Instant, r *route) {
	every := probeEvery
	if ct.pulse.calmLocked() {
		every = calmProbeEvery
	}
	for range min(probesAtOnce, len(r.members)) {
		ct.probing = (ct.probing + 1) % len(r.members)
		p := r.members[ct.probing]
		spoke := limiter.Instant(p.spoke.Load()) // what it answers to renewals is as good
		if now >= p.asked.Add(every) && (now >= spoke.Add(calmProbeEvery) || p.began.Load() == 0) {
			ct.probePeerLocked(now, p)
		}
	}
}

// probeMissingLocked asks members again for a sign of life if they have not answered, or if no
// process listened at their addresses.
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
	calls[0].Ask.RingHash = ct.view.Load().RingHash()
	ct.net.Call(calls)
	now := ct.clock.Now()
	ct.note(sent, now, p, &calls[0])
	ct.parts.mu.Lock()
	defer ct.parts.mu.Unlock()
	p.asking = false
	if err := calls[0].Err; err != nil && !errors.Is(err, ErrGone) && p.dying(now) {
		ct.clock.AfterFunc(suspectAgain, func() { ct.suspect(ct.clock.Now(), p) })
	}
}

// note learns from the fate of a call, which was made at sent, whether its peer lives.
func (ct *contacts) note(sent, now limiter.Instant, p *peer, c *Call) {
	if c.Err != nil {
		ct.pulse.wakeIdle()
	}
	switch {
	case c.Err != nil && now >= c.Deadline && c.Deadline < sent.Add(fairTime):
		// A node that asks for an answer within microseconds learns nothing of the peer by not
		// getting one.
	case c.Err != nil && now > c.Deadline.Add(tickEvery): // this node was stopped itself
		p.Fail(now)
	case c.Err == nil:
		ct.learnPlaces(c)
		p.answered(sent, now, c.Answer.CutOff)
		p.Succeed()
		ct.noteLeaving(p, c.Answer.Leaving)
		if m := c.Answer.Move; m != nil && m.Up > 0 {
			if m.Blank && p.began.Load() == 0 {
				ct.claims.awaits.blank(p)
			}
			ct.restorer.outlived(p, now.Add(-m.Up))
			ct.parts.goOnFrom(p, now.Add(-m.Up))
		}
	case errors.Is(c.Err, ErrGone):
		if !p.left.Swap(true) {
			ct.parts.mu.Lock()
			ct.claims.tendLocked()
			ct.parts.mu.Unlock()
		}
		ct.agreed.isGone(p.id, p.boot)
		p.Trip(now)
	case errors.Is(c.Err, ErrBroken):
		p.ignored(sent)
		ct.suspect(now, p)
	default:
		p.ignored(sent)
		p.Fail(now)
	}
}

// askPlacesLocked has an agent ask a member where keys lie, if the members are others than before:
// else it would show owners that are none until a client asks it.
func (ct *contacts) askPlacesLocked(now limiter.Instant, r, old *route) {
	if n := uint64(len(r.members)); n > 0 && (old == nil || old.RingHash() != r.RingHash()) {
		ct.probePeerLocked(now, r.members[ct.boot%n])
	}
}

// learnPlaces has an agent learn from an answer under which secret the members place keys. Members
// know it from their configuration.
func (ct *contacts) learnPlaces(c *Call) {
	v := ct.view.Load()
	if ct.right.on || v == nil || c.Ask.RingHash == 0 || c.Answer.RingHash == 0 ||
		c.Answer.RingHash == c.Ask.RingHash || c.Answer.Secret == v.Secret {
		return
	}
	ct.parts.mu.Lock()
	ct.agreed.views.secret = c.Answer.Secret
	ct.parts.mu.Unlock()
	ct.agreed.followers.agreedAnew(ct.clock.Now())
}

// reachesFew reports whether no more than half of the members of config answer that gossip says are
// there.
func (ct *contacts) reachesFew(config *ownership.Configuration) bool {
	r, hinted := ct.view.Load(), ct.agreed.views.hinted.Load()
	if r == nil || hinted == nil {
		return false
	}
	there, reached, on := 1, 1, roll{config: config}
	for _, p := range r.members {
		if p.gone() || hinted.Find(p.id) < 0 || !on.has(p.id, p.boot) {
			continue
		}
		if there++; p.mute.Load() == 0 {
			reached++
		}
	}
	return 2*reached <= there
}

// noteLeaving notes whether p says that it leaves. If it stays after all, it is given what it
// should hold, which it was not while it was leaving.
func (ct *contacts) noteLeaving(p *peer, leaves bool) {
	was := p.leaves.Load()
	if was == leaves {
		return
	}
	p.leaves.Store(leaves)
	ct.pulse.wake()
	if !was {
		return
	}
	ct.parts.mu.Lock()
	defer ct.parts.mu.Unlock()
	if p.out != nil {
		p.out.due = true
	}
}

// lineEnded looks at once whether p is gone: the last stream of its own has ended.
func (ct *contacts) lineEnded(now limiter.Instant, p *peer) {
	ct.parts.mu.Lock()
	defer ct.parts.mu.Unlock()
	p.hungUp = now
	ct.suspectLocked(now, p)
}

// dying reports whether the stream of p has just ended, so that its process may be about to: a
// large one takes a while, and its machine refuses connections only when it is done. If most
// voters die, that has to be known before this node's own right ends, or it may not go on by
// itself.
func (p *peer) dying(now limiter.Instant) bool {
	return p.hungUp != 0 && now < p.hungUp.Add(dyingLasts)
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
	dyingLasts   = 600 * time.Millisecond // as long as a right lasts by default
	// fairTime is the least that a peer must have had to answer before its silence counts against
	// it.
	fairTime = 100 * time.Millisecond
)

// countAnew has the agreement be told once more which members are not reached: it began as another
// boot, and knows nothing.
func (ct *contacts) countAnew() {
	ct.parts.mu.Lock()
	defer ct.parts.mu.Unlock()
	if r := ct.view.Load(); r != nil {
		for _, p := range r.peers {
			p.unreached = false
		}
	}
}

// countSilentLocked notes which members do not answer, or leave. Another one gets copies in their
// place, though they may still be there for the rest. One that most members do not reach, though
// they have their right, is asked to step down.
func (ct *contacts) countSilentLocked(now limiter.Instant, r *route) {
	ct.agreed.mu.Lock()
	lasts := ct.agreed.params.Suspect
	ct.agreed.mu.Unlock()
	roll, changed := ct.right.roll.Load(), false
	var events []ownership.Event
	for _, p := range r.peers {
		changed = p.lookLocked(now) || changed
		m, found := roll.member(p.id)
		mute := limiter.Instant(p.mute.Load())
		unreached := mute != 0 && now > max(mute, ct.healed).Add(lasts)
		if unreached == p.unreached || !found || !SameProcess(m.Boot, p.boot) {
			continue
		}
		if p.unreached = unreached; unreached {
			events = append(events, ownership.Unreached{Boot: m.Boot})
		} else {
			events = append(events, ownership.Reached{Boot: m.Boot})
		}
	}
	if changed {
		ct.copier.keepers.retargetLocked(now, r)
	}
	if len(events) > 0 {
		ct.clock.AfterFunc(0, func() { ct.agreed.agree(0, events...) })
	}
}
