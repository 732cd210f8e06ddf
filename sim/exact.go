package sim

import (
	"cmp"
	"slices"

	"penstock/cluster"
	"penstock/limiter"
)

// What nodes decide is what a naive limiter would decide, or as close to it as the promises say.

// exactJudge holds decisions to that: none grants more, and for the promise `useful` none denies
// more.
type exactJudge struct {
	*common
	owner   *ownerJudge
	carrier *carrier
	counted *countedJudge
	once    *onceJudge
	aside   *asideJudge
	// what was decided in one event, until it is judged; no event is judged while another is
	items []asked
	got   []limiter.Decision
}

// hears takes a decision of p, and checks it if it does not stand or fall with the next.
func (j *exactJudge) hears(p *process, it asked, got limiter.Decision, together bool) {
	j.items, j.got = append(j.items, it), append(j.got, got)
	if !together {
		j.judges(p, false)
	}
}

// judges checks what it has heard since it last has.
func (j *exactJudge) judges(p *process, together bool) {
	if len(j.items) > 0 {
		j.decides(p, j.items, together, j.got)
	}
	j.items, j.got = j.items[:0], j.got[:0]
}

// decides checks what p has just decided, as the node that decides for the keys of items, which
// stand or fall together.
func (j *exactJudge) decides(p *process, items []asked, together bool, got []limiter.Decision) {
	for i := range items {
		j.owner.mayDecide(p, items[i].account, items[i].doubt)
	}
	id := items[0].id
	if items[0].op == cluster.OpPeek {
		id = cluster.ID{}
	}
	known := j.once.memories.answers.get(id)
	if before := j.once.remembered(p, known, id, items, got); before != nil {
		for i := range items {
			j.same(p, &items[i], got[i], before[i])
		}
		return
	}
	if together && j.once.wasApart(p, items, got) {
		return
	}
	fallen := together && falls(items, got)
	j.comesTo(p, items, fallen, got)
	if together && len(items) > 1 {
		j.decidesAll(p, items, got)
	} else {
		j.decidesOne(p, &items[0], got[0])
	}
	if id != (cluster.ID{}) {
		if together && !fallen {
			j.once.letInWhole(items, got)
		}
		j.once.remember(p, known, items, got, !fallen && changes(items, got))
	}
}

// comesTo counts what p shows that it has forgotten of the keys of items, and has the reference
// forget that, before it is asked.
func (j *exactJudge) comesTo(p *process, items []asked, fallen bool, got []limiter.Decision) {
	for i := range items {
		x := items[i]
		if fallen { // it says what is left
			x.op, x.cost = cluster.OpPeek, 0
		}
		j.counted.counts(p, &x, got[i])
	}
	for i := range items {
		j.carrier.bring(items[i].account, p)
	}
	for i := range items {
		j.carrier.shows(items[i].account, p)
	}
}

// changes reports whether one of the items, which have not fallen, changes a state.
func changes(items []asked, got []limiter.Decision) bool {
	for i := range items {
		it := &items[i]
		if it.op == cluster.OpReset || it.op == cluster.OpTake && got[i].Allowed && it.cost != 0 {
			return true
		}
	}
	return false
}

func (j *exactJudge) decidesOne(p *process, it *asked, got limiter.Decision) {
	a, now := it.account, p.now()
	if a.held != nil {
		j.aside.takesHeld(p, it, got, false)
		return
	}
	a.reference.settle(now, a.spec)
	if !got.Allowed && it.op == cluster.OpTake {
		j.denial(!a.reference.denies(now, it.cost, a.spec) && !a.reference.tells(it.cost, a.spec))
	}
	v, want := a.reference.take(now, it, got)
	switch {
	case it.op == cluster.OpReset:
		a.note(p, -everything)
	case got.Allowed && it.op == cluster.OpTake:
		a.note(p, it.cost)
	}
	j.judged(p, it, v, got, want)
}

// decidesAll follows items that stand or fall together. Limits that only watch have no say in it:
// they are charged if the others are.
func (j *exactJudge) decidesAll(p *process, items []asked, got []limiter.Decision) {
	now := p.now()
	if slices.ContainsFunc(items, func(it asked) bool { return it.account.held != nil }) {
		fallen := falls(items, got)
		for i := range items {
			j.aside.takesHeld(p, &items[i], got[i], fallen)
		}
		return
	}
	exactly, blind, vague := settleAll(now, items)
	if exactly {
		j.decidesAllExactly(p, items, got)
		return
	}
	fallen := falls(items, got)
	if would := j.wouldFall(now, items, false); would && !fallen && !vague {
		j.judged(p, &items[0], generous, got[0], got[0])
	}
	if would := j.wouldFall(now, items, true); !would && fallen && !blind {
		j.judged(p, &items[0], mean, got[0], got[0])
	}
	if fallen {
		return
	}
	for i := range items {
		j.follows(p, &items[i], got[i])
	}
}

// settleAll brings the references of items up to now. It reports whether each is known exactly, and
// whether one is blind or vague.
func settleAll(now limiter.Instant, items []asked) (exactly, blind, vague bool) {
	exactly = true
	for i := range items {
		r, spec := &items[i].account.reference, items[i].account.spec
		r.settle(now, spec)
		blind, vague = blind || r.isBlind(), vague || r.isVague(spec)
		if r.strict == nil && (r.fresh() || r.isBlind()) {
			r.loosen(now, spec)
		}
		exactly = exactly && r.strict == nil
	}
	return exactly, blind, vague
}

// follows has the reference of an item follow what p decided on it together with others: it is
// known no better than theirs.
func (j *exactJudge) follows(p *process, it *asked, got limiter.Decision) {
	now, r := p.now(), &it.account.reference
	if r.strict == nil {
		strict := r.loose
		r.strict = &strict
		r.came = cmp.Or(r.came, j.world.now)
	}
	r.commit(now, it, got.Allowed)
	if !r.isHeld() {
		r.learn(now, it.account.spec, got)
	}
	if got.Allowed {
		it.account.note(p, it.cost)
	}
}

// wouldFall reports whether items fall by the strict references, or by the loose ones.
func (j *exactJudge) wouldFall(now limiter.Instant, items []asked, strictly bool) bool {
	states := make(map[*account]*naiveState)
	for i := range items {
		a := items[i].account
		if watches(a.spec) {
			continue
		}
		st := states[a]
		if st == nil {
			st = a.reference.most(now, a.spec).copy()
			if strictly && a.reference.strict != nil {
				st = a.reference.strict.copy()
			}
			states[a] = st
		}
		if !st.take(now, a.spec, items[i].cost).Allowed {
			return true
		}
	}
	return false
}

func (j *exactJudge) decidesAllExactly(p *process, items []asked, got []limiter.Decision) {
	now, before := p.now(), statesOf(items)
	want := takeAllExactly(now, items)
	kept := statesOf(items)
	if gone := forgotten(now, items, before, got, want); len(gone) > 0 {
		before.restore()
		for a := range gone {
			a.reference.loose = naiveState{}
		}
		if anew := takeAllExactly(now, items); slices.Equal(got, anew) {
			want = anew
		} else {
			kept.restore()
		}
	}
	fallen := falls(items, want)
	for i := range items {
		j.same(p, &items[i], got[i], want[i])
		if !fallen && got[i].Allowed {
			items[i].account.note(p, items[i].cost)
		}
	}
}

// states are what references had at one time.
type states map[*account]naiveState

func statesOf(items []asked) states {
	s := make(states)
	for i := range items {
		s[items[i].account] = items[i].account.reference.loose
	}
	return s
}

func (s states) restore() {
	for a, state := range s {
		a.reference.loose = state
	}
}

// forgotten are the accounts of which a decision is not the one that is due, and of which a node
// may have forgotten the phase, as in takeExactly.
func forgotten(
	now limiter.Instant, items []asked, before states, got, want []limiter.Decision,
) map[*account]bool {
	gone := make(map[*account]bool)
	for i := range items {
		a := items[i].account
		if st := before[a]; got[i] != want[i] && st.forgettable(now, a.spec) {
			gone[a] = true
		}
	}
	return gone
}

// takeAllExactly is what the single limiter answers to items that stand or fall together. If they
// fall, it says what remains of each now.
func takeAllExactly(now limiter.Instant, items []asked) []limiter.Decision {
	before, want := statesOf(items), make([]limiter.Decision, len(items))
	for i := range items {
		if a := items[i].account; !watches(a.spec) {
			want[i] = a.reference.decide(now, &items[i])
		}
	}
	fallen := falls(items, want)
	for i := range items {
		switch a := items[i].account; {
		case fallen:
			a.reference.loose = before[a]
			if watches(a.spec) {
				want[i] = a.reference.loose.peek(now, a.spec, items[i].cost)
			}
			left := a.reference.loose.peek(now, a.spec, 0)
			want[i].Remaining, want[i].ResetAfter = left.Remaining, left.ResetAfter
			want[i].Drained = 0
		case watches(a.spec):
			want[i] = a.reference.decide(now, &items[i])
		}
	}
	return want
}

// falls reports whether items that stand or fall together do fall, if each would be answered like
// this.
func falls(items []asked, ds []limiter.Decision) bool {
	for i := range items {
		if !ds[i].Allowed && !watches(items[i].account.spec) {
			return true
		}
	}
	return false
}

// judged says what is wrong with a decision.
func (j *exactJudge) judged(p *process, it *asked, v verdict, got, want limiter.Decision) {
	switch v {
	default:
		j.same(p, it, got, want)
	case generous:
		j.fail(exact, "%s decides on %s of %s under %s:\n  %s\nwhere a naive limiter that "+
			"follows all decisions on it, and forgives what may be lost, goes no further "+
			"than:\n  %s",
			p.machine.id, opText(it.op, it.cost), keyText(it.account.key), it.account.spec.Name,
			decisionText(got), decisionText(want))
	case mean:
		j.fail(useful, "%s decides on %s of %s under %s:\n  %s\nwhere a naive limiter that "+
			"follows all decisions on it, and counts as late as may be, still says:\n  %s",
			p.machine.id, opText(it.op, it.cost), keyText(it.account.key), it.account.spec.Name,
			decisionText(got), decisionText(want))
	}
}

// same holds a decision of p against the reference's.
func (j *exactJudge) same(p *process, it *asked, got, want limiter.Decision) {
	j.checked[exact]++
	if !got.Allowed {
		j.checked[useful]++
	}
	if got == want {
		return
	}
	j.fail(exact, "%s decides on %s of %s under %s:\n  %s\nwhere a naive limiter decides:\n  %s",
		p.machine.id, opText(it.op, it.cost), keyText(it.account.key), it.account.spec.Name,
		decisionText(got), decisionText(want))
}

// asked is one item as the node that decides it hears it.
type asked struct {
	account *account
	cost    int64
	op      cluster.Op
	id      cluster.ID
	doubt   bool // it was answered under less than the full promise
}
