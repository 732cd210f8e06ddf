package sim

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// What clients hear is what was decided, in time, and names the node that decided.

// hearing is one visit of a client, from the question to the answer.
type hearing struct {
	visit    *visit
	process  *process
	request  *request
	items    []cluster.Item // that were asked for, as the node has named them by now
	deadline limiter.Instant
	out      []cluster.Decision // as far as the node has come
	decided  []bool             // items that this node has decided itself
	retried  []int              // reservations that it has tried again, under another ID
	began    time.Duration
	view     *cluster.View
	members  int    // of the configuration that the node went by then; 0: of none
	resized  uint64 // how often it had come to count on more or fewer
	// its items stand or fall together, and have several owners in the eyes of the node
	spread bool
	asks   bool // its node has asked another one
	// when an item was first seen to be decided without its owner; 0: none was
	gaveUp   time.Duration
	setAside []uint64 // of such items, the numbers under which others were asked to
	again    bool     // and under another one, for a second try
	alone    []alone  // of items without an answer of their owner; nil if there are none
}

// alone is what the reference decides where a node finds no owner.
type alone struct {
	limiter.Decision
	full    bool // all of it is known, and not only whether it is a yes
	due     bool // the limit has it so
	charged bool // to the node's share
	cutOff  bool // the node must have noticed that it is, so no owner may answer
}

// posed begins to follow a request, before its first visit.
func (j *judge) posed(r *request) {
	j.requests.Requests++
	j.requests.Items += len(r.items)
	switch {
	case r.broken:
	case j.trees != nil:
		j.trees.posed(r)
	default:
		j.bounded.posed(r)
	}
}

// left ends a visit; the last one ends the request.
func (j *judge) left(r *request) {
	switch r.open--; {
	case r.open > 0 || r.broken:
	case j.trees != nil:
		j.trees.left(r)
	default:
		j.bounded.left(r)
		j.answer.left(r)
	}
}

// opened begins a visit.
func (j *judge) opened(h *hearing, v *visit) {
	p, r, q := v.process, v.request, &v.question
	*h = hearing{
		visit: v, process: p, request: r, deadline: q.Deadline, out: v.out, began: j.world.now,
		items:   append(h.items[:0], q.Items...),
		decided: h.decided[:0], retried: h.retried[:0], setAside: h.setAside[:0],
	}
	j.sees(h)
	j.aside.asks(h)
	j.requests.Visits++
	for i := range r.items {
		it := &r.items[i]
		j.world.trace.add(happening{
			at: j.world.now, kind: asks, node: p.machine,
			seq: it.ID.Sequence, limit: limitName(it), key: it.Key, op: it.Op, cost: it.Cost,
		})
	}
	if !r.broken && j.trees == nil {
		j.bounded.visited(r)
		j.aside.triesAgain(h)
		j.denied.gives(h)
		h.decided = append(h.decided, make([]bool, len(r.items))...)
	}
}

// sees has h go by what its node sees now: when it begins, and when it goes on after it has waited,
// before it has asked or decided anything, whether the client of a node that stood still hangs up.
func (j *judge) sees(h *hearing) {
	p := h.process
	h.view, h.members, h.resized = p.stated.view, membersOf(p.stated.agreed), p.stated.resized
	if !h.request.broken && j.trees == nil {
		j.spread.spreads(h)
	}
}

// closed checks what a client heard at the end of a visit.
func (j *judge) closed(h *hearing, out []cluster.Decision, err error) {
	r, p := h.request, h.process
	defer j.left(r)
	if err == nil {
		for i := range min(len(h.items), len(out)) { // a planted fault may have taken some
			h.items[i].ID = out[i].ID // what was asked, as the node has named it
		}
	}
	if j.trees == nil {
		j.observe(h)
	}
	if !j.deadline.visited(h) {
		return
	}
	if !r.broken {
		j.denied.gave(h, out, err)
	}
	if h.waitedInVain(err) {
		return
	}
	j.once.decides(h)
	due := r.broken
	if due || err != nil {
		j.input.refusal(p, err, due)
		return
	}
	if j.trees != nil {
		j.trees.closed(h, out)
		return
	}
	j.answered(h, out)
}

// waitedInVain reports whether a node that had stood still waited whether the client hangs up, and
// rightly decides nothing: the client has hung up, or the deadline has come.
func (h *hearing) waitedInVain(err error) bool {
	p := h.process
	return p.machine.hasThawed(h.began) &&
		(errors.Is(err, cluster.ErrHungUp) && h.visit.hungUp() ||
			errors.Is(err, cluster.ErrExpired) && p.now() >= h.deadline)
}

// answered checks the decisions that a client has got.
func (j *judge) answered(h *hearing, out []cluster.Decision) {
	yes := true
	for i := range out {
		yes = yes && out[i].Allowed
		if out[i].Source == cluster.SourceFallback && h.alone == nil {
			j.marked.decideAlone(h, out)
		}
	}
	j.available.available(h, out)
	for i := range out {
		j.heard(h, i, &out[i], !h.request.atomic || yes)
		if id := h.items[i].ID; id.Origin != clientOrigin && !h.spread {
			j.answer.said.forget(id) // nobody else will ask for it
		}
	}
}

// heard checks one decision as a client heard it. yes is false if the client has to take it for a
// no because it fell with others.
func (j *judge) heard(h *hearing, i int, d *cluster.Decision, yes bool) {
	p, it, t := h.process, &h.items[i], &h.request.terms[i]
	a := t.account
	j.world.trace.add(happening{
		at: j.world.now, kind: hears, node: p.machine, seq: it.ID.Sequence,
		limit: a.spec.Name, key: it.Key, op: it.Op, cost: it.Cost, allowed: d.Allowed,
		remaining: d.Remaining,
	})
	got := d.Decision
	if d.Shadow {
		got.Allowed = false
	}
	j.checked[honest]++
	if d.Rule == nil || d.Rule.Name != a.spec.Name || d.Shadow && !d.Allowed ||
		it.Op == cluster.OpTake && !d.Shadow && !d.Allowed && watches(a.spec) {
		j.fail(honest, "%s answers for %s under %s: %s", p.machine.id, keyText(it.Key), a.spec.Name,
			answerText(d))
		return
	}
	switch {
	case a.replica != nil || a.spec.Unlimited:
		j.replica.heardReplica(h, i, d, yes)
	case d.Source == cluster.SourceFallback:
		j.heardAlone(h, i, d, got, yes)
	case j.answer.mayPassOn(h, i, d, got, yes):
		a.tally.count(it, d)
		t.settled = true
		j.heardOfOwner(h, i, d, yes)
	}
}

// heardAlone checks a decision that a client hears without the owner of its key.
func (j *judge) heardAlone(h *hearing, i int, d *cluster.Decision, got limiter.Decision, yes bool) {
	it, t := &h.items[i], &h.request.terms[i]
	a := t.account
	if it.Op > cluster.OpReserve && d.Hold != limiter.HoldNone {
		j.marked.heardPromise(h, i, d)
		return
	}
	j.marked.fellBack(h, i, d, unheld(got))
	a.tally.count(it, d)
	admits := d.Allowed && !d.Shadow && it.Cost > 0
	if admits && asksFor(it) {
		a.reference.owes(a, h.process, it.ID, it.Cost)
	}
	j.aside.promises(h, i, d, yes)
	if admits && yes && h.alone[i].charged {
		j.bounded.spared(t, it.Cost, d.Bound)
	}
}

// heardOfOwner counts from outside what a client hears of the owner of its key.
func (j *judge) heardOfOwner(h *hearing, i int, d *cluster.Decision, yes bool) {
	it, t := &h.items[i], &h.request.terms[i]
	if it.Op >= cluster.OpReserve {
		j.aside.heardHold(h, i, d, yes)
		return
	}
	if h.spread && yes && d.Allowed && !d.Shadow && it.Cost != 0 {
		j.spread.charged(t, it.Cost)
	}
	switch {
	case !yes || !d.Allowed || d.Shadow || it.Op != cluster.OpTake || it.Cost <= 0:
	case !j.answer.ofShare(h, it, d):
		j.bounded.admitted(t, it.Cost)
	case !t.spared: // the client has not heard of that
		j.bounded.spared(t, it.Cost, d.Bound)
	}
}

// limitName is the name of the limit that an item is about.
func limitName(it *cluster.Item) string {
	if it.Inline != nil {
		return it.Inline.Name
	}
	return it.Limit
}

// observe looks at what a node has decided itself since it was last looked at: whenever it begins
// to wait for others, and when it answers. Between two looks no time goes by, so this is when it
// decided.
func (j *judge) observe(h *hearing) {
	p := h.process
	j.aside.settling(nil, h)
	j.aside.looksAtHolds(p)
	for i := range h.decided {
		d := &h.out[i]
		j.spread.keeps(h, i)
		if j.denied.observeDenial(h, i) || j.observeHold(h, i) || j.replica.observeReplica(h, i) ||
			h.decided[i] || d.Source != cluster.SourceOwner || d.Owner != p.machine.id {
			continue
		}
		h.decided[i] = true
		raw := d.Decision
		raw.Allowed = raw.Allowed && !d.Shadow
		x := h.asked(i)
		if h.spread {
			j.spread.setsAside(p, &x, raw)
			continue
		}
		j.exact.hears(p, x, raw, h.request.atomic)
	}
	j.exact.judges(p, true)
	// What nobody has answered is decided last; after that a node may wait for others to hear what
	// it has given back. (Of what stands or falls together it may try again.)
	if !h.givenUp() {
		return
	}
	h.gaveUp = cmp.Or(h.gaveUp, j.world.now)
	if h.alone == nil && !h.request.atomic {
		j.marked.decideAlone(h, h.out)
	}
}

// asked is the i-th item, which the node has decided. Of one that its client gave no ID the
// decision says which one the node has drawn: the node has asked others under it, and may remember
// what they have told.
func (h *hearing) asked(i int) asked {
	it, d := &h.items[i], &h.out[i]
	id := it.ID
	if id == (cluster.ID{}) {
		id = d.ID
	}
	return asked{h.request.terms[i].account, it.Cost, it.Op, id, d.Degraded}
}

// givenUp reports whether an item was decided without its owner. What a node has promised it
// answers for at once, before it asks for others.
func (h *hearing) givenUp() bool {
	for i := range h.out {
		if d := &h.out[i]; d.Source == cluster.SourceFallback &&
			(d.Hold == limiter.HoldNone || h.items[i].Op <= cluster.OpReserve) {
			return true
		}
	}
	return false
}

// observeHold looks at what a node has decided itself on the i-th item of a visit, if that is about
// a hold or spends a lease, and reports whether it has.
func (j *judge) observeHold(h *hearing, i int) bool {
	p, d, it := h.process, &h.out[i], &h.items[i]
	a := h.request.terms[i].account
	if a.held == nil {
		return false
	}
	if d.ID != (cluster.ID{}) { // it may be that of a second try
		it.ID = d.ID
	}
	if it.Op == cluster.OpReserve && it.ID != h.request.items[i].ID &&
		!slices.Contains(h.retried, i) {
		h.retried, h.decided[i] = append(h.retried, i), false
	}
	switch lone := d.Owner != "" &&
		(d.Source == cluster.SourceLease || d.Source == cluster.SourceDenied); {
	case h.decided[i]:
	case lone:
		h.decided[i] = true
		j.lent.spends(p, a, it, d)
	case d.Source == cluster.SourceOwner && d.Owner == p.machine.id && it.Op >= cluster.OpReserve:
		h.decided[i] = true
		j.aside.ownHold(h, i)
	default:
		return false
	}
	return true
}
