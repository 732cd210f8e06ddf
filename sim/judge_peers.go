package sim

import (
	"cmp"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// What nodes answer each other is what they decided, in time, and what may be passed on.

// answerJudge has what nodes have said, and so what clients may hear.
type answerJudge struct {
	*common
	said sayings // by the ID
}

// saying is what was answered under an ID: always the same, unless a node had to forget, or nothing
// of it is remembered, since it was refused together with others.
type saying struct {
	first, last limiter.Decision
	by          *process           // that said the last
	others      []limiter.Decision // what was said before that, of what is refused anew each time
	released    bool               // it was set aside, and has been released since
}

// has reports whether d was said, before so many units that were set aside were released.
func (s *saying) has(d limiter.Decision, released int64) bool {
	for _, said := range append([]limiter.Decision{s.first, s.last}, s.others...) {
		said.Remaining += released
		if released > 0 && said.Remaining >= said.Limit {
			said.ResetAfter = 0
		}
		if said == d {
			return true
		}
	}
	return false
}

// sayings are what was answered, by ID.
type sayings struct {
	byID byID[saying]
	free []*saying // to be used again
}

// forget drops what was said under id.
func (s *sayings) forget(id cluster.ID) {
	if x := s.byID.get(id); x != nil {
		s.free = append(s.free, x)
		s.byID.remove(id)
	}
}

// left drops what was said of a request that is over.
func (j *answerJudge) left(r *request) {
	for i := range r.items {
		j.said.forget(r.items[i].ID)
	}
}

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
		it, out := &a.Items[i], &answer.Items[i]
		if a.Relay && (out.Status == cluster.StatusDone && out.Owner != "" ||
			out.Status == cluster.StatusLost) {
			continue // somebody else has decided, and was judged for it
		}
		x := asked{j.account(it.Limit.Name, it.Key), it.Cost, it.Op, it.ID, out.Degraded}
		j.answer.answered(p, &x, late, out)
		j.deadline.answers(p, x.account, late, out)
		if j.deliveredHold(from, p, a, i, answer) {
			continue
		}
		if out.Status == cluster.StatusDone &&
			(it.Op == cluster.OpReserve || it.Op == cluster.OpSettle) {
			j.deliveredAside(p, &x, out)
			continue
		}
		// what is charged afterwards: reference.owes
		if out.Status == cluster.StatusDone && it.Report {
			x.account.reference.paid(x.account, p, from,
				cluster.ID{Origin: it.ID.Origin ^ reportOrigin, Sequence: it.ID.Sequence}, it.Cost)
		}
		if out.Status != cluster.StatusDone || it.Report {
			continue
		}
		j.exact.hears(p, x, out.Decision, a.Atomic)
		j.answer.says(p, &x, out.Decision)
	}
	j.exact.judges(p, true)
}

// deliveredAside checks what p answered to a reservation, or to its settlement, in a world where
// the judge does not follow holds.
func (j *judge) deliveredAside(p *process, x *asked, out *cluster.AnswerItem) {
	if x.op != cluster.OpReserve {
		return
	}
	j.spread.setsAside(p, x, out.Decision)
	j.answer.says(p, x, unheld(out.Decision))
	j.answer.saidReleased(x.id, out.Decision)
}

// answered checks what became of one item of an Ask, but not what was decided.
func (j *answerJudge) answered(p *process, it *asked, late bool, got *cluster.AnswerItem) {
	j.checked[owned]++
	a := it.account
	h := happening{
		at: j.world.now, kind: decides, node: p.machine, seq: it.id.Sequence,
		limit: a.spec.Name, key: a.key, op: it.op, cost: it.cost,
	}
	if got.Status == cluster.StatusDone {
		h.allowed, h.remaining = got.Decision.Allowed, got.Decision.Remaining
	} else {
		h.kind = declines
	}
	j.world.trace.add(h)
	switch {
	case late || got.Status == cluster.StatusExpired:
	case got.Status == cluster.StatusRefused:
		j.fail(owned, "%s refuses an ask for %s: it has been sent on too often", p.machine.id,
			keyText(a.key))
	case got.Status == cluster.StatusNotOwner && got.Owner == p.machine.id:
		j.fail(owned, "%s does not decide for %s, and says to ask %s", p.machine.id, keyText(a.key),
			got.Owner)
	}
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

// says notes what may be passed on to a client.
func (j *answerJudge) says(p *process, it *asked, d limiter.Decision) {
	if it.id == (cluster.ID{}) {
		return
	}
	s := j.said.byID.get(it.id)
	if s == nil {
		if n := len(j.said.free); n > 0 {
			s, j.said.free = j.said.free[n-1], j.said.free[:n-1]
		} else {
			s = new(saying)
		}
		s.first, s.others, s.released = d, s.others[:0], false
		j.said.byID.put(it.id, s)
	} else if s.by != p || s.last != d {
		s.others = append(s.others, s.last)
	}
	s.last, s.by = d, p
}

// saidReleased notes whether an owner remembers under id that it has set something aside, and has
// released it since.
func (j *answerJudge) saidReleased(id cluster.ID, d limiter.Decision) {
	if s := j.said.byID.get(id); s != nil {
		s.released = d.Allowed && d.Hold == limiter.HoldInTheWay
	}
}

// passesOn checks that got, which is heard of the i-th item, is what its owner said.
func (j *answerJudge) passesOn(h *hearing, i int, got limiter.Decision, yes bool) bool {
	it := &h.question.Items[i]
	s := j.said.byID.get(it.ID)
	aside := int64(0)
	if h.spread && !yes {
		aside = h.aside(i)
	}
	if s != nil && (s.has(got, aside) || h.spread && s.released && j.refusesAnew(h, s, got)) {
		return true
	}
	j.fail(honest, "%s passes on a decision on %s under %s that its owner never took:\n  %s\n"+
		"where the owner said:\n  %s",
		h.process.machine.id, keyText(it.Key), h.request.terms[i].account.spec.Name,
		decisionText(got), decisionText(cmp.Or(s, &saying{}).last))
	return false
}

// refusesAnew reports whether got is the no to an item of a request that is repeated after it was
// refused: its owner, which said s, has released what it had set aside, and no owner refuses any
// more.
func (j *answerJudge) refusesAnew(h *hearing, s *saying, got limiter.Decision) bool {
	said := s.last
	said.Allowed, said.RetryAfter = false, time.Second
	if got != said {
		return false
	}
	for i := range h.question.Items {
		other := j.said.byID.get(h.question.Items[i].ID)
		refuses := other != nil && !other.released && !other.last.Allowed
		if refuses && !watches(h.request.terms[i].account.spec) {
			return false
		}
	}
	return true
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
		}
		j.denied.hearsTold(l)
		if len(j.heldOf) > 0 {
			j.lent.hearsDenials(l)
		}
	}
	j.deadline.settled(l)
}
