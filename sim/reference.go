package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// reference is what one naive limiter keeps of one key under one limit. It follows the decisions of
// the cluster wherever they are taken, and there is only one of it: two nodes that both decide for
// a key are held against the same count.
//
// As long as one process decides, the reference knows every field of every decision beforehand.
// When another goes on, its state has travelled: as time relative to the sender's clock, so what is
// refilled or forgotten by time may come a little later than it would have; and where windows are
// aligned they are so to another clock. From then on there are two references, and the truth lies
// between: loose is the most generous that no promise forbids, strict the least. They become one
// again when nothing is left of what was carried.
type reference struct {
	loose  naiveState
	strict *naiveState   // nil while there is nothing to tell apart
	by     *process      // that decided last; nil if none has
	last   time.Duration // when
	came   time.Duration // when it was last carried from one node to another
	fences uint64        // how often that process had let go of all that it held
	begun  uint64        // how often it had begun to hold something
	unseen time.Duration // until when charges may come that nobody sees
	blind  time.Duration // until when they may count
	// until when something may be set aside of it, and charged a little later than is known here
	held  time.Duration
	late  []int64 // what is charged by then
	backs int64   // what is given back by then
	back  int64   // as much of it as may still come after what is charged
	// it has been held, and has not told since when time passes for it (phased)
	unphased bool
	touched  time.Duration // when it was last charged, as far as is known
	hindsight
	owings
	others []ownCount // what processes may still have that have decided before
	// how much by's file may be short of, and no decision has shown yet
	unsaved int64
}

// everything is more than anybody can have to give back: a reset gives it back.
const everything = 1 << 40

// charged is an amount that was charged, or given back.
type charged struct {
	at   time.Duration
	own  limiter.Instant // at, by the clock of the process that charged it
	cost int64
	nth  uint64 // of the decisions on the key that charged something, of one instant as well
}

// carriage is how much later a state may think it is for having travelled. What gets lost is sent
// again as it was, with the pauses of a breaker in between, and what it says of time is as old as
// it is.
const carriage, longCarriage = time.Second, 5 * time.Second

// inStep is by how much clocks may differ that are kept in step.
const inStep = 10 * time.Millisecond

// verdict is what the judge finds wrong with a decision.
type verdict uint8

const (
	fine verdict = iota
	wrong
	generous
	mean
)

// take holds a decision against the reference, which then stands as after it. want is what was due,
// where that is known.
func (r *reference) take(now limiter.Instant, it *asked, got limiter.Decision) (v verdict,
	want limiter.Decision,
) {
	s := it.account.spec
	blind, debt := r.isDark(), r.owing()
	if r.strict == nil && (blind || debt > 0) {
		r.loosen(now, s)
	}
	if r.strict == nil {
		was := r.loose
		v, want := r.takeExactly(now, it, got)
		if v == fine || !r.fresh() && !it.account.adrift {
			return v, want
		}
		r.loose = was
		r.loosen(now, s)
	}
	if v, want = r.mayGrant(now, it, got, blind, debt); v != fine {
		return v, want
	}
	if it.op == cluster.OpPeek { // it says what would be left
		was := *r
		defer func() { r.loose, r.strict = was.loose, was.strict }()
		st := *r.strict
		r.strict = &st
	}
	r.commit(now, it, got.Allowed)
	if v, want = r.mayLeave(now, s, got, blind, debt); v != fine {
		return v, want
	}
	if it.op == cluster.OpTake && !r.isHeld() {
		r.learn(now, s, got)
	}
	return fine, got
}

// mayGrant holds the yes or no of a decision against both references. blind says that charges may
// count that nobody saw, debt is how much is owed.
func (r *reference) mayGrant(now limiter.Instant, it *asked, got limiter.Decision, blind bool,
	debt int64,
) (v verdict, want limiter.Decision) {
	s := it.account.spec
	switch {
	case it.op == cluster.OpReset:
	case got.Allowed && !r.isVague(s) && !r.most(now, s).peek(now, s, it.cost).Allowed:
		return generous, r.loose.peek(now, s, it.cost)
	case !got.Allowed && !blind && r.strict.peek(now, s, min(everything, it.cost)+debt).Allowed:
		return mean, r.strict.peek(now, s, it.cost)
	}
	return fine, got
}

// mayLeave holds what a decision says is left against both references, which have it behind them.
func (r *reference) mayLeave(now limiter.Instant, s *limiter.Spec, got limiter.Decision, blind bool,
	debt int64,
) (v verdict, want limiter.Decision) {
	switch most, least := r.most(now, s).peek(now, s, 0), r.strict.peek(now, s, 0); {
	case got.Remaining > most.Remaining && !r.isVague(s):
		return generous, most
	case got.Remaining < least.Remaining-debt && !blind:
		return mean, least
	}
	return fine, got
}

// strictest is the state that the strictest reference has: the only one, while there is one.
func (r *reference) strictest() *naiveState {
	if r.strict == nil {
		return &r.loose
	}
	return r.strict
}

// fresh reports whether the state has come from elsewhere only just now. Copies that others have
// kept of it may follow, and make it a little stricter still.
func (r *reference) fresh() bool { return r.came != 0 && r.last-r.came < 3*carriage }

// hindsight is what was charged lately, where a world may have to look back.
type hindsight struct {
	past  []charged     // by decisions
	noted uint64        // how many of them there were
	debts []charged     // charged afterwards, for what was admitted without the node that decides
	cut   time.Duration // when the last was charged that past has no more
	// when the last was charged that past has no more though it may count
	trimmed time.Duration
}

// forgets is how long a charge counts under s at most.
func forgets(s *limiter.Spec) time.Duration {
	switch s.Algorithm {
	case limiter.GCRA, limiter.LeakyBucket:
		return time.Duration(min(float64(capacityOf(s))*float64(s.Per)/float64(s.Limit),
			float64(limiter.MaxFill))) + 1
	case limiter.TokenBucket:
		return time.Duration((s.Limit+s.Refill-1)/s.Refill+1) * s.Per
	case limiter.FixedWindow:
		if s.Calendar != 0 {
			return s.Per + 3*time.Hour // on the days on which clocks are set back
		}
		return s.Per
	case limiter.SlidingLog:
		return s.Per
	}
	return 2 * s.Per
}

// loosen makes two references of one.
func (r *reference) loosen(now limiter.Instant, s *limiter.Spec) {
	strict := r.loose
	r.strict = &strict
	r.strict.travel(s, carriage, now)
}

// learn takes over what a decision tells of the state after it, once it was found to lie between
// the two references: the moment at which a window opened or a bucket is refilled, for instance,
// which moves a little on the way.
func (r *reference) learn(now limiter.Instant, s *limiter.Spec, got limiter.Decision) {
	used := got.Limit - got.Remaining
	switch {
	case s.Algorithm == limiter.GCRA || s.Algorithm == limiter.LeakyBucket:
		full := max(0, int64(got.ResetAfter))
		r.loose = naiveState{used: max(0, full-1) * s.Limit, poured: now}
		r.strict = &naiveState{used: full * s.Limit, poured: now}
	case s.Algorithm == limiter.FixedWindow && got.ResetAfter > 0:
		r.loose.take(now, s, 0) // what it has counted may be of a window that is over
		r.loose.opened(s, now.Add(got.ResetAfter))
		r.strict.start, r.strict.end = r.loose.start, r.loose.end
		if got.Remaining == 0 { // refusals may count, and nobody says how many
			return
		}
		r.loose.count = used
		r.strict = nil
	case s.Algorithm == limiter.TokenBucket && used > 0:
		mark := now.Add(got.ResetAfter - time.Duration((used+s.Refill-1)/s.Refill)*s.Per)
		r.loose, r.strict = naiveState{naiveKinds: naiveKinds{
			missing: used, mark: mark,
			phased: true,
		}}, nil
	default:
		return
	}
	r.unphased = r.unphased && r.strict != nil
	if r.last > r.unseen && r.isOwed(r.last) == 0 {
		r.blind = 0
	}
}

func (r *reference) takeExactly(now limiter.Instant, it *asked, got limiter.Decision) (verdict,
	limiter.Decision,
) {
	s := it.account.spec
	forgettable := r.loose.forgettable(now, s)
	before := r.loose
	want := r.decide(now, it)
	if got != want && forgettable {
		r.loose = naiveState{}
		if anew := r.decide(now, it); got == anew {
			want = anew
		} else {
			r.loose = before
		}
	}
	if got != want {
		return wrong, want
	}
	return fine, want
}

// decide is what the single limiter answers while there is only one reference.
func (r *reference) decide(now limiter.Instant, it *asked) limiter.Decision {
	switch it.op {
	case cluster.OpPeek:
		return r.loose.peek(now, it.account.spec, it.cost)
	case cluster.OpReset:
		r.loose = naiveState{}
		return r.loose.peek(now, it.account.spec, 0)
	}
	return r.loose.take(now, it.account.spec, it.cost)
}

// commit follows a decision while there are two references.
func (r *reference) commit(now limiter.Instant, it *asked, allowed bool) {
	s := it.account.spec
	switch {
	case it.op == cluster.OpReset:
		r.loose, r.strict, r.back = naiveState{}, &naiveState{}, r.backs
	case allowed:
		r.charge(now, s, it.cost)
		r.strict.charge(now, s, it.cost)
	default: // a refusal may have its price
		// while something is set aside, it has none
		if !r.isHeld() && !r.loose.peek(now, s, it.cost).Allowed {
			r.loose.take(now, s, it.cost)
		}
		r.strict.take(now, s, it.cost)
	}
}

// charge is for the most generous reference, which has what is about to be given back take away
// from it.
func (r *reference) charge(now limiter.Instant, s *limiter.Spec, cost int64) {
	if r.isHeld() && cost > 0 {
		given := min(r.back, cost)
		r.back -= given
		cost -= given
	}
	if cost < 0 {
		r.back = r.backs
	}
	r.touched = r.last
	r.loose.charge(now, s, cost)
}

// most is the most generous reference, with all that is about to be given back: what that was taken
// away from here may be forgotten before it comes, and then it takes away what was charged since.
func (r *reference) most(now limiter.Instant, s *limiter.Spec) *naiveState {
	if !r.isHeld() || r.backs == 0 {
		return &r.loose
	}
	st := r.loose.copy()
	st.charge(now, s, -r.backs)
	return st
}

// mayHave notes a decision of which nobody knows whether it was taken again. What has fallen with
// others has no price.
func (r *reference) mayHave(now limiter.Instant, it *asked, allowed, fallen bool) {
	if r.strict == nil {
		strict := r.loose
		r.strict = &strict
	}
	switch s := it.account.spec; {
	case it.op == cluster.OpReset:
		r.loose = naiveState{}
		// time passes for what comes since from then on, or from when it did before
		r.unphased = r.unphased || phased(s)
	case it.cost < 0:
		r.loose.charge(now, s, it.cost)
	case allowed:
		r.strict.charge(now, s, it.cost)
	case refusalsCount(s) && !fallen &&
		(r.isBlind() || !r.strict.peek(now, s, it.cost).Allowed):
		// a refusal has its price; where there is room for it, it is not taken anew
		r.strict.take(now, s, it.cost)
	}
}

// settle has charged what was set aside, as soon as that must be over, and makes one of the two
// references again once both are as good as new.
func (r *reference) settle(now limiter.Instant, s *limiter.Spec) {
	if !r.isHeld() {
		for _, cost := range r.late {
			if r.strict == nil {
				r.loosen(now, s)
			}
			r.strict.charge(now, s, cost)
			r.touched = r.last
		}
		if r.backs > 0 {
			r.loose.charge(now, s, -r.backs)
		}
		r.late, r.backs, r.back = nil, 0, 0
	}
	if r.unphased && r.last <= max(r.touched, r.unseen, r.isOwed(r.last))+forgets(s) {
		return // when it is over depends on when it was charged
	}
	if r.strict == nil || !asNew(&r.loose, now, s) || !asNew(r.strict, now, s) {
		return
	}
	if s.Algorithm == limiter.TokenBucket && s.Anchor == limiter.FirstHit {
		return // a full one may still know when its refills come
	}
	r.loose, r.strict, r.unphased = naiveState{}, nil, false
}

func asNew(st *naiveState, now limiter.Instant, s *limiter.Spec) bool {
	d := st.peek(now, s, 0)
	return d.Remaining == d.Limit && (d.ResetAfter == 0 || s.Algorithm == limiter.FixedWindow)
}

// charge is take, whether there is room or not.
func (st *naiveState) charge(now limiter.Instant, s *limiter.Spec, cost int64) {
	if cost <= 0 || st.peek(now, s, cost).Allowed {
		st.take(now, s, cost)
		return
	}
	switch s.Algorithm {
	case limiter.GCRA, limiter.LeakyBucket:
		st.take(now, s, 0)
		st.used += cost * int64(s.Per)
	case limiter.TokenBucket:
		missing, mark := st.tokensAt(now, s)
		st.keepTokens(now, s, min(max(s.Limit, missing), missing+cost), mark)
	case limiter.SlidingLog:
		live := st.log
		for len(live) > 0 && live[0].Add(s.Per) <= now {
			live = live[1:]
		}
		st.enter(live, now, s, cost)
	case limiter.SlidingCounter:
		st.countIn(st.counts, now, s, cost)
	default:
		st.take(now, s, 0)
		st.count += cost
	}
}

// note remembers what p has charged, in worlds that may have to look back.
func (a *account) note(p *process, cost int64) {
	w, r := p.machine.world, &a.reference
	if w.plan.quiet() || cost == 0 {
		return
	}
	r.noted++
	r.past = append(r.past, charged{w.now, p.now(), max(cost, -everything), r.noted})
	if n := len(r.past); n > 1000 && n == cap(r.past) { // before it grows
		r.cut = r.past[n/2-1].at
		r.trimmed = r.cut
		r.past = slices.Clone(r.past[n/2:])
	}
}
