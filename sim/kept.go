package sim

import (
	"slices"
	"strings"

	"penstock/cluster"
)

// keptJudge compares what tables hold in the end with what was charged.
type keptJudge struct {
	*common
	carrier *carrier
	counted *countedJudge
	aside   *asideJudge
}

// decidesAtLast reports whether p decided for an account when the timers were stopped. A node that
// is cut off for ever has kept its table, and decides nothing by it.
func (p *process) decidesAtLast(a *account) bool {
	return p.decided && p.stated.decidesFor(p.machine.world.plan.partition(a.hash))
}

// otherHalfCounts reports whether p is one half of a pair that is cut for ever, and the other one,
// which decides as well, was the last to decide on a, or has charged it.
func (j *keptJudge) otherHalfCounts(a *account, p *process) bool {
	return slices.ContainsFunc(j.world.machines, func(m *machine) bool {
		q := m.process
		return q != nil && q != p && q.decidesAtLast(a) &&
			(a.reference.by == q || a.count != nil && a.count.isChargedBy(q))
	})
}

// audit compares the table of p with the reference: what p decides for has to be there; and nothing
// else may be.
func (j *keptJudge) audit(p *process) {
	w, now := j.world, p.now()
	held := j.counters(p)
	for _, a := range j.order {
		if !p.decidesAtLast(a) || j.otherHalfCounts(a, p) {
			continue
		}
		j.checked[kept]++
		j.allowed.of[anyKept]++
		got := held(a)
		// no node that may have forgotten is asked any more, so none can say so
		if a.replica == nil && a.count != nil {
			look := asked{account: a, op: cluster.OpPeek, doubt: w.plan.failsTwice()}
			j.counted.atEnd = true
			j.counted.counts(p, &look, got)
		}
		j.carrier.bring(a, p)
		j.carrier.shows(a, p)
		r := &a.reference
		r.settle(now, a.spec)
		if a.replica != nil {
			continue
		}
		if a.held != nil {
			j.aside.auditHeld(p, a, got)
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
	j.auditStrange(p)
}

// auditStrange checks that the table of p holds nothing that nobody has charged.
func (j *keptJudge) auditStrange(p *process) {
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
