package sim

import (
	"strings"

	"penstock/cluster"
	"penstock/limiter"
)

// atRest looks once more at everything when nothing more happens: nobody may wait, and what tables
// hold must be what the reference holds, on every node.
func (j *judge) atRest() {
	j.checked[live]++
	if n := j.world.tasks.waiting; n > 0 {
		j.fail(live, "%d tasks wait for something that will never happen", n)
		return
	}
	for _, m := range j.world.machines {
		switch {
		case m.process == nil:
		case j.trees != nil:
			j.trees.audit(m.process)
		default:
			j.audit(m.process)
			j.auditReplicas(m.process)
		}
	}
}

// counters are what p has said that its table holds for an account. The right to decide runs out
// when all timers have stopped, so the table itself would answer for nothing.
func (j *judge) counters(p *process) func(*account) limiter.Decision {
	now, found := p.now(), make(map[*account]limiter.Decision)
	for i := range p.counters {
		c := &p.counters[i]
		if a := j.accounts[c.limit][c.key]; a != nil {
			found[a] = c.decision
		}
	}
	return func(a *account) limiter.Decision {
		if d, has := found[a]; has {
			return d
		}
		return new(naiveState).peek(now, a.spec, 0)
	}
}

// decidesAtLast reports whether p decided for an account when the timers were stopped. A node that
// is cut off for ever has kept its table, and decides nothing by it.
func (p *process) decidesAtLast(a *account) bool {
	return p.decided && p.stated.decidesFor(p.machine.world.plan.partition(a.hash))
}

// audit compares the table of p with the reference: what p decides for has to be there; and nothing
// else may be.
func (j *judge) audit(p *process) {
	now := p.now()
	held := j.counters(p)
	for _, a := range j.order {
		if !p.decidesAtLast(a) {
			continue
		}
		j.checked[kept]++
		j.allowed.of[anyKept]++
		got := held(a)
		// no node that may have forgotten is asked any more, so none can say so
		if a.replica == nil && a.count != nil {
			j.counts(p, &asked{account: a, op: cluster.OpPeek, doubt: j.failsTwice()}, got)
		}
		j.bring(a, p)
		r := &a.reference
		r.settle(now, a.spec)
		if a.replica != nil {
			continue
		}
		if a.held != nil {
			j.auditHeld(p, a, got)
			continue
		}
		// some of it may be given back later than the judge knows
		loose := r.most(now, a.spec).peek(now, a.spec, 0)
		if got == loose || (r.came != 0 || r.strict != nil) && got.Remaining <= loose.Remaining ||
			r.isVague(a.spec) {
			if got != loose {
				j.allowed.used[heldMore]++
			}
			// what has been carried may hold too much: copies that came late are merged, and more
			// consumed wins
			continue
		}
		j.fail(kept, "the table of %s holds for %s under %s, which it decides for:\n  %s\nwhere "+
			"it was charged:\n  %s",
			p.machine.id, keyText(a.key), a.spec.Name, decisionText(got), decisionText(loose))
		return
	}
	for i := range p.counters {
		c := &p.counters[i]
		j.checked[kept]++
		name, _, _ := strings.Cut(c.limit, "\x00") // a share's name goes on after the limit's
		if a := j.accounts[name][c.key]; a == nil {
			j.fail(kept, "the table of %s holds for %s under %q, which nobody has charged "+
				"there:\n  %s",
				p.machine.id, keyText(c.key), c.limit, decisionText(c.decision))
			return
		}
	}
}

// restless says that the world goes on and on.
func (j *judge) restless() {
	j.checked[live]++
	j.fail(live, "things still happen %v after all timers were stopped", j.world.now-j.world.rested)
}
