package sim

import (
	"slices"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// What becomes of a reference when its key changes hands.

// carrier carries references, and says what may be lost of them on the way.
type carrier struct {
	*common
	counted  *countedJudge
	disk     *diskJudge
	troubles troubles // of the world
}

// bring has p go on with the reference where another process has left it.
func (j *carrier) bring(a *account, p *process) {
	r, now := &a.reference, j.world.now
	before := r.by
	r.by = p
	// a process that has it from a file may also return copies that it has got since
	if before == nil && j.disk.backBy > now {
		r.goBlind(p, j.disk.backBy, forgets(a.spec))
	}
	switch {
	case before == nil, before == p && !j.mayReturn(a, p, r.last, r.fences):
	default:
		j.allowed.of[anyMove]++
		charged := a.charged(now) // carry forgets what may count in a window anew
		st, lost, own := j.knows(a, before, p)
		j.keep(a, before, p)
		if laid := j.carry(a, before, p); !own {
			j.carryLoose(a, before, p, laid)
		}
		j.merge(a, p)
		j.owesAgain(a, p)
		if refunds := j.givenBack(a); refunds > 0 {
			r.strict.charge(p.now(), a.spec, refunds)
			if refusalsCount(a.spec) { // there may have been more than a limit admits
				r.goBlind(p, now, forgets(a.spec))
			}
		}
		r.forget(p.now(), a, lost, charged)
		if st != nil {
			r.loose = *st
		}
		if lost > 0 {
			r.cut = now // what past has no more p may have nevertheless, and tell (learn)
		}
		if !j.sure(before) {
			a.doubt(now)
		}
		if j.hasAged(a, p) {
			r.goBlind(p, now, forgets(a.spec))
		}
	}
	r.last, r.fences, r.begun = now, p.stated.fenced, p.stated.begun
}

// shows has the reference forget what p, which has not just got the key, shows that the file it
// goes by is short of: it had come to p before, and nobody knew.
func (j *carrier) shows(a *account, p *process) {
	r := &a.reference
	if st, lost, _ := j.counted.found(a, p, r.unsaved); lost > 0 {
		r.unsaved = max(0, r.unsaved-lost)
		r.forget(p.now(), a, lost, a.charged(j.world.now))
		r.loose = st
	}
}

// knows is what p counts at least, which goes on after before, on its clock; nil if nobody can
// tell. lost is how much is forgotten. own says that p has held the key all along, and counts what
// it has charged itself.
func (j *carrier) knows(a *account, before, p *process) (st *naiveState, lost int64, own bool) {
	unsaved := j.disk.unsaved(a, before, p)
	if j.goesByFile(before, a) && a.hidesLoss() {
		unsaved = min(capacityOf(a.spec), unsaved+a.reference.unsaved)
	}
	a.reference.unsaved = 0
	if st, lost, counted := j.counted.found(a, p, unsaved); counted {
		a.reference.unsaved = max(0, unsaved-lost)
		return &st, lost, false
	}
	if x := a.reference.ownOf(p); x != nil {
		return &x.loose, a.reference.chargedAfter(x.noted), true
	}
	return nil, j.lost(a, before, p), false
}

// carry lays the strict reference on the clock of p. laid says that others may have had the key in
// between, on their clocks.
func (j *carrier) carry(a *account, from, p *process) (laid bool) {
	r, s, at := &a.reference, a.spec, p.now()
	r.came = j.world.now
	apart := time.Duration(at - from.now())
	drift := j.drift(r)
	if r.strict == nil {
		strict := r.loose
		r.strict = &strict
	}
	// Others may have held it in between, and decided nothing: then it was laid on their clocks as
	// well, whichever process goes on.
	laid = j.laid[j.world.plan.partition(a.hash)].beside(from, p) >= r.last
	late := j.carriage()
	if onTheClock(s) && (s.Calendar == 0 && apart != 0 || laid) {
		late += s.Per // windows come to lie on a boundary of another clock
	}
	// A count of a window that is over on the clock of from may lie in one on another clock
	// that is not, and is merged with this one: there and back again, or in a copy that
	// somebody else has kept.
	if onTheClock(s) && (laid || apart.Abs() > inStep && j.world.plan.sky != calm) {
		r.goBlind(p, j.world.now, forgets(s))
	}
	r.strict.travel(s, apart+late+drift, at)
	if onTheClock(s) && s.Algorithm != limiter.TokenBucket && apart.Abs() > inStep {
		r.outlive(s, p)
	}
	return laid
}

// drift is by how much a key may be older on the clock of another process than on that of the one
// that has decided: what was charged last is in a copy there since then, and what was asked later
// and charged nothing has made no other one.
func (j *carrier) drift(r *reference) time.Duration {
	since := r.last
	if n := len(r.past); n > 0 {
		since = min(since, r.past[n-1].at)
	}
	return (j.world.now-since)/1000 + 1
}

// carryLoose lays the loose reference on the clock of p.
func (j *carrier) carryLoose(a *account, from, p *process, laid bool) {
	if s := a.spec; !onTheClock(s) {
		r := &a.reference
		earlier := j.drift(r)
		if a.count != nil {
			earlier += a.count.later // p may have a copy that has not travelled as far
		}
		r.loose.shift(time.Duration(p.now()-from.now())-earlier, p.now())
		return
	}
	again := a.charged(j.world.now) * a.supply.unit // it may be admitted in a window anew
	// from here on windows begin earlier, also where nothing is counted any more
	earlier := beginsEarlier(a.spec, time.Duration(p.now()-from.now()))
	again = max(again, a.supply.rate*int64(earlier))
	a.heard.forgive(again)
	j.carryWindows(a, from, p, laid)
}

// onTheClock reports whether time passes for s in steps of the wall clock.
func onTheClock(s *limiter.Spec) bool {
	switch s.Algorithm {
	case limiter.SlidingWindow, limiter.SlidingCounter:
		return true
	case limiter.FixedWindow, limiter.TokenBucket:
		return s.Anchor == limiter.Epoch
	}
	return false
}

// travel makes a state the strictest that it can be after a journey to a clock that shows now, on
// which its instants came to lie later by at most that. Windows of a calendar begin at the same
// reading of all clocks, so a journey that is much shorter than they are changes nothing about
// them.
func (st *naiveState) travel(s *limiter.Spec, by time.Duration, now limiter.Instant) {
	if s.Calendar != 0 && (st.count == 0 || by.Abs() < time.Duration(st.end-st.start)/4) {
		return
	}
	st.shift(by, now)
	if onTheClock(s) {
		st.lay(s, now)
	}
}

// opened is the window that ends then.
func (st *naiveState) opened(s *limiter.Spec, end limiter.Instant) {
	if st.start = end.Add(-s.Per); s.Calendar != 0 {
		st.start, st.end = calendarWindow(s, end-1)
	}
}

// shift moves all instants, but not beyond latest.
func (st *naiveState) shift(by time.Duration, latest limiter.Instant) {
	moved := func(t limiter.Instant) limiter.Instant { return min(t.Add(by), latest) }
	st.poured, st.start, st.mark = moved(st.poured), moved(st.start), moved(st.mark)
	st.log = slices.Clone(st.log)
	for i := range st.log {
		st.log[i] = moved(st.log[i])
	}
	st.counts = slices.Clone(st.counts)
	for i := range st.counts {
		st.counts[i].begin = moved(st.counts[i].begin)
	}
}

// lay puts what has been shifted on the boundaries of the clock that shows now: on the next ones,
// which is the strictest.
func (st *naiveState) lay(s *limiter.Spec, now limiter.Instant) {
	up := func(t limiter.Instant, step time.Duration) limiter.Instant {
		return min(aligned(t.Add(step-1), step), aligned(now, step).Add(step))
	}
	switch s.Algorithm {
	case limiter.SlidingCounter:
		step := s.Per / time.Duration(s.Buckets)
		for i := range st.counts {
			st.counts[i].begin = up(st.counts[i].begin, step)
		}
	default:
		if s.Calendar != 0 {
			_, next := calendarWindow(s, st.start-1) // st.start, if that is a boundary
			_, after := calendarWindow(s, now)
			st.start, st.end = calendarWindow(s, min(next, after))
			return
		}
		st.start, st.mark = up(st.start, s.Per), up(st.mark, s.Per)
	}
}

// forget has the most generous reference not know of what was lost, once more than a capacity of
// it: nothing of what was charged until now. It can hold more than a capacity: refusals count as
// well under some limits, and the past charges that carry adds up have been forgotten in part
// before. No more than a capacity may be admitted once more nevertheless. A bucket's refills come
// no later for it. So much was charged, and counted still: clients may be granted that once more,
// beside the units that a window on another clock grants anew, for it would have counted in that
// as well.
func (r *reference) forget(now limiter.Instant, a *account, lost, charged int64) {
	s := a.spec
	switch {
	case lost <= 0:
		return
	case lost < capacityOf(a.spec):
		r.loose.take(now, s, -lost)
		r.drop(lost)
	case s.Algorithm == limiter.TokenBucket:
		_, mark := r.loose.tokensAt(now, s) // it may have been charged more than it holds
		r.loose.keepTokens(now, s, 0, mark)
		r.drop(everything)
	default:
		r.loose = naiveState{}
		r.drop(everything)
	}
	if !s.Sync { // what nobody has confirmed no client has heard of
		again := a.count.granted(r.by.machine.world.now, lost)
		a.heard.forgive(min(again, charged) * a.supply.unit)
	}
}

// drop takes the latest charges out of what is remembered, or all of them if that is more than they
// are: the process that goes on next is not held to what was lost before. Units that were given
// back are still known.
func (r *reference) drop(lost int64) {
	for i := len(r.past) - 1; i >= 0 && lost > 0; i-- {
		if x := &r.past[i]; x.cost > 0 {
			x.cost, lost = max(0, x.cost-lost), lost-x.cost
		}
	}
	r.past = slices.DeleteFunc(r.past, func(x charged) bool { return x.cost == 0 })
}

// lost is how much p, which goes on, may not know of what was charged until before, the last to
// decide, stopped to do so. It is nothing if each process since then was given the partition by the
// one before, or before has it still. Otherwise it is what no heir has a copy of.
func (j *carrier) lost(a *account, before, p *process) int64 {
	r, k := &a.reference, j.world.plan.partition(a.hash)
	switch {
	case j.world.plan.sky == calm, r.isOver(before, p, a.spec):
		return 0
	case j.claims[k] < r.last && j.holders[k] == p && !j.claimsAgain(r, before, p, k):
		// before may have been the other half of a pair
		return min(capacityOf(a.spec), a.count.chargedApart(p, j.claims[k]))
	case j.counted.firm(a, before, p):
		return 0
	}
	most, lost := a.mostLost(before), min(j.unheard(a, before), j.disk.unsaved(a, before, p))
	if most == 0 || lost <= 0 {
		return 0
	}
	j.allowed.used[uncounted]++
	if min(lost, most) >= capacityOf(a.spec) {
		j.allowed.used[wholeLimit]++
	}
	if lost < most {
		return lost
	}
	return capacityOf(a.spec)
}

// mostLost is the most that can be forgotten of a, on which p decided last: what counts there by
// p's clock, or may count by another one. Of what is set aside nobody knows.
func (a *account) mostLost(p *process) int64 {
	r, s := &a.reference, a.spec
	if r.isHeld() || r.unphased || a.held != nil {
		return capacityOf(s)
	}
	left := r.loose.peek(p.now(), s, 0).Remaining
	return min(capacityOf(s), max(capacityOf(s)-left, a.charged(p.machine.world.now)))
}

// charged is how much was charged, and not forgotten, that may count still; a capacity if nobody
// knows.
func (a *account) charged(now time.Duration) int64 {
	r := &a.reference
	counts := forgets(a.spec) // 501 times that of a year is more than a Duration holds
	if since := now - counts - counts/500; !r.isHeld() && a.held == nil &&
		(r.trimmed == 0 || r.trimmed <= since) {
		return min(capacityOf(a.spec), r.chargedSince(since))
	}
	return capacityOf(a.spec)
}

// isOver reports whether all that before, the last to decide, may have counted has run out by its
// clock, and by that of p as well if windows begin by the clock: then nothing of it can be
// forgotten.
func (r *reference) isOver(before, p *process, s *limiter.Spec) bool {
	st := r.strictest()
	return !r.isBlind() && !r.isHeld() && asNew(st, before.now(), s) &&
		(!onTheClock(s) || asNew(st, p.now(), s))
}

// refusalsCount reports whether s remembers what it has refused.
func refusalsCount(s *limiter.Spec) bool { return s.CountRejected || s.Drain || s.Strict }

// unheard is how much of it no heir has a copy of.
func (j *carrier) unheard(a *account, before *process) int64 {
	r, now := &a.reference, j.world.now
	since, clean := j.strike(before, r.last)
	if !clean || j.world.plan.copies == ownership.NoCopies ||
		len(owners(before.stated.view)) < 2 || // it had no heir
		refusalsCount(a.spec) { // nobody knows what of these
		return capacityOf(a.spec)
	}
	var lost int64
	for _, x := range r.past {
		if x.cost > 0 && x.at >= since-j.copyLag() && x.at <= now {
			lost += x.cost
		}
	}
	return min(lost, capacityOf(a.spec))
}

// copyLag is how old an heir's copy may be in a world that loses nothing: it is sent at the next
// tick, unless the answer to an earlier message has not come yet.
func (j *carrier) copyLag() time.Duration {
	return 100*time.Millisecond + 3*j.world.plan.weather.far
}

// strike is when something (a crash, or a freeze) stopped the machine of p, which had decided last
// at some instant. It is clean if nothing else has happened since, nor for so long before that all
// must have known each other, and nothing gets lost.
func (j *carrier) strike(p *process, last time.Duration) (at time.Duration, clean bool) {
	const known = 15 * time.Second
	struck := false
	for _, f := range j.world.plan.faults {
		switch mine := f.node == p.machine.index; {
		case f.at > j.world.now || f.kind == steps:
		case f.kind == rolls:
			return 0, false
		case !struck && mine && f.at >= last && stops(f.kind):
			struck, at = true, f.at
		case struck && mine && resumes(f.kind):
		case struck || f.at > last-known:
			return 0, false
		}
	}
	return at, struck && j.world.plan.weather.loss == 0
}

// stops reports whether a fault makes a machine stop without a warning.
func stops(k kind) bool { return k == crashes || k == freezes }

// resumes reports whether a fault makes a machine go on that has stopped.
func resumes(k kind) bool { return k == boots || k == thaws }

// givenBack is how much of what was given back a copy that somebody else has kept may not know of
// yet.
func (j *carrier) givenBack(a *account) (refunds int64) {
	moved := j.world.now
	if gift := j.gifts[j.world.plan.partition(a.hash)]; gift > a.reference.last {
		moved = gift
	}
	if j.world.plan.sky == outage {
		moved = a.reference.last // or earlier than anybody has seen
	}
	since := j.troubles.since(moved - longCarriage)
	for _, x := range a.reference.past {
		if x.cost < 0 && x.at > since {
			refunds += min(-x.cost, capacityOf(a.spec))
		}
	}
	return min(refunds, 2*capacityOf(a.spec))
}
