package sim

import (
	"testing"
	"time"

	"penstock/limiter"
)

// Promise: where nobody can count what was forgotten, the judge forgives what may be, and no whole
// limit: what was charged that counts still. Of what has run out nothing is forgiven.
func TestNoMoreIsForgivenThanCounts(t *testing.T) {
	w := &world{plan: &plan{sky: outage}}
	p := &process{machine: &machine{world: w}}
	a := &account{spec: &limiter.Spec{
		Algorithm: limiter.SlidingLog, Limit: 50, Per: time.Second, CountRejected: true,
	}, supply: curve{unit: 1}, heard: newWindow()}
	a.reference.by, w.now = p, 10*time.Second
	a.reference.loose.charge(p.now(), a.spec, 3)
	a.note(p, 3)
	for _, x := range []struct{ after, want time.Duration }{
		{0, 3}, {900 * time.Millisecond, 3}, {1010 * time.Millisecond, 0}, {time.Minute, 0},
	} {
		w.now = 10*time.Second + x.after
		if got := a.mostLost(p); got != int64(x.want) {
			t.Errorf("%v after 3 of 50 were charged for 1 s, %d can be lost, want %d", x.after, got,
				x.want)
		}
	}
	w.now = 10*time.Second + 1
	a.reference.forget(p.now(), a, capacityOf(a.spec), a.charged(w.now))
	if got := a.heard.begun; got != 3 {
		t.Errorf("3 of 50 were charged, and clients may be granted %d once more", got)
	}
	if left := a.reference.loose.peek(p.now(), a.spec, 0).Remaining; left != 50 {
		t.Errorf("all that was charged may be lost, and %d of 50 are left", left)
	}
	// it was charged before the reference came to another clock, and is not remembered there
	if a.reference.forget(p.now(), a, 1, 2); a.heard.begun != 4 {
		t.Errorf("one of 2 was lost on the way, and clients may be granted %d once more",
			a.heard.begun-3)
	}
}

// Promise: a process that holds a key all along has what it had counted, whatever another one has
// decided meanwhile, as both of a pair that has parted do. One that has begun anew may be short.
func TestWhoNeverStopsKnowsWhatItHasCharged(t *testing.T) {
	p, q := &process{}, &process{}
	p.stated.begun, q.stated.begun = 7, 7
	r := &reference{others: []ownCount{
		{process: q, loose: naiveState{count: 1}, begun: 7},
		{process: p, loose: naiveState{count: 9}, begun: 7, noted: 1},
	}}
	// both at one instant
	r.past = []charged{{at: time.Second, cost: 9, nth: 1}, {at: time.Second, cost: 4, nth: 2}}
	switch own := r.ownOf(p); {
	case own == nil:
		t.Error("what a process has charged, that has never stopped, is said to be forgotten")
	case own.loose.count != 9 || r.chargedAfter(own.noted) != 4:
		t.Errorf("it counts %d, and others %d since; want 9 and 4", own.loose.count,
			r.chargedAfter(own.noted))
	}
	if p.stated.begun = 8; r.ownOf(p) != nil {
		t.Error("it has begun anew, and is held to what it had before")
	}
}

// Promise: by how much earlier windows begin on another clock, clients may be granted more; not
// where the two clocks share boundaries, and those of the other one are a little later.
func TestWindowsThatBeginEarlier(t *testing.T) {
	const ms = time.Millisecond
	s := limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 10, Per: time.Second}
	day := limiter.Spec{Algorithm: limiter.FixedWindow, Per: 24 * time.Hour, Calendar: limiter.Days}
	for _, x := range []struct {
		of          *limiter.Spec
		ahead, want time.Duration
	}{
		{&s, 0, 0},
		{&s, inStep, 0},
		{&s, -inStep, 0},
		{&s, 300 * ms, 300 * ms},
		{&s, time.Hour + 300*ms, 300 * ms},
		{&s, -300 * ms, 700 * ms},
		{&s, -time.Hour - 534*ms, 466 * ms},
		{&s, -time.Hour, 0},
		{&s, -125 * ms, 0},
		{&s, -126 * ms, 874 * ms},
		{&day, time.Hour, time.Hour},
		{&day, -time.Hour, 0},
	} {
		if got := beginsEarlier(x.of, x.ahead); got != x.want {
			t.Errorf("windows of %v on a clock %v ahead begin %v earlier, want %v", x.of.Per,
				x.ahead, got, x.want)
		}
	}
}

// Promise: what a process has given away the one that took it has, also if another one goes on: one
// half of a pair may have got it just before the other half begins a child lineage.
func TestWhatWasGivenIsWithItsTaker(t *testing.T) {
	for name, x := range map[string]struct {
		taker int // of the machines; -1: nobody has taken it
		want  int // that has it besides; -1: nobody
	}{
		"the one that goes on": {2, -1}, "another one": {1, 1}, "nobody": {-1, -1},
	} {
		w := newWorld(&plan{
			seed: 1, sky: outage, machines: make([]machinePlan, 3), sweepEvery: 5 * time.Second,
			limits: []rule{{Spec: limiter.Spec{
				Name: "a", Algorithm: limiter.FixedWindow, Limit: 7, Per: time.Hour,
				Anchor: limiter.FirstHit,
			}}},
		}, nil)
		j, a := w.judge.carrier, w.judge.account("a", "one")
		k, giver, p := w.plan.partition(a.hash), w.machines[0].process, w.machines[2].process
		a.reference.by = giver
		a.reference.loose.charge(giver.now(), a.spec, 5)
		a.reference.last, j.gifts[k], j.givers[k] = 0, time.Second, giver
		if x.taker >= 0 {
			j.takers[k] = w.machines[x.taker].process
		}
		j.keep(a, giver, p)
		others := a.reference.others
		if (x.want >= 0) != (len(others) == 1) {
			t.Fatalf("%s took it, and %d others have it", name, len(others))
		}
		if x.want >= 0 && (others[0].process != w.machines[x.want].process ||
			others[0].strict.count != 5) {
			t.Errorf("%s took it, and %s has counted %d", name, others[0].process.machine.id,
				others[0].strict.count)
		}
	}
}

// Promise: nobody is said to be denied too early while what has run out may count: when the two
// halves of a pair met again, it may have counted still, and then it lasts as long as what the
// other half has charged (world 3076000001). Units that had run out before that do not count.
func TestWhatHadNotRunOutWhenTwoMet(t *testing.T) {
	window := limiter.Spec{
		Name: "a", Algorithm: limiter.FixedWindow, Limit: 1000, Per: 7 * time.Second,
		Anchor: limiter.FirstHit,
	}
	bucket := window
	bucket.Algorithm, bucket.Refill = limiter.TokenBucket, 1000
	for _, x := range []struct {
		name string
		spec limiter.Spec
		last time.Duration // when the other half decided
		used int64
	}{
		{"a refill since", bucket, 6 * time.Second, 2},
		{"a refill before", bucket, 8 * time.Second, 1},
		{"a window that ended since", window, 6 * time.Second, 2},
		{"a window that ended before", window, 8 * time.Second, 1},
	} {
		w := newWorld(&plan{
			seed: 1, sky: outage, machines: make([]machinePlan, 2), sweepEvery: 5 * time.Second,
			limits: []rule{{Spec: x.spec}},
		}, nil)
		j, a := w.judge.carrier, w.judge.account("a", "one")
		p, other := w.machines[0].process, w.machines[1].process
		r := &a.reference
		var had naiveState
		w.now = 0
		had.charge(p.now(), a.spec, 2)
		w.now = x.last
		r.strict, r.by, r.last = &naiveState{}, other, x.last
		r.strict.charge(p.now(), a.spec, 1)
		r.others = []ownCount{{process: p, strict: had}}
		w.now = 9 * time.Second
		j.merge(a, p)
		if d := r.strict.peek(p.now(), a.spec, 0); d.Limit-d.Remaining != x.used {
			t.Errorf("%s: %d units count; want %d", x.name, d.Limit-d.Remaining, x.used)
		}
	}
}
