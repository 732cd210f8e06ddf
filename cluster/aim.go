package cluster

import (
	"slices"
	"time"

	"penstock/limiter"
)

// aim is where to ask for an item that this node does not hold: the owner, or its heir if the owner
// is gone or does not answer. If it is gone, the heir is about to take over; if it is only silent,
// that lasts too long to wait for. Items of an atomic request go where the first one goes. Where
// several nodes say in turn that another one decides, because their Views differ, every other send
// goes to the node that has said so itself.
func (fw *forwarder) aim(now limiter.Instant, view *route, r *batch, it *flight, hop int) int {
	if r.atomic {
		it = &r.items[0]
	}
	t := view.Owner(it.hash)
	if t == view.Self || hop > 2 && hop%2 == 1 {
		if said := view.Find(fw.parts.whereabouts(view, it.hash)); t == view.Self ||
			said >= 0 && !view.peers[said].gone() {
			t = said
		}
	}
	switch {
	case t < 0 || t == view.Self:
		return fw.aimUnowned(view, hop)
	case view.peers[t].gone():
		t = max(fw.aimAtHeir(view, it.hash, hop), nobodyYet)
	case view.peers[t].Open(now):
		t = view.aimBeside(now, it.hash, t, hop)
	}
	if t == view.Self {
		return nobodyYet
	}
	return t
}

// aimBeside is where to ask about a key with a silent owner: its heir, or another member that may
// reach the owner.
func (r *route) aimBeside(now limiter.Instant, hash uint64, silent, hop int) int {
	switch t := r.heir(r.Partition(hash)); {
	case t < 0:
		return nobodyYet
	case t == r.Self || r.peers[t].Open(now):
		return r.relayer(now, silent, silent, hop)
	default:
		return t
	}
}

// aimUnowned is where to ask about a key that no other node is known to hold: after some attempts
// any member, since one may have heard of the holder.
func (fw *forwarder) aimUnowned(view *route, hop int) int {
	switch {
	case fw.awaits.lacking.Load(): // that may take longer than a request waits
		return nobody
	case hop >= asksAnybody:
		return view.elsewhereThan(view.Self, hop)
	}
	return nobodyYet
}

// aimAtHeir is where to ask about a key with an owner that is gone.
func (fw *forwarder) aimAtHeir(view *route, hash uint64, hop int) int {
	t := view.heir(view.Partition(hash))
	if t < 0 { // nobody else was there, or has been heard of
		return fw.aimUnowned(view, hop)
	}
	if t == view.Self { // unless others hear the owner
		t = view.Find(fw.parts.whereabouts(view, hash))
		if t >= 0 && view.peers[t].gone() {
			return nobodyYet
		}
		return t
	}
	if view.peers[t].gone() { // others may have heard of another one
		return view.elsewhereThan(t, hop)
	}
	return t
}

// aimAgain is fresh, the View that has taken the place of old, with the strangers that were met;
// targets of items are those of old. A node that was named stays the target if the owner in fresh
// has named it: else that owner would be asked again.
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
			!fresh.peers[k].gone() && !fresh.peers[k].Open(now) {
			targets[i] = k
		}
	}
	return fresh
}

// meet is view with the owners that it does not know, because news of them is late. They are not
// owners by this view, and only this request knows them.
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

// elsewhere is where to ask next after the hop-th send of it, to asked, was answered with no node
// that is there: every other time another member. That one may know the holder although neither
// this node's View nor that of the node asked names it.
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

// askNext is the node to ask for item i, after asked has said that it does not hold the key, and
// that owner might.
func (fw *forwarder) askNext(
	sentAt, now limiter.Instant, view *route, r *batch, c *Call, i, asked int, owner string,
) (target int) {
	it, hop, took := &r.items[i], int(c.Ask.Hop), time.Duration(now-sentAt)
	target = view.named(owner, it.hash, asked)
	namer := it.namer
	it.namer = view.peers[asked].boot
	circle := target >= 0 && namer == view.peers[target].boot
	if circle {
		it.circled++
	}
	switch { // an heir may name a node that does not answer
	case fw.awaits.lacking.Load() && (target == view.Self || target < 0 || hop > 1):
		return nobody // the node that was asked waits for others, too
	case target == view.Self && hop < namesMe:
	case target == view.Self, target < 0, view.peers[target].gone():
		target, it.namer = fw.elsewhere(now, view, r, it, asked, hop), 0
	case view.peers[target].Open(now):
		return view.relayer(now, asked, target, hop)
	case namer == 0: // the node that was asked is no party to it
	case took >= farAway: // there is no time for others
	case it.goesRound(took, hop, circle):
		it.thirds++
		target, it.namer, it.circled = view.third(asked, target, int(it.thirds)), 0, 0
	}
	return target
}

// named is the index of owner, which asked has named. If that is this node, but the owner by its
// own View is gone, it is another member: that one may know better than asked.
func (r *route) named(owner string, hash uint64, asked int) int {
	target, o := max(r.findAny(owner), nobodyYet), r.Owner(hash)
	if target == r.Self && o >= 0 && o != r.Self && r.peers[o].gone() {
		return r.another(asked)
	}
	return target
}

// goesRound reports whether nodes have named each other too often: they may do so for as long as
// news take to come. circle says whether the last two have, after it took so long to ask one. A
// node that another one has named is asked: that may be old news, and lead back to the two, of
// which one has got the key meanwhile.
func (it *flight) goesRound(took time.Duration, hop int, circle bool) bool {
	if took < circling {
		return hop >= inCircles && (circle && hop%2 == 0 || hop%inCircles == 0)
	}
	return circle && it.circled >= circles
}
