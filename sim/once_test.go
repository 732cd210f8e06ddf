package sim

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Promise: a report of a take that the node remembers to have let in charges nothing, so its answer
// is that to the take. It may be reported all the same: by a node that held the key meanwhile, had
// not heard of that, and has refused the take to itself.
func TestReportOfWhatIsRemembered(t *testing.T) {
	take := cluster.ID{Origin: clientOrigin, Sequence: 7}
	yes := limiter.Decision{Allowed: true, Limit: 10, Remaining: 3, ResetAfter: time.Minute}
	charged := limiter.Decision{Allowed: true, Limit: 10, Remaining: 2, ResetAfter: time.Second}
	for _, x := range []struct {
		name   string
		after  time.Duration
		got    limiter.Decision
		broken bool
	}{
		{"it is answered as the take was", time.Second, yes, false},
		{"it is charged", time.Second, charged, true},
		{"it is charged, and the take is forgotten", memory, charged, false},
	} {
		w := newWorld(&plan{
			seed: 1, sky: outage, machines: make([]machinePlan, 2), sweepEvery: 5 * time.Second,
			limits: []rule{{Spec: limiter.Spec{
				Name: "a", Algorithm: limiter.FixedWindow, Limit: 10, Per: time.Minute,
			}}},
		}, nil)
		p, from, j := w.machines[0].process, w.machines[1].process, w.judge
		j.once.memories.add(nil, take, p, w.now, []limiter.Decision{yes}, true)
		w.now += x.after
		report := cluster.AskItem{
			Cost: 1, ID: cluster.ID{Origin: take.Origin ^ reportOrigin, Sequence: take.Sequence},
			Terms: cluster.Terms{Report: true},
		}
		j.deliveredDebt(from, p, &report, j.account("a", "one"), x.got)
		if got := j.failure != nil; got != x.broken {
			t.Errorf("%s: a promise is broken: %v; want %v", x.name, got, x.broken)
		}
	}
}

// Promise: request ids are remembered for 2 s. What a node hears of the answer of another one,
// which has charged the take anew, makes it remember its own answer for longer, but not for a
// second time.
func TestForHowLongAnAnswerStands(t *testing.T) {
	const ms = time.Millisecond
	w := newWorld(&plan{
		seed: 1, sky: outage, machines: make([]machinePlan, 2), sweepEvery: 5 * time.Second,
	}, nil)
	p, q, m := w.machines[0].process, w.machines[1].process, &w.judge.once.memories
	take, start := cluster.ID{Origin: clientOrigin, Sequence: 7}, w.now
	own := limiter.Decision{Allowed: true, Limit: 10, Remaining: 3}
	anew := limiter.Decision{Allowed: true, Limit: 10, Remaining: 9}
	for _, x := range []struct {
		name    string
		hears   []time.Duration
		asked   time.Duration
		says    bool
		learned bool
	}{
		{"it hears of nothing", nil, memory - ms, true, false},
		{"it hears of nothing", nil, memory, false, false},
		{"it hears in time", []time.Duration{memory - ms}, 2*memory - 2*ms, true, true},
		{"it hears in time", []time.Duration{memory - ms}, 2*memory - ms, false, false},
		{"it hears too late", []time.Duration{memory}, memory, false, true},
		{"it hears in time twice", []time.Duration{ms, memory}, 2*memory - ms, true, true},
	} {
		w.now = start
		m.add(nil, take, p, w.now, []limiter.Decision{own}, true)
		m.add(m.answers.get(take), take, q, w.now, []limiter.Decision{anew}, true)
		for _, at := range x.hears {
			w.now = start + at
			m.tells(p, []cluster.Memory{{ID: take, Decisions: []limiter.Decision{anew}}})
		}
		w.now = start + x.asked
		latest := m.answers.get(take)
		if got := latest.of(p).stands(latest, p); got != x.says {
			t.Errorf("%s, asked after %v: it says what it has said: %v; want %v", x.name, x.asked,
				got, x.says)
		}
		if _, still := latest.toldTo(p); still != x.learned {
			t.Errorf("%s, asked after %v: it remembers what it heard: %v; want %v", x.name, x.asked,
				still, x.learned)
		}
		*m = memories{}
	}
}

// A node may be told of an answer that nobody has seen given: the node before it had charged to
// itself what its own share had let in. That answer is the one to the take, as long as it is
// remembered, and no other.
func TestAnswersThatNobodyHasSeenGiven(t *testing.T) {
	take := cluster.ID{Origin: clientOrigin, Sequence: 7}
	told := limiter.Decision{Allowed: true, Limit: 10, Remaining: 9}
	other := limiter.Decision{Allowed: true, Limit: 10, Remaining: 8}
	for _, x := range []struct {
		name   string
		owed   bool
		answer limiter.Decision
		after  time.Duration
		known  bool
	}{
		{"it repeats what it was told", true, told, memory - 1, true},
		{"it says something else", true, other, 0, false},
		{"it has forgotten", true, told, memory, false},
		{"no share has let it in", false, told, 0, false},
	} {
		w := newWorld(&plan{
			seed: 1, sky: outage, machines: make([]machinePlan, 2), sweepEvery: 5 * time.Second,
			limits: []rule{{Spec: limiter.Spec{
				Name: "a", Algorithm: limiter.FixedWindow, Limit: 10, Per: time.Minute,
			}}},
		}, nil)
		p, q, j := w.machines[0].process, w.machines[1].process, w.judge.once
		a := w.judge.account("a", "one")
		if x.owed {
			a.reference.owes(a, q, take, 1)
		}
		j.memories.tells(p, []cluster.Memory{{ID: take, Decisions: []limiter.Decision{told}}})
		w.now += x.after
		items := []asked{{account: a, cost: 1, id: take}}
		got := j.remembered(p, nil, take, items, []limiter.Decision{x.answer})
		if known := got != nil; known != x.known {
			t.Errorf("%s: it is a repeat: %v; want %v", x.name, known, x.known)
		}
		w.now += keptMemories + 1
		if j.memories.tells(p, nil); len(j.memories.hearsay) > 0 {
			t.Errorf("%s: what was told is remembered after %v", x.name, keptMemories)
		}
	}
}

// A node asks for a lease, gets the key, refuses itself, and gives the key away with that answer.
// The next node answers what it was asked for meanwhile as it was told, and by its own count
// otherwise.
func TestRefusalOfALeaseIsTold(t *testing.T) {
	refusal := limiter.Decision{Limit: 50, Remaining: 36, RetryAfter: limiter.Never}
	for name, told := range map[string]bool{"told": true, "not told": false} {
		w := newWorld(&plan{
			seed: 1, sky: outage, machines: make([]machinePlan, 2), sweepEvery: 5 * time.Second,
			limits: []rule{{Spec: limiter.Spec{
				Name: "a", Algorithm: limiter.FixedWindow, Limit: 50, Per: time.Minute,
				Anchor: limiter.FirstHit, Consistency: limiter.Leased,
			}}},
		}, nil)
		j, p, from := w.judge, w.machines[0].process, w.machines[1].process
		a := j.account("a", "one")
		a.held, a.reference.by = newHeld(), p
		a.reference.loose.charge(p.now(), a.spec, 21)
		lease := cluster.AskItem{
			Limit: &limiter.Limit{Spec: *a.spec}, Key: "one", Cost: 16, Op: cluster.OpLease,
			ID: cluster.ID{Origin: 1<<63 | 5, Sequence: 234}, Hold: &cluster.HoldTerms{},
		}
		if told {
			j.once.memories.tells(p, []cluster.Memory{
				{ID: lease.ID, Decisions: []limiter.Decision{refusal}},
			})
		}
		j.deliveredHold(from, p, &cluster.Ask{Items: []cluster.AskItem{lease}}, 0,
			&cluster.Answer{Items: []cluster.AnswerItem{{Decision: refusal}}})
		if (j.failure != nil) == told {
			t.Errorf("%s: a promise is broken: %+v", name, j.failure)
		}
	}
}
