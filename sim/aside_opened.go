package sim

import (
	"penstock/cluster"
	"penstock/limiter"
)

// opens follows a reservation or a lease.
func (j *asideJudge) opens(p *process, it *heldAsk, got limiter.Decision) {
	a, units := it.account, it.cost
	if it.op == cluster.OpLease {
		units = got.Drained
	}
	granted := got.Hold == limiter.HoldOpen && units > 0
	if h, found := p.stated.ledger.get(it.id); granted && found &&
		h.State != limiter.HoldOpen && a.held.find(it.id) == nil {
		// what it answered when it opened that for itself, which nobody saw, and which is over
		j.books.over[it.id] = true
		return
	}
	if j.opensNothing(p, it, units, granted, got) {
		return
	}
	// it may have asked itself for what it had promised before, and says again what it said then
	unseen := j.books.alone[promised{p, it.id}]
	if !unseen {
		j.grants(p, it, units, granted, got)
	}
	switch {
	case granted:
	case unseen:
		j.refusedBefore(p, it, got)
		return
	default:
		j.leftBeside(p, it, got)
		return
	}
	x := j.newHold(p, it, units)
	if h, found := p.stated.ledger.get(it.id); unseen && found &&
		h.Deadline < p.now().Add(it.hold.TTL) { // its time runs since it was opened
		x.lasts(p, h.Deadline.Add(-it.hold.TTL), it.hold.TTL)
	}
	if !unseen {
		j.leftBeside(p, it, got)
	}
}

// newHold writes down the hold that p has just opened.
func (j *asideJudge) newHold(p *process, it *heldAsk, units int64) *holding {
	a := it.account
	x := &holding{id: it.id, account: a, units: units, release: !it.hold.Charge &&
		a.spec.Unsettled == limiter.UnsettledRelease || a.spec.Algorithm == limiter.Concurrency}
	x.lasts(p, p.now(), it.hold.TTL)
	if it.op == cluster.OpReserve {
		j.books.report.Opened++
	} else {
		j.books.report.Leases++
		x.node, x.release = it.from, false
		// the node that asks may only have forwarded it
		if m := j.world.byID[it.hold.Holder]; m != nil && m.process != nil {
			x.node = m.process
		}
	}
	a.held.open = append(a.held.open, x)
	j.books.open = append(j.books.open, x)
	return x
}

// opensNothing follows an answer that neither opens a hold nor tells how much room there is, and
// finds those that may not be.
func (j *asideJudge) opensNothing(p *process, it *heldAsk, units int64, granted bool,
	got limiter.Decision,
) bool {
	if granted && j.opensAmiss(p, it, units) {
		return true
	}
	switch {
	case got.Hold > limiter.HoldOpen && got.Hold != limiter.HoldInTheWay:
		// for reasons that no reference knows
	case it.op == cluster.OpLease && !granted: // what is not lent may be there all the same
		j.leftBeside(p, it, got)
	case it.fallen:
	default:
		return false
	}
	return true
}

// opensAmiss reports whether p opens a hold that it has already, or one that it must not open.
func (j *asideJudge) opensAmiss(p *process, it *heldAsk, units int64) bool {
	a := it.account
	switch x := a.held.find(it.id); {
	case x != nil && x.units == units: // it has it already
	case x != nil:
		j.fail(aside, "%s sets %d of %s under %s aside for hold %s, which has %d already",
			p.machine.id, units, keyText(a.key), a.spec.Name, idText(it.id), x.units)
	case j.books.over[it.id] && !j.inDoubt(a):
		j.fail(aside, "%s sets %d of %s under %s aside for hold %s, which is over", p.machine.id,
			units, keyText(a.key), a.spec.Name, idText(it.id))
	case units > it.cost:
		j.fail(aside, "%s sets %d of %s under %s aside where %d were asked for", p.machine.id,
			units, keyText(a.key), a.spec.Name, it.cost)
	default:
		return false
	}
	return true
}

// refusedBefore checks a refusal that may be from when p asked itself, unseen: what is left now
// says nothing about it, but less was left then than it was asked for.
func (j *asideJudge) refusedBefore(p *process, it *heldAsk, got limiter.Decision) {
	a := it.account
	if a.spec.MinGap > 0 {
		return
	}
	j.checked[exact]++
	if it.cost <= got.Remaining {
		j.fail(exact, "%s refuses %s of %s under %s, and says that as much is left:\n  %s",
			p.machine.id, opText(it.op, it.cost), keyText(a.key), a.spec.Name, decisionText(got))
	}
}

// grants checks whether what p has granted, or refused, is what the reference says beside all that
// is set aside.
func (j *asideJudge) grants(p *process, it *heldAsk, cost int64, granted bool,
	got limiter.Decision,
) {
	a, now := it.account, p.now()
	r, s := &a.reference, a.spec
	low, high := a.held.sums()
	j.checked[exact]++
	strict := r.strictest()
	switch {
	case cost <= 0:
	case granted && !r.isVague(s) && !fits(r.most(now, s), now, s, cost+low):
		j.fail(exact, "%s decides on %s of %s under %s:\n  %s\nwhere %d are set aside and a "+
			"naive limiter, that forgives what may be lost, has:\n  %s", p.machine.id,
			opText(it.op, cost), keyText(a.key), s.Name, decisionText(got), low,
			decisionText(r.loose.peek(now, s, 0)))
	case granted || cost > capacityOf(a.spec) || !j.saysAll(a):
	case fits(strict, now, s, cost+high) && !j.adopts(p, a):
		j.fail(useful, "%s decides on %s of %s under %s:\n  %s\nwhere %d are set aside and a "+
			"naive limiter, that counts as late as may be, has:\n  %s", p.machine.id,
			opText(it.op, cost), keyText(a.key), s.Name, decisionText(got), high,
			decisionText(strict.peek(now, s, 0)))
	}
}

// leftBeside checks what p says is left of a key, after what it has decided.
func (j *asideJudge) leftBeside(p *process, it *heldAsk, got limiter.Decision) {
	a, now := it.account, p.now()
	r, s := &a.reference, a.spec
	if s.MinGap > 0 {
		return
	}
	strict := r.strictest()
	low, high := a.held.sums()
	j.checked[exact]++
	if most := max(0, left(r.most(now, s), now, s)-low); got.Remaining > most && !r.isVague(s) {
		j.fail(exact, "%s says after %s of %s under %s:\n  %s\nwhere %d are set aside, and no "+
			"more than %d can be left", p.machine.id,
			opText(it.op, it.cost), keyText(a.key), s.Name, decisionText(got), low, most)
	} else if least := max(0, left(strict, now, s)-high); got.Remaining < least && j.saysAll(a) &&
		!j.adopts(p, a) {
		j.fail(useful, "%s says after %s of %s under %s:\n  %s\nwhere %d are set aside, and no "+
			"less than %d can be left", p.machine.id,
			opText(it.op, it.cost), keyText(a.key), s.Name, decisionText(got), high, least)
	}
}

// saysAll reports whether all is known that may be set aside of a, or charged to it.
func (j *asideJudge) saysAll(a *account) bool {
	return j.world.plan.sky == calm && !a.reference.isBlind() && !a.reference.isHeld() &&
		!j.inDoubt(a)
}

// fits reports whether st grants cost.
func fits(st *naiveState, now limiter.Instant, s *limiter.Spec, cost int64) bool {
	return st.peek(now, s, cost).Allowed
}

func left(st *naiveState, now limiter.Instant, s *limiter.Spec) int64 {
	return st.peek(now, s, 0).Remaining
}
