package sim

import (
	"penstock/cluster"
	"penstock/limiter"
)

// delivered checks what p answered to an Ask of from with this deadline on p's clock.
func (j *judge) delivered(from, p *process, a *cluster.Ask, deadline limiter.Instant,
	answer *cluster.Answer,
) {
	if len(answer.Items) != len(a.Items) {
		j.fail(owned, "%s answers %d of %d items", p.machine.id, len(answer.Items), len(a.Items))
		return
	}
	if a.For != 0 && a.For != p.boot {
		return // p passes it on
	}
	if a.Move != nil {
		j.carrier.meets(from, p, a.Move)
		j.moved(from, p, a.Move)
		if answer.Move != nil && answer.Move.Applied {
			j.once.memories.tells(p, a.Move.Taken)
			j.carrier.ages(from, p, a.Move)
		}
	}
	p.rightOf()
	p.isTold(a.Words)
	if j.trees != nil {
		return
	}
	j.aside.settling(a, nil)
	late := p.now() >= deadline
	for i := range a.Items {
		if !a.Relay || !byAnother(&answer.Items[i]) {
			j.deliveredItem(from, p, a, i, answer, late)
		}
	}
	j.exact.judges(p, true)
}

// lied hears that p was told something that is not so. Judges hear nothing else of that: nothing of
// it may show.
func (j *judge) lied(p *process) { j.delivered(nil, p, new(cluster.Ask), 0, new(cluster.Answer)) }

// byAnother reports whether another node than the one that passes this on has decided it, and was
// judged for it.
func byAnother(out *cluster.AnswerItem) bool {
	return out.Status == cluster.StatusLost || out.Status == cluster.StatusDone && out.Owner != ""
}

// deliveredItem checks what p answered to the i-th item.
func (j *judge) deliveredItem(from, p *process, a *cluster.Ask, i int, answer *cluster.Answer,
	late bool,
) {
	it, out := &a.Items[i], &answer.Items[i]
	x := asked{j.account(it.Limit.Name, it.Key), it.Cost, it.Op, it.ID, out.Degraded}
	j.answer.answered(p, &x, j.together(a), late, out)
	j.deadline.answers(p, x.account, late, out)
	switch {
	case j.deliveredHold(from, p, a, i, answer):
	case out.Status != cluster.StatusDone:
	case it.Op == cluster.OpReserve || it.Op == cluster.OpSettle:
		j.deliveredAside(p, &x, out)
	default:
		j.deliveredDebt(from, p, it, x.account, out.Decision)
		if !it.Report {
			j.exact.hears(p, x, out.Decision, a.Atomic)
			j.answer.says(p, &x, out.Decision)
		}
	}
}

// together is the account of the first item of what stands or falls together; else nil.
func (j *judge) together(a *cluster.Ask) *account {
	if !a.Atomic || len(a.Items) < 2 {
		return nil
	}
	return j.account(a.Items[0].Limit.Name, a.Items[0].Key)
}

// deliveredDebt follows p, which decides on what from may have admitted by itself (reference.owes):
// it charges that as the take that it was, or by a report.
func (j *judge) deliveredDebt(from, p *process, it *cluster.AskItem, a *account,
	got limiter.Decision,
) {
	switch r := &a.reference; {
	case it.Report:
		take := takeOf(it.ID)
		j.once.reported(p, take, got)
		r.paid(a, p, from, take, it.Cost)
	case got.Allowed:
		r.paid(a, p, from, it.ID, 0)
	}
}

// deliveredAside checks what p answered to a reservation, or to its settlement, in a world where
// the judge does not follow holds.
func (j *judge) deliveredAside(p *process, x *asked, out *cluster.AnswerItem) {
	if x.op != cluster.OpReserve {
		return
	}
	j.spread.setsAside(p, x, out.Decision)
	j.answer.says(p, x, unheld(out.Decision))
	j.answer.saidAside(x.id, out.Decision)
}

// confirmed notes what p answers to an Ask after it has waited for heirs.
func (j *judge) confirmed(p *process, a *cluster.Ask, answer *cluster.Answer) {
	if j.trees != nil {
		return
	}
	for i := range a.Items {
		it, out := &a.Items[i], &answer.Items[i]
		// else another one has decided, and said so
		if out.Status == cluster.StatusDone && out.Degraded && out.Owner == "" {
			j.answer.says(p, &asked{j.account(it.Limit.Name, it.Key), it.Cost, it.Op, it.ID, true},
				out.Decision)
		}
	}
}

// settled hears that a call came back.
func (j *judge) settled(l *letter, answered bool) {
	p := l.from
	j.world.trace.add(happening{
		at: j.world.now, kind: returns, node: p.machine, peer: l.to,
		allowed: answered,
	})
	if answered {
		if l.origin == nil { // else p passes it on
			p.isTold(l.call.Answer.Words)
			j.carrier.hearsPaid(l)
		}
		j.denied.hearsTold(l)
		if len(j.heldOf) > 0 {
			j.lent.hearsDenials(l)
		}
	}
	j.deadline.settled(l)
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
	if out.Status == cluster.StatusDone && it.Op == cluster.OpLease && !out.Decision.Allowed &&
		j.once.memories.hasHeard(p, it.ID, out.Decision) {
		// from refused itself what it asks for, when it decided, and has told p so with the key
		return true
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
