package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"penstock/cluster/dedup"
	"penstock/limiter"
)

// DefaultCallTimeout is how long one call to a peer may take, unless the request's deadline comes
// first. A dead process is noticed at once (its connections break); this is for the peer that
// hangs.
const DefaultCallTimeout = 500 * time.Millisecond

// maxHop is how often an item may be sent, the last time by an heir that relays it. The first two
// are at once: to the owner in the View, and to the node that its NotOwner names. All others wait
// before, longer and longer, for a handover to be done.
const maxHop = 32

// settleTime is how long a check waits for a handover, or for an heir to take over. A handover
// takes some round trips, so where one alone takes long a check waits for settleTrips of them.
const (
	settleTime  = 400 * time.Millisecond
	settleTrips = 8
)

// namesMe is from which send on a node does not wait any more for what others say that it decides
// itself: it may be just getting it; or each of two takes the other one for the owner, and the
// holder has not heard of either.
const namesMe = 3

// inCircles is from which send on every other one goes to the others in turn, and not to the node
// that is said to decide, while two name each other; more may do so in turn, so of inCircles sends
// one does in any case. By then two have named each other for as long as circling at least. Where
// an answer alone takes that long it is enough that they have done so circles times, unless it
// takes so long that there is time for a few sends only: then it is better to wait for one of the
// two to decide. A node that one of the others names is asked in any case: it may be one of the
// two, which has got the key meanwhile. So the two are counted anew then.
const (
	inCircles = 6
	circling  = 7 * time.Millisecond
	farAway   = settleTime / 6
	circles   = 2
)

// asksAnybody is from which send on a node that takes itself for the owner, and is not, or knows no
// owner, asks the others in turn: the holder of the key may have come without its having heard of
// it, or be leaving. Mostly it is about to get the key, so first it waits, 15 ms in all.
const asksAnybody = 6

// repeatWithin is how long after its beginning a check may send again. A node that was stopped in
// the middle must not: its owner remembers a take for dedup.Lasts and would charge it again. The
// other half is for the way there.
const repeatWithin = dedup.Lasts / 2

// Targets of an item that is none: wait for one, or give up.
const (
	nobodyYet = -1
	nobody    = -2
)

// forwarder has each item decided where its key is held: here, or at another node.
type forwarder struct {
	*self
	right    *right
	parts    *partitions
	awaits   *awaits
	contacts *contacts
	holder   *holder
	local    *local
	debts    *debtor
	shares   *shares
}

// forward has the items away decided by the nodes that hold them: one call per node, all at once,
// and again for those that were not executed or may be repeated under their ID. Items that are left
// after that fall back. It is the story of a forwarded check; the facts are in the functions below.
func (fw *forwarder) forward(
	now limiter.Instant, view *route, r *batch, away []int, out []Decision,
) {
	began, seen := now, view
	var few [4]int
	// item → index in view.Members, nobody or nobodyYet
	targets := slices.Grow(few[:0], len(r.items))[:len(r.items)]
	for _, i := range away {
		it := &r.items[i]
		targets[i], it.namer, it.circled, it.thirds = fw.aim(now, view, r, it, 1), 0, 0, 0
		if it.Op != OpPeek && it.ID == (ID{}) {
			it.ID = fw.nextID()
		}
	}
	for hop := 1; hop < maxHop && !hopeless(away, targets) && !fw.right.minority.Load(); hop++ {
		if hop > 1 {
			if hop > 2 {
				if r.hasWaited(began, now) {
					break
				}
				fw.net.Wait(min(now.Add(r.pauseBefore(hop)), r.deadline))
			}
			if now = fw.clock.Now(); r.tooLate(began, now) {
				break
			}
			if fresh := fw.view.Load(); fresh != seen {
				seen, view = fresh, fw.aimAgain(now, view, fresh, r, away, targets)
			}
			away = fw.decideNow(now, view, r, away, targets, out, hop)
			if view.bar(r, away, targets); hopeless(away, targets) {
				break
			}
			fw.stats.Retried.Add(uint64(len(away)))
		}
		now, view, away = fw.send(now, view, r, away, targets, out, hop)
		if r.parted { // each item is decided where its key is
			return
		}
	}
	fw.decideRest(now, view, r, away, targets, out)
}

// send asks the targets of the items away, all at once. It returns the time at which all have
// answered, the view with the owners that they name, and the items that are not decided.
func (fw *forwarder) send(
	now limiter.Instant, view *route, r *batch, away, targets []int, out []Decision, hop int,
) (limiter.Instant, *route, []int) {
	sentAt := now
	calls, sent, left, lone := fw.address(now, view, r, away, targets, uint8(hop))
	if len(calls) > 0 {
		fw.stats.Forwarded.Add(uint64(len(away) - len(left)))
		fw.net.Call(calls)
		now = fw.clock.Now()
		if allAnswered(calls) {
			r.trip = max(r.trip, time.Duration(now-sentAt))
		}
	}
	for c := range calls {
		if calls[c].Err == nil {
			view = fw.meet(now, view, calls[c].Answer.Owners)
		}
		again := fw.receive(sentAt, now, view, r, &calls[c], sent[c], targets, out)
		left = append(left, again...)
	}
	if lone != nil {
		*lone = loneCall{}
		loneCalls.Put(lone)
	}
	return now, view, left
}

// allAnswered reports whether none of the calls failed.
func allAnswered(calls []Call) bool {
	for c := range calls {
		if calls[c].Err != nil {
			return false
		}
	}
	return true
}

// decideRest decides the items away that no other node has decided: from memory, if this node holds
// them by now, or as their limits say.
func (fw *forwarder) decideRest(
	now limiter.Instant, view *route, r *batch, away, targets []int, out []Decision,
) {
	if r.atomic && len(r.items) > 1 { // all here, or none
		if len(away) > 0 && !hopeless(away, targets) &&
			!r.mayHaveGivenBack() && fw.holder.decideAllHere(now, r.items, out) {
			return
		}
		for _, i := range away {
			targets[i] = nobody
		}
	}
	if len(away) == 0 {
		return
	}
	slices.Sort(away) // some have waited longer than others, and stand in the order of the request
	over := fw.isOver(r.deadline, r.hungUp)
	now = fw.clock.Now()
	for _, i := range away {
		switch {
		case targets[i] != nobody && fw.decideStill(now, &r.items[i], &out[i]):
		case over:
			out[i] = fw.shares.undecided(view, &r.items[i])
		case !r.owed:
			out[i] = fw.shares.fallback(now, view, &r.items[i])
		}
	}
}

// decideNow decides what has become this node's to decide meanwhile, aims the rest again if it has
// no target, and returns it.
func (fw *forwarder) decideNow(
	now limiter.Instant, view *route, r *batch, away, targets []int, out []Decision, hop int,
) (left []int) {
	if r.atomic && len(r.items) > 1 && !r.mayHaveGivenBack() &&
		(fw.decideTogether(now, r, out) || r.parted) {
		return nil
	}
	for _, i := range away {
		it := &r.items[i]
		if !r.atomic && targets[i] != nobody && fw.decideStill(now, it, &out[i]) {
			continue
		}
		if t := targets[i]; t == nobodyYet || t == view.Self ||
			t >= 0 && view.peers[t].Open(now) {
			targets[i] = fw.aim(now, view, r, it, hop)
		}
		left = append(left, i)
	}
	return left
}

// decideTogether is decideAllHere for a request on its way. It notes when this node holds the first
// key only.
func (fw *forwarder) decideTogether(now limiter.Instant, r *batch, out []Decision) bool {
	if fw.holder.decideAllHere(now, r.items, out) {
		return true
	}
	if fw.holder.decides(now, r.items[0].hash) {
		r.part()
	}
	return false
}

// mayHaveGivenBack reports whether a node may have executed it, without an answer, and what it asks
// for is to give back.
func (it *flight) mayHaveGivenBack() bool { return it.doubt != nil && it.givesBack() }

func (r *batch) mayHaveGivenBack() bool {
	for i := range r.items {
		if r.items[i].mayHaveGivenBack() {
			return true
		}
	}
	return false
}

// decideStill is decideHere for an item that other nodes were asked for.
func (fw *forwarder) decideStill(now limiter.Instant, it *flight, out *Decision) bool {
	return !it.mayHaveGivenBack() && fw.decideHere(now, it, out)
}

// bar leaves those items undecided that other nodes may have given back already than their targets.
// A take that another node executes once more admits nothing more; but what is given back twice may
// be taken twice. The nodes that may have given it back remember its ID, and may be asked again.
func (r *route) bar(q *batch, away, targets []int) {
	for _, i := range away {
		it, t := &q.items[i], targets[i]
		if !it.mayHaveGivenBack() || t >= 0 && it.doubt.Of(r.peers[t].boot) {
			continue
		}
		if targets[i] = nobody; q.atomic {
			for _, k := range away {
				targets[k] = nobody
			}
			return
		}
	}
}

// hopeless reports whether no node could decide any of the items.
func hopeless(away, targets []int) bool {
	return !slices.ContainsFunc(away, func(i int) bool { return targets[i] != nobody })
}

// pauseBefore is how long to wait before an item is sent for the third time and later. After some
// sends it is half a round trip at least, so that a long wait for a far handover has sends enough.
func (r *batch) pauseBefore(hop int) time.Duration {
	const fast = 7
	if hop <= fast {
		return time.Millisecond << (hop - 3)
	}
	return max(time.Millisecond<<(fast-3), r.trip/2)
}

// tooLate reports whether a check that began then must not send again.
func (r *batch) tooLate(began, now limiter.Instant) bool {
	return now >= r.deadline || now > began.Add(repeatWithin)
}

// hasWaited reports whether a check that began then has waited long enough for a handover. It looks
// before a pause, never after one: a node that was named is asked after the pause, not given up.
func (r *batch) hasWaited(began, now limiter.Instant) bool {
	return now > began.Add(max(settleTime, settleTrips*r.trip))
}

// receive files the answers of one call and returns the items to try again, with their new targets.
// A call that got lost on its way is repeated: its takes carry IDs, so an owner that did act on
// them answers the same again. If another holds the key by then, and has not been told of the take,
// it is charged there as well: the node that decides must have counted it.
func (fw *forwarder) receive(sentAt, now limiter.Instant, view *route, r *batch, c *Call, items,
	targets []int, out []Decision,
) (again []int) {
	if c.Err == nil && len(c.Answer.Items) != len(items) {
		c.Err = fmt.Errorf("cluster: %s answered %d of %d items", c.To.ID, len(c.Answer.Items),
			len(items))
	}
	peer := view.peers[targets[items[0]]]
	fw.contacts.note(sentAt, now, peer, c)
	if c.Err != nil {
		fw.unanswered(now, view, peer, r, c, items, targets)
		return items
	}
	for k, i := range items {
		switch a := &c.Answer.Items[k]; a.Status {
		case StatusDone:
			out[i] = Decision{
				Decision: a.Decision, Owner: cmp.Or(a.Owner, c.To.ID),
				Source: SourceForwarded, Degraded: a.Degraded, Bound: a.Bound,
			}
			fw.local.heard(sentAt, now, view, &r.items[i], c, a)
		case StatusNotOwner:
			fw.stats.NotOwner.Add(1)
			if c.Ask.Atomic && a.Owner == c.To.ID { // it holds the first key, and not all
				if r.part(); r.parted {
					return items
				}
			}
			targets[i] = fw.askNext(sentAt, now, view, r, c, i, targets[i], a.Owner)
			again = append(again, i)
		default:
			if k := view.Find(a.Owner); a.Status == StatusLost && k >= 0 {
				r.items[i].doubt = r.items[i].doubt.With(view.peers[k].boot)
			}
			targets[i] = nobody
			again = append(again, i)
		}
	}
	return again
}

// unanswered notes what a call without an answer may have charged, and that its items need another
// target if the peer is gone.
func (fw *forwarder) unanswered(
	now limiter.Instant, view *route, peer *peer, r *batch, c *Call, items, targets []int,
) {
	if errors.Is(c.Err, ErrUnsent) {
		fw.stats.Unsent.Add(1)
	} else {
		fw.stats.Lost.Add(1)
		for _, i := range items {
			it := &r.items[i]
			it.doubt = it.doubt.With(peer.boot)
			if o := view.Owner(it.hash); c.Ask.Relay && o >= 0 {
				it.doubt = it.doubt.With(view.peers[o].boot)
			}
		}
	}
	for _, i := range items {
		switch {
		case c.Ask.Relay && r.items[i].mayHaveGivenBack(): // the one that relays remembers nothing
			targets[i] = nobody
		case peer.gone() || peer.Open(now):
			targets[i] = nobodyYet
		}
	}
}
