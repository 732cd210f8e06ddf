package sim

import (
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// What clients hear is what was decided, in time, and names the node that decided.

// hearing is one visit of a client, from the question to the answer.
type hearing struct {
	process  *process
	request  *request
	question *cluster.Request
	out      []cluster.Decision // as far as the node has come
	decided  []bool             // items that this node has decided itself
	retried  []int              // reservations that it has tried again, under another ID
	began    time.Duration
	view     *cluster.View
	members  int // of the configuration that the node went by then; 0: of none
	// its items stand or fall together, and have several owners in the eyes of the node
	spread bool
	alone  []alone // of items without an answer of their owner; nil if there are none
}

// alone is what the reference decides where a node finds no owner.
type alone struct {
	limiter.Decision
	full    bool // all of it is known, and not only whether it is a yes
	due     bool // the limit has it so
	charged bool // to the node's share
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
func (j *judge) opened(h *hearing, p *process, r *request, q *cluster.Request,
	out []cluster.Decision,
) {
	*h = hearing{
		process: p, request: r, question: q, out: out, began: j.world.now,
		view: p.stated.view, members: membersOf(p.stated.agreed),
		decided: h.decided[:0], retried: h.retried[:0],
	}
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
		j.spread.spreads(h)
		j.aside.triesAgain(h)
		j.denied.gives(h)
		h.decided = append(h.decided, make([]bool, len(r.items))...)
	}
}

// closed checks what a client heard at the end of a visit.
func (j *judge) closed(h *hearing, out []cluster.Decision, err error) {
	r, p := h.request, h.process
	defer j.left(r)
	if j.trees == nil {
		j.observe(h)
	}
	if !j.deadline.visited(h) {
		return
	}
	if !r.broken {
		j.denied.gave(h, out, err)
	}
	due := r.broken
	if due || err != nil {
		j.input.refusal(p, err, due)
		return
	}
	if j.trees != nil {
		j.trees.closed(h, out)
		return
	}
	yes := true
	for i := range out {
		yes = yes && out[i].Allowed
		if out[i].Source == cluster.SourceFallback && h.alone == nil {
			j.marked.decideAlone(h, out)
		}
	}
	j.available.available(h, out)
	for i := range out {
		j.heard(h, i, &out[i], !r.atomic || yes)
		if id := h.question.Items[i].ID; id.Origin != clientOrigin && !h.spread {
			j.answer.said.forget(id) // nobody else will ask for it
		}
	}
}

// heard checks one decision as a client heard it. yes is false if the client has to take it for a
// no because it fell with others.
func (j *judge) heard(h *hearing, i int, d *cluster.Decision, yes bool) {
	p, it, t := h.process, &h.question.Items[i], &h.request.terms[i]
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
	it, t := &h.question.Items[i], &h.request.terms[i]
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

// mayPassOn checks that a node that answers a client has decided itself with reason, or names the
// node that decided and passes on what that one has said.
func (j *answerJudge) mayPassOn(h *hearing, i int, d *cluster.Decision, got limiter.Decision,
	yes bool,
) bool {
	p, it, a := h.process, &h.question.Items[i], h.request.terms[i].account
	local := d.Source == cluster.SourceOwner
	switch {
	case d.Source == cluster.SourceDenied: // see observeDenial
	case d.Source == cluster.SourceLease:
		if a.held == nil || it.Op != cluster.OpTake || d.Degraded {
			j.fail(lent, "%s decides on %s under %s by itself: %s", p.machine.id, keyText(it.Key),
				a.spec.Name, answerText(d))
			return false
		}
	case d.Degraded && j.world.plan.sky == calm:
		j.fail(marked, "%s answers for %s under %s with less than the full promise, "+
			"in a world that is %s: %s",
			p.machine.id, keyText(it.Key), a.spec.Name, j.world.plan.sky, answerText(d))
		return false
	case j.relayedTo(p, it, d, got):
	case local != (d.Owner == p.machine.id) || j.world.byID[d.Owner] == nil:
		j.fail(owned, "%s, asked for %s, says that %s decided (%s)", p.machine.id, keyText(it.Key),
			d.Owner, d.Source)
		return false
	case local:
	case it.Op != cluster.OpPeek && !(h.spread && looksOnly(a, it)):
		return j.passesOn(h, i, got, yes)
	}
	return true
}

// heardOfOwner counts from outside what a client hears of the owner of its key.
func (j *judge) heardOfOwner(h *hearing, i int, d *cluster.Decision, yes bool) {
	it, t := &h.question.Items[i], &h.request.terms[i]
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

// ofShare reports whether what a client hears as the owner's is what the share of that node has
// admitted when it was not the owner: any node that has decided on a take remembers it.
func (j *answerJudge) ofShare(h *hearing, it *cluster.Item, d *cluster.Decision) bool {
	m := j.world.byID[d.Owner]
	if m == nil || m.process == nil {
		return false
	}
	own := m.process.shares.answers.get(it.ID)
	return own != nil && own.repeated != 0 && own.repeated >= h.began &&
		own.decisions[0] == d.Decision
}

// limitName is the name of the limit that an item is about.
func limitName(it *cluster.Item) string {
	if it.Inline != nil {
		return it.Inline.Name
	}
	return it.Limit
}

// oneKey reports whether all items of r are about one key, which has one owner.
func oneKey(r *request) bool {
	for i := range r.items {
		if r.items[i].Key != r.items[0].Key {
			return false
		}
	}
	return true
}
