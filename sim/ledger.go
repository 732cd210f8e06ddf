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
}

// memory is how long a node must recognise a take that it has answered.
const memory = 2 * time.Second

// asked is one item as the node that decides it hears it.
type asked struct {
	account *account
	cost    int64
	op      cluster.Op
	id      cluster.ID
	doubt   bool // it was answered under less than the full promise
}

// memories are the answers that were given under IDs, the latest under each.
type memories struct {
	answers        byID[answered]
	oldest, latest *answered  // of answers
	free           *answered  // to be used again
	slab           []answered // to be used for the first time
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
	share   bool
	told    []*process // that have heard of it, with a gift or with a copy
	account *account   // of its first item
}

// tells notes what p has heard of the answers of others.
func (m *memories) tells(p *process, taken []cluster.Memory) {
	for i := range taken {
		a := m.answers.get(taken[i].ID)
		if a != nil && slices.Equal(a.decisions, taken[i].Decisions) {
			a.told = append(a.told, p)
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
		last.decisions, last.next, last.told = slices.Clone(a.decisions), nil, nil
		a.before = &last
	}
	a.by, a.at, a.now, a.charges, a.share, a.repeated = p, p.now(), now, charges, false, 0
	a.told, a.account = a.told[:0], nil
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
	if own := a.of(p); own != nil && !own.share && len(own.decisions) == len(got) &&
		own.at.Add(memory) > p.now() {
		return own.decisions
	}
	// else it may have come back with the partition, and live longer
	if a.by == p && j.recalled[j.world.plan.partition(items[0].account.hash)] < a.now {
		return nil
	}
	// What was answered elsewhere came along, unless it was lost; and it may live a little longer
	// for that.
	age := j.world.now - a.now
	if age+age/1000 < memory && !a.share && j.sure(a.by) {
		return a.decisions
	}
	if age < memory+j.carriage() && slices.Equal(got, a.decisions) {
		j.mayRepeat(p, items, got) // or it was decided once more, alike
		return a.decisions
	}
	return nil
}

// mayRepeat follows an answer that p may have remembered, or may have decided once more.
func (j *onceJudge) mayRepeat(p *process, items []asked, got []limiter.Decision) {
	fallen := len(items) > 1 && falls(items, got)
	for i := range items {
		j.carrier.bring(items[i].account, p)
		j.counted.mayCount(p, &items[i])
		items[i].account.reference.mayHave(p.now(), &items[i], got[i].Allowed, fallen)
	}
}

// repeatsShare is what p has answered under id from its share, when it had to decide by itself, if
// got says that again; else nil.
func (j *onceJudge) repeatsShare(p *process, id cluster.ID, items []asked,
	got []limiter.Decision,
) []limiter.Decision {
	own := p.shares.answers.get(id)
	if own == nil || own.at.Add(memory) <= p.now() || len(got) != 1 || got[0] != own.decisions[0] {
		return nil
	}
	own.repeated = j.world.now
	for i := range items {
		j.carrier.bring(items[i].account, p)
	}
	return own.decisions
}

// remember notes what p has answered under id. A second charge is excused if the node that charged
// first has lost its memory since, or has given it to a node that was lost, so that the partition
// was claimed. It is also excused after the time in which an owner remembers, because a client has
// repeated itself too late, or because the ask was lying at the door of a frozen machine. A node
// never repeats itself too late. Nothing excuses a node that has heard of the first charge.
func (j *onceJudge) remember(p *process, before *answered, of *account, id cluster.ID,
	got []limiter.Decision, charges bool,
) {
	if before != nil && before.charges && charges {
		j.allowed.used[lateTwice]++
		age := j.world.now - before.now
		knows := slices.Contains(before.told, p) && age+age/1000 < memory
		switch {
		case knows:
			j.fail(once, "%s charges take %s again, which %s has charged and told it of",
				p.machine.id, idText(id), before.by.machine.id)
		case before.by.dead && !before.by.departed,
			j.claims[j.world.plan.partition(of.hash)] >= before.now && j.world.plan.sky != calm:
		case j.outlived(before, p) && (id.Origin == clientOrigin || j.thawed(before.now)):
		default:
			j.fail(once, "%s charges take %s, which %s has charged before", p.machine.id,
				idText(id), before.by.machine.id)
		}
	}
	if charges {
		j.checked[once]++
		j.allowed.of[anyCharge]++
	}
	j.memories.add(before, id, p, j.world.now, got, charges)
	j.memories.answers.get(id).account = of
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

// shares is what one process has admitted by itself while owners were away.
type shares struct {
	naive
	memories
	// in how many a limit was split; -1: not always in as many, so nothing is known
	parts map[naiveKey]int
}

func newShares() *shares {
	return &shares{naive{keys: make(map[naiveKey]*naiveState)}, memories{}, make(map[naiveKey]int)}
}

// repeated is what p has answered to this take or reservation before, if it says so again; of an
// atomic one, before it fell with others.
func (l *shares) repeated(p *process, it *cluster.Item, raw limiter.Decision,
	atomic bool,
) *limiter.Decision {
	a := l.answers.get(it.ID)
	if a == nil || it.Op != cluster.OpTake && it.Op != cluster.OpReserve ||
		a.at.Add(memory) <= p.now() {
		return nil
	}
	raw.Allowed = raw.Allowed || atomic && a.decisions[0].Allowed
	if a.decisions[0] != raw {
		return nil
	}
	return &a.decisions[0]
}

// split is in how many shares a node has split a limit, as far as it may, told by what it answers;
// 0 if no number explains that. Several may come to the same share of a small limit, and yet refill
// at different rates: then the decision itself tells.
func (l *shares) split(p *process, it *cluster.Item, s *limiter.Spec, d *cluster.Decision,
	raw limiter.Decision, atomic bool, may func(n int) bool,
) int {
	w := p.machine.world
	most := len(w.machines)
	fits := func(n int) bool { return may(n) && statesShare(s, n, d) }
	explains := func(n int) bool {
		yes := raw
		yes.Allowed = true // before it fell with others
		return l.says(p, share(s, n), it, raw) || atomic && l.says(p, share(s, n), it, yes)
	}
	// all see as many members as in the beginning
	same := !w.plan.moves() && w.faults.Deaths == 0 && s.OnPartition != limiter.PartitionOpen
	if n := l.parts[naiveKey{share(s, 1).Name, it.Key}]; n > 0 && fits(n) && (same || explains(n)) {
		return n
	}
	first := 0
	for n := most; n > 0; n-- { // mostly they know all
		if fits(n) && explains(n) {
			return n
		}
		if fits(n) {
			first = max(first, n)
		}
	}
	return first
}

// statesShare reports whether d has the limit and the bound of one of n shares of s.
func statesShare(s *limiter.Spec, n int, d *cluster.Decision) bool {
	own := capacityOf(share(s, n))
	return own == d.Limit && (d.Bound == max(capacityOf(s), int64(n)*own) ||
		n == 1 && s.OnPartition == limiter.PartitionOpen)
}

// says reports whether the share s would decide so.
func (l *shares) says(p *process, s *limiter.Spec, it *cluster.Item, raw limiter.Decision) bool {
	if a := l.answers.get(it.ID); a != nil && a.at.Add(memory) > p.now() &&
		it.Op != cluster.OpPeek {
		return a.decisions[0] == raw
	}
	st := l.keys[naiveKey{s.Name, it.Key}]
	return l.peek(p.now(), s, it.Key, it.Cost) == raw || st != nil && st.forgettable(p.now(), s) &&
		new(naiveState).take(p.now(), s, it.Cost) == raw
}

// decide decides from the share s, one of n, where p answered got. charged is false if it is a
// repeat, or nothing that charges.
func (l *shares) decide(p *process, s *limiter.Spec, n int, it *cluster.Item,
	got limiter.Decision,
) (d limiter.Decision, charged bool) {
	now := p.now()
	key := naiveKey{s.Name, it.Key}
	if before, known := l.parts[key]; known && before != n || s.Algorithm == limiter.TokenBucket &&
		s.OnPartition == limiter.PartitionOpen {
		// of a bucket of tokens each share has a state of its own, and several may look alike
		n = -1
	}
	a := l.answers.get(it.ID)
	known := a != nil && a.at.Add(memory) > now && it.Op != cluster.OpPeek
	if l.parts[key] = n; n <= 0 {
		if !(known && a.decisions[0] == got) {
			l.believe(p, it, got, a)
		}
		return got, it.Op == cluster.OpTake
	}
	if known {
		return a.decisions[0], false
	}
	l.mayForget(now, s, it, got)
	if it.Op == cluster.OpPeek {
		return l.peek(now, s, it.Key, it.Cost), false
	}
	d = l.take(now, s, it.Key, it.Cost)
	if it.ID != (cluster.ID{}) {
		l.add(a, it.ID, p, p.machine.world.now, []limiter.Decision{d}, d.Allowed)
	}
	return d, true
}

// mayForget resets a key of s that p may have forgotten, if got shows that it has.
func (l *shares) mayForget(now limiter.Instant, s *limiter.Spec, it *cluster.Item,
	got limiter.Decision,
) {
	if st := l.keys[naiveKey{s.Name, it.Key}]; st != nil && st.forgettable(now, s) &&
		st.peek(now, s, it.Cost).ResetAfter != got.ResetAfter {
		l.reset(s, it.Key)
	}
}

// believe notes what p has answered from a share of which nothing is known: that it will say so
// again is known all the same. a is its answer under this ID before, if any.
func (l *shares) believe(p *process, it *cluster.Item, got limiter.Decision, a *answered) {
	if (it.Op == cluster.OpTake || it.Op == cluster.OpReserve) && it.ID != (cluster.ID{}) {
		l.add(a, it.ID, p, p.machine.world.now, []limiter.Decision{got}, got.Allowed)
	}
}

// watches reports whether s decides without ever denying.
func watches(s *limiter.Spec) bool { return s.DryRun || s.OnDeny == limiter.DenyShadow }

// shareSuffix tells the name of a share from its limit's.
const shareSuffix = " (share)"

// share is what each of n nodes may admit by itself of a limit while the owner is away.
func share(l *limiter.Spec, n int) *limiter.Spec {
	s := *l
	s.Name += shareSuffix
	s.Limit = max(1, s.Limit/int64(n))
	switch s.Algorithm {
	case limiter.GCRA:
		s.Burst = max(1, s.Burst/int64(n))
	case limiter.LeakyBucket:
		s.Burst = max(1, (s.Burst+1)/int64(n)) - 1
	case limiter.TokenBucket:
		s.Refill = max(1, s.Refill/int64(n))
	}
	return &s
}
