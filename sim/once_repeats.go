package sim

import (
	"slices"

	"penstock/cluster"
	"penstock/limiter"
)

// Answers that a node may have remembered where nobody has seen that it must: what it has charged
// to itself, what it was told, and what its share has said.

// mayRepeat follows an answer that p may have remembered, as a says, or may have decided once more.
func (j *onceJudge) mayRepeat(p *process, a *answered, items []asked, got []limiter.Decision) {
	if a != nil && j.copiedBack(a, p, items) {
		j.carrier.bring(items[0].account, p)
		return
	}
	fallen := len(items) > 1 && falls(items, got)
	for i := range items {
		j.carrier.bring(items[i].account, p)
		it := &items[i]
		j.counted.mayCount(p, it)
		it.account.reference.mayHave(p.now(), it, got[i].Allowed, fallen)
		if it.op == cluster.OpTake && it.cost < 0 {
			it.account.note(p, it.cost) // windows are counted anew from what is noted
		}
	}
}

// hasChargedItself reports whether p may know it as a take that its share had admitted, and that it
// has charged to itself since it decides. That goes over no line, so nobody sees it.
func (j *onceJudge) hasChargedItself(p *process, it *asked) bool {
	owed, known := it.account.reference.owed[owing{p, it.id}]
	return known && it.op == cluster.OpTake && j.world.now < owed.until-owedLasts+2*memory
}

// hasAskedItself reports whether got may be what p has answered to itself as the node that decides,
// and remembers, though it has lost its right since: it was asked for a take that it had admitted
// before, by no share, and asks for that as the take that it was. So it has held the key meanwhile,
// and answers by the whole limit. A take that is felt if it is refused, or is never refused, it
// only reports; and what a share has answered stays the answer.
func (j *onceJudge) hasAskedItself(p *process, it *asked, got limiter.Decision) bool {
	a, k := it.account, j.world.plan.partition(it.account.hash)
	own := p.shares.answers.get(it.id)
	switch {
	case !j.hasChargedItself(p, it), a.spec.CountRejected, a.spec.Strict, a.spec.ClientTime,
		watches(a.spec),
		own != nil && own.at.Add(memory) > p.now():
		return false
	}
	held := p.stated.decidesFor(k) ||
		p.stated.shifted != a.reference.owed[owing{p, it.id}].shifted
	return held && got.Limit == capacityOf(a.spec)
}

// hasHeardOfDebt reports whether p was told that got is the answer to a take that a share had let
// in: the process with that share may have charged it to itself, before it gave p the key.
func (j *onceJudge) hasHeardOfDebt(p *process, it *asked, got limiter.Decision) bool {
	return it.op == cluster.OpTake && it.account.reference.isOwedBySome(it.id) &&
		j.memories.hasHeard(p, it.id, got)
}

// hasHeard reports whether p was told that got is the answer under id, and has to remember it.
func (m *memories) hasHeard(p *process, id cluster.ID, got limiter.Decision) bool {
	return slices.ContainsFunc(m.hearsay, func(x hearsay) bool {
		return x.id == id && x.says == got && x.to == p && x.at.Add(memory) > p.now()
	})
}

// repeatsShare is what p has answered under id from its share, when it had to decide by itself, if
// got says that again; else nil. If p may have charged that to itself since, it is got.
func (j *onceJudge) repeatsShare(p *process, id cluster.ID, items []asked,
	got []limiter.Decision,
) []limiter.Decision {
	own := p.shares.answers.get(id)
	if own == nil || own.at.Add(memory) <= p.now() || len(got) != 1 || got[0] != own.decisions[0] {
		if len(items) == 1 && (j.hasChargedItself(p, &items[0]) ||
			j.hasHeardOfDebt(p, &items[0], got[0])) {
			j.allowed.used[ownDebt]++
			j.mayRepeat(p, nil, items, got)
			return got
		}
		return nil
	}
	own.repeated = j.world.now
	for i := range items {
		j.carrier.bring(items[i].account, p)
	}
	return own.decisions
}

// repeatsEarlier is what p has been told that was answered under the ID of a, if got says that
// again: not the latest answer, but that of another process, which had charged the take as well.
// Both halves of a pair that has parted may do so. What p remembers it does not charge.
func (j *onceJudge) repeatsEarlier(p *process, a *answered, items []asked, got []limiter.Decision,
) []limiter.Decision {
	for x := a.before; x != nil; x = x.before {
		if _, still := x.toldTo(p); slices.Equal(x.decisions, got) &&
			(still || len(got) == 1 && j.memories.hasHeard(p, a.id, got[0])) {
			for i := range items {
				j.carrier.bring(items[i].account, p)
			}
			return x.decisions
		}
	}
	return nil
}
