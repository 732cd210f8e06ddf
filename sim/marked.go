package sim

import (
	"cmp"
	"math"
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// markedJudge has the reference decide what nodes decide without an owner.
type markedJudge struct {
	*common
	exact *exactJudge
	once  *onceJudge
	aside *asideJudge
}

// decideAlone has the reference decide what the node decided without an owner, at the end of the
// visit: by on_error or on_partition, and where those say so from the node's own share. Of items
// that stand or fall together, one refusal is for all.
func (j *markedJudge) decideAlone(h *hearing, out []cluster.Decision) {
	h.alone = make([]alone, len(out))
	by := loneRule{}
	by.onError, by.least = j.standing(h)
	refused := h.spread && haveRefused(h, out)
	fallen := refused
	for i := range out {
		d := &out[i]
		if !decidedAlone(h.items[i].Op, d) {
			continue
		}
		asked, a := h.items[i], &h.alone[i]
		a.cutOff = !by.onError
		if asked.ID == (cluster.ID{}) {
			asked.ID = d.ID // as the node has named it
		}
		if refused { // nothing is charged then
			asked.Op = cluster.OpPeek
		}
		by.spec = h.request.terms[i].account.spec
		j.decideIfHeard(h, &asked, d, &by, a)
		fallen = fallen || h.request.atomic && !a.Allowed && !watches(by.spec)
	}
	for i := range h.alone {
		if h.alone[i].Allowed = h.alone[i].Allowed && !fallen; h.items[i].Op ==
			cluster.OpReserve && h.request.atomic {
			// of several owners each says what it would have granted
			h.alone[i].Allowed = out[i].Allowed && !out[i].Shadow
		}
	}
}

// decidedAlone reports whether a node has decided without the owner. What settles a hold charges
// nothing to a share: it speaks of what was charged before.
func decidedAlone(op cluster.Op, d *cluster.Decision) bool {
	return d.Source == cluster.SourceFallback &&
		(d.Hold == limiter.HoldNone || op <= cluster.OpReserve)
}

// loneRule is what a node goes by that decides without an owner.
type loneRule struct {
	spec    *limiter.Spec
	onError bool // its on_error may hold, and not only its on_partition
	least   int  // in how many shares the limit must be split at least
}

// local reports whether the limit may have the node decide from its share.
func (l *loneRule) local() bool {
	return l.onError && l.spec.OnError == limiter.ErrorLocal ||
		l.spec.OnPartition == limiter.PartitionProportional
}

// open reports whether the limit may have the node decide from all of the limit.
func (l *loneRule) open() bool { return l.spec.OnPartition == limiter.PartitionOpen }

// decideIfHeard is decideOneAlone, but for a client that has hung up: for that one no share admits.
func (j *markedJudge) decideIfHeard(h *hearing, it *cluster.Item, d *cluster.Decision,
	by *loneRule, a *alone,
) {
	switch {
	case h.visit.hungUp() && d.Bound == 0:
		a.due = true
	case !h.visit.hungUpBefore(h.gaveUp):
		j.decideOneAlone(h, it, d, by, a)
	}
}

// decideOneAlone has the reference decide on one item without its owner, where the node said d.
func (j *markedJudge) decideOneAlone(h *hearing, it *cluster.Item, d *cluster.Decision,
	by *loneRule, a *alone,
) {
	spec := by.spec
	switch {
	case d.Bound == cluster.Unbounded:
		a.Allowed, a.due = true, it.Op != cluster.OpReset && by.onError &&
			spec.OnError == limiter.ErrorAllow
	case d.Bound == 0:
		a.due = it.Op == cluster.OpReset || it.Op > cluster.OpReserve || by.onError &&
			spec.OnError == limiter.ErrorDeny || spec.OnPartition == limiter.PartitionDeny
	case spec.Algorithm == limiter.Concurrency:
		// from its share, of which there is no reference
		a.Allowed = d.Allowed && !d.Shadow
		a.due = it.Op != cluster.OpReset && (by.local() || by.open())
	default:
		j.decideFromShare(h, it, d, by, a)
	}
}

// decideFromShare has the reference decide from the share of the limit that the node has.
func (j *markedJudge) decideFromShare(h *hearing, it *cluster.Item, d *cluster.Decision,
	by *loneRule, a *alone,
) {
	p, spec, shares := h.process, by.spec, h.process.shares
	raw := unheld(d.Decision)
	raw.Allowed = raw.Allowed && !d.Shadow
	// whatever it goes by now
	if before := shares.repeated(p, it, raw, h.request.atomic); before != nil {
		a.Decision, a.due, a.full = *before, true, true
		return
	}
	n := sharesIn(h, it, d, raw, by)
	m := j.once.memories.answers.get(it.ID)
	if says, surely, known := j.remembers(h, m, it, raw); known {
		a.Decision, a.due, a.full = says, true, true
		if surely || n == 0 ||
			n > 0 && !shares.explains(p, share(spec, n), it, raw, h.request.atomic) {
			return
		}
		n = -1 // or its share says the same, and nobody knows which it was
	}
	a.due = n != 0 && it.Op != cluster.OpReset && (by.local() || by.open())
	a.Decision, a.charged = shares.decide(p, share(spec, max(1, n)), n, it, raw, h.resized)
	if a.charged && it.ID != (cluster.ID{}) && m == nil {
		j.once.memories.add(m, it.ID, p, j.world.now, []limiter.Decision{a.Decision}, false)
		j.once.memories.answers.get(it.ID).share = true
	}
	a.full = true
}

// sharesIn is in how many shares a node has split a limit, told by what it answers: 0 if no number
// explains that, and -1 if that does not tell.
func sharesIn(h *hearing, it *cluster.Item, d *cluster.Decision, raw limiter.Decision,
	by *loneRule,
) int {
	local, open, spec := by.local(), by.open(), by.spec
	n := h.process.shares.split(h.process, it, spec, d, raw, h.request.atomic, func(n int) bool {
		return local && n >= by.least || open && n == 1
	})
	if n > 0 && local && open && capacityOf(spec) == 1 &&
		(spec.Algorithm == limiter.GCRA || spec.Algorithm == limiter.LeakyBucket) {
		// the whole limit and a share of it differ in their rates alone, and say the same until
		// something is given back
		return -1
	}
	return n
}

// remembers reports whether the node that answers got without the owner may know what was decided
// on this take when it had one. says is what it says then; surely, that it must know.
func (j *markedJudge) remembers(h *hearing, m *answered, it *cluster.Item,
	got limiter.Decision,
) (says limiter.Decision, surely, known bool) {
	p := h.process
	if !j.repeats(p, m, it, got) {
		// else it has only reported the take that it owes
		alone := (len(h.items) == 1 || !h.request.atomic) && !it.Strict
		x := asked{account: j.account(limitName(it), it.Key), cost: it.Cost, op: it.Op, id: it.ID}
		return got, false, alone && j.once.hasAskedItself(p, &x, got)
	}
	if own := m.of(p); own != nil && !own.share {
		return own.decisions[0], true, true
	}
	return got, false, true
}

// repeats reports whether p, which answers got without the owner, may know what was decided on this
// take when it had one: it has done so itself, and then knows for sure; or the answer has come to
// it, maybe because it has asked for what its own share had admitted; or it was to be given the
// partition since, and the take was decided on lately, from any node's share, before that.
func (j *markedJudge) repeats(p *process, m *answered, it *cluster.Item,
	got limiter.Decision,
) bool {
	own := m.of(p)
	switch {
	case m == nil || it.Op != cluster.OpTake:
		return false
	case own != nil && !own.share && len(own.decisions) == 1 && own.at.Add(memory) > p.now():
		return true
	case own != nil && !own.share || len(m.decisions) != 1:
		return false
	}
	return m.decisions[0] == got && j.mayHaveHeard(p, m, it, own != nil)
}

// mayHaveHeard reports whether the answer m may have come to p, and counts there. If the share of p
// has answered before, p says that again, unless it has asked, or a copy has told it what was given
// back.
func (j *markedJudge) mayHaveHeard(p *process, m *answered, it *cluster.Item, shared bool) bool {
	_, told := m.toldTo(p)
	if shared {
		_, asks := j.account(limitName(it), it.Key).reference.owed[owing{p, it.ID}]
		return asks || told && it.Cost < 0
	}
	recalled := j.recalled[j.world.plan.partition(limiter.Hash(it.Key))] >= m.now
	return told || recalled && j.world.now < m.now+memory+j.carriage()
}

// fellBack checks a decision that was taken without the owner. got is it with a shadow's yes taken
// back.
func (j *markedJudge) fellBack(h *hearing, i int, d *cluster.Decision, got limiter.Decision) {
	j.checked[marked]++
	p, it, want, account := h.process, &h.items[i], &h.alone[i], h.request.terms[i].account
	switch {
	case j.world.plan.sky == calm:
		j.allowed.used[hastyShare]++
	case !want.cutOff: // else that is what on_partition demands
		j.allowed.used[ownShare]++
	}
	if !want.due || !d.Degraded || got.Allowed != want.Allowed || j.world.plan.sky == calm &&
		!j.hurried(h, account) && !j.retriesLate(h) && !j.tellsLate(h) &&
		!j.holderIsUnheardOf(h, account) {
		j.fail(marked, "%s answers for %s under %s without its owner, in a world that is %s: %s",
			p.machine.id, keyText(it.Key), account.spec.Name, j.world.plan.sky, answerText(d))
	} else if want.full {
		j.exact.same(p, &asked{account, it.Cost, it.Op, it.ID, true}, got, want.Decision)
	}
}

// holderIsUnheardOf reports whether the node that answers h had not heard of the node that decides
// on a when it was asked: news are late, and the node that could have named that one has left.
func (j *markedJudge) holderIsUnheardOf(h *hearing, a *account) bool {
	if f := &j.world.faults; f.Leaves+f.Restarts+f.Rolls == 0 {
		return false
	}
	k := j.world.plan.partition(a.hash)
	for _, m := range j.world.machines {
		if q := m.process; q != nil && q.stated.decidesFor(k) {
			return !slices.ContainsFunc(h.view.Members, func(x cluster.Member) bool {
				return x.Boot == q.boot
			})
		}
	}
	return false
}

// hurried reports whether no node could wait for the one that decides on a: its partition went from
// one node to another during the visit, or the node that answers h learned only then which one that
// is, and the client had left less time than a check waits for that and then needs to ask, all of
// which but the eighth for the way back is over.
func (j *markedJudge) hurried(h *hearing, a *account) bool {
	k, p := j.world.plan.partition(a.hash), h.process
	moving := j.gifts[k] >= h.began || j.claims[k] >= h.began || !j.ownerHolds(p, a, k) ||
		j.ownerIn(h.view, a) != j.ownerIn(p.stated.view, a) ||
		!slices.ContainsFunc(j.world.machines, func(m *machine) bool {
			return m.process != nil && m.process.stated.decidesFor(k)
		})
	left := time.Duration(h.deadline - p.now())
	return moving && h.request.patience < waitsFor+2*j.world.plan.weather.far &&
		left <= h.request.patience/8
}

// retriesLate reports whether a reservation of several owners, or a take, was tried again, key
// after key, and its client had left less time than that takes: a way there and back for the first
// attempt, for what cancels it, and for each key.
func (j *markedJudge) retriesLate(h *hearing) bool {
	r, again := h.request, h.again
	for i := range r.items {
		again = again || r.atomic && r.items[i].Op == cluster.OpReserve &&
			h.items[i].ID != r.items[i].ID
	}
	return again && j.tooShort(h, 2*(2+len(r.items)))
}

// tellsLate reports whether something was given back, and its client had left less time than it
// takes until the owner has heard from the nodes that remember a denial: a way there and back
// besides that of the ask.
func (j *markedJudge) tellsLate(h *hearing) bool {
	for i := range h.request.terms {
		if h.request.terms[i].account.givesBack(&h.items[i]) > 0 {
			return j.tooShort(h, 4)
		}
	}
	return false
}

// tooShort reports whether the client had left less time than so many ways take, one after the
// other, all of which but the eighth for the way back is over.
func (j *common) tooShort(h *hearing, ways int) bool {
	patience, left := h.request.patience, time.Duration(h.deadline-h.process.now())
	return patience < time.Duration(ways)*j.world.plan.weather.far*8/7 && left <= patience/8
}

// ownerHolds reports whether the owner of a in the eyes of p holds its partition k: an owner that
// does not names the node that does, and asking that one takes a round trip more.
func (j *markedJudge) ownerHolds(p *process, a *account, k int) bool {
	m := j.world.byID[j.ownerIn(p.stated.view, a)]
	return m != nil && m.process != nil && m.process.stated.decidesFor(k)
}

// waitsFor is how long a check waits for a handover, if its client does.
const waitsFor = 250 * time.Millisecond

// standing is what a node may go by that has answered without the owner: onError is false if
// it must have noticed that it is cut off, so that its limits' on_partition holds. Else nobody can
// tell from outside which of the two it is. shares is in how many it must split a limit at least.
func (j *markedJudge) standing(h *hearing) (onError bool, shares int) {
	p := h.process
	active := min(len(owners(h.view)), len(owners(p.stated.view)))
	config := p.stated.agreed
	if p.machine.role == cluster.RoleAgent || config == nil {
		return true, min(active, 1)
	}
	c := p.rightOf()
	over := p.now() - c.ends(p) - limiter.Instant(j.world.now-h.began)
	cutOff := time.Duration(over) > noticed && c.joined < h.began-rightLasts-noticed &&
		p.machine.thawed < h.began-noticed && !p.leaving && !c.leaves()
	if cutOff {
		j.requests.CutOff++
	}
	// it has split the limit when it gave up asking, and others may have come since
	return !cutOff, min(membersOf(config), cmp.Or(h.members, math.MaxInt))
}

// heardPromise checks that a node that speaks of a hold without the node that decides has promised
// that hold.
func (j *markedJudge) heardPromise(h *hearing, i int, d *cluster.Decision) {
	p, it, a := h.process, &h.items[i], h.request.terms[i].account
	j.checked[marked]++
	done := d.Hold == limiter.HoldSettled || d.Hold == limiter.HoldOpen
	if !j.aside.books.alone[promised{p, it.Hold.ID}] || !d.Degraded || d.Allowed != done ||
		j.world.plan.sky == calm && !j.hurried(h, a) && !j.holderIsUnheardOf(h, a) {
		j.fail(marked, "%s answers for hold %s on %s under %s without its owner, in a world that "+
			"is %s: %s, hold %d",
			p.machine.id, idText(it.Hold.ID), keyText(it.Key), a.spec.Name, j.world.plan.sky,
			answerText(d), d.Hold)
	}
}
