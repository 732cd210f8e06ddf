package sim

import (
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Replicated limits have no owner: the node that is asked decides, from what it has charged itself
// and what it has heard of the others. So no node admits more than a single limiter would that
// knows of its own charges alone. All nodes together admit no more than as many limits as there
// have been nodes, which is the bound that each decision states. And when nothing is asked any
// more, each node has heard of all that was charged.

// replicaJudge checks that.
type replicaJudge struct {
	*common
	bounded *boundedJudge
}

// replica is what is known of a key of a replicated limit.
type replica struct {
	own map[*process]*naiveState // with what each has charged itself
	// with what all have, as far as limit and debt reach, by the clock of the first machine
	all    naiveState
	credit int64                    // that was given back, and may arrive anywhere
	reset  bool                     // it was, so nothing is known
	said   map[replicaID]heldAnswer // by a node under an ID
}

type replicaID struct {
	process *process
	id      cluster.ID
}

func newReplica() *replica {
	return &replica{own: make(map[*process]*naiveState), said: make(map[replicaID]heldAnswer)}
}

// observeReplica looks at what a node has decided on the i-th item of a visit, if that is of a
// replicated limit, and reports whether it is.
func (j *replicaJudge) observeReplica(h *hearing, i int) bool {
	p, d, it := h.process, &h.out[i], &h.items[i]
	a := h.request.terms[i].account
	if a.replica == nil {
		return false
	}
	if !h.decided[i] && d.Source == cluster.SourceReplica && d.Owner == p.machine.id {
		h.decided[i] = true
		j.decidesReplica(p, a, it, d, h.request.atomic)
	}
	return true
}

func (j *replicaJudge) decidesReplica(p *process, a *account, it *cluster.Item, d *cluster.Decision,
	together bool,
) {
	r := a.replica
	j.checked[marked]++
	if bound := int64(len(p.stated.view.Members)-1) * capacityOf(a.spec); d.Bound != bound ||
		d.Degraded {
		j.fail(marked, "%s decides on %s under %s, which is replicated, and states a bound of %d "+
			"where it is %d", p.machine.id, keyText(a.key), a.spec.Name, d.Bound, bound)
	}
	got := d.Decision
	got.Allowed = got.Allowed && !d.Shadow
	if it.ID != (cluster.ID{}) && it.Op != cluster.OpPeek &&
		r.repeats(replicaID{p, it.ID}, got, j.world.now) {
		return
	}
	if r.own[p] == nil {
		r.own[p] = &naiveState{}
	}
	switch {
	case it.Op == cluster.OpReset:
		r.reset = true
	case it.Op == cluster.OpPeek, !got.Allowed, together:
		r.reset = r.reset || together // what becomes of it, the others decide as well
	case it.Cost < 0:
		r.credit += min(-max(it.Cost, -1<<40), 1<<40)
	case it.Cost > 0:
		j.chargesReplica(p, a, it.Cost, got)
	}
}

// chargesReplica checks that a process has room for what it admits beside what it has charged
// itself, and charges it.
func (j *replicaJudge) chargesReplica(p *process, a *account, cost int64, got limiter.Decision) {
	r, now, s := a.replica, p.now(), a.spec
	own := r.own[p]
	j.checked[exact]++
	if !r.reset && r.credit == 0 && !own.peek(now, s, cost).Allowed {
		j.fail(exact, "%s admits %d of %s under %s:\n  %s\nwhere what it has charged itself "+
			"leaves no more than:\n  %s", p.machine.id, cost, keyText(a.key), s.Name,
			decisionText(got), decisionText(own.peek(now, s, 0)))
	}
	own.take(now, s, cost)
	r.all.report(j.world.machines[0].clock.at(j.world.now), s, cost)
}

// repeats reports whether got is what was said under id a moment ago; else it is noted.
func (r *replica) repeats(id replicaID, got limiter.Decision, now time.Duration) bool {
	before, again := r.said[id]
	if again && before.got == got && now < before.at+memory+memory/1000 {
		return true
	}
	r.said[id] = heldAnswer{got, now}
	return false
}

// heardReplica counts what a client hears of a replicated limit, or of a key that is not counted,
// and checks it from outside.
func (j *replicaJudge) heardReplica(h *hearing, i int, d *cluster.Decision, yes bool) {
	p, it, t := h.process, &h.items[i], &h.request.terms[i]
	a := t.account
	switch {
	case a.spec.Unlimited && (it.Op == cluster.OpTake && !d.Allowed || d.Degraded):
		j.fail(useful, "%s answers for %s under %s, which is unlimited: %s", p.machine.id,
			keyText(it.Key), a.spec.Name, answerText(d))
		return
	case a.replica != nil && (d.Source != cluster.SourceReplica || d.Owner != p.machine.id):
		j.fail(owned, "%s, asked for %s under %s, which is replicated, says that %s decided (%s)",
			p.machine.id, keyText(it.Key), a.spec.Name, d.Owner, d.Source)
		return
	}
	j.tallies[a.spec.Name].count(it, d)
	t.settled = true
	admits := yes && d.Allowed && !d.Shadow && it.Op == cluster.OpTake && it.Cost > 0
	if a.replica != nil && admits && !t.counted {
		t.counted = true
		a.heard.admit(t.heard, it.Cost*a.supply.unit)
		j.boundsReplica(a)
	}
}

// boundsReplica checks that all nodes have admitted no more than the bound that they state.
func (j *replicaJudge) boundsReplica(a *account) {
	boots := 0
	for _, m := range j.world.machines {
		boots += m.boots
	}
	j.checked[bounded]++
	if over := a.heard.excess(a.supply.capacity*int64(boots), j.bounded.supplied(a)); over > 0 &&
		j.world.plan.sky == calm {
		j.fail(bounded,
			"%s under %s: %d nodes have admitted at least %d more than the bound that they state",
			keyText(a.key), a.spec.Name, boots, (over+a.supply.unit-1)/a.supply.unit)
	}
}

// auditReplicas looks, in the end, whether everybody has heard of what everybody has charged. Only
// where time passes evenly can that be told: clocks differ, and so do the windows that are laid by
// them.
func (j *replicaJudge) auditReplicas(p *process) {
	if !j.world.plan.quiet() {
		return
	}
	held := j.counters(p)
	for _, a := range j.order {
		r := a.replica
		if r == nil || r.reset || r.credit > 0 || a.spec.Algorithm != limiter.GCRA {
			continue
		}
		j.checked[kept]++
		got := held(a)
		if most := r.all.peek(j.world.machines[0].clock.at(j.world.now), a.spec, 0).Remaining +
			1; got.Remaining > most {
			j.fail(kept, "%s holds for %s under %s, which is replicated:\n  %s\nwhere all "+
				"together have charged so much that no more than %d are left", p.machine.id,
				keyText(a.key), a.spec.Name,
				decisionText(got), most)
		}
	}
}
