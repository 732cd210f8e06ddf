package sim

import (
	"strings"

	"penstock/limiter"
)

// boundedJudge counts from outside what clients are granted.
type boundedJudge struct{ *common }

// posed begins to follow a request, before its first visit.
func (j *boundedJudge) posed(r *request) {
	if r.terms = r.term[:]; len(r.items) > 1 {
		r.terms = make([]term, len(r.items))
	}
	for i := range r.items {
		a := j.account(limitName(&r.items[i]), r.items[i].Key)
		a.backsOver(j.world.now)
		r.terms[i] = term{
			account: a, heard: a.heard.ask(j.supplied(a)),
			spare: a.spare.ask(j.spareSupplied(a)),
		}
	}
}

// visited notes what a visit may give back, from the moment it begins.
func (j *boundedJudge) visited(r *request) {
	for i := range r.terms {
		a := r.terms[i].account
		back := a.givesBack(&r.items[i]) * a.counts
		a.heard.begun += back * a.supply.unit
		a.spare.begun += back * a.spares.unit
	}
}

// left ends a request, after its last visit.
func (j *boundedJudge) left(r *request) {
	for i := range r.terms {
		t := &r.terms[i]
		if t.account.replica != nil { // the others hear of it afterwards
			t.backBy = j.world.now + longCarriage
		}
		if t.settled { // surely over, and only then
			t.account.returns(j.world.now, t.backBy,
				t.account.givesBack(&r.items[i])*t.account.counts*t.account.supply.unit)
		}
		t.account.heard.answer(t.heard)
		t.account.spare.answer(t.spare)
	}
}

// supplied is what the limit has supplied so far, by the clock that decides; or by the fastest,
// where several may. Of a replicated limit it is what all nodes' limits have, each of which goes by
// its own.
func (j *boundedJudge) supplied(a *account) int64 {
	if j.world.plan.quiet() && a.replica == nil {
		return a.supply.supply(a.owner.clock.start, a.owner.clock.at(j.world.now))
	}
	return a.supply.supply(0, limiter.Instant(j.world.now+j.world.now/500))
}

// spareSupplied is what the shares of all nodes have supplied so far. Each goes by its own clock,
// so the time is stretched to the fastest that may be.
func (j *boundedJudge) spareSupplied(a *account) int64 {
	return a.spares.supply(0, limiter.Instant(j.world.now+j.world.now/500))
}

// admitted checks an admission by an owner against all spans of time that end now.
func (j *boundedJudge) admitted(t *term, cost int64) {
	a := t.account
	if t.counted {
		return
	}
	t.counted = true
	a.heard.admit(t.heard, cost*a.supply.unit)
	j.checked[bounded]++
	if over := a.heard.excess(a.supply.capacity, j.supplied(a)); over > 0 {
		j.fail(bounded,
			"%s under %s: clients of all nodes were granted at least %d more than %s %d per %v "+
				"(burst %d) supplies in some span that ends now",
			keyText(a.key), a.spec.Name, (over+a.supply.unit-1)/a.supply.unit, a.spec.Algorithm,
			a.spec.Limit, a.spec.Per, a.spec.Burst)
	}
}

// losesShares notes that p has crashed, or left: what it had admitted from its shares it does not
// remember when it is back, nobody has a copy of it, and no file. So each share may be admitted
// once more: the bound that a decision states is of the shares of the nodes that are there, each of
// which remembers since it began.
func (j *boundedJudge) losesShares(p *process) {
	for k := range p.shares.parts { // also of those of which nobody knows how many there were
		name, _ := strings.CutSuffix(k.limit, shareSuffix)
		if a := j.accounts[name][k.key]; a != nil {
			a.spare.forgive(capacityOf(a.spec) * a.spares.unit)
		}
	}
}

// spared checks an admission without the owner against the bound that came with it.
func (j *boundedJudge) spared(t *term, cost, bound int64) {
	a := t.account
	t.spared = true
	a.spare.admit(t.spare, cost*a.spares.unit)
	j.checked[marked]++
	if over := a.spare.excess(j.spare(a, bound).capacity, j.spareSupplied(a)); over > 0 {
		j.fail(marked, "%s under %s: decisions without the owner admitted at least %d more than "+
			"the bound of %d that they state",
			keyText(a.key), a.spec.Name, (over+a.spares.unit-1)/a.spares.unit, bound)
	}
}
