package sim

import (
	"slices"
	"sort"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// keyCount is what is known of one key from its decisions.
type keyCount struct {
	whole   naiveState    // with all that was charged and not said to be forgotten
	by      *process      // that decided last
	last    time.Duration // when
	fences  uint64        // how often that process had let go of all that it held
	blind   time.Duration // until when nothing can be counted
	unseen  time.Duration // until when it may have been charged what nobody has seen
	charges []perishable  // lately, oldest first
	looked  time.Duration // when it was compared with a decision last
	lost    int64         // what was found forgotten then
	// what was found beyond all that was charged: with what an older copy explains, too
	extra   int64
	since   naiveState    // what it had before those decisions of then that found has not told of
	begun   bool          // whether there are any
	changed time.Duration // when something was charged or given back last
	// how much earlier its charges end to count in a copy that has not travelled as far
	later time.Duration
	// how much more time may have passed for a copy from before the charges that may be forgotten
	older  time.Duration
	halves []half
}

// half is the state that one half of a cut pair had after it last decided. It has that still if it
// holds the key since, though the other half may tell of another one.
type half struct {
	process *process
	begun   uint64 // how often it had begun to hold something
	state   naiveState
}

// partsWith notes the state of p, which is one half of a cut pair.
func (c *keyCount) partsWith(p *process) {
	c.halves = slices.DeleteFunc(c.halves, func(x half) bool { return x.process == p })
	c.halves = append(c.halves, half{p, p.stated.begun, *c.whole.copy()})
}

// ownOf is the state that p had as one half of a pair, if it has that still and the other half has
// decided since without charging anything, of which p would be short; else nil.
func (c *keyCount) ownOf(p, last *process) *naiveState {
	i := slices.IndexFunc(c.halves, func(x half) bool { return x.process == p })
	if i < 0 || last == p || c.halves[i].begun != p.stated.begun || c.chargedApart(p, 0) > 0 {
		return nil
	}
	return c.halves[i].state.copy()
}

// perishable is a charge that may be forgotten if the process that took it dies too soon.
type perishable struct {
	at   time.Duration
	by   *process
	cost int64
	tied bool // one half of a cut pair has taken it, and said so: when they meet, one gives way
}

// follows charges what a decision has charged, and says how much is left then, below 0 where there
// was no room for it.
func (c *keyCount) follows(now limiter.Instant, it *asked, got limiter.Decision) (left int64) {
	s := it.account.spec
	left = c.whole.peek(now, s, 0).Remaining - it.cost
	if it.op == cluster.OpTake && got.Allowed {
		c.whole.charge(now, s, it.cost)
	}
	if got.Allowed && it.cost > 0 { // also a look says what would be left
		return left
	}
	return c.whole.peek(now, s, 0).Remaining
}

// beyond is how much more than that a decision shows to be left.
func (c *keyCount) beyond(
	now limiter.Instant, it *asked, got limiter.Decision, left int64,
) int64 {
	return max(0, got.Remaining-left, c.hidden(now, it.account.spec, it.op, got))
}

// granted is what clients may be granted once more where so much is found forgotten: all that it
// shows, also what the copy that goes on has got back by being older.
func (c *keyCount) granted(now time.Duration, lost int64) int64 {
	if c == nil || c.looked != now {
		return lost
	}
	lost, c.extra = max(lost, c.extra), 0
	return lost
}

// exceeded is by how much a decision exceeds what c has left, and what c had and has left by the
// copy that explains the decision: its node's own, if that is not nil, one that has not travelled
// as far, and has forgotten nothing, or one from before the charges that may be forgotten, where c
// as it was does not.
func (c *keyCount) exceeded(
	now limiter.Instant, it *asked, got limiter.Decision, was naiveState, left int64,
	own *naiveState,
) (by naiveState, had, over int64) {
	over = c.beyond(now, it, got, left)
	c.extra += over
	if over > 0 && own != nil {
		was, c.whole = *own, *own.copy()
		left = c.follows(now, it, got)
		over = c.beyond(now, it, got, left)
	}
	if over > 0 && c.later > 0 {
		was, left, over = c.elder(now, it, got, was, c.later)
		c.later = 0
	}
	if over > 0 && c.older > 0 {
		was, left, over = c.elder(now, it, got, was, c.older)
		c.older, over = 0, max(1, over)
	}
	return was, left, over
}

// elder has c go on from was as a copy has it that is older by that much. Of a log each entry has
// an age of its own.
func (c *keyCount) elder(
	now limiter.Instant, it *asked, got limiter.Decision, was naiveState, by time.Duration,
) (st naiveState, left, over int64) {
	log := was.log
	was.shift(-by, now)
	was.log = log
	c.whole = was
	left = c.follows(now, it, got)
	return was, left, c.beyond(now, it, got, left)
}

// hidden is how many units less than c a bucket has counted by a decision, as its ResetAfter tells,
// which is exact. Remaining is told in whole units: one that was forgotten does not show in it
// if the state has come a little later for having travelled.
func (c *keyCount) hidden(
	now limiter.Instant, s *limiter.Spec, op cluster.Op, got limiter.Decision,
) int64 {
	if op != cluster.OpTake || s.Algorithm != limiter.GCRA && s.Algorithm != limiter.LeakyBucket {
		return 0
	}
	whole, unit := c.whole.copy(), int64(s.Per)
	whole.take(now, s, 0)
	less := whole.used - int64(got.ResetAfter)*s.Limit
	return (max(0, less) + unit - 1) / unit
}

// delayed notes by how much later than c had it a decision tells the end of what is counted: by no
// more than a way takes, beyond that more was charged. A state comes later with each way, and one
// that has not come that way may go on.
func (c *keyCount) delayed(
	now limiter.Instant, s *limiter.Spec, got limiter.Decision, by ways,
) {
	ends := c.whole.peek(now, s, 0).ResetAfter
	if ends == 0 || got.ResetAfter == 0 {
		c.later = 0
		return
	}
	grown := got.ResetAfter - ends
	if by.unseen && grown > 0 {
		grown = withoutUnits(s, grown)
	}
	c.later = max(0, c.later+min(grown, max(0, by.most-c.later)))
}

// ways are those of a state from one holder to the next.
type ways struct {
	most   time.Duration // that they take
	unseen bool          // something may be charged meanwhile that no decision has told of
}

// withoutUnits is what is left of a delay without that of whole units, or refills. What a window
// counts does not delay its end.
func withoutUnits(s *limiter.Spec, delay time.Duration) time.Duration {
	const rounded = 2 // what is told is rounded up to the next nanosecond
	step := s.Per
	switch s.Algorithm {
	case limiter.FixedWindow:
		return delay
	case limiter.GCRA, limiter.LeakyBucket:
		step = max(1, s.Per/time.Duration(s.Limit))
	}
	return max(0, (delay+rounded)%step-rounded)
}

// settles has nothing end earlier than now.
func (c *keyCount) settles(now limiter.Instant, s *limiter.Spec) {
	if c.later > 0 {
		c.later = min(c.later, c.whole.peek(now, s, 0).ResetAfter)
	}
}

// misses takes off what a decision shows to be forgotten. was is the state before it: what the
// decision itself charges is not what was forgotten.
func (c *keyCount) misses(
	now limiter.Instant, s *limiter.Spec, was naiveState, charged, over int64,
) {
	if over <= 0 {
		return
	}
	c.whole = was
	c.whole.loseBefore(now, s, charged, over)
	if charged != 0 {
		c.whole.charge(now, s, charged)
	}
}

// begins notes what the key had counted before the first decision of this instant, without what
// its decisions show to be forgotten. What was charged can be taken off again what a decision
// tells; a refund cannot be charged again, for it may have been more than there was.
func (c *keyCount) begins(
	now limiter.Instant, s *limiter.Spec, was naiveState, charged, over int64,
) {
	switch {
	case c.begun:
		c.since.loseBefore(now, s, charged, over)
	case charged < 0:
		c.since = was
		c.since.loseBefore(now, s, charged, over)
	default:
		c.since = c.whole
		c.since.take(now, s, -charged)
	}
	c.begun = true
}

// travels lays what is known of a key on a clock that shows apart more than the one before, now.
// The heir has had each charge since it was taken, and its clock may have gone faster from then on:
// since the last change for a state with one mark, and for a log since each entry.
func (c *keyCount) travels(now limiter.Instant, apart, unchanged time.Duration) {
	log := c.whole.log
	c.whole.shift(apart-unchanged/1000-1, now)
	for i, at := range log {
		older := time.Duration(now-at) - apart // by the clock before
		c.whole.log[i] = min(now, at.Add(apart-older/1000-1))
	}
}

// fades reports whether x was taken too soon before its process failed for a copy to tell.
func (x *perishable) fades() bool {
	return slices.ContainsFunc(x.by.fading, func(f fading) bool {
		return x.at >= f.from && x.at <= f.to
	})
}

// copied is since when the state that goes on may be as it is: what was charged since may be
// forgotten.
func (c *keyCount) copied() time.Duration {
	since := c.changed
	for i := len(c.charges) - 1; i >= 0; i-- {
		x := &c.charges[i]
		if since = min(since, x.at); !x.fades() {
			break
		}
	}
	return since
}

// allow says how much of what p has forgotten may be, and does not allow it again.
func (c *keyCount) allow(p *process, over int64, cold time.Duration) (allowed int64) {
	for i := len(c.charges) - 1; i >= 0 && allowed < over; i-- {
		x := &c.charges[i]
		if x.at > cold && !x.fades() && !(x.tied && x.by != p) {
			continue
		}
		n := min(x.cost, over-allowed)
		x.cost -= n
		allowed += n
	}
	return allowed
}

// noteOwed notes what p shows to be charged that nobody has seen charged: it was owed, and may be
// forgotten like all that is charged.
func (c *keyCount) noteOwed(p *process, a *account, cost int64) {
	if cost > 0 && len(a.reference.owed) > 0 {
		c.charges = append(c.charges, perishable{at: p.machine.world.now, by: p, cost: cost})
	}
}

// uncounted reports whether decisions do not tell how much a has been charged: refusals count as
// well, or its windows lie differently on each clock. That something was charged is known.
func (a *account) uncounted() bool { return a.adrift || refusalsCount(a.spec) }

// notes remembers that p has charged a key, or may have.
func (j *countedJudge) notes(c *keyCount, p *process, it *asked) {
	if it.op != cluster.OpTake || it.cost <= 0 {
		return
	}
	now := j.world.now
	at, was := j.tied[j.world.plan.partition(it.account.hash)]
	tied := it.doubt && was && at == now
	c.charges = append(c.charges, perishable{now, p, it.cost, tied})
	c.prune(now - forgets(it.account.spec))
}

// isChargedBy reports whether p has charged something lately.
func (c *keyCount) isChargedBy(p *process) bool {
	return slices.ContainsFunc(c.charges, func(x perishable) bool { return x.by == p })
}

// chargedApart is how much the other half of a cut pair, which p is the one half of, has charged
// since then.
func (c *keyCount) chargedApart(p *process, since time.Duration) (units int64) {
	if c == nil {
		return 0
	}
	for _, x := range c.charges {
		if x.tied && x.by != p && x.at >= since {
			units += x.cost
		}
	}
	return units
}

// prune drops the charges that do not count any more.
func (c *keyCount) prune(before time.Duration) {
	if n := len(c.charges); n < 64 || n < cap(c.charges) {
		return
	}
	c.charges = slices.DeleteFunc(c.charges, func(x perishable) bool {
		return x.at < before || x.cost == 0
	})
}

// learn takes over what a decision tells of the state after it, which may have come later than
// what is known by such ways.
func (c *keyCount) learn(
	now limiter.Instant, s *limiter.Spec, got limiter.Decision, by ways,
) {
	used := got.Limit - got.Remaining
	c.older = 0
	if tellsAll(s) {
		c.delayed(now, s, got, by)
	}
	switch {
	case s.Algorithm == limiter.GCRA || s.Algorithm == limiter.LeakyBucket:
		c.whole = naiveState{used: max(0, int64(got.ResetAfter)-1) * s.Limit, poured: now}
	case s.Algorithm == limiter.FixedWindow && got.ResetAfter > 0:
		if got.Remaining == 0 { // more may have been counted than there is room for
			used = max(used, c.whole.count)
		}
		c.whole = naiveState{count: used}
		c.whole.opened(s, now.Add(got.ResetAfter))
	case s.Algorithm == limiter.TokenBucket && used > 0:
		mark := now.Add(got.ResetAfter - time.Duration((used+s.Refill-1)/s.Refill)*s.Per)
		c.whole = naiveState{naiveKinds: naiveKinds{missing: used, mark: mark, phased: true}}
	}
}

// tellsAll reports whether decisions under s tell to the nanosecond when all that is counted is
// over, at once or at a steady rate.
func tellsAll(s *limiter.Spec) bool {
	switch s.Algorithm {
	case limiter.GCRA, limiter.LeakyBucket, limiter.FixedWindow, limiter.TokenBucket:
		return true
	}
	return false
}

// loseBefore has st count what makes it count that much less after a decision that charges so
// much. What a sliding window is given back is taken off its current window first, and then off the
// one before: it is the rest of both that was forgotten.
func (st *naiveState) loseBefore(now limiter.Instant, s *limiter.Spec, charged, lost int64) {
	if charged >= 0 || s.Algorithm != limiter.SlidingWindow {
		st.lose(now, s, lost)
		return
	}
	st.take(now, s, 0) // its windows are those of now
	count, previous := st.count, st.previous
	st.take(now, s, charged)
	count, previous = count-st.count, previous-st.previous
	st.lose(now, s, lost)
	st.count, st.previous = st.count+count, st.previous+previous
}

// lose has st count that much less, as the most generous state that still counts the rest. Under a
// sliding window a unit of the window before counts only in part, so more than lost units of it can
// be missing: all of those are taken off that make no difference now.
func (st *naiveState) lose(now limiter.Instant, s *limiter.Spec, lost int64) {
	if lost <= 0 {
		return
	}
	if s.Algorithm != limiter.SlidingWindow {
		st.take(now, s, -lost)
		return
	}
	st.take(now, s, 0) // its windows are those of now
	rest := st.estimate(now, s) - lost
	st.count -= min(lost, st.count)
	st.previous = int64(sort.Search(int(st.previous), func(n int) bool {
		x := *st
		x.previous = int64(n)
		return x.estimate(now, s) >= rest
	}))
}
