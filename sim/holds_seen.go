package sim

import (
	"slices"

	"penstock/cluster"
	"penstock/limiter"
)

// Where the judge sees what becomes of holds: in visits, in messages between nodes, and in what
// clients hear.

// observeHold looks at what a node has decided itself on the i-th item of a visit, if that is about
// a hold or spends a lease, and reports whether it has.
func (j *judge) observeHold(h *hearing, i int) bool {
	p, d, it := h.process, &h.out[i], &h.question.Items[i]
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

// ownHold follows what a node has decided as the owner on a hold, in the i-th item of a visit.
func (j *asideJudge) ownHold(h *hearing, i int) {
	d, it := &h.out[i], &h.question.Items[i]
	a := h.request.terms[i].account
	ask := &heldAsk{
		account: a, op: it.Op, cost: it.Cost, id: it.ID, hold: *it.Hold,
		fallen: h.request.atomic && d.Hold != limiter.HoldOpen,
	}
	if first := h.request.items[i].ID; it.Op == cluster.OpReserve && it.ID != first {
		j.books.renamed[first] = it.ID
		// it has refused that a moment ago, and remembers so
		if _, seen := a.held.answers[first]; !seen && d.Hold != limiter.HoldOpen {
			a.held.answers[first] = heldAnswer{d.Decision, j.world.now}
		}
	}
	j.holds(h.process, ask, d.Decision)
}

// deliveredHold checks what p has answered to the i-th item of an Ask, if that is about a hold, and
// reports whether it is.
func (j *judge) deliveredHold(from, p *process, ask *cluster.Ask, i int,
	answer *cluster.Answer,
) bool {
	it, out := &ask.Items[i], &answer.Items[i]
	a := j.account(it.Limit.Name, it.Key)
	if a.held == nil || it.Op < cluster.OpReserve || it.Hold.Charge {
		return false
	}
	if out.Status == cluster.StatusDone {
		fallen := ask.Atomic && out.Decision.Hold != limiter.HoldOpen
		j.aside.holds(p, &heldAsk{
			account: a, op: it.Op, cost: it.Cost, id: it.ID, hold: *it.Hold,
			from: from, fallen: fallen,
		}, out.Decision)
		j.answer.says(p, &asked{a, it.Cost, it.Op, it.ID, out.Degraded}, out.Decision)
	}
	return true
}

// triesAgain notes that a node may try a reservation of several owners again, and charge its own
// share of each limit for both attempts: then nobody knows what is left of that.
func (j *asideJudge) triesAgain(h *hearing) {
	r := h.request
	if !r.atomic || r.items[0].Op != cluster.OpReserve {
		return
	}
	for i := range r.terms {
		id := r.items[i].ID
		j.books.shared[id], j.books.shared[cluster.ID{Origin: id.Origin, Sequence: ^id.Sequence}] =
			true, true
		h.process.shares.parts[naiveKey{
			share(r.terms[i].account.spec, 1).Name,
			r.items[i].Key,
		}] = -1
	}
}

// rename has clients speak of the holds that they got, where their node has tried again under
// another ID.
func (j *asideJudge) rename(items []cluster.Item) {
	for i := range items {
		if it := &items[i]; it.Op > cluster.OpReserve && it.Hold != nil {
			if id, renamed := j.books.renamed[it.Hold.ID]; renamed {
				terms := *it.Hold
				terms.ID = id
				it.Hold = &terms
			}
			for _, x := range j.books.open {
				x.asked = x.asked || it.Op == cluster.OpSettle && x.id == it.Hold.ID
			}
		}
	}
}

// heardHold checks what a client hears about a hold.
func (j *asideJudge) heardHold(h *hearing, i int, d *cluster.Decision, yes bool) {
	p, it, t := h.process, &h.question.Items[i], &h.request.terms[i]
	a := t.account
	switch it.Op {
	case cluster.OpReserve:
		if id := h.request.items[i].ID; it.ID != id {
			j.books.renamed[id] = it.ID
		}
		if yes && d.Allowed && d.Hold != limiter.HoldOpen {
			j.fail(honest, "%s says yes to a reservation of %d of %s under %s, and that nothing "+
				"is set aside: %s, hold %d", p.machine.id, it.Cost, keyText(it.Key), a.spec.Name,
				answerText(d), d.Hold)
		}
		if yes && d.Allowed && !j.books.over[it.ID] {
			j.books.units[it.ID] = it.Cost
			j.toldHold(a, it.ID)
		}
	case cluster.OpSettle:
		if d.Hold == limiter.HoldSettled {
			j.heardSettled(t, it.Hold.ID, it.Cost)
		}
	}
}

// promises notes what a node has let a client reserve of its share: it opens that by itself later,
// or settles what may be open already.
func (j *asideJudge) promises(h *hearing, i int, d *cluster.Decision, yes bool) {
	p, it, t := h.process, &h.question.Items[i], &h.request.terms[i]
	if it.Op != cluster.OpReserve || !d.Allowed || d.Shadow || it.Cost <= 0 || !yes {
		return
	}
	if j.checked[honest]++; d.Hold != limiter.HoldOpen {
		j.fail(honest, "%s says yes to a reservation of %d of %s under %s, and promises nothing: "+
			"%s, hold %d", p.machine.id, it.Cost, keyText(it.Key), t.account.spec.Name,
			answerText(d), d.Hold)
	}
	if id := h.request.items[i].ID; it.ID != id {
		j.books.renamed[id] = it.ID
	}
	j.books.shared[it.ID], j.books.alone[promised{p, it.ID}] = true, true
}

// heardPromise checks that a node that speaks of a hold without the node that decides has promised
// that hold.
func (j *markedJudge) heardPromise(h *hearing, i int, d *cluster.Decision) {
	p, it, a := h.process, &h.question.Items[i], h.request.terms[i].account
	j.checked[marked]++
	done := d.Hold == limiter.HoldSettled || d.Hold == limiter.HoldOpen
	if !j.aside.books.alone[promised{p, it.Hold.ID}] || !d.Degraded || d.Allowed != done ||
		j.world.plan.sky == calm && !j.hurried(h, a) {
		j.fail(marked, "%s answers for hold %s on %s under %s without its owner, in a world that "+
			"is %s: %s, hold %d",
			p.machine.id, idText(it.Hold.ID), keyText(it.Key), a.spec.Name, j.world.plan.sky,
			answerText(d), d.Hold)
	}
}
