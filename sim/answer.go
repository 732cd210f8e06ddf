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
	charged     bool               // it is charged, so nothing was set aside for it
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

// answered checks what became of one item of an Ask, but not what was decided. first is the account
// of the first item, if all stand or fall together: a node that decides for that one, and not for
// all, says so by naming itself.
func (j *answerJudge) answered(
	p *process, it *asked, first *account, late bool, got *cluster.AnswerItem,
) {
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
	case got.Status == cluster.StatusNotOwner && got.Owner == p.machine.id &&
		!(first != nil && p.stated.decidesFor(j.world.plan.partition(first.hash))):
		j.fail(owned, "%s does not decide for %s, and says to ask %s", p.machine.id, keyText(a.key),
			got.Owner)
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
		*s = saying{first: d, others: s.others[:0]}
		j.said.byID.put(it.id, s)
	} else if s.by != p || s.last != d {
		s.others = append(s.others, s.last)
	}
	s.last, s.by = d, p
}

// saidAside notes whether an owner remembers under id that it has set something aside, and has
// released it since; or has charged it, as when a node had let it in by its share and reported it.
func (j *answerJudge) saidAside(id cluster.ID, d limiter.Decision) {
	if s := j.said.byID.get(id); s != nil {
		s.released = d.Allowed && d.Hold == limiter.HoldInTheWay
		s.charged = d.Allowed && d.Hold == limiter.HoldNone
	}
}

// isCharged reports whether an owner has said under id that it has charged what it was to set
// aside.
func (j *answerJudge) isCharged(id cluster.ID) bool {
	s := j.said.byID.get(id)
	return s != nil && s.charged
}

// passesOn checks that got, which is heard of the i-th item, is what its owner said.
func (j *answerJudge) passesOn(h *hearing, i int, got limiter.Decision, yes bool) bool {
	it := &h.items[i]
	s := j.said.byID.get(it.ID)
	aside := int64(0)
	if h.spread && !yes {
		aside = h.aside(i, j.isCharged)
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
	for i := range h.items {
		other := j.said.byID.get(h.items[i].ID)
		refuses := other != nil && !other.released && !other.last.Allowed
		if refuses && !watches(h.request.terms[i].account.spec) {
			return false
		}
	}
	return true
}

// mayPassOn checks that a node that answers a client has decided itself with reason, or names the
// node that decided and passes on what that one has said.
func (j *answerJudge) mayPassOn(h *hearing, i int, d *cluster.Decision, got limiter.Decision,
	yes bool,
) bool {
	p, it, a := h.process, &h.items[i], h.request.terms[i].account
	local := d.Source == cluster.SourceOwner
	switch {
	case d.Source == cluster.SourceDenied: // see observeDenial
	case d.Source == cluster.SourceLease:
		if a.held == nil || it.Op != cluster.OpTake || d.Degraded {
			j.fail(lent, "%s decides on %s under %s by itself: %s", p.machine.id, keyText(it.Key),
				a.spec.Name, answerText(d))
			return false
		}
	case d.Degraded && j.world.plan.sky == calm:
		j.fail(marked, "%s answers for %s under %s with less than the full promise, "+
			"in a world that is %s: %s",
			p.machine.id, keyText(it.Key), a.spec.Name, j.world.plan.sky, answerText(d))
		return false
	case j.relayedTo(p, it, d, got):
	case local != (d.Owner == p.machine.id) || j.world.byID[d.Owner] == nil:
		j.fail(owned, "%s, asked for %s, says that %s decided (%s)", p.machine.id, keyText(it.Key),
			d.Owner, d.Source)
		return false
	case local:
	case it.Op != cluster.OpPeek && !(h.spread && looksOnly(a, it)):
		return j.passesOn(h, i, got, yes)
	}
	return true
}

// ofShare reports whether what a client hears as the owner's is what the share of that node has
// admitted when it was not the owner: any node that has decided on a take remembers it.
func (j *answerJudge) ofShare(h *hearing, it *cluster.Item, d *cluster.Decision) bool {
	m := j.world.byID[d.Owner]
	if m == nil || m.process == nil {
		return false
	}
	own := m.process.shares.answers.get(it.ID)
	return own != nil && own.repeated != 0 && own.repeated >= h.began &&
		own.decisions[0] == d.Decision
}

// relayedTo reports whether p itself has decided what it had asked of another node, which forwarded
// it: p did not hold the key yet when it asked, and did when the ask came back to it. No node
// remembers which one answered a look.
func (j *answerJudge) relayedTo(p *process, it *cluster.Item, d *cluster.Decision,
	got limiter.Decision,
) bool {
	if d.Source != cluster.SourceForwarded || d.Owner != p.machine.id || j.world.plan.quiet() {
		return false
	}
	s := j.said.byID.get(it.ID)
	return it.Op == cluster.OpPeek || s != nil && s.by == p && s.has(got, 0)
}
