package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// looksAtHolds compares what is known of holds with the ledgers of the nodes that decide, after p
// has done something: holds may have run out, and nodes settle what they have set aside themselves
// without asking another node.
func (j *asideJudge) looksAtHolds(p *process) {
	if len(j.books.open) == 0 || j.failure != nil {
		return
	}
	for i := 0; i < len(j.books.open); i++ { // backwards would see them in another order
		x := j.books.open[i]
		if a := x.account; p.saysItDecides(a.hash) {
			j.carrier.bring(a, p)
			j.meetHold(p, x)
			if x.ended {
				i--
			}
		}
	}
}

// meetHolds compares the holds on a with the ledger of p, which decides.
func (j *asideJudge) meetHolds(p *process, a *account) {
	j.carrier.bring(a, p)
	a.reference.settle(p.now(), a.spec)
	for _, x := range slices.Clone(a.held.open) {
		j.meetHold(p, x)
	}
}

// meetHold compares x with what the ledger of p says of it.
func (j *asideJudge) meetHold(p *process, x *holding) {
	j.checked[aside]++
	if slices.Contains(j.books.batch, x.id) {
		return
	}
	x.moves(p)
	switch h, found := p.stated.ledger.get(x.id); {
	case !found:
		j.notInLedger(p, x)
	case h.State == limiter.HoldOpen:
		j.stillOpen(p, x, h)
	case h.State == limiter.HoldRanOut:
		j.ranOut(p, x)
	default: // by the node itself
		a := x.account
		if x.node == nil && !j.books.shared[x.id] && !j.inDoubt(a) {
			j.fail(aside, "%s has hold %s of %s under %s settled with %d, and nobody has asked "+
				"for that", p.machine.id, idText(x.id), keyText(a.key), a.spec.Name, h.Used)
		}
		j.closes(p, x, h.Used)
	}
}

// notInLedger ends a hold that p does not know, if that may be.
func (j *asideJudge) notInLedger(p *process, x *holding) {
	a := x.account
	if !x.lost && !j.inDoubt(a) {
		j.fail(aside, "%s decides for %s under %s and does not know of hold %s of %d, which is "+
			"open until %v", p.machine.id, keyText(a.key), a.spec.Name, idText(x.id), x.units,
			x.until)
		return
	}
	if b := a.held.borrowed[x.node]; b != nil {
		b.charged += x.units // by a report, if at all
	}
	j.ends(x)
}

// stillOpen checks the units of a hold that p has open, that p does not mean to end it before its
// deadline, and that this is not long over.
func (j *asideJudge) stillOpen(p *process, x *holding, h statedHold) {
	a, now := x.account, j.world.now
	if h.Units != x.units {
		j.fail(aside, "%s has %d of %s under %s set aside for hold %s of %d", p.machine.id,
			h.Units, keyText(a.key), a.spec.Name, idText(x.id), x.units)
	}
	if h.Deadline <= p.time.at(x.until-1) && !x.adopted && !j.inDoubt(a) {
		j.fail(aside, "%s is to have hold %s of %s under %s run out at %v, and its deadline is %v",
			p.machine.id, idText(x.id), keyText(a.key), a.spec.Name, p.time.when(h.Deadline),
			x.until)
	}
	if now-x.until <= tickSlack+carriage || !j.sure(p) || j.inDoubt(a) || j.world.resting {
		return
	}
	// it may have been on its way from node to node
	if late := now - p.time.when(h.Deadline); late > tickSlack+carriage {
		j.fail(aside, "%s still has hold %s of %s under %s open %v after its deadline",
			p.machine.id, idText(x.id), keyText(a.key), a.spec.Name, late)
	}
}

// ranOut closes a hold that has run out at p, and checks that it was time.
func (j *asideJudge) ranOut(p *process, x *holding) {
	a, now := x.account, j.world.now
	if now < x.until && !x.adopted && !j.inDoubt(a) {
		j.fail(aside, "%s has hold %s of %s under %s run out at %v, and its deadline is %v",
			p.machine.id, idText(x.id), keyText(a.key), a.spec.Name, now, x.until)
	}
	j.books.report.RanOut++
	used := x.units
	if x.release {
		used = 0
	}
	j.closes(p, x, used)
	if b := a.held.borrowed[x.node]; b != nil && x.release {
		b.charged += x.units
	}
}

// adopts looks for holds that p has opened for itself, and reports whether there are any.
func (j *asideJudge) adopts(p *process, a *account) (found bool) {
	if j.world.plan.quiet() { // a node that decides never has to ask
		return false
	}
	for _, h := range p.stated.ledger.open(a.spec.Name, a.key) {
		id := cluster.ID(h.ID)
		m := j.world.byID[h.Holder]
		if a.held.find(id) != nil || m == nil || m.process == nil || j.books.over[id] {
			continue
		}
		x := &holding{
			id: id, account: a, units: h.Units, node: m.process, adopted: true,
		}
		x.lasts(p, p.now(), time.Duration(h.Deadline-p.now()))
		a.held.open = append(a.held.open, x)
		j.books.open = append(j.books.open, x)
		found = true
	}
	return found
}

// toldHold notes that a client has heard that something was set aside for it.
func (j *asideJudge) toldHold(a *account, id cluster.ID) {
	x := a.held.find(id)
	if x == nil {
		return
	}
	x.told = true
	if a.spec.Algorithm != limiter.Concurrency {
		return
	}
	var out int64
	for _, y := range a.held.open {
		if y.told && !y.asked && j.world.now < y.until-tickSlack {
			out += y.units
		}
	}
	if j.checked[aside]++; out > a.spec.Limit && !j.inDoubt(a) {
		j.fail(aside, "%s under %s: clients have %d permits of %d at once", keyText(a.key),
			a.spec.Name, out, a.spec.Limit)
	}
}

// heardSettled counts, from outside, what a client has used of what was set aside for it.
func (j *asideJudge) heardSettled(t *term, id cluster.ID, used int64) {
	a := t.account
	units, known := j.books.units[id]
	delete(j.books.units, id)
	// elsewhere it may have been charged long before
	if known && j.world.plan.quiet() && a.spec.Algorithm != limiter.Concurrency {
		j.bounded.admitted(t, min(used, units))
	}
}

// runOut checks, when nobody has asked for anything for long, that nothing is set aside any more.
func (j *asideJudge) runOut() {
	for _, m := range j.world.machines {
		p := m.process
		if p == nil || m.frozen {
			continue
		}
		for _, a := range j.order {
			if a.held == nil || !p.saysItDecides(a.hash) {
				continue
			}
			j.checked[aside]++
			j.meetHolds(p, a)
			if list := p.stated.ledger.open(a.spec.Name, a.key); len(list) > 0 {
				j.fail(aside, "in the end %s still has hold %s of %d of %s under %s", p.machine.id,
					idText(cluster.ID(list[0].ID)), list[0].Units, keyText(a.key), a.spec.Name)
			}
		}
	}
}

// auditHeld compares what a table holds in the end with what was charged.
func (j *asideJudge) auditHeld(p *process, a *account, got limiter.Decision) {
	now := p.now()
	r := &a.reference
	low, high := a.held.sums()
	strict := r.strictest()
	most, least := left(&r.loose, now, a.spec)-low, left(strict, now, a.spec)-high
	if got.Remaining > max(0, most) && !r.isVague(a.spec) || got.Remaining < least && j.saysAll(a) {
		j.fail(kept, "the table of %s holds for %s under %s, which it decides for:\n  %s\nwhere "+
			"%d to %d are left of what was charged and set aside", p.machine.id, keyText(a.key),
			a.spec.Name,
			decisionText(got), least, most)
	}
}

// longestHold is the longest that something that clients set aside stays there.
func (p *plan) longestHold() (longest time.Duration) {
	if p.traffic.holds {
		longest = longestTTL
	}
	for i := range p.script {
		for k := range p.script[i].items {
			if hold := p.script[i].items[k].Hold; hold != nil {
				longest = max(longest, hold.TTL)
			}
		}
	}
	for i := range p.demands {
		longest = max(longest, p.demands[i].hold.ttl)
	}
	return longest
}
