package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/limiter"
)

// Two members may not reach each other while a third one reaches both. All members answer a claim,
// and a majority of the voters grants the right to decide, so what these two say about partitions
// and membership goes by way of the third one (Ask.For). If that one does not reach the receiver
// either, it asks one more member that it reaches, and that one asks no other: a message goes by
// way of two members at most, in one copy, so it can neither go round in a circle nor multiply.
// Probes always take the direct way: they find out when that is open again.
//
// Words take a detour only if the voters that this node reaches are no majority. Else they would
// keep members alive for it, with which nothing has to be agreed on, after a death that it cannot
// see. A member that does not reach most others takes no detours. The others go on without it, and
// sooner if it loses its right. But as long as it has that it claims as all others do, what another
// one should hold it gives away by any way, and if it has to leave it says so.

const (
	// detourAfter is how long a member has to be silent until calls to it take a detour.
	detourAfter = time.Second
	// backParts is the share of the time for an answer that is kept for the way back from the
	// third member: one in so many.
	backParts = 4
	// passers is how many members a message may go by way of.
	passers = 2
)

var (
	errNotPassedOn = errors.New("no answer came by way of another member")
	errNotTaken    = fmt.Errorf("the message did not reach another member: %w", ErrUnsent)
)

// Call is Network.Call, by way of other members where this node does not reach the receiver. Such a
// call is Passed, and says nothing about the way to its receiver.
func (ct *contacts) Call(calls []Call) {
	now, r := ct.clock.Now(), ct.view.Load()
	var vias []*via
	for i := range calls {
		calls[i].Passed = false
		if v := ct.viaOf(now, r, &calls[i]); v != nil {
			vias = append(vias, v)
		}
	}
	ct.net.Call(calls)
	for _, v := range vias {
		ct.end(now, v)
	}
}

// via is a call that takes a detour: what it is, and where it would go.
type via struct {
	call   *Call
	to     Member
	target *peer
	third  *peer
	direct *Ask
}

// viaOf has c go to a third member, if its receiver is not reached.
func (ct *contacts) viaOf(now limiter.Instant, r *route, c *Call) *via {
	if r == nil {
		return nil
	}
	i := r.Find(c.To.ID)
	if i < 0 || r.peers[i].boot != c.To.Boot || !r.peers[i].unheard(now) {
		return nil
	}
	m := c.Ask.Move
	third := ct.third(now, r, r.peers[i], m != nil && (m.Sequence != 0 || ct.right.Deciding()))
	if third < 0 || m == nil && ct.reachesQuorum(now, r) {
		return nil
	}
	v := &via{c, c.To, r.peers[i], r.peers[third], c.Ask}
	ask := *c.Ask
	ask.For = c.To.Boot
	c.To, c.Ask, c.Passed = r.Members[third], &ask, true
	return v
}

// detours reports whether copies and gifts to target would go by way of another member.
func (ct *contacts) detours(now limiter.Instant, r *route, target *peer) bool {
	return r != nil && target.unheard(now) && ct.third(now, r, target, true) >= 0
}

// third is the member that may pass messages on to target; -1 if there is none. Some it has to
// bring however few members this node reaches.
func (ct *contacts) third(now limiter.Instant, r *route, target *peer, always bool) int {
	others, there, reached := ct.passersTo(now, r, target, 0)
	if 2*reached <= there && !always && !ct.right.roll.Load().leaving() {
		return -1
	}
	return target.passer(others)
}

// passersTo are the members that may pass messages on to target. A member that leaves is none: what
// two begin to hold by way of it, with their copies, they could not keep up together when it has
// gone. The boot from has written the message. Of there members this node reaches reached.
func (ct *contacts) passersTo(
	now limiter.Instant, r *route, target *peer, from uint64,
) (others []int, there, reached int) {
	roll := ct.right.roll.Load()
	there, reached = 1, 1
	for i, p := range r.peers {
		if i == r.Self || p.gone() || !roll.has(p.id, p.boot) {
			continue
		}
		there++
		if p == target || p.unheard(now) {
			continue
		}
		if reached++; !p.leaving() && p.boot != from {
			others = append(others, i)
		}
	}
	return others, there, reached
}

// passer is one of these members, and the next one if one has failed to pass a message on to p; -1
// if there are none.
func (p *peer) passer(others []int) int {
	if len(others) == 0 {
		return -1
	}
	return others[int(p.astray.Load())%len(others)]
}

// reachesQuorum reports whether this node and the voters that it reaches decide.
func (ct *contacts) reachesQuorum(now limiter.Instant, r *route) bool {
	config, reached := ct.right.roll.Load().config, 0
	for _, v := range config.Voters {
		m, _ := config.Member(v)
		if i := r.Find(m.ID); i >= 0 && (i == r.Self || SameProcess(v, r.peers[i].boot) &&
			!r.peers[i].gone() && !r.peers[i].unheard(now)) {
			reached++
		}
	}
	return reached >= config.Quorum()
}

// end undoes what viaOf has done to a call, and says what became of it.
func (ct *contacts) end(sent limiter.Instant, v *via) {
	c, now := v.call, ct.clock.Now()
	c.To, c.Ask = v.to, v.direct
	if c.Err == nil && c.Answer.Passed {
		v.third.met(now) // no more: the answer says how the target stands
		v.target.met(now)
		ct.noteLeaving(v.target, c.Answer.Leaving)
		ct.stats.Detours.Add(1)
		return
	}
	ct.noteAstray(sent, v.target, v.third, c)
	if errors.Is(c.Err, ErrUnsent) {
		c.Err = errNotTaken
	} else {
		c.Err = errNotPassedOn
	}
}

// pass sends on what a is for another member, and answers what that one says. If this node does not
// reach it, it asks another member to, unless it was asked that itself.
func (ct *contacts) pass(a *Ask, answer *Answer) {
	now, r := ct.clock.Now(), ct.view.Load()
	if r == nil || a.Hop > passers || now >= a.Deadline || !ct.fromMember(a) {
		return
	}
	i := slices.IndexFunc(r.Members, func(m Member) bool { return m.Boot == a.For })
	if i < 0 || r.peers[i].gone() {
		return
	}
	target, next := r.peers[i], i
	if target.unheard(now) {
		if next = ct.another(now, r, target, a); next < 0 {
			return
		}
	}
	left := min(time.Duration(a.Deadline-now), moveTimeoutMax)
	deadline := now.Add(left - left/backParts)
	ask := &Ask{
		RingHash: a.RingHash, Hop: a.Hop + 1, Deadline: deadline, Move: a.Move, Words: a.Words,
		For: a.For,
	}
	calls := []Call{{To: r.Members[next], Deadline: deadline, Ask: ask}}
	ct.net.Call(calls)
	c := &calls[0]
	switch {
	case next == i:
		ct.note(now, ct.clock.Now(), target, c)
		if c.Err != nil {
			return
		}
	case c.Err == nil && c.Answer.Passed: // it says nothing of the one that has passed it on
		r.peers[next].met(ct.clock.Now())
	default:
		ct.noteAstray(now, target, r.peers[next], c)
		return
	}
	*answer = *c.Answer
	answer.Passed = true
}

// noteAstray learns from a call that was sent at some instant, and that third has not passed on to
// target. Silence may be the target's.
func (ct *contacts) noteAstray(sent limiter.Instant, target, third *peer, c *Call) {
	if c.Err == nil || errors.Is(c.Err, ErrGone) {
		ct.note(sent, ct.clock.Now(), third, c)
	}
	target.astray.Add(1)
}

// another is a member that may pass a on to target, which this node does not reach; -1 if there is
// none, or if this node is the last one that may ask.
func (ct *contacts) another(now limiter.Instant, r *route, target *peer, a *Ask) int {
	var from uint64
	switch {
	case a.Hop >= passers:
		return -1
	case a.Move != nil:
		from = a.Move.From
	case a.Words != nil:
		from = a.Words.Process
	}
	others, _, _ := ct.passersTo(now, r, target, from)
	return target.passer(others)
}

// fromMember reports whether the sender of a is a member: others are not passed on.
func (ct *contacts) fromMember(a *Ask) bool {
	roll := ct.right.roll.Load()
	return (a.Move == nil || roll.has(a.Move.ID, a.Move.From)) &&
		(a.Words == nil || roll.has(a.Words.ID, a.Words.Process))
}

// admits reports whether this node takes in what a says about partitions and membership. What
// another member has passed on it believes of senders that it does not reach itself: nobody speaks
// in the name of the others.
func (ct *contacts) admits(now limiter.Instant, r *route, a *Ask) bool {
	if a.For == 0 {
		return true
	}
	return a.For == ct.boot &&
		(a.Move == nil || ct.isMissing(now, r, a.Move.ID, a.Move.From)) &&
		(a.Words == nil || ct.isMissing(now, r, a.Words.ID, a.Words.Process))
}

func (ct *contacts) isMissing(now limiter.Instant, r *route, id string, boot uint64) bool {
	if r == nil {
		return false
	}
	i := r.Find(id)
	if i < 0 || r.peers[i].boot != boot {
		return false
	}
	if r.peers[i].mute.Load() != 0 {
		return true
	}
	ct.suspect(now, r.peers[i])
	return false
}

// Clone is a copy of m that borrows nothing.
func (m *Move) Clone() *Move {
	c := *m
	c.Entries, c.Holds = slices.Clone(m.Entries), slices.Clone(m.Holds)
	c.Charges, c.Taken = slices.Clone(m.Charges), slices.Clone(m.Taken)
	for i := range c.Entries {
		c.Entries[i].Key = strings.Clone(c.Entries[i].Key)
		c.Entries[i].State = slices.Clone(c.Entries[i].State)
	}
	for i := range c.Holds {
		c.Holds[i].Key = strings.Clone(c.Holds[i].Key)
		c.Holds[i].Holder = strings.Clone(c.Holds[i].Holder)
	}
	for i := range c.Charges {
		c.Charges[i].Key = strings.Clone(c.Charges[i].Key)
		c.Charges[i].State = strings.Clone(c.Charges[i].State)
	}
	return &c
}
