package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
	"penstock/limiter"
)

// What a cluster has forgotten is counted, key by key. The judge keeps one naive state per key of
// all that was charged, on whatever node, as far as the decisions themselves tell. When another
// process decides than before, it says how much is left; what it says beyond what that state has
// left is what was forgotten. Allowed is what a holder had charged itself, no longer than the
// replication interval and one message's way before it died, stopped or was cut off from most;
// nothing else, and nothing at all after a graceful change of hands. A decision that says by itself
// that it keeps a bound is held to that bound by others.
//
// This judge sees decisions, faults and how long messages took. It asks no node anything.

// countedJudge counts what is forgotten. Where several fail at once it is a judge of `warned` as
// well.
type countedJudge struct {
	*common
	loss LossReport
	cold time.Duration // when the last member was gone that could know anything
	// by partition: when the last one was gone that could know anything of that
	bare     map[int]time.Duration
	linesNew bool          // what was cut or mended is still to be looked at
	linesAt  time.Duration // when that was
	atEnd    bool          // what tables hold in the end is counted
}

// LossReport says what was forgotten when keys changed hands.
type LossReport struct {
	// times that another process decided on a key than the last time
	Changes int `json:"changes"`
	// of these, after the one before had died, stopped or was cut off
	After  int   `json:"after"`
	Units  int64 `json:"units"`  // that were forgotten
	Marked int64 `json:"marked"` // and those that the decision had a bound for
	// too much, where several had failed at once and the decision did not say so
	Unwarned int64 `json:"unwarned"`
	// changes of which nothing can be counted: windows that move between clocks, takes of several
	// owners
	Blind int `json:"blind"`
}

func (l *LossReport) add(o *LossReport) {
	l.Changes += o.Changes
	l.After += o.After
	l.Units += o.Units
	l.Marked += o.Marked
	l.Unwarned += o.Unwarned
	l.Blind += o.Blind
}

func (l *LossReport) write(b *strings.Builder) {
	fmt.Fprintf(b, "hands      %d changes, %d after a death; forgotten: %d units, %d said so,\n"+
		"           %d without a word where several had failed; %d changes out of sight\n",
		l.Changes, l.After, l.Units, l.Marked, l.Unwarned, l.Blind)
}

// replicationInterval is s, in which a holder tells its heir what has changed, with what a clock
// may be slow.
const replicationInterval = 100*time.Millisecond + 100*time.Millisecond/100

// fading is a span of time; the charges in it may be forgotten.
type fading struct{ from, to time.Duration }

// forever is the end of a span that has not ended.
const forever = time.Duration(1<<63 - 1)

// dies notes that p has died or stopped.
func (j *countedJudge) dies(p *process) {
	j.parts()
	lag := replicationInterval + j.world.network.slowest(p.machine)
	p.fading = append(p.fading, fading{j.world.now - lag, j.world.now})
	if !slices.ContainsFunc(j.world.machines, func(m *machine) bool {
		return m.process != nil && m.process != p && m.role == cluster.RoleMember &&
			!m.process.gaveAll()
	}) {
		j.cold = j.world.now // no memory is left that could know
	}
	j.leavesBare(p)
}

// gaveAll reports whether p leaves, and has nothing any more that it could tell.
func (p *process) gaveAll() bool { return p.leaving && p.stated.held == 0 }

// linesChange notes that a line was cut or mended. Many mostly are at once, so what follows from it
// is worked out when something else happens.
func (j *countedJudge) linesChange() {
	if j.world.now != j.linesAt {
		j.parts()
	}
	j.linesAt, j.linesNew = j.world.now, true
}

// parts notes the machines that are cut off from most others, after lines were cut or mended.
func (j *countedJudge) parts() {
	if !j.linesNew {
		return
	}
	j.linesNew = false
	w, at := j.world, j.linesAt
	there := 0
	for _, m := range w.machines {
		if m.process != nil {
			there++
		}
	}
	for _, m := range w.machines {
		p := m.process
		if p == nil {
			continue
		}
		switch off := 2*w.network.reached(m, w.machines) <= there; {
		case off && !p.apart():
			lag := replicationInterval + w.network.slowest(m)
			p.fading = append(p.fading, fading{at - lag, forever})
		case !off && p.apart():
			p.fading[len(p.fading)-1].to = at
		}
	}
}

// apart reports whether p is cut off from most others.
func (p *process) apart() bool {
	n := len(p.fading)
	return n > 0 && p.fading[n-1].to == forever
}

// apartTogether reports whether p is cut off from most others and is not the only one: its heir may
// be cut off with it.
func (j *countedJudge) apartTogether(p *process) bool {
	j.parts()
	return p.apart() && slices.ContainsFunc(j.world.machines, func(m *machine) bool {
		return m.process != nil && m.process != p && m.process.apart()
	})
}

// counts follows a decision, and counts what was forgotten before it.
func (j *countedJudge) counts(p *process, it *asked, got limiter.Decision) {
	a, s, w := it.account, it.account.spec, j.world
	if w.plan.quiet() || a.held != nil || s.Unlimited {
		return
	}
	if a.count == nil {
		a.count = &keyCount{}
	}
	c := a.count
	j.parts()
	if a.uncounted() {
		j.notes(c, p, it)
		return
	}
	now := p.now()
	before := c.by
	j.passes(a, p)
	c.settles(now, s)
	if it.op == cluster.OpReset {
		*c = keyCount{
			by: p, last: c.last, fences: c.fences, blind: c.blind, unseen: c.unseen, looked: w.now,
			changed: c.changed,
		}
		return
	}
	was, charged := c.whole, int64(0)
	if it.changes(got) {
		charged = it.cost
		c.changed = w.now
	}
	if charged > 0 {
		j.notes(c, p, it)
	}
	had := c.follows(now, it, got)
	if w.now < c.blind {
		if it.op == cluster.OpTake {
			c.learn(now, s, got, ways{})
		}
		return
	}
	j.checked[lossless]++
	if c.looked != w.now {
		c.looked, c.lost, c.begun, c.extra = w.now, 0, false, 0
	}
	was, had, over := c.exceeded(now, it, got, was, had, c.ownOf(p, before))
	c.noteOwed(p, a, had-got.Remaining)
	c.lost += over
	if over > 0 {
		j.forgotten(p, before, it, c, over, got)
	}
	c.misses(now, s, was, charged, over)
	if it.op == cluster.OpTake {
		c.learn(now, s, got, j.ways(a))
	}
	c.begins(now, s, was, charged, over)
	j.notesHalf(c, p, it)
}

// notesHalf notes the state of p if that decides as one half of a cut pair.
func (j *countedJudge) notesHalf(c *keyCount, p *process, it *asked) {
	if it.doubt && j.tied[j.world.plan.partition(it.account.hash)] == j.world.now {
		c.partsWith(p)
	}
}

// ways are those by which the state of a may have come: from one holder to the next it goes by way
// of two other members at most.
func (j *countedJudge) ways(a *account) ways {
	return ways{
		most:   3 * j.world.network.slow,
		unseen: len(a.reference.owed) > 0 || j.world.now < a.count.unseen,
	}
}

// changes reports whether a decision has charged or given back: a look changes nothing.
func (it *asked) changes(got limiter.Decision) bool {
	return it.op == cluster.OpTake && got.Allowed && it.cost != 0
}

// found is what a key had counted before the decisions of this instant, without what they show to
// be forgotten, and how much that is, told once. known is false if nobody could tell, or, where p
// goes by a file, if that is more than unsaved.
func (j *countedJudge) found(a *account, p *process, unsaved int64) (
	st naiveState, lost int64, known bool,
) {
	c := a.count
	if c == nil || c.by != p || c.looked != j.world.now || j.world.now < c.blind ||
		a.spec.MinGap > 0 {
		return st, 0, false // of limits with a gap an instant may be forgotten, and no unit
	}
	if lost = c.lost; lost > unsaved && j.goesByFile(p, a) {
		return st, 0, false
	}
	c.lost, c.begun = 0, false
	return c.since, lost, true
}

// firm reports whether nothing may be forgotten of a, on which before decided last: a copy was due
// of each charge before its holder failed. p goes on, and not by a file.
func (j *countedJudge) firm(a *account, before, p *process) bool {
	c, w := a.count, j.world
	return c != nil && w.plan.copies != ownership.NoCopies && p.restored == nil &&
		w.now >= c.unseen && w.plan.weather.loss == 0 &&
		(c.looked < w.now || c.lost == 0) && (w.now >= c.blind || len(a.reference.owed) == 0) &&
		!j.together(before.machine, a.reference.last) && !j.apartTogether(before) &&
		!slices.ContainsFunc(c.charges, func(x perishable) bool {
			return x.cost > 0 && (x.at <= j.cold || x.tied || x.fades())
		})
}

// mayCount follows a decision of which nobody knows whether it was taken again: what it gives back
// may be given back twice.
func (j *countedJudge) mayCount(p *process, it *asked) {
	c := it.account.count
	if c == nil || it.account.uncounted() {
		return
	}
	j.passes(it.account, p)
	switch {
	case it.op == cluster.OpReset:
		c.whole = naiveState{}
	case it.cost < 0:
		c.whole.charge(p.now(), it.account.spec, it.cost)
	}
}

// passes lays what is known of a key on the clock of p, if another process has decided before, or
// may have held it in between.
func (j *countedJudge) passes(a *account, p *process) {
	c, w := a.count, j.world
	before, since, fences := c.by, c.last, c.fences
	c.by, c.last, c.fences = p, w.now, p.stated.fenced
	switch {
	case before == nil:
		return
	case before == p:
		if j.mayReturn(a, p, since, fences) {
			j.lays(c, p, a.spec, 0)
		}
		return
	}
	j.loss.Changes++
	c.begun = false // that was on the clock of before, if at this instant
	if len(before.fading) > 0 {
		if j.loss.After++; j.atOnce(before.machine) {
			j.checked[warned]++
		}
	}
	j.lays(c, p, a.spec, time.Duration(p.now()-before.now()))
	if w.now < c.blind {
		j.loss.Blind++
	}
	if !w.plan.oneClock() { // p may have had it since it changed, and been faster
		if s := a.spec.Algorithm; s == limiter.GCRA || s == limiter.LeakyBucket {
			c.later += (w.now-c.changed)/1000 + 1
		}
		c.older = max(c.older, (c.changed-c.copied())/1000)
	}
}

// lays puts what is known of a key on the clock of p, which shows so much more than the one before.
func (j *countedJudge) lays(c *keyCount, p *process, s *limiter.Spec, apart time.Duration) {
	if s.Calendar != 0 || apart == 0 && j.world.plan.oneClock() {
		return
	}
	// it may have been on yet another clock in between
	if onTheClock(s) && !j.world.plan.oneClock() {
		c.blind = j.world.now + forgets(s)
	}
	// back on the clock of before it may have been on a faster one in between
	c.travels(p.now(), apart, j.world.now-c.changed)
}

// forgotten holds what was forgotten of a key against what may be.
func (j *countedJudge) forgotten(p, before *process, it *asked, c *keyCount, over int64,
	got limiter.Decision,
) {
	s := it.account.spec
	if it.doubt && !j.copiesHold(before) {
		j.loss.Marked += over
	} else {
		allowed := c.allow(p, over, j.coldFor(it.account))
		if j.loss.Units += over; allowed > 0 {
			j.allowed.used[lastCharges]++
		}
		if breaks := j.forgetful(before, over-allowed); breaks != promises {
			j.fail(breaks, "%s decides on %s of %s under %s:\n  %s\nwhere %d units that were "+
				"charged are forgotten, and %d of them may be:"+
				" so much was charged too late before its holder died for a copy to tell",
				p.machine.id, opText(it.op, it.cost), keyText(it.account.key), s.Name,
				decisionText(got), over, allowed)
		}
	}
}

// forgetful says which promise breaks if so much is forgotten too much, of what before had decided
// last: promises, if none does. Where messages get lost nobody knows how long the way of a copy is.
func (j *countedJudge) forgetful(before *process, units int64) promise {
	switch {
	case units <= 0:
		return promises
	case j.world.plan.weather.loss > 0:
		j.allowed.used[lossyCopy]++
		return promises
	case before == nil || !j.atOnce(before.machine) || j.copiesHold(before):
		return lossless
	case j.world.plan.strict:
		return warned
	}
	j.loss.Unwarned += units
	j.allowed.used[severalFailed]++
	return promises
}

// copiesHold reports whether what before had decided must be known, though two may have failed at
// once: there are two copies, and no more than one other machine has failed, with nothing else.
// A mark is no excuse then.
func (j *countedJudge) copiesHold(before *process) bool {
	w := j.world
	if before == nil || w.plan.copies != ownership.TwoCopies || len(before.fading) == 0 {
		return false
	}
	since := w.failedLast(before.machine) - w.plan.settlesIn()
	failed := map[int]bool{before.machine.index: true}
	for _, f := range w.plan.faults {
		switch {
		case f.at > w.now || f.at <= since || f.kind == steps:
		case stops(f.kind):
			failed[f.node] = true
		default:
			return false
		}
	}
	owners := 0
	for _, m := range w.plan.machines {
		if !m.agent {
			owners++
		}
	}
	return len(failed) <= 2 && owners > 2
}

// copiedWithin is how long it may take after a change of members until heirs have copies again.
const copiedWithin = 2 * time.Second

// hides notes that for some time nothing can be counted of a key.
func (j *countedJudge) hides(a *account, until time.Duration) {
	if a.count == nil {
		a.count = &keyCount{}
	}
	a.count.blind = max(a.count.blind, until+forgets(a.spec))
	a.count.unseen = a.count.blind
}
