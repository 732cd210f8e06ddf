package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// onceJudge has what nodes have answered under an ID.
type onceJudge struct {
	*common
	carrier  *carrier
	counted  *countedJudge
	memories memories
	// takes that were set aside, or refused, one by one. An owner of all keys of a request that is
	// asked for again charges none of those
	apart grants
	// takes that an owner has let in with others. It sets aside none of them when their keys have
	// several owners
	whole grants
}

// memory is how long a node must recognise a take that it has answered.
const memory = 2 * time.Second

// memories are the answers that were given under IDs, the latest under each.
type memories struct {
	answers        byID[answered]
	oldest, latest *answered  // of answers
	free           *answered  // to be used again
	slab           []answered // to be used for the first time
	hearsay        []hearsay  // oldest first
}

// hearsay is an answer that a process was told of, and that nobody has seen given: what a process
// charges to itself goes over no line.
type hearsay struct {
	id   cluster.ID
	says limiter.Decision
	to   *process
	at   limiter.Instant // on its clock
	now  time.Duration
}

type answered struct {
	id        cluster.ID
	by        *process
	at        limiter.Instant // on its clock
	now       time.Duration
	decisions []limiter.Decision
	one       [1]limiter.Decision // what decisions mostly is
	charges   bool                // something was charged
	repeated  time.Duration       // of a share: when it was last answered as if it were the owner's
	before    *answered           // by another process, which may answer so again
	// of all memories, the one that was added after this one; or the next that is free
	next *answered
	// decided by its share, not as the owner: a node that is given the key hears of that answer too
	share bool
	vague bool   // by a share of which nothing is known: a no may have fallen with others
	told  []told // to which it has come
}

// told is a process to which an answer has come, with a gift or a copy or because it has answered
// so as well, and when that was by its clock.
type told struct {
	process *process
	at      limiter.Instant
}

// toldTo reports whether the answer has come to p, and whether p still has to remember it.
func (a *answered) toldTo(p *process) (ever, still bool) {
	for _, x := range a.told {
		ever = ever || x.process == p
		still = still || x.process == p && x.at.Add(memory) > p.now()
	}
	return ever, still
}

// tells notes what p has heard of the answers of others.
func (m *memories) tells(p *process, taken []cluster.Memory) {
	now := p.machine.world.now
	for len(m.hearsay) > 0 && m.hearsay[0].now+keptMemories < now {
		m.hearsay = m.hearsay[1:]
	}
	for i := range taken {
		x := &taken[i]
		a := m.answers.get(x.ID)
		switch {
		case a != nil && slices.Equal(a.decisions, x.Decisions):
			a.told = append(a.told, told{p, p.now()})
		case len(x.Decisions) == 1:
			m.hearsay = append(m.hearsay, hearsay{x.ID, x.Decisions[0], p, p.now(), now})
		}
	}
}

// of is what p has answered itself, of all those that a is the latest of; nil if nothing.
func (a *answered) of(p *process) *answered {
	for a != nil && a.by != p {
		a = a.before
	}
	return a
}

// keptMemories is how long the judge looks back: longer than any node may remember.
const keptMemories = 10 * time.Second

// add notes an answer after before, which is what answers has under id, and drops those that nobody
// can remember any more.
func (m *memories) add(before *answered, id cluster.ID, p *process, now time.Duration,
	ds []limiter.Decision, charges bool,
) {
	for m.oldest != nil && m.oldest.now+keptMemories < now {
		x := m.oldest
		m.answers.remove(x.id)
		m.oldest, m.free, x.next = x.next, x, m.free
		x.by, x.before = nil, nil
	}
	a := before
	if a == nil || a.by == nil { // there was none, or it has just been dropped
		if a = m.free; a != nil {
			m.free, a.next = a.next, nil
		} else {
			if len(m.slab) == 0 {
				m.slab = make([]answered, min(256, max(4, m.answers.n)))
			}
			a, m.slab = &m.slab[0], m.slab[1:]
		}
		a.id = id
		m.answers.put(id, a)
		if m.oldest == nil {
			m.oldest = a
		} else {
			m.latest.next = a
		}
		m.latest = a
	}
	if a.by != nil && a.by != p {
		last := *a
		last.decisions, last.next, last.told = slices.Clone(a.decisions), nil, slices.Clone(a.told)
		a.before = &last
	}
	a.by, a.at, a.now, a.charges, a.repeated = p, p.now(), now, charges, 0
	a.share, a.vague = false, false
	a.told = a.told[:0]
	a.decisions = append(a.one[:0], ds...)
}

// remembered is what was answered under id before, as a says, if p has to know that; got is what it
// answers now. Where it is open whether p still knows, or knows already, its answer tells.
func (j *onceJudge) remembered(p *process, a *answered, id cluster.ID, items []asked,
	got []limiter.Decision,
) []limiter.Decision {
	if own := j.repeatsShare(p, id, items, got); own != nil {
		return own
	}
	if a == nil || len(a.decisions) != len(got) {
		return nil
	}
	if own := a.of(p); own != nil && own.stands(a, p) && len(own.decisions) == len(got) {
		return own.decisions
	}
	// else it may have come back with the partition, and live longer
	if a.by == p && j.recalled[j.world.plan.partition(items[0].account.hash)] < a.now {
		return nil
	}
	// An answer of another node came along, unless it was lost; and it may live a little longer
	// for that.
	age := j.world.now - a.now
	if age+age/1000 < memory && !a.share && j.sure(a.by) {
		return a.decisions
	}
	if age < memory+j.carriage() && slices.Equal(got, a.decisions) {
		j.mayRepeat(p, a, items, got)             // or it was decided once more, alike
		a.told = append(a.told, told{p, p.now()}) // and p remembers it from now on
		return a.decisions
	}
	return j.repeatsEarlier(p, a, items, got)
}

// letInWhole notes that an owner has let in items that stand or fall together.
func (j *onceJudge) letInWhole(items []asked, got []limiter.Decision) {
	for i := range items {
		if it := &items[i]; len(items) > 1 && it.op == cluster.OpTake {
			j.whole.add(it.id, j.world.now, got[i].Allowed)
		}
	}
}

// wasWhole reports whether a take that is to be set aside was let in with others, so lately that
// its owner knows it.
func (j *onceJudge) wasWhole(id cluster.ID) bool {
	x := j.whole.answers[id]
	return x.allowed && j.world.now < x.at+memory+j.carriage()
}

// wasApart reports whether one of items, which p decides on together, may have been charged before
// without the others. Then nobody knows which of them p charges now, and p remembers the answer.
func (j *onceJudge) wasApart(p *process, items []asked, got []limiter.Decision) bool {
	if len(items) < 2 || !slices.ContainsFunc(items, func(it asked) bool {
		return it.op == cluster.OpTake && j.apart.allowed(it.id)
	}) {
		return false
	}
	j.mayRepeat(p, nil, items, got)
	id := items[0].id
	j.memories.add(j.memories.answers.get(id), id, p, j.world.now, got, false)
	return true
}

// stands reports whether p still says what it has answered itself: for as long as that is
// remembered; and if p hears of the latest answer of another process by then, for as long as that
// one is. If p had forgotten its own answer when it heard of that one, it says that one.
func (a *answered) stands(latest *answered, p *process) bool {
	ends := a.at.Add(memory)
	for _, x := range latest.told {
		if latest != a && x.process == p && x.at < ends {
			ends = max(ends, x.at.Add(memory))
		}
	}
	return !a.share && ends > p.now()
}

// remember notes what p has answered under id. A second charge is excused if the node that charged
// first has lost its memory since, or has given it to a node that was lost, so that the partition
// was claimed. It is also excused after the time in which an owner remembers, because a client has
// repeated itself too late, or because the ask was lying at the door of a frozen machine. A node
// never repeats itself too late, but in takes that it owes: the first node may have charged such a
// take without an answer, and then another one is asked. Nothing excuses a node that has heard of
// the first charge, or that must have heard of what was given back.
func (j *onceJudge) remember(p *process, before *answered, items []asked, got []limiter.Decision,
	charges bool,
) {
	if before != nil && before.charges && charges {
		j.chargesAgain(p, before, items)
	}
	if charges {
		j.checked[once]++
		j.allowed.of[anyCharge]++
	}
	j.memories.add(before, items[0].id, p, j.world.now, got, charges)
}

// chargesAgain follows a second charge under one ID, by p.
func (j *onceJudge) chargesAgain(p *process, before *answered, items []asked) {
	of, id := items[0].account, items[0].id
	j.allowed.used[lateTwice]++
	age := j.world.now - before.now
	heard, _ := before.toldTo(p)
	switch {
	case heard && age+age/1000 < memory:
		j.fail(once, "%s charges take %s again, which %s has charged and told it of",
			p.machine.id, idText(id), before.by.machine.id)
	case j.copiedBack(before, p, items):
		j.fail(once, "%s gives back %s again, which %s has given back so long before it died"+
			" that a copy must have told of it", p.machine.id, idText(id), before.by.machine.id)
	case before.by.dead && !before.by.departed,
		j.claims[j.world.plan.partition(of.hash)] >= before.now && j.world.plan.sky != calm:
	case j.outlived(before, p) &&
		(id.Origin == clientOrigin || of.reference.isOwedBySome(id) || j.thawed(before.now)):
	default:
		j.fail(once, "%s charges take %s, which %s has charged before", p.machine.id,
			idText(id), before.by.machine.id)
	}
}

// copiedBack reports whether p, which decides after a process that has failed, must have heard of
// what that one has given back: its answer travels with the first copy that knows of it.
func (j *onceJudge) copiedBack(a *answered, p *process, items []asked) bool {
	it, by, age := &items[0], a.by, j.world.now-a.now
	back := len(items) == 1 && (it.op == cluster.OpReset || it.cost < 0)
	switch {
	case !back, it.doubt, a.share, by == p, age+age/1000 >= memory, len(by.fading) == 0,
		j.world.plan.weather.loss > 0, j.counted.coldOf(it.account) >= a.now,
		j.counted.atOnce(by.machine):
		return false
	}
	given := perishable{at: a.now, by: by}
	return !given.fades()
}

// reported hears what p, which decides, has answered to a report of a take that another process has
// admitted by itself. As long as p remembers that it has let the take in, it answers the report as
// it has answered the take, and charges nothing: whether the other process could have asked for the
// take does not matter, for it may have refused it itself while it decided.
func (j *onceJudge) reported(p *process, take cluster.ID, got limiter.Decision) {
	own := j.memories.answers.get(take).of(p)
	if own == nil || own.share || !own.charges || len(own.decisions) != 1 {
		return
	}
	// the node counts from when it was asked
	if own.at.Add(memory) > p.now() && j.world.now < own.now+memory-memory/500 &&
		got != own.decisions[0] {
		j.fail(once, "%s charges the report of take %s, which it has let in", p.machine.id,
			idText(take))
	}
}

// thawed reports whether a machine has thawed since then: one that decides, or one that was asked
// to send something on.
func (j *onceJudge) thawed(since time.Duration) bool {
	return slices.ContainsFunc(j.world.machines, func(m *machine) bool { return m.thawed >= since })
}

// outlived reports whether p need not know an answer any more.
func (j *onceJudge) outlived(a *answered, p *process) bool {
	if a.by == p {
		return a.at.Add(memory) <= p.now()
	}
	return a.now+memory < j.world.now
}

// decides checks that a node has not decided what lay at its door, while it stood still, for longer
// than owners remember answers, if its client had hung up: another node may have answered it.
func (j *onceJudge) decides(h *hearing) {
	p := h.process
	m := p.machine
	still := m.thawed - m.froze
	if h.visit.came < m.thawed && h.began >= m.thawed && m.froze >= p.began &&
		still > memory+memory/10 && h.visit.hungUpBefore(h.began) {
		j.fail(once, "%s takes a request in that lay at its door while it stood still for %v",
			m.id, still)
	}
}

// letIn is the answer that has let take id in, if it is too young for a node to have forgotten it;
// else nil.
func (j *onceJudge) letIn(id cluster.ID) *answered {
	if id == (cluster.ID{}) {
		return nil
	}
	known := j.memories.answers.get(id)
	if known != nil && !known.share && len(known.decisions) == 1 &&
		known.decisions[0].Allowed && j.world.now < known.now+memory-memory/500 {
		return known
	}
	return nil
}
