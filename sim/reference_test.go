package sim

import (
	"math"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// A process that crashes takes all with it that it has counted. What goes on then knows nothing,
// and has to be believed.
func TestWhoCrashesMayForgetEverything(t *testing.T) {
	const crash, back = math.MaxInt64, math.MinInt64 + 10
	for name, test := range map[string]struct {
		spec  limiter.Spec
		costs []int64
	}{
		"refusals that count": {
			limiter.Spec{
				Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 1,
				CountRejected: true,
			},
			[]int64{1, 1, 1, crash, 1},
		},
		"what was forgotten before": {
			limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 2},
			[]int64{2, crash, 2, crash, 2},
		},
		"huge amounts given back": {
			limiter.Spec{Algorithm: limiter.LeakyBucket, Limit: 50},
			[]int64{1, back, back, 1, crash, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.spec.Name, test.spec.Per = "a", time.Hour
			w := newWorld(&plan{
				seed: 1, sky: outage,
				machines:   []machinePlan{{clock: clock{start: 1_700_000_000_000_000_000}}},
				sweepEvery: 5 * time.Second,
				limits:     []rule{{Spec: test.spec}},
			}, nil)
			m, truth := w.machines[0], naive{keys: make(map[naiveKey]*naiveState)}
			one, other := w.judge.account("a", "one"), w.judge.account("a", "other")
			for i, cost := range test.costs {
				if cost == crash {
					m.crash()
					m.boot()
					clear(truth.keys)
					continue
				}
				now := m.process.now()
				// the other never falls: nothing is asked of it
				items := []asked{{account: one, cost: cost}, {account: other}}
				got := []limiter.Decision{
					truth.take(now, one.spec, "one", cost),
					truth.take(now, other.spec, "other", 0),
				}
				w.judge.carrier.bring(one, m.process)
				w.judge.carrier.bring(other, m.process)
				if got[0].Allowed {
					w.judge.exact.decidesAll(m.process, items, got)
				} else {
					w.judge.exact.decidesOne(m.process, &items[0], got[0])
				}
				if f := w.judge.failure; f != nil {
					t.Fatalf("take %d: %s: %s", i, f.Promise, f.Detail)
				}
			}
		})
	}
}

// The next node to decide may have a copy from before something was given back, also if its clock
// is another one.
func TestWhatWasGivenBackMayComeBackOnAnotherClock(t *testing.T) {
	spec := limiter.Spec{Name: "a", Algorithm: limiter.FixedWindow, Limit: 10, Per: time.Hour}
	w := newWorld(&plan{
		seed: 1, sky: outage,
		machines:   []machinePlan{{clock: clock{start: 1_700_000_000_000_000_000}}},
		sweepEvery: 5 * time.Second,
		limits:     []rule{{Spec: spec}},
	}, nil)
	m, one, copied := w.machines[0], w.judge.account("a", "one"), naiveState{}
	takes := func(cost int64, state *naiveState) {
		t.Helper()
		w.judge.carrier.bring(one, m.process)
		w.judge.exact.decidesOne(m.process, &asked{account: one, cost: cost},
			state.take(m.process.now(), one.spec, cost))
		if f := w.judge.failure; f != nil {
			t.Fatalf("%s: %s", f.Promise, f.Detail)
		}
	}
	takes(5, &copied)
	now := copied
	takes(-1, &now)
	m.crash()
	m.clock.start += 300_000_000
	m.boot()
	takes(4, &copied)
}

// Where refusals count, one that may have been taken again, alike, counts again in the strictest
// reference: not where that has room for it, since then it can only be remembered.
func TestRefusalsThatAreTakenAgainCount(t *testing.T) {
	spec := limiter.Spec{
		Algorithm: limiter.SlidingLog, Limit: 10, Per: time.Second, CountRejected: true,
	}
	const now = limiter.Instant(1_700_000_000_000_000_000)
	for name, test := range map[string]struct {
		used   int64
		fallen bool
		left   int64
	}{
		"no room":          {6, false, 0},
		"room":             {5, false, 5},
		"fell with others": {6, true, 4},
	} {
		t.Run(name, func(t *testing.T) {
			var r reference
			r.loose.take(now, &spec, test.used)
			r.mayHave(now+1, &asked{account: &account{spec: &spec}, cost: 5}, false, test.fallen)
			if left := r.strict.peek(now+1, &spec, 0).Remaining; left != test.left {
				t.Errorf("%d are left, want %d", left, test.left)
			}
			if left := r.loose.peek(now+1, &spec, 0).Remaining; left != spec.Limit-test.used {
				t.Errorf("%d are left at most, want %d", left, spec.Limit-test.used)
			}
		})
	}
}

// Promise: nothing is forgiven of what an heir must have had a copy of, or of what has run out,
// whatever the limit is; what was charged too late for a copy is.
func TestNothingIsForgivenThatWasCopied(t *testing.T) {
	const crash = 20 * time.Second
	spec := limiter.Spec{
		Name: "a", Algorithm: limiter.SlidingLog, Limit: 10, Per: 10 * time.Second, MinGap: 1,
	}
	for _, x := range []struct {
		name    string
		charged time.Duration
		loss    float64
		want    int64
	}{
		{"a copy was due", 15 * time.Second, 0, 0},
		{"no copy was due", crash - 50*time.Millisecond, 0, spec.Limit},
		{"the copy may be lost", 15 * time.Second, 0.1, spec.Limit},
		{"it has run out", 5 * time.Second, 0.1, 0},
	} {
		w := newWorld(&plan{
			seed: 1, sky: outage, weather: weather{loss: x.loss},
			machines: []machinePlan{
				{clock: clock{start: 1_700_000_000_000_000_000}},
				{clock: clock{start: 1_700_000_000_000_000_000, drift: 1}},
			},
			sweepEvery: 5 * time.Second,
			limits:     []rule{{Spec: spec}},
			faults: []fault{ // the first is over, and not long ago
				{at: 5 * time.Second, kind: freezes, node: 1},
				{at: 6 * time.Second, kind: thaws, node: 1},
				{at: crash, kind: crashes},
			},
		}, nil)
		a, before, p := w.judge.account("a", "one"), w.machines[0].process, w.machines[1].process
		a.count = &keyCount{charges: []perishable{{x.charged, before, 3, false}}}
		r := &a.reference
		r.by, r.last, r.past = before, x.charged, []charged{{at: x.charged, cost: 3}}
		r.loose.charge(before.time.at(x.charged), a.spec, 3)
		before.fading = []fading{{crash - replicationInterval, crash}}
		w.now = crash + 100*time.Millisecond
		if lost := w.judge.carrier.lost(a, before, p); lost != x.want {
			t.Errorf("%s: %d are forgiven; want %d", x.name, lost, x.want)
		}
	}
}

// Promise: a node that has let go of a key, and has claimed it again, may lack what it had charged
// where messages get lost and another node has begun copies there in between; else it has all.
func TestClaimedAgainAfterAnother(t *testing.T) {
	spec := limiter.Spec{
		Name: "a", Algorithm: limiter.SlidingLog, Limit: 10, Per: 10 * time.Second,
		CountRejected: true,
	}
	const last = 15 * time.Second
	for _, x := range []struct {
		name         string
		loss         float64
		fenced       uint64
		began, given time.Duration
		want         int64
	}{
		{"another node held it", 0.1, 1, last + time.Second, 0, spec.Limit},
		{"messages arrive", 0, 1, last + time.Second, 0, 0},
		{"it has not let go", 0.1, 0, last + time.Second, 0, 0},
		{"nobody else held it", 0.1, 1, last, 0, 0},
		{"it was given back", 0.1, 1, last + time.Second, last + time.Second, 0},
	} {
		w := newWorld(&plan{
			seed: 1, sky: lossy, weather: weather{loss: x.loss},
			machines: []machinePlan{
				{clock: clock{start: 1_700_000_000_000_000_000}},
				{clock: clock{start: 1_700_000_000_000_000_000}},
			},
			sweepEvery: 5 * time.Second,
			limits:     []rule{{Spec: spec}},
		}, nil)
		a, p, j := w.judge.account("a", "one"), w.machines[0].process, w.judge.carrier
		k, other := w.plan.partition(a.hash), w.machines[1].process
		w.now = x.began
		j.copies(other, p, &cluster.Move{Copying: cluster.Copying{Begin: []uint16{uint16(k)}}})
		r := &a.reference
		r.by, r.last, r.past = p, last, []charged{{at: last, cost: 3}}
		r.loose.charge(p.time.at(last), a.spec, 3)
		j.holders[k], j.claims[k], j.gifts[k] = p, 0, x.given
		p.stated.fenced = x.fenced
		w.now = last + 2*time.Second
		if lost := j.lost(a, p, p); lost != x.want {
			t.Errorf("%s: %d are forgiven; want %d", x.name, lost, x.want)
		}
	}
}

// Promise: a denial is known to be right where the most generous state denies as well, also while
// charges may count that nobody has seen.
func TestDenialThatIsRightWhateverElseWasCharged(t *testing.T) {
	spec := limiter.Spec{Algorithm: limiter.SlidingLog, Limit: 10, Per: time.Second}
	const now = limiter.Instant(1_700_000_000_000_000_000)
	r := reference{blind: time.Minute}
	r.loose.take(now, &spec, 8)
	for cost, want := range map[int64]bool{2: false, 3: true, 11: true} {
		if r.tells(cost, &spec) {
			t.Errorf("a denial of %d is found to be too early in the dark", cost)
		}
		if got := r.denies(now, cost, &spec); got != want {
			t.Errorf("a denial of %d is right: %v, want %v", cost, got, want)
		}
	}
}
