package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"penstock/cluster/dedup"
	"penstock/limiter"
	"penstock/ring"
)

// DefaultCallTimeout is how long one call to a peer may take, unless the request's deadline comes
// first. A dead process is noticed at once (its connections break); this is for the peer that
// hangs.
const DefaultCallTimeout = 500 * time.Millisecond

// maxHop is how often an item may be sent. The first two are at once: to the owner in the View, and
// to whom its NotOwner names. All others wait before, longer and longer, for a handover to be done.
const maxHop = 32

// settleTime is how long a check waits for a handover, or for an heir to take over.
const settleTime = 400 * time.Millisecond

// namesMe is from which send on a node does not wait any more for what others say that it decides
// itself: it may be just getting it; or each of two takes the other one for the owner, and who
// still decides has not heard of either.
const namesMe = 3

// inCircles is from which send on every other one goes to the others in turn, and not to who is
// said to decide. By then two have named each other for as long as circling at least. Where an
// answer alone takes that long it is enough that they have done so circles times, unless it takes
// so long that there is time for a few sends only: then it is better to wait for one of the two to
// decide. A node that one of the others names is asked in any case: it may be one of the two, which
// has got the key meanwhile. So the two are counted anew then.
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

// forward has the items away decided by whoever holds them: one call per node, all at once, and
// again for those that were not executed or may be repeated under their ID. Items that are left
// after that fall back. It is the story of a forwarded check; the facts are in the functions below.
func (fw *forwarder) forward(
	now limiter.Instant, view *route, r *batch, away []int, out []Decision,
) {
	began, seen := now, view
	var few [4]int
	// item → index in view.Members, or nobody
	targets := slices.Grow(few[:0], len(r.items))[:len(r.items)]
	for _, i := range away {
		it := &r.items[i]
		targets[i], it.namer, it.circled = fw.aim(now, view, r, it, 1), 0, 0
		if it.Op != OpPeek && it.ID == (ID{}) {
			it.ID = fw.nextID()
		}
	}
	for hop := 1; hop <= maxHop && !hopeless(away, targets) && !fw.right.minority.Load(); hop++ {
		if hop > 1 {
			if hop > 2 {
				fw.net.Wait(min(now.Add(pauseBefore(hop)), r.deadline))
			}
			if now = fw.clock.Now(); tooLate(began, now, r.deadline, hop) {
				break
			}
			if fresh := fw.view.Load(); fresh != seen {
				seen, view = fresh, fw.aimAgain(now, view, fresh, r, away, targets)
			}
			if away = fw.decideNow(now, view, r, away, targets, out, hop); hopeless(away, targets) {
				break
			}
			fw.stats.Retried.Add(uint64(len(away)))
		}
		now, view, away = fw.send(now, view, r, away, targets, out, hop)
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

// decideRest decides the items away that no other node has decided: from memory, if this node holds
// them by now, or as their limits say.
func (fw *forwarder) decideRest(
	now limiter.Instant, view *route, r *batch, away, targets []int, out []Decision,
) {
	if r.atomic && len(r.items) > 1 { // all here, or none
		if len(away) > 0 && !hopeless(away, targets) && fw.holder.decideAllHere(now, r.items, out) {
			return
		}
		for _, i := range away {
			targets[i] = nobody
		}
	}
	for _, i := range away {
		switch {
		case targets[i] != nobody && fw.decideHere(now, &r.items[i], &out[i]):
		case !r.owed:
			out[i] = fw.shares.fallback(now, view, &r.items[i])
		}
	}
}

// aim is where to ask for an item that this node does not hold: the owner, or its heir if the owner
// is gone or does not answer. If it is gone, the heir is about to take over; if it is only silent,
// that lasts too long to wait for. Items of an atomic request go where the first one goes. Where
// several nodes say in turn that another one decides, because their Views differ, every other send
// goes to who has said so itself.
func (fw *forwarder) aim(now limiter.Instant, view *route, r *batch, it *flight, hop int) int {
	if r.atomic {
		it = &r.items[0]
	}
	t := view.Owner(it.hash)
	if t == view.Self || hop > 2 && hop%2 == 1 {
		if said := view.Find(fw.parts.whereabouts(view, it.hash)); t == view.Self || said >= 0 &&
			!view.peers[said].gone() {
			t = said
		}
	}
	switch {
	case t < 0 || t == view.Self:
		if fw.awaits.lacking.Load() { // that may take longer than anybody waits
			return nobody
		}
		if hop >= asksAnybody {
			return view.elsewhereThan(view.Self, hop)
		}
		return nobodyYet
	case view.peers[t].gone():
		if t = view.heir(ring.Partition(it.hash)); t == view.Self { // unless others hear the owner
			if t = view.Find(fw.parts.whereabouts(view, it.hash)); t >= 0 && view.peers[t].gone() {
				return nobodyYet
			}
		} else if t >= 0 && view.peers[t].gone() { // both have left, and this View has not heard so: others may have
			t = view.elsewhereThan(t, hop)
		}
	case view.peers[t].open(now):
		silent := t
		if t = view.heir(ring.Partition(it.hash)); t == view.Self {
			t = view.elsewhereThan(silent, hop) // another member may reach it
		}
	}
	if t < 0 || t == view.Self {
		return nobodyYet
	}
	return t
}

// aimAgain is fresh, the View that has taken the place of old, with the strangers that were met;
// targets of items are those of old. Who was named stays the target if it was the owner in fresh
// that has named it: else that one would be asked again.
func (fw *forwarder) aimAgain(
	now limiter.Instant, old, fresh *route, r *batch, away, targets []int,
) *route {
	fresh = fw.meet(now, fresh, old.strangers)
	for _, i := range away {
		it, t := &r.items[i], targets[i]
		hash := it.hash
		if r.atomic {
			hash = r.items[0].hash
		}
		targets[i] = nobodyYet
		if o := fresh.Owner(hash); t < 0 || o < 0 || fresh.Members[o].Boot != it.namer {
			continue
		}
		named := old.member(t)
		if k := fresh.findAny(named.ID); k >= 0 && fresh.member(k).Boot == named.Boot &&
			!fresh.peers[k].gone() && !fresh.peers[k].open(now) {
			targets[i] = k
		}
	}
	return fresh
}

// meet is view with those owners whom it does not know, because news of them is late. They are not
// owners by this view, and not there for anybody but this request.
func (fw *forwarder) meet(now limiter.Instant, view *route, owners []Member) *route {
	for _, m := range owners {
		known := func(o Member) bool { return o.ID == m.ID && o.Boot == m.Boot }
		if m.ID == fw.id || slices.ContainsFunc(view.Members, known) ||
			slices.ContainsFunc(view.strangers, known) {
			continue
		}
		v := *view
		v.strangers = append(slices.Clip(view.strangers), m)
		v.peers = append(slices.Clip(view.peers), newPeer(&m, now))
		view = &v
	}
	return view
}

// member is the one that a target means.
func (r *route) member(target int) *Member {
	if target < len(r.Members) {
		return &r.Members[target]
	}
	return &r.strangers[target-len(r.Members)]
}

// findAny is the target that id names: the one that was met last if the View does not know it, or
// by a boot that is gone.
func (r *route) findAny(id string) int {
	t := r.Find(id)
	if t >= 0 && !r.peers[t].gone() {
		return t
	}
	for i := len(r.strangers) - 1; i >= 0; i-- {
		if r.strangers[i].ID == id {
			return len(r.Members) + i
		}
	}
	return t
}

// decideNow decides what has become this node's to decide meanwhile, aims the rest again if it has
// no target, and returns it.
func (fw *forwarder) decideNow(
	now limiter.Instant, view *route, r *batch, away, targets []int, out []Decision, hop int,
) (left []int) {
	if r.atomic && len(r.items) > 1 {
		if fw.holder.decideAllHere(now, r.items, out) {
			return nil
		}
	}
	for _, i := range away {
		it := &r.items[i]
		if !r.atomic && targets[i] != nobody && fw.decideHere(now, it, &out[i]) {
			continue
		}
		if targets[i] == nobodyYet || targets[i] == view.Self {
			targets[i] = fw.aim(now, view, r, it, hop)
		}
		left = append(left, i)
	}
	return left
}

// another is the next member after t that is there, or nobodyYet.
func (r *route) another(t int) int {
	for range r.peers {
		t = (t + 1) % len(r.peers)
		if t != r.Self && r.member(t).Role == RoleMember && !r.peers[t].gone() {
			return t
		}
	}
	return nobodyYet
}

// elsewhereThan is another member than t, a different one from send to send.
func (r *route) elsewhereThan(t, hop int) int {
	for range hop {
		t = r.another(t)
	}
	return t
}

// third is a member besides the two who name each other, the turn-th; one of them if nobody else is
// there.
func (r *route) third(one, two, turn int) int {
	t := r.Self
	for range turn {
		for range 3 {
			if t = r.another(t); t != one && t != two {
				break
			}
		}
	}
	return t
}

// elsewhere is where to ask next after the hop-th send of it, to asked, was answered with nobody
// who is there: every other time another member. It may know who decides although neither this
// node's View nor that of the one asked names it.
func (fw *forwarder) elsewhere(
	now limiter.Instant, view *route, r *batch, it *flight, asked, hop int,
) int {
	t := fw.aim(now, view, r, it, hop+1)
	if t != asked {
		return t
	}
	for range max(1, hop/2) {
		if t = view.another(t); t == asked {
			t = view.another(t)
		}
	}
	return t
}

// hopeless reports whether none of the items could be decided by anybody.
func hopeless(away, targets []int) bool {
	return !slices.ContainsFunc(away, func(i int) bool { return targets[i] != nobody })
}

// pauseBefore is how long to wait before an item is sent for the third time and later.
func pauseBefore(hop int) time.Duration { return time.Millisecond << min(hop-3, 4) }

// tooLate reports whether a check that began then must not send again.
func tooLate(began, now, deadline limiter.Instant, hop int) bool {
	return now >= deadline || now > began.Add(repeatWithin) || hop > 2 &&
		now > began.Add(settleTime)
}

// address groups items into one call per target; sent are the items of each. Items without a
// target, or whose target's breaker is open, are held back. A call of one item lies in lone, to be
// given back.
func (fw *forwarder) address(
	now limiter.Instant, view *route, r *batch, away, targets []int, hop uint8,
) (calls []Call, sent [][]int, held []int, lone *loneCall) {
	deadline := callDeadline(now, r.deadline, fw.callTimeout)
	if now >= deadline {
		return nil, nil, away, nil
	}
	var few [16]target
	s := sorted{of: few[:], most: len(view.Members) + len(view.strangers)}
	if s.most > len(few) && len(away) > len(few) {
		s.of = make([]target, s.most)
	}
	var fewer [16]int
	going, held, all := s.sort(now, view, r, away, targets, fewer[:0])
	if all == 0 {
		return nil, nil, held, nil
	}
	var asks []Ask
	var items []AskItem
	var indexes []int
	if all == 1 {
		lone = loneCalls.Get().(*loneCall)
		calls, sent = lone.calls[:], lone.sent[:]
		asks, items, indexes = lone.asks[:], lone.items[:], lone.indexes[:]
	} else {
		k := len(going)
		calls, sent, asks = make([]Call, k), make([][]int, k), make([]Ask, k)
		items, indexes = make([]AskItem, all), make([]int, all)
	}
	for c, t := range going {
		k := s.about(t).items
		asks[c] = Ask{
			RingHash: view.RingHash(), Hop: hop, Atomic: r.atomic && len(r.items) > 1,
			Deadline: deadline, Items: items[:0:k],
		}
		calls[c] = Call{To: *view.member(t), Ask: &asks[c], Deadline: deadline}
		sent[c], items, indexes = indexes[:0:k], items[k:], indexes[k:]
	}
	for _, i := range away {
		t := targets[i]
		if t < 0 || s.about(t).open {
			continue
		}
		it, c := &r.items[i], s.about(t).call
		if o := view.Owner(it.hash); !r.cautious && o != t && o >= 0 && o != view.Self {
			asks[c].Relay = asks[c].Relay || view.peers[o].gone() || view.peers[o].open(now)
		}
		if it.Tell || it.givesBack() {
			asks[c].From = fw.boot
		}
		asks[c].Items = append(asks[c].Items, it.AskItem)
		sent[c] = append(sent[c], i)
	}
	return calls, sent, held, lone
}

// bars reports whether it must not be sent to a target: who may have acted on it already when the
// request is cautious.
func (r *route) bars(target int, q *batch, it *flight) bool {
	return q.cautious && it.doubt.Of(r.peers[target].boot)
}

// loneCall is all that one item takes on its way, in one piece of memory, which is used again: most
// requests have one.
type loneCall struct {
	calls   [1]Call
	asks    [1]Ask
	items   [1]AskItem
	sent    [1][]int
	indexes [1]int
}

var loneCalls = sync.Pool{New: func() any { return new(loneCall) }}

// sorted is the items of one send by target.
type sorted struct {
	of   []target // by target, if there is room for all; else as they come up
	most int      // targets that there could be
}

// sort looks which items can be sent. going are the targets of the calls, held the items that are
// not sent, and all is how many are.
func (s *sorted) sort(
	now limiter.Instant, view *route, r *batch, away, targets, none []int,
) (going, held []int, all int) {
	going = none
	for _, i := range away {
		t := targets[i]
		if t >= 0 && view.bars(t, r, &r.items[i]) {
			t, targets[i] = nobody, nobody
		}
		if t < 0 {
			held = append(held, i)
			continue
		}
		to := s.about(t)
		if !to.known {
			to.known = true
			if to.open = !view.peers[t].pass(now); !to.open {
				to.call = len(going)
				going = append(going, t)
			}
		}
		if to.open {
			held = append(held, i)
			continue
		}
		to.items++
		all++
	}
	return going, held, all
}

// target is what address knows of one.
type target struct {
	member      int  // which it is
	known, open bool // open: the breaker is
	call, items int  // which call it gets, and of how many items
}

// about is what is known of t.
func (s *sorted) about(t int) *target {
	if s.most <= len(s.of) {
		return &s.of[t]
	}
	k := 0
	for s.of[k].known && s.of[k].member != t {
		k++
	}
	s.of[k].member = t
	return &s.of[k]
}

// callDeadline bounds one call: the timeout, or seven eighths of what the request has left; the
// rest is for the way back, so that the client hears a fallback instead of nothing.
func callDeadline(now, request limiter.Instant, timeout time.Duration) limiter.Instant {
	left := time.Duration(request - now)
	return now.Add(min(timeout, left-left/8))
}

// receive files the answers of one call and returns the items to try again, with their new targets.
// A call that got lost on its way is repeated: its takes carry IDs, so an owner that did act on
// them answers the same again. If another holds the key by then, and has not been told of the take,
// it is charged there as well: who decides must have counted it.
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
	if peer.gone() || peer.open(now) {
		for _, i := range items {
			targets[i] = nobodyYet
		}
	}
}

// askNext is whom to ask for item i, after asked has said that it does not hold the key, and that
// owner might.
func (fw *forwarder) askNext(
	sentAt, now limiter.Instant, view *route, r *batch, c *Call, i, asked int, owner string,
) (target int) {
	it, hop, took := &r.items[i], int(c.Ask.Hop), time.Duration(now-sentAt)
	target = max(view.findAny(owner), nobodyYet)
	if o := view.Owner(it.hash); target == view.Self && o >= 0 && o != view.Self &&
		view.peers[o].gone() {
		target = view.another(asked) // who is there may know better than who was asked
	}
	namer := it.namer
	it.namer = view.peers[asked].boot
	circle := target >= 0 && namer == view.peers[target].boot
	if circle {
		it.circled++
	}
	switch { // an heir may send back to who does not answer
	case fw.awaits.lacking.Load() && (target == view.Self || target < 0 || hop > 1): // who was asked waits for others, too
		return nobody
	case target == view.Self && hop < namesMe:
	case target == view.Self, target < 0, view.peers[target].gone():
		target, it.namer = fw.elsewhere(now, view, r, it, asked, hop), 0
	case view.peers[target].open(now):
		return nobody
	case namer == 0: // who was asked is no party to it
	case took >= farAway: // there is no time for others
	case took < circling && hop >= inCircles && hop%2 == 0, took >= circling && circle &&
		it.circled >= circles:
		// they may name each other for as long as news take to come
		target, it.namer, it.circled = view.third(asked, target, hop/2), 0, 0
	}
	return target
}
