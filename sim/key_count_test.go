package sim

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Promise: the judge's count of what was forgotten is right where a sliding window weighs a unit of
// the window before with less than one: what is missing is taken off first from this window, then
// from the one before, until what is left counts what a decision says, and no unit more.
func TestLoseUnderASlidingWindow(t *testing.T) {
	s := &limiter.Spec{Algorithm: limiter.SlidingWindow, Limit: 1000, Per: 10 * time.Second}
	now := limiter.Instant(1_700_000_004_000_000_000) // 4 s into a window: 0.6 of the one before
	for _, c := range []struct{ count, previous, lost, left, wantCount, wantPrevious int64 }{
		{5, 31, 23, 0, 0, 0}, // all is forgotten: 5 + 18
		{0, 9, 5, 0, 0, 0},
		{5, 31, 3, 20, 2, 30}, // 30 and 31 of the window before count 18
		{0, 31, 9, 9, 0, 15},
		{5, 0, 5, 0, 0, 0},
		{5, 31, 0, 23, 5, 31},
	} {
		st := naiveState{start: aligned(now, s.Per), count: c.count, previous: c.previous}
		st.lose(now, s, c.lost)
		left := st.estimate(now, s)
		if st.count != c.wantCount || st.previous != c.wantPrevious || left != c.left {
			t.Errorf("%d and %d before less %d: %d and %d before, %d in all; want %d and %d, %d",
				c.count, c.previous, c.lost, st.count, st.previous, left,
				c.wantCount, c.wantPrevious, c.left)
		}
	}
}

// Promise: what a sliding window had counted before a refund that leaves nothing is enough for that
// refund and no more, also where the refund takes from the window before.
func TestBeforeARefundUnderASlidingWindow(t *testing.T) {
	s := &limiter.Spec{Algorithm: limiter.SlidingWindow, Limit: 1000, Per: 10 * time.Second}
	now := limiter.Instant(1_700_000_004_000_000_000) // 4 s into a window: 0.6 of the one before
	for _, x := range []struct {
		name            string
		count, previous int64
		refund          int64
		left            int64 // counted after it, by the decision
		wantCount       int64 // before it
		wantPrevious    int64
	}{
		{"all is forgotten", 1, 1000, 3, 0, 1, 2},
		{"this window gives all back", 5, 1000, 3, 0, 3, 0},
		{"some of the window before is left", 1, 1000, 3, 6, 1, 12},
		{"nothing is forgotten", 1, 1000, 3, 598, 1, 1000},
	} {
		was := naiveState{start: aligned(now, s.Per), count: x.count, previous: x.previous}
		c := &keyCount{whole: was}
		c.whole.charge(now, s, -x.refund)
		lost := c.whole.estimate(now, s) - x.left
		c.misses(now, s, was, -x.refund, lost)
		c.begins(now, s, was, -x.refund, lost)
		if c.since.count != x.wantCount || c.since.previous != x.wantPrevious {
			t.Errorf("%s: %d and %d before; want %d and %d", x.name, c.since.count,
				c.since.previous, x.wantCount, x.wantPrevious)
		}
		c.since.charge(now, s, -x.refund)
		for _, st := range []*naiveState{&c.since, &c.whole} {
			if got := st.estimate(now, s); got != x.left {
				t.Errorf("%s: %d after the refund; want %d", x.name, got, x.left)
			}
		}
	}
}

// Promise: what a key had counted before several decisions of one instant is right also if some of
// them give back more than there was, and what was forgotten is not taken off what they charge.
func TestBeforeTheDecisionsOfAnInstant(t *testing.T) {
	s := &limiter.Spec{
		Algorithm: limiter.FixedWindow, Limit: 100, Per: time.Minute, Anchor: limiter.Epoch,
	}
	now := limiter.Instant(1_700_000_000_000_000_000)
	for _, x := range []struct {
		name    string
		had     int64
		charges []int64 // in one instant
		lost    int64   // before the first
		want    int64   // counted before the first
		then    int64   // and after the last
	}{
		{"as it was", 7, []int64{1, 1}, 0, 7, 9},
		{"more is given back than there is", 0, []int64{1, 1, -3}, 0, 0, 0},
		{"what was there is given back first", 4, []int64{-6, 2}, 0, 4, 2},
		{"all is forgotten", 7, []int64{5}, 7, 0, 5},
		{"part is forgotten, more is charged", 7, []int64{5, -1}, 3, 4, 8},
		{"part is forgotten, the rest given back", 7, []int64{-5}, 3, 4, 0},
	} {
		c := &keyCount{whole: naiveState{start: aligned(now, s.Per), count: x.had}}
		for i, cost := range x.charges {
			was, lost := c.whole, int64(0)
			if i == 0 {
				lost = x.lost
			}
			c.whole.charge(now, s, cost)
			c.misses(now, s, was, cost, lost)
			c.begins(now, s, was, cost, lost)
		}
		if c.since.count != x.want || c.whole.count != x.then {
			t.Errorf("%s: %d before and %d after; want %d and %d",
				x.name, c.since.count, c.whole.count, x.want, x.then)
		}
	}
}

// Promise: a decision that leaves nothing tells when its window ends as every other does, so what
// comes later is not counted in it.
func TestWindowThatIsUsedUp(t *testing.T) {
	s := &limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 2, Per: 100 * time.Millisecond}
	now := limiter.Instant(1_700_000_000_000_000_000)
	c := &keyCount{whole: naiveState{start: now, count: 1}}
	c.learn(now, s, limiter.Decision{Allowed: true, Limit: 2, ResetAfter: 15 * time.Millisecond},
		ways{})
	if got := c.whole.peek(now, s, 0); got.Remaining != 0 || got.ResetAfter != 15*time.Millisecond {
		t.Errorf("%d are left for %v; want none for 15 ms", got.Remaining, got.ResetAfter)
	}
	if got := c.whole.peek(now.Add(15*time.Millisecond), s, 0); got.Remaining != 2 {
		t.Errorf("%d are left in the next window; want 2", got.Remaining)
	}
}

// Promise: what one half of a cut pair has charged, and marked, may be forgotten by the other half
// when they meet, once; the half that charged it itself forgets nothing.
func TestWhatACutPairMayForget(t *testing.T) {
	a, b := &process{}, &process{}
	for _, x := range []struct {
		name string
		by   *process
		tied bool
		want int64
	}{
		{"by the other half", b, true, 3},
		{"by the half that charged it", a, true, 0},
		{"not marked", b, false, 0},
	} {
		c := &keyCount{charges: []perishable{{at: time.Second, by: a, cost: 3, tied: x.tied}}}
		if got := c.allow(x.by, 5, -warmUp); got != x.want {
			t.Errorf("%s: %d may be forgotten; want %d", x.name, got, x.want)
		}
		if got := c.allow(x.by, 5, -warmUp); got != 0 {
			t.Errorf("%s: %d may be forgotten again", x.name, got)
		}
	}
}

// Promise: a unit that a bucket has forgotten is counted also where the rest has come a little
// later for having travelled, so that as many whole units are left as if nothing was forgotten. A
// state that has come later, or an older one that has not, has forgotten nothing; but what is told
// to end later than any way explains was charged, and may not be forgotten either.
func TestForgottenUnitThatDoesNotShow(t *testing.T) {
	const ms = time.Millisecond
	s := &limiter.Spec{Algorithm: limiter.GCRA, Limit: 100, Per: time.Minute, Burst: 100}
	now := limiter.Instant(1_700_000_000_000_000_000)
	unit := s.Per / time.Duration(s.Limit)
	for _, x := range []struct {
		name string
		// by how much later than known the bucket is full, decision by decision
		tells []time.Duration
		want  []int64
	}{
		{"nothing is forgotten", []time.Duration{0, 0}, []int64{0, 0}},
		{"one is", []time.Duration{-unit}, []int64{1}},
		{"one is, and the rest is later", []time.Duration{ms - unit, 0}, []int64{1, 0}},
		{"two are, and the rest is later", []time.Duration{ms - 2*unit}, []int64{2}},
		{"it is later, and as before", []time.Duration{ms, -ms}, []int64{0, 0}},
		{"it is later, and one is forgotten", []time.Duration{ms, -ms - unit}, []int64{0, 1}},
		{"one is, and an older one goes on", []time.Duration{ms - unit, -ms}, []int64{1, 0}},
		{"an older one goes on twice", []time.Duration{ms, -ms, -ms}, []int64{0, 0, 1}},
		{"more is charged, and forgotten", []time.Duration{unit, -unit}, []int64{0, 1}},
	} {
		c := &keyCount{whole: naiveState{used: 40 * int64(s.Per), poured: now}}
		for i, by := range x.tells {
			used := c.whole.used + int64(by)*s.Limit
			lost := tell(c, now, s, limiter.Decision{
				Allowed: true, Limit: s.Burst, Remaining: s.Burst - (used+s.Per.Nanoseconds()-1)/
					s.Per.Nanoseconds(), ResetAfter: time.Duration(used / s.Limit),
			})
			if lost != x.want[i] {
				t.Errorf("%s: decision %d shows that %d are forgotten, want %d", x.name, i, lost,
					x.want[i])
			}
			c.whole.used = used
		}
	}
}

// tell has c follow a decision that charges nothing, of a state that no way has made later by more
// than 3 ms, and returns how much is forgotten.
func tell(c *keyCount, now limiter.Instant, s *limiter.Spec, got limiter.Decision) (lost int64) {
	it := &asked{account: &account{spec: s}, op: cluster.OpTake}
	was := c.whole
	left := c.follows(now, it, got)
	was, _, lost = c.exceeded(now, it, got, was, left, nil)
	c.misses(now, s, was, 0, lost)
	c.learn(now, s, got, ways{most: 3 * time.Millisecond})
	return lost
}

// Promise: a window that has come later for having travelled may end as it did before, where a copy
// goes on that has not come that way; nothing is forgotten by that. One that ends earlier than that
// has forgotten all. The same goes for the refills of a token bucket.
func TestWindowThatComesLater(t *testing.T) {
	const ms = time.Millisecond
	now := limiter.Instant(1_700_000_000_000_000_000)
	for _, s := range []*limiter.Spec{
		{Algorithm: limiter.FixedWindow, Limit: 10, Per: time.Second},
		{Algorithm: limiter.TokenBucket, Limit: 10, Per: time.Second, Refill: 10},
	} {
		for _, x := range []struct {
			name  string
			later time.Duration // it is told to end, 900 ms before its end
			at    time.Duration // after that it is told to be empty, at its end
			want  int64
		}{
			{"it has come later", ms, 0, 0},
			{"it has not", 0, 0, 0},
			{"it ends sooner", ms, -2 * ms, 7},
			{"it ends a moment too soon", ms, -ms, 7},
			{"no way is that long", 8 * ms, 0, 7},
		} {
			c := &keyCount{whole: naiveState{start: now, count: 7, naiveKinds: naiveKinds{
				missing: 7, mark: now, phased: true,
			}}}
			lost := tell(c, now.Add(100*ms), s, limiter.Decision{
				Allowed: true, Limit: 10, Remaining: 3, ResetAfter: 900*ms + x.later,
			})
			if lost != 0 {
				t.Errorf("%v, %s: %d are forgotten at first", s.Algorithm, x.name, lost)
			}
			lost = tell(c, now.Add(s.Per+x.at), s,
				limiter.Decision{Allowed: true, Limit: 10, Remaining: 10})
			if lost != x.want {
				t.Errorf("%v, %s: %d are forgotten, want %d", s.Algorithm, x.name, lost, x.want)
			}
		}
	}
}

// Promise: where units may be charged that no decision has told of, what they delay is no way that
// the state has come: it may not be taken back.
func TestUnseenUnitsAreNoDelay(t *testing.T) {
	const ms = time.Millisecond
	now := limiter.Instant(1_700_000_000_000_000_000)
	s := &limiter.Spec{Algorithm: limiter.GCRA, Limit: 100, Per: time.Second, Burst: 100}
	for unseen, want := range map[bool]time.Duration{false: 31 * ms, true: ms} {
		c := &keyCount{whole: naiveState{used: 40 * int64(s.Per), poured: now}}
		c.learn(now, s, limiter.Decision{Limit: 100, Remaining: 56, ResetAfter: 431 * ms},
			ways{most: 100 * ms, unseen: unseen})
		if c.later != want {
			t.Errorf("unseen %v: it is %v later, want %v", unseen, c.later, want)
		}
	}
}

// Promise: a key that comes back to the process that decided on it last may have been on a faster
// clock in between, so more time may have passed for it. One that has stayed has gone by one clock.
func TestKeyThatComesBackHasBeenOnOtherClocks(t *testing.T) {
	const changed, gift, now = 10 * time.Second, 15 * time.Second, 20 * time.Second
	spec := limiter.Spec{
		Name: "a", Algorithm: limiter.GCRA, Limit: 1, Per: time.Minute, Burst: 10,
	}
	for _, x := range []struct {
		name    string
		decided time.Duration // last, before now
		fenced  uint64        // how often the process had let go of all by now
		drift   int64         // of the other clock
		older   time.Duration
	}{
		{"it was given back", changed, 0, 1, 10*time.Millisecond + 1},
		{"it was decided on since then", gift, 0, 1, 0},
		{"all was let go of", gift, 1, 1, 10*time.Millisecond + 1},
		{"there is one clock", changed, 0, 0, 0},
	} {
		first := clock{start: 1_700_000_000_000_000_000}
		other := first
		other.drift = x.drift
		w := newWorld(&plan{
			seed: 1, sky: outage, machines: []machinePlan{{clock: first}, {clock: other}},
			sweepEvery: 5 * time.Second, limits: []rule{{Spec: spec}},
		}, nil)
		a, p := w.judge.account("a", "one"), w.machines[0].process
		poured := p.time.at(changed)
		a.count = &keyCount{
			by: p, last: x.decided, changed: changed, whole: naiveState{poured: poured},
		}
		w.now, p.stated.fenced = now, x.fenced
		w.judge.gifts[w.plan.partition(a.hash)] = gift
		for range 2 { // once
			w.judge.counted.passes(a, p)
		}
		if got := time.Duration(poured - a.count.whole.poured); got != x.older {
			t.Errorf("%s: it may be %v older; want %v", x.name, got, x.older)
		}
	}
}

// What a decision shows to be forgotten clients may be granted once more, also the part that a copy
// explains which is older by a faster clock: a bucket has refilled by that much there.
func TestWhatAnOlderCopyHasBackIsGranted(t *testing.T) {
	s := &limiter.Spec{Algorithm: limiter.GCRA, Limit: 300, Per: time.Second, Burst: 3}
	now := limiter.Instant(time.Hour)
	full := naiveState{used: 3 * int64(s.Per), poured: now}
	c := keyCount{whole: full, older: 4 * time.Millisecond, looked: time.Second}
	it := &asked{account: &account{spec: s}, cost: 1}
	got := limiter.Decision{Allowed: true, Limit: 3, Remaining: 2, ResetAfter: time.Second/300 + 1}
	left := c.follows(now, it, got)
	if _, _, over := c.exceeded(now, it, got, full, left, nil); over != 2 || c.extra != 3 {
		t.Fatalf("%d are found forgotten, and %d more left than were; want 2 and 3", over, c.extra)
	}
	if got := c.granted(time.Second, 2); got != 3 {
		t.Errorf("clients may be granted %d, want 3", got)
	}
	if got := c.granted(time.Second, 2); got != 2 {
		t.Errorf("it is granted again: %d, want 2", got)
	}
}
