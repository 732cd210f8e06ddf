package sim

import (
	"penstock/cluster"
	"penstock/limiter"
)

// Where the judge sees what becomes of holds: in visits, in messages between nodes, and in what
// clients hear.

// ownHold follows what a node has decided as the owner on a hold, in the i-th item of a visit.
func (j *asideJudge) ownHold(h *hearing, i int) {
	d, it := &h.out[i], &h.items[i]
	a := h.request.terms[i].account
	ask := &heldAsk{
		account: a, op: it.Op, cost: it.Cost, id: it.ID, hold: *it.Hold,
		fallen: h.request.atomic && d.Hold != limiter.HoldOpen,
	}
	if first := h.request.items[i].ID; it.Op == cluster.OpReserve && it.ID != first {
		// it has refused that a moment ago, and remembers so
		if _, seen := a.held.answers[first]; !seen && d.Hold != limiter.HoldOpen {
			a.held.answers[first] = heldAnswer{d.Decision, j.world.now}
		}
	}
	j.holds(h.process, ask, d.Decision)
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

// asks notes which holds a client wants no more.
func (j *asideJudge) asks(h *hearing) {
	for i := range h.items {
		it := &h.items[i]
		if it.Op != cluster.OpSettle || it.Hold == nil {
			continue
		}
		for _, x := range j.books.open {
			x.asked = x.asked || x.id == it.Hold.ID
		}
	}
}

// heardHold checks what a client hears about a hold.
func (j *asideJudge) heardHold(h *hearing, i int, d *cluster.Decision, yes bool) {
	p, it, t := h.process, &h.items[i], &h.request.terms[i]
	a := t.account
	switch it.Op {
	case cluster.OpReserve:
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
	p, it, t := h.process, &h.items[i], &h.request.terms[i]
	if it.Op != cluster.OpReserve || !d.Allowed || d.Shadow || it.Cost <= 0 || !yes {
		return
	}
	if j.checked[honest]++; d.Hold != limiter.HoldOpen {
		j.fail(honest, "%s says yes to a reservation of %d of %s under %s, and promises nothing: "+
			"%s, hold %d", p.machine.id, it.Cost, keyText(it.Key), t.account.spec.Name,
			answerText(d), d.Hold)
	}
	j.books.shared[it.ID], j.books.alone[promised{p, it.ID}] = true, true
}
