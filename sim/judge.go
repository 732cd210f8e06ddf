package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/ring"
)

// judge watches a world and checks every decision in it against the reference, in two ways that share nothing: from
// inside, by deciding everything once more as one naive limiter would (reference.go); and from outside, by what clients
// saw (account.go).
type judge struct {
	world    *world
	accounts map[string]map[string]*account // by limit and key
	lately   [latelyFound]found             // of accounts
	order    []*account                     // as they were opened
	memories memories                       // what nodes decided under an ID
	gifts    []time.Duration                // when a partition was last given to somebody
	givers   []*process                     // by whom
	troubles troubles                       // of the world
	holders  []*process                     // of partitions, as far as gifts and decisions tell
	claims   []time.Duration                // when somebody was first seen to hold a partition who was not given it
	laid     []time.Duration                // when what is kept of a partition was last laid on a clock out of step with the one before
	said     sayings                        // what clients may hear under an ID
	granted  grants                         // what was set aside of several owners
	checked  [promises]uint64               // how often each promise was looked at
	tallies  map[string]*LimitReport        // by limit
	requests RequestReport
	failure  *Failure
	deciders []decider             // by partition
	tied     map[int]time.Duration // when one of two who does not reach the other has last decided
	held     map[tenure]uint64     // how often a node had begun to hold anything when it was last seen to hold a partition
	scratch  scratch
	books    books
	backBy   time.Duration // when all that was restored from files must have been returned
}

// scratch are buffers for one event; no event uses them while another does.
type scratch struct {
	items []asked
	got   []limiter.Decision
}

// saying is what was answered under an ID: always the same, unless somebody had to forget.
type saying struct {
	first, last limiter.Decision
	by          *process // who said the last
}

// has reports whether d was said.
func (s *saying) has(d limiter.Decision) bool { return s.first == d || s.last == d }

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

// hearing is one visit of a client, from the question to the answer.
type hearing struct {
	process  *process
	request  *request
	question *cluster.Request
	out      []cluster.Decision // as far as the node has come
	decided  []bool             // items that this node has decided itself
	retried  []int              // reservations that it has tried again, under another ID
	began    time.Duration
	view     *cluster.View
	spread   bool    // its items stand or fall together, and have several owners in the eyes of the node
	alone    []alone // of items whose owner did not answer; nil if there are none
}

// alone is what the reference decides where a node finds no owner.
type alone struct {
	limiter.Decision
	full    bool // all of it is known, and not only whether it is a yes
	due     bool // the limit has it so
	charged bool // to the node's share
}

func newJudge(w *world) *judge {
	j := &judge{
		world: w, accounts: make(map[string]map[string]*account), granted: newGrants(),
		gifts: slices.Repeat([]time.Duration{-warmUp}, ring.Partitions), holders: make([]*process, ring.Partitions),
		givers: make([]*process, ring.Partitions), troubles: troublesOf(w.plan.faults),
		claims: slices.Repeat([]time.Duration{-warmUp}, ring.Partitions), laid: slices.Repeat([]time.Duration{-warmUp}, ring.Partitions),
		tallies: make(map[string]*LimitReport), held: make(map[tenure]uint64), tied: make(map[int]time.Duration), books: newBooks(w),
	}
	for i := range w.rules {
		j.tallies[w.rules[i].limit.Name] = newLimitReport(&w.rules[i])
	}
	return j
}

// fail breaks a promise, and ends the world with it. Only the first failure counts.
func (j *judge) fail(p promise, format string, args ...any) {
	if j.failure == nil {
		j.failure = &Failure{
			Promise: promiseWords[p][0], Says: promiseWords[p][1], AtMS: millis(j.world.now),
			Detail: fmt.Sprintf(format, args...), Events: j.world.trace.last(),
		}
	}
}

// opened begins a visit.
func (j *judge) opened(h *hearing, p *process, r *request, q *cluster.Request, out []cluster.Decision) {
	*h = hearing{process: p, request: r, question: q, out: out, began: j.world.now, view: p.node.View(), decided: h.decided[:0], retried: h.retried[:0]}
	j.requests.Visits++
	for i := range r.items {
		it := &r.items[i]
		j.world.trace.add(happening{at: j.world.now, kind: asks, node: p.machine, seq: it.ID.Sequence, limit: limitName(it), key: it.Key, op: it.Op, cost: it.Cost})
	}
	if !r.broken {
		j.visited(r)
		j.spreads(h)
		j.triesAgain(h)
		j.gives(h)
		h.decided = append(h.decided, make([]bool, len(r.items))...)
	}
}

// observe looks at what a node has decided itself since it was last looked at: whenever it begins to wait for others,
// and when it answers. Between two looks no time goes by, so this is when it decided.
func (j *judge) observe(h *hearing) {
	p := h.process
	items, got := j.scratch.items[:0], j.scratch.got[:0]
	j.settling(nil, h.question)
	j.looksAtHolds(p)
	for i := range h.decided {
		d := &h.out[i]
		if j.observeDenial(h, i) || j.observeHold(h, i) || j.observeReplica(h, i) || h.decided[i] || d.Source != cluster.SourceOwner || d.Owner != p.machine.id {
			continue
		}
		h.decided[i] = true
		raw := d.Decision
		raw.Allowed = raw.Allowed && !d.Shadow
		it := &h.question.Items[i]
		x := asked{h.request.terms[i].account, it.Cost, it.Op, it.ID, d.Degraded}
		if h.spread {
			j.setsAside(p, &x, raw)
			continue
		}
		items = append(items, x)
		got = append(got, raw)
		if !h.request.atomic {
			j.decides(p, items, false, got)
			items, got = items[:0], got[:0]
		}
	}
	if len(items) > 0 {
		j.decides(p, items, true, got)
	}
	j.scratch.items, j.scratch.got = items, got
	// What nobody has answered is decided last; after that a node may wait for others to hear what it has given back. (Of what stands or falls
	// together it may try again.)
	if h.alone == nil && !h.request.atomic && slices.ContainsFunc(h.out, func(d cluster.Decision) bool { return d.Source == cluster.SourceFallback }) {
		j.decideAlone(h, h.out)
	}
}

// decides checks what p has just decided, as who decides for the keys of items, which stand or fall together.
func (j *judge) decides(p *process, items []asked, together bool, got []limiter.Decision) {
	for i := range items {
		j.mayDecide(p, items[i].account, items[i].doubt)
	}
	id := items[0].id
	if items[0].op == cluster.OpPeek {
		id = cluster.ID{}
	}
	known := j.memories.answers.get(id)
	if before := j.remembered(p, known, id, items, got); before != nil {
		for i := range items {
			j.same(p, &items[i], got[i], before[i])
		}
		return
	}
	for i := range items {
		j.bring(items[i].account, p)
	}
	if together && len(items) > 1 {
		j.decidesAll(p, items, got)
	} else {
		j.decidesOne(p, &items[0], got[0])
	}
	if id != (cluster.ID{}) {
		charges := false
		for i := range items {
			charges = charges || got[i].Allowed && items[i].cost != 0 && items[i].op == cluster.OpTake
		}
		if together {
			charges = charges && !falls(items, got)
		}
		j.remember(p, known, items[0].account, id, got, charges)
	}
}

func (j *judge) decidesOne(p *process, it *asked, got limiter.Decision) {
	a, now := it.account, p.now()
	if a.held != nil {
		j.takesHeld(p, it, got, false)
		return
	}
	a.reference.settle(now, a.spec)
	v, want := a.reference.take(now, it, got)
	switch {
	case it.op == cluster.OpReset:
		a.note(p, -everything)
	case got.Allowed && it.op == cluster.OpTake:
		a.note(p, it.cost)
	}
	j.judged(p, it, v, got, want)
}

// decidesAll follows items that stand or fall together. Limits that only watch have no say in it: they are charged if
// the others are.
func (j *judge) decidesAll(p *process, items []asked, got []limiter.Decision) {
	now, exactly, blind, vague := p.now(), true, false, false
	if slices.ContainsFunc(items, func(it asked) bool { return it.account.held != nil }) {
		fallen := falls(items, got)
		for i := range items {
			j.takesHeld(p, &items[i], got[i], fallen)
		}
		return
	}
	for i := range items {
		r := &items[i].account.reference
		r.settle(now, items[i].account.spec)
		blind, vague = blind || r.isBlind(), vague || r.isVague(items[i].account.spec)
		if r.strict == nil && (r.fresh() || r.isBlind()) {
			r.loosen(now, items[i].account.spec)
		}
		exactly = exactly && r.strict == nil
	}
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
		it := &items[i]
		r := &it.account.reference
		if r.strict == nil {
			strict := r.loose
			r.strict = &strict
			r.came = cmp.Or(r.came, j.world.now) // what was decided with others is known as well as they are
		}
		r.commit(now, it, got[i].Allowed)
		if !r.isHeld() {
			r.learn(now, it.account.spec, got[i])
		}
		if got[i].Allowed {
			it.account.note(p, it.cost)
		}
	}
}

// wouldFall reports whether items fall by the strict references, or by the loose ones.
func (j *judge) wouldFall(now limiter.Instant, items []asked, strictly bool) bool {
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

func (j *judge) decidesAllExactly(p *process, items []asked, got []limiter.Decision) {
	now := p.now()
	before := make(map[*account]naiveState)
	wrongs, want := 0, make([]limiter.Decision, len(items))
	take := func(i int) {
		a := items[i].account
		if _, twice := before[a]; !twice {
			before[a] = a.reference.loose
		}
		var v verdict
		if v, want[i] = a.reference.takeExactly(now, &items[i], got[i]); v != fine {
			wrongs++
		}
	}
	for i := range items {
		if !watches(items[i].account.spec) {
			take(i)
		}
	}
	fallen := falls(items, want)
	if fallen {
		for a, state := range before {
			a.reference.loose = state
		}
	}
	for i := range items {
		switch a := items[i].account; {
		case !watches(a.spec):
		case fallen:
			look := items[i]
			look.op = cluster.OpPeek
			_, want[i] = a.reference.takeExactly(now, &look, got[i])
		default:
			take(i)
		}
	}
	for i := range items {
		j.same(p, &items[i], got[i], want[i])
		if !fallen && got[i].Allowed {
			items[i].account.note(p, items[i].cost)
		}
	}
}

// judged says what is wrong with a decision.
func (j *judge) judged(p *process, it *asked, v verdict, got, want limiter.Decision) {
	switch v {
	default:
		j.same(p, it, got, want)
	case generous:
		j.fail(exact, "%s decides on %s of %s under %s:\n  %s\nwhere a naive limiter that follows all decisions on it, and forgives what may be lost, goes no further than:\n  %s",
			p.machine.id, opText(it.op, it.cost), keyText(it.account.key), it.account.spec.Name, decisionText(got), decisionText(want))
	case mean:
		j.fail(useful, "%s decides on %s of %s under %s:\n  %s\nwhere a naive limiter that follows all decisions on it, and counts as late as may be, still says:\n  %s",
			p.machine.id, opText(it.op, it.cost), keyText(it.account.key), it.account.spec.Name, decisionText(got), decisionText(want))
	}
}

// delivered checks what p answered to an Ask of from with this deadline on p's clock.
func (j *judge) delivered(from, p *process, a *cluster.Ask, deadline limiter.Instant, answer *cluster.Answer) {
	if len(answer.Items) != len(a.Items) {
		j.fail(owned, "%s answers %d of %d items", p.machine.id, len(answer.Items), len(a.Items))
		return
	}
	if a.Move != nil {
		j.moved(from, p, a.Move)
	}
	j.settling(a, nil)
	late := p.now() >= deadline
	items, got := j.scratch.items[:0], j.scratch.got[:0]
	for i := range a.Items {
		it, out := &a.Items[i], &answer.Items[i]
		if a.Relay && (out.Status == cluster.StatusDone && out.Owner != "" || out.Status == cluster.StatusLost) {
			continue // somebody else has decided, and was judged for it
		}
		x := asked{j.account(it.Limit.Name, it.Key), it.Cost, it.Op, it.ID, out.Degraded}
		j.answered(p, &x, late, out)
		if j.deliveredHold(from, p, a, i, answer) {
			continue
		}
		if out.Status == cluster.StatusDone && (it.Op == cluster.OpReserve || it.Op == cluster.OpSettle) {
			if it.Op == cluster.OpReserve {
				j.setsAside(p, &x, out.Decision)
				j.says(p, &x, unheld(out.Decision))
			}
			continue
		}
		if out.Status == cluster.StatusDone && it.Report { // what is charged afterwards: reference.owes
			x.account.reference.paid(x.account, p, from, cluster.ID{Origin: it.ID.Origin ^ reportOrigin, Sequence: it.ID.Sequence}, it.Cost)
		}
		if out.Status != cluster.StatusDone || it.Report {
			continue
		}
		items, got = append(items, x), append(got, out.Decision)
		if !a.Atomic {
			j.decides(p, items, false, got)
			items, got = items[:0], got[:0]
		}
		j.says(p, &x, out.Decision)
	}
	if len(items) > 0 {
		j.decides(p, items, true, got)
	}
	j.scratch.items, j.scratch.got = items, got
}

// confirmed notes what p answers to an Ask after it has waited for heirs.
func (j *judge) confirmed(p *process, a *cluster.Ask, answer *cluster.Answer) {
	for i := range a.Items {
		it, out := &a.Items[i], &answer.Items[i]
		if out.Status == cluster.StatusDone && out.Degraded {
			j.says(p, &asked{j.account(it.Limit.Name, it.Key), it.Cost, it.Op, it.ID, true}, out.Decision)
		}
	}
}

// says notes what may be passed on to a client.
func (j *judge) says(p *process, it *asked, d limiter.Decision) {
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
		s.first = d
		j.said.byID.put(it.id, s)
	}
	s.last, s.by = d, p
}

// answered checks what became of one item of an Ask, but not what was decided.
func (j *judge) answered(p *process, it *asked, late bool, got *cluster.AnswerItem) {
	j.checked[owned]++
	a := it.account
	h := happening{at: j.world.now, kind: decides, node: p.machine, seq: it.id.Sequence, limit: a.spec.Name, key: a.key, op: it.op, cost: it.cost}
	if got.Status == cluster.StatusDone {
		h.allowed, h.remaining = got.Decision.Allowed, got.Decision.Remaining
	} else {
		h.kind = declines
	}
	j.world.trace.add(h)
	if late {
		j.checked[inTime]++
	}
	switch {
	case late != (got.Status == cluster.StatusExpired):
		j.fail(inTime, "%s answers an ask for %s with status %d; it is %t that its deadline has passed", p.machine.id, keyText(a.key), got.Status, late)
	case late:
	case got.Status == cluster.StatusRefused:
		j.fail(owned, "%s refuses an ask for %s: it has been sent on too often", p.machine.id, keyText(a.key))
	case got.Status == cluster.StatusNotOwner && got.Owner == p.machine.id:
		j.fail(owned, "%s does not decide for %s, and says to ask %s", p.machine.id, keyText(a.key), got.Owner)
	}
}

// same holds a decision of p against the reference's.
func (j *judge) same(p *process, it *asked, got, want limiter.Decision) {
	j.checked[exact]++
	if !got.Allowed {
		j.checked[useful]++
	}
	if got == want {
		return
	}
	j.fail(exact, "%s decides on %s of %s under %s:\n  %s\nwhere a naive limiter decides:\n  %s",
		p.machine.id, opText(it.op, it.cost), keyText(it.account.key), it.account.spec.Name, decisionText(got), decisionText(want))
}

// closed checks what a client heard at the end of a visit.
func (j *judge) closed(h *hearing, out []cluster.Decision, err error) {
	r, p := h.request, h.process
	defer j.left(r)
	j.observe(h)
	j.checked[inTime]++
	if late := p.now() - h.question.Deadline; late > clockGrain && p.machine.thawed < h.began {
		j.fail(inTime, "%s answers a client %v after its deadline", p.machine.id, time.Duration(late))
		return
	}
	if !r.broken {
		j.gave(h, out, err)
	}
	due := r.broken
	if due || err != nil {
		j.refusal(p, err, due)
		return
	}
	yes := true
	for i := range out {
		yes = yes && out[i].Allowed
		if out[i].Source == cluster.SourceFallback && h.alone == nil {
			j.decideAlone(h, out)
		}
	}
	for i := range out {
		j.heard(h, i, &out[i], !r.atomic || yes)
		if id := h.question.Items[i].ID; id.Origin != clientOrigin && !h.spread {
			j.said.forget(id) // nobody else will ask for it
		}
	}
}

// clockGrain is what a deadline may be missed by: a clock that gains skips a nanosecond now and then.
const clockGrain = 1

// refusal checks an error, or that there is one.
func (j *judge) refusal(p *process, err error, due bool) {
	j.checked[refused]++
	j.requests.Refused++
	j.world.trace.add(happening{at: j.world.now, kind: refuses, node: p.machine})
	var input *cluster.InputError
	var unknown *cluster.UnknownLimitError
	switch {
	case err == nil:
		j.fail(refused, "%s decides a request that is in error", p.machine.id)
	case !due:
		j.fail(refused, "%s refuses a request that is in order: %v", p.machine.id, err)
	case !errors.As(err, &input) && !errors.As(err, &unknown):
		j.fail(refused, "%s refuses a request with an error that does not say what is wrong: %v", p.machine.id, err)
	}
}

// heard checks one decision as a client heard it. yes is false if the client has to take it for a no because it
// fell with others.
func (j *judge) heard(h *hearing, i int, d *cluster.Decision, yes bool) {
	p, it, t := h.process, &h.question.Items[i], &h.request.terms[i]
	a := t.account
	j.world.trace.add(happening{
		at: j.world.now, kind: hears, node: p.machine, seq: it.ID.Sequence,
		limit: a.spec.Name, key: it.Key, op: it.Op, cost: it.Cost, allowed: d.Allowed, remaining: d.Remaining,
	})
	got := d.Decision
	if d.Shadow {
		got.Allowed = false
	}
	j.checked[honest]++
	if d.Rule == nil || d.Rule.Name != a.spec.Name || d.Shadow && !d.Allowed || it.Op == cluster.OpTake && !d.Shadow && !d.Allowed && watches(a.spec) {
		j.fail(honest, "%s answers for %s under %s: %s", p.machine.id, keyText(it.Key), a.spec.Name, answerText(d))
		return
	}
	local := d.Source == cluster.SourceOwner
	switch {
	case a.replica != nil || a.spec.Unlimited:
		j.heardReplica(h, i, d, yes)
		return
	case d.Source == cluster.SourceDenied: // see observeDenial
	case d.Source == cluster.SourceLease:
		if a.held == nil || it.Op != cluster.OpTake || d.Degraded {
			j.fail(lent, "%s decides on %s under %s by itself: %s", p.machine.id, keyText(it.Key), a.spec.Name, answerText(d))
			return
		}
	case d.Source == cluster.SourceFallback && it.Op > cluster.OpReserve && d.Hold != limiter.HoldNone:
		j.heardPromise(h, i, d)
		return
	case d.Source == cluster.SourceFallback:
		j.fellBack(h, i, d, unheld(got))
		a.tally.count(it, d)
		if d.Allowed && !d.Shadow && asksFor(it) && it.Cost > 0 {
			a.reference.owes(a, p, it.ID)
		}
		j.promises(h, i, d, yes)
		if h.alone[i].charged && yes && d.Allowed && !d.Shadow && it.Cost > 0 {
			j.spared(t, it.Cost, d.Bound)
		}
		return
	case d.Degraded && j.world.plan.sky == calm && !j.misses(d, a):
		j.fail(marked, "%s answers for %s under %s with less than the full promise, in a world that is %s: %s",
			p.machine.id, keyText(it.Key), a.spec.Name, j.world.plan.sky, answerText(d))
		return
	case j.relayedTo(p, it, d, got):
	case local != (d.Owner == p.machine.id) || j.world.byID[d.Owner] == nil:
		j.fail(owned, "%s, asked for %s, says that %s decided (%s)", p.machine.id, keyText(it.Key), d.Owner, d.Source)
		return
	case local:
	case it.Op != cluster.OpPeek && !(h.spread && looksOnly(a, it)):
		if s := j.said.byID.get(it.ID); s == nil || !s.has(got) {
			s = cmp.Or(s, &saying{})
			j.fail(honest, "%s passes on a decision on %s under %s that its owner never took:\n  %s\nwhere the owner said:\n  %s",
				p.machine.id, keyText(it.Key), a.spec.Name, decisionText(got), decisionText(s.last))
			return
		}
	}
	a.tally.count(it, d)
	t.settled = true
	if it.Op >= cluster.OpReserve {
		j.heardHold(h, i, d, yes)
		return
	}
	if h.spread && yes && d.Allowed && !d.Shadow && it.Cost != 0 {
		j.charged(t, it.Cost)
	}
	switch {
	case !yes || !d.Allowed || d.Shadow || it.Op != cluster.OpTake || it.Cost <= 0:
	case !j.ofShare(h, it, d):
		j.admitted(t, it.Cost)
	case !t.spared: // the client has not heard of that
		j.spared(t, it.Cost, d.Bound)
	}
}

// ofShare reports whether what a client hears as the owner's is what the share of that node has
// admitted when it was not the owner: a take is remembered whoever has decided it.
func (j *judge) ofShare(h *hearing, it *cluster.Item, d *cluster.Decision) bool {
	m := j.world.byID[d.Owner]
	if m == nil || m.process == nil {
		return false
	}
	own := m.process.shares.answers.get(it.ID)
	return own != nil && own.repeated != 0 && own.repeated >= h.began && own.decisions[0] == d.Decision
}

// settled checks that a call came back in time.
func (j *judge) settled(l *letter, answered bool) {
	j.checked[inTime]++
	p := l.from
	j.world.trace.add(happening{at: j.world.now, kind: returns, node: p.machine, peer: l.to, allowed: answered})
	if answered {
		j.reaches(l)
		j.hearsTold(l)
		if len(j.books.limits) > 0 {
			j.hearsDenials(l)
		}
	}
	if late := p.now() - l.call.Deadline; late > clockGrain && p.machine.thawed < l.sent {
		j.fail(inTime, "a call of %s to %s comes back %v after its deadline", p.machine.id, l.to.id, time.Duration(late))
	}
}

// panicked makes a failure of a panic.
func (j *judge) panicked(p any) {
	where := j.world.tasks.panicAt
	if where == "" {
		where = panicSite()
	}
	j.fail(sound, "%v\nin %s", p, where)
}

// limitName is the name of the limit that an item is about.
func limitName(it *cluster.Item) string {
	if it.Inline != nil {
		return it.Inline.Name
	}
	return it.Limit
}

// falls reports whether items that stand or fall together do fall, if each would be answered like this.
func falls(items []asked, ds []limiter.Decision) bool {
	for i := range items {
		if !ds[i].Allowed && !watches(items[i].account.spec) {
			return true
		}
	}
	return false
}

// oneKey reports whether all items of r are about one key, which has one owner.
func oneKey(r *request) bool {
	for i := range r.items {
		if r.items[i].Key != r.items[0].Key {
			return false
		}
	}
	return true
}
