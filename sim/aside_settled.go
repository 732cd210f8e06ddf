package sim

import (
	"slices"

	"penstock/cluster"
	"penstock/limiter"
)

// settles follows a settlement.
func (j *asideJudge) settles(p *process, it *heldAsk, got limiter.Decision) {
	a := it.account
	x := a.held.find(it.hold.ID)
	if x == nil || got.Hold != limiter.HoldSettled {
		// it has opened by itself what it had promised
		unseen := j.books.alone[promised{p, it.hold.ID}]
		if x == nil && got.Hold == limiter.HoldSettled && !unseen && !j.books.over[it.hold.ID] &&
			!j.inDoubt(a) && j.world.plan.sky == calm && it.hold.ID.Origin == clientOrigin {
			j.fail(aside, "%s settles hold %s of %s under %s, which nobody has opened",
				p.machine.id, idText(it.hold.ID), keyText(a.key), a.spec.Name)
		}
		j.missing(p, a, it.hold, got)
		return
	}
	if x.node != nil && it.cost > x.units {
		j.fail(aside, "%s charges %d for a lease of %d on %s under %s", p.machine.id, it.cost,
			x.units, keyText(a.key), a.spec.Name)
	}
	j.books.report.Settled++
	j.closes(p, x, it.cost)
	j.leftBeside(p, it, got)
}

// missing checks that p says with reason that there is no such hold.
func (j *asideJudge) missing(p *process, a *account, terms cluster.HoldTerms,
	got limiter.Decision,
) {
	x := a.held.find(terms.ID)
	if x == nil || x.lost || j.inDoubt(a) || got.Hold == limiter.HoldOpen ||
		got.Hold == limiter.HoldForeign || j.world.now >= x.until-tickSlack {
		return
	}
	j.fail(aside, "%s says of hold %s, %d of %s under %s, until %v, that it is not open (state %d)",
		p.machine.id, idText(x.id), x.units, keyText(a.key), a.spec.Name, x.until, got.Hold)
}

// closes ends a hold: used is charged, as far as capacity and debt reach, and the rest is free.
func (j *asideJudge) closes(p *process, x *holding, used int64) {
	a := x.account
	r, now := &a.reference, p.now()
	j.ends(x)
	if b := a.held.borrowed[x.node]; b != nil {
		b.charged += used
	}
	if used <= 0 || a.spec.Algorithm == limiter.Concurrency {
		return
	}
	// charged: what there was no room for is not, and how much room there was is known in between
	surely := used
	full := false
	if r.isBlind() || j.inDoubt(a) {
		h, _ := p.stated.ledger.get(x.id)
		full = h.exhausted
	}
	if full && r.strict == nil {
		r.strict = r.loose.copy()
	}
	switch {
	case r.strict == nil:
	case a.spec.Algorithm == limiter.TokenBucket:
		surely = r.strict.report(now, a.spec, used)
	default: // all of it: what does not fit now might have, had less been charged before
		surely = r.strict.copy().report(now, a.spec, used)
		r.strict.charge(now, a.spec, used)
	}
	if full {
		// what nobody has seen may have left no room for it, and then it is not charged, or not all
		// of it
		return
	}
	a.note(p, r.loose.report(now, a.spec, surely))
}

func (j *asideJudge) ends(x *holding) {
	same := func(y *holding) bool { return x == y }
	x.ended = true
	x.account.held.open = slices.DeleteFunc(x.account.held.open, same)
	j.books.open = slices.DeleteFunc(j.books.open, same)
	j.books.over[x.id] = true
}

// report charges what has been spent, as far as capacity and debt reach, and returns how much that
// is.
func (st *naiveState) report(now limiter.Instant, s *limiter.Spec, cost int64) int64 {
	debtor := *s
	switch s.Algorithm {
	case limiter.GCRA, limiter.LeakyBucket:
		debtor.Burst += s.MaxDebt
	default:
		debtor.Limit += s.MaxDebt
	}
	debtor.MaxDebt, debtor.MinGap = 0, 0
	debtor.Strict, debtor.Drain, debtor.CountRejected = false, false, false
	n := min(cost, st.peek(now, &debtor, 0).Remaining)
	if n > 0 {
		st.take(now, &debtor, n)
		st.bound(s.Limit)
	}
	return n
}

// settling notes which holds items are about to settle: the books are ahead of the judge by then.
func (j *asideJudge) settling(ask *cluster.Ask, h *hearing) {
	j.books.batch = j.books.batch[:0]
	if len(j.heldOf) == 0 {
		return
	}
	if ask != nil {
		for i := range ask.Items {
			if it := &ask.Items[i]; it.Op == cluster.OpSettle {
				j.books.batch = append(j.books.batch, it.Hold.ID)
			}
		}
		return
	}
	for i := 0; h != nil && i < len(h.items); i++ {
		if it := &h.items[i]; it.Op == cluster.OpSettle {
			j.books.batch = append(j.books.batch, it.Hold.ID)
		}
	}
}
