package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// promise is something that a judge holds a world to.
type promise int

// The promises, in the order of the report.
const (
	exact promise = iota
	bounded
	once
	owned
	honest
	marked
	inTime
	refused
	kept
	live
	sound
	promises // how many there are
)

// promiseWords are a promise's name, and what it says.
var promiseWords = [promises][2]string{
	exact:   {"exact", "an owner decides in all as one naive limiter would"},
	bounded: {"bounded", "no span of time admits more than one limiter supplies"},
	once:    {"once", "a take is charged once, however often it is sent or comes"},
	owned:   {"owner", "the owner of a key decides, and nobody else"},
	honest:  {"answer", "a client hears what the owner decided"},
	marked:  {"marked", "a decision without the owner says so and keeps its bound"},
	inTime:  {"deadline", "no check, call or ask outlives its deadline"},
	refused: {"input", "a request in error is refused as a whole, others never"},
	kept:    {"kept", "in the end tables hold what was charged, no more or less"},
	live:    {"live", "nobody is left waiting, the world comes to rest"},
	sound:   {"panic", "no code panics"},
}

// judge watches a world and checks every decision in it against the reference, in two ways that share nothing: from
// inside, by deciding everything once more in the ledger of the process that decided it; and from outside, by what
// clients saw (account.go).
type judge struct {
	world    *world
	accounts map[naiveKey]*account
	order    []*account              // as they were opened
	said     map[cluster.ID]saying   // what owners answered
	charges  map[cluster.ID]charge   // who charged a take last
	checked  [promises]uint64        // how often each promise was looked at
	tallies  map[string]*LimitReport // by limit
	requests RequestReport
	failure  *Failure
	scratch  scratch
}

// scratch are buffers for one event; no event uses them while another does.
type scratch struct {
	items    []asked
	status   []cluster.Status
	expected []limiter.Decision
}

// saying is what owners answered under an ID: always the same, unless an owner had to forget.
type saying struct{ first, last limiter.Decision }

// charge is where and when a take was charged.
type charge struct {
	process *process
	at      limiter.Instant // on its clock
	now     time.Duration
}

// hearing is one visit of a client, from the question to the answer.
type hearing struct {
	process  *process
	request  *request
	question *cluster.Request
	began    time.Duration
	expected []limiter.Decision // of items that are this very node's own
	alone    []alone            // of items whose owner did not answer; nil if there are none
}

// alone is what the reference decides where a node finds no owner.
type alone struct {
	limiter.Decision      // in full only with on_error: local
	charged          bool // to the node's share
}

func newJudge(w *world) *judge {
	j := &judge{
		world: w, accounts: make(map[naiveKey]*account), said: make(map[cluster.ID]saying),
		charges: make(map[cluster.ID]charge), tallies: make(map[string]*LimitReport),
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

// opened begins a visit. What the node owns itself it decides at this very instant, before it waits for others, so
// the reference decides it now.
func (j *judge) opened(p *process, r *request, q *cluster.Request) *hearing {
	h := &hearing{process: p, request: r, question: q, began: j.world.now}
	j.requests.Visits++
	for i := range r.items {
		it := &r.items[i]
		j.world.trace.add(happening{at: j.world.now, kind: asks, node: p.machine, seq: it.ID.Sequence, limit: limitName(it), key: it.Key, op: it.Op, cost: it.Cost})
	}
	if r.broken {
		return h
	}
	j.visited(r)
	h.expected = make([]limiter.Decision, len(r.items))
	if r.atomic {
		if !spread(r) && r.terms[0].account.owner == p.machine {
			j.decide(p, j.asking(r.items), true, h.expected)
		}
		return h
	}
	for i := range r.items {
		if r.terms[i].account.owner == p.machine {
			j.decide(p, j.asking(r.items[i:i+1]), false, h.expected[i:i+1])
		}
	}
	return h
}

// decide has the reference decide for p, and follows where takes are charged.
func (j *judge) decide(p *process, items []asked, atomic bool, out []limiter.Decision) {
	now := p.machine.now()
	if atomic {
		ds, fresh := p.ledger.all(now, items)
		copy(out, ds)
		if fresh && !falls(items, ds) {
			j.charge(p, now, items[0].id)
		}
		return
	}
	for i, it := range items {
		d, fresh := p.ledger.one(now, it)
		out[i] = d
		if fresh && d.Allowed && it.cost != 0 && it.op == cluster.OpTake {
			j.charge(p, now, it.id)
		}
	}
}

// charge notes that p charged the take id. A second charge is excused if whoever charged it first has lost its
// memory since; or if it comes after the time in which an owner remembers, because a client has repeated itself too
// late, or because the ask was lying at the door of a frozen machine. A node never repeats itself too late.
func (j *judge) charge(p *process, now limiter.Instant, id cluster.ID) {
	if id == (cluster.ID{}) {
		return
	}
	j.checked[once]++
	before, again := j.charges[id]
	j.charges[id] = charge{p, now, j.world.now}
	switch {
	case !again:
	case before.process.dead && before.process.machine == p.machine:
	case before.process == p && before.at.Add(memory) <= now && (id.Origin == clientOrigin || p.machine.thawed >= before.now):
	default:
		j.fail(once, "%s charges take %s, which %s has charged before", p.machine.id, idText(id), before.process.machine.id)
	}
}

// delivered checks what p answered to an Ask with this deadline on its clock.
func (j *judge) delivered(p *process, a *cluster.Ask, deadline limiter.Instant, answer *cluster.Answer) {
	if len(answer.Items) != len(a.Items) {
		j.fail(owned, "%s answers %d of %d items", p.machine.id, len(answer.Items), len(a.Items))
		return
	}
	s := &j.scratch
	items, want := s.items[:0], s.status[:0]
	for i := range a.Items {
		it := &a.Items[i]
		items = append(items, asked{&it.Limit.Spec, it.Key, it.Cost, it.Op, it.ID})
		status := cluster.StatusDone
		switch {
		case p.machine.now() >= deadline:
			status = cluster.StatusExpired
		case j.world.owner(it.Key) != p.machine:
			status = cluster.StatusNotOwner
		}
		want = append(want, status)
	}
	expected := slices.Grow(s.expected[:0], len(items))[:len(items)]
	clear(expected)
	s.items, s.status, s.expected = items, want, expected
	switch {
	case !a.Atomic:
		for i := range items {
			if want[i] == cluster.StatusDone {
				j.decide(p, items[i:i+1], false, expected[i:i+1])
			}
		}
	case want[0] == cluster.StatusDone: // its keys have one owner: nodes send no others
		j.decide(p, items, true, expected)
	}
	for i := range items {
		j.answered(p, &items[i], want[i], &answer.Items[i], expected[i])
	}
}

// answered checks one item of an answer.
func (j *judge) answered(p *process, it *asked, want cluster.Status, got *cluster.AnswerItem, expected limiter.Decision) {
	j.checked[owned]++
	if want == cluster.StatusExpired {
		j.checked[inTime]++
	}
	h := happening{at: j.world.now, kind: decides, node: p.machine, seq: it.id.Sequence, limit: it.spec.Name, key: it.key, op: it.op, cost: it.cost}
	if got.Status == cluster.StatusDone {
		h.allowed, h.remaining = got.Decision.Allowed, got.Decision.Remaining
	} else {
		h.kind = declines
	}
	j.world.trace.add(h)
	switch {
	case got.Status != want && want == cluster.StatusExpired:
		j.fail(inTime, "%s answers an ask for %s with status %d after its deadline, where %d was due", p.machine.id, keyText(it.key), got.Status, want)
	case got.Status != want:
		j.fail(owned, "%s answers an ask for %s, which is %s's, with status %d, where %d was due",
			p.machine.id, keyText(it.key), j.world.owner(it.key).id, got.Status, want)
	case want == cluster.StatusNotOwner && got.Owner != j.world.owner(it.key).id:
		j.fail(owned, "%s says that %s is %s's; it is %s's", p.machine.id, keyText(it.key), got.Owner, j.world.owner(it.key).id)
	case want == cluster.StatusDone:
		j.same(p, it, got.Decision, expected)
		if it.id != (cluster.ID{}) {
			s, known := j.said[it.id]
			if !known {
				s.first = got.Decision
			}
			s.last = got.Decision
			j.said[it.id] = s
		}
	}
}

// same holds a decision of p against the reference's.
func (j *judge) same(p *process, it *asked, got, want limiter.Decision) {
	j.checked[exact]++
	if got == want {
		return
	}
	j.fail(exact, "%s decides on %s of %s under %s:\n  %s\nwhere a naive limiter decides:\n  %s",
		p.machine.id, opText(it.op, it.cost), keyText(it.key), it.spec.Name, decisionText(got), decisionText(want))
}

// closed checks what a client heard at the end of a visit.
func (j *judge) closed(h *hearing, out []cluster.Decision, err error) {
	r, p := h.request, h.process
	defer j.left(r)
	j.checked[inTime]++
	if late := p.machine.now() - h.question.Deadline; late > clockGrain && p.machine.thawed < h.began {
		j.fail(inTime, "%s answers a client %v after its deadline", p.machine.id, time.Duration(late))
		return
	}
	if mustRefuse := r.broken || r.atomic && spread(r); mustRefuse || err != nil {
		j.refusal(p, err, mustRefuse)
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
		if id := h.question.Items[i].ID; id.Origin != clientOrigin {
			delete(j.said, id) // nobody else will ask for it
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
	case !errors.As(err, &input) && !errors.As(err, &unknown) && !errors.Is(err, cluster.ErrSpread):
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
	local := a.owner == p.machine
	switch {
	case d.Source == cluster.SourceFallback:
		j.fellBack(h, i, d, got)
		j.tallies[a.spec.Name].count(it, d)
		if h.alone[i].charged && yes && d.Allowed && !d.Shadow && it.Cost > 0 {
			j.spared(t, it.Cost, d.Bound)
		}
		return
	case d.Owner != a.owner.id || local != (d.Source == cluster.SourceOwner) || d.Degraded:
		j.fail(owned, "%s, asked for %s, which is %s's, says that %s decided (%s)", p.machine.id, keyText(it.Key), a.owner.id, d.Owner, d.Source)
		return
	case local:
		ask := j.ask(it)
		j.same(p, &ask, got, h.expected[i])
	case it.Op != cluster.OpPeek:
		if s, known := j.said[it.ID]; !known || s.first != got && s.last != got {
			j.fail(honest, "%s passes on a decision on %s under %s that its owner never took:\n  %s\nwhere the owner said:\n  %s",
				p.machine.id, keyText(it.Key), a.spec.Name, decisionText(got), decisionText(s.last))
			return
		}
	}
	j.tallies[a.spec.Name].count(it, d)
	t.settled = true
	if yes && d.Allowed && !d.Shadow && it.Op == cluster.OpTake && it.Cost > 0 {
		j.admitted(t, it.Cost)
	}
}

// decideAlone has the reference decide what the node decided without an owner, at the end of the visit: by on_error,
// and from the node's own share where that is local. Of items that stand or fall together, one refusal is for all.
func (j *judge) decideAlone(h *hearing, out []cluster.Decision) {
	h.alone = make([]alone, len(out))
	fallen := false
	for i := range out {
		if out[i].Source != cluster.SourceFallback {
			continue
		}
		it, a := j.ask(&h.question.Items[i]), &h.alone[i]
		switch {
		case it.op == cluster.OpReset, it.spec.OnError == limiter.ErrorDeny:
		case it.spec.OnError == limiter.ErrorAllow:
			a.Allowed = true
		default:
			own := it
			own.spec = share(it.spec, len(j.world.machines))
			a.Decision, a.charged = h.process.ledger.one(h.process.machine.now(), own)
		}
		fallen = fallen || h.request.atomic && !a.Allowed && !watches(it.spec)
	}
	for i := range h.alone {
		h.alone[i].Allowed = h.alone[i].Allowed && !fallen
	}
}

// fellBack checks a decision that was taken without the owner. got is it with a shadow's yes taken back.
func (j *judge) fellBack(h *hearing, i int, d *cluster.Decision, got limiter.Decision) {
	j.checked[marked]++
	p, it, want := h.process, j.ask(&h.question.Items[i]), &h.alone[i]
	ok := j.world.plan.sky != calm && d.Degraded && got.Allowed == want.Allowed
	if it.op != cluster.OpReset {
		switch it.spec.OnError {
		case limiter.ErrorAllow:
			ok = ok && d.Bound == cluster.Unbounded
		case limiter.ErrorLocal:
			ok = ok && d.Bound >= 0
			j.same(p, &it, got, want.Decision)
		}
	}
	if !ok {
		j.fail(marked, "%s answers for %s under %s without its owner, in a world that is %s: %s",
			p.machine.id, keyText(it.key), it.spec.Name, j.world.plan.sky, answerText(d))
	}
}

// settled checks that a call came back in time.
func (j *judge) settled(l *letter, answered bool) {
	j.checked[inTime]++
	p := l.from
	j.world.trace.add(happening{at: j.world.now, kind: returns, node: p.machine, peer: l.to, allowed: answered})
	if late := p.machine.now() - l.call.Deadline; late > clockGrain && p.machine.thawed < l.sent {
		j.fail(inTime, "a call of %s to %s comes back %v after its deadline", p.machine.id, l.to.id, time.Duration(late))
	}
}

// atRest looks once more at everything when nothing more happens: nobody may wait, and what tables hold must be what
// the reference holds, on every node.
func (j *judge) atRest() {
	j.checked[live]++
	if n := j.world.tasks.waiting; n > 0 {
		j.fail(live, "%d tasks wait for something that will never happen", n)
		return
	}
	for _, m := range j.world.machines {
		if m.process != nil {
			j.audit(m.process)
		}
	}
}

// audit compares the table of p with its ledger: whatever was asked for anywhere has to be there, or not; and nothing
// else may be.
func (j *judge) audit(p *process) {
	now, table := p.machine.now(), p.node.Table()
	for _, a := range j.order {
		j.checked[kept]++
		got := table.Peek(now, a.limit, a.key, a.hash, 0)
		if want := p.ledger.peek(now, a.spec, a.key, 0); got != want {
			j.fail(kept, "the table of %s holds for %s under %s, owned by %s:\n  %s\nwhere it was charged:\n  %s",
				p.machine.id, keyText(a.key), a.spec.Name, a.owner.id, decisionText(got), decisionText(want))
			return
		}
	}
	table.Each(now, func(l *limiter.Limit, key string, _ []int64, d limiter.Decision) bool {
		j.checked[kept]++
		name, _, ofShare := strings.Cut(l.Name, "\x00") // a share's name goes on after the limit's
		a := j.accounts[naiveKey{name, key}]
		if a == nil || !ofShare && a.owner != p.machine {
			j.fail(kept, "the table of %s holds for %s under %q, which nobody has charged there:\n  %s", p.machine.id, keyText(key), l.Name, decisionText(d))
		}
		return j.failure == nil
	})
}

// restless says that the world goes on and on.
func (j *judge) restless() {
	j.checked[live]++
	j.fail(live, "things still happen %v after all timers were stopped", j.world.now-j.world.rested)
}

// panicked makes a failure of a panic.
func (j *judge) panicked(p any) {
	where := j.world.tasks.panicAt
	if where == "" {
		where = panicSite()
	}
	j.fail(sound, "%v\nin %s", p, where)
}

// asking is what an owner hears of items. It holds until the next call.
func (j *judge) asking(items []cluster.Item) []asked {
	as := j.scratch.items[:0]
	for i := range items {
		as = append(as, j.ask(&items[i]))
	}
	j.scratch.items = as
	return as
}

func (j *judge) ask(it *cluster.Item) asked {
	return asked{&j.world.named[limitName(it)].Spec, it.Key, it.Cost, it.Op, it.ID}
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
		if !ds[i].Allowed && !watches(items[i].spec) {
			return true
		}
	}
	return false
}

// spread reports whether the keys of r have different owners.
func spread(r *request) bool {
	for i := range r.terms {
		if r.terms[i].account.owner != r.terms[0].account.owner {
			return true
		}
	}
	return false
}
