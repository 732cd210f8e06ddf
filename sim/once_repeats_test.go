package sim

import (
	"slices"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Promise: a node that was told the answer to a take says that again, and charges nothing. Both
// halves of a pair that has parted may have charged the take: then it may be told the answer that
// is not the latest (world 3050002054).
func TestRepeatOfTheEarlierAnswer(t *testing.T) {
	take := cluster.ID{Origin: clientOrigin, Sequence: 7}
	earlier := limiter.Decision{Allowed: true, Limit: 10, Remaining: 9}
	latest := limiter.Decision{Allowed: true, Limit: 10, Remaining: 8}
	other := limiter.Decision{Allowed: true, Limit: 10, Remaining: 7}
	for _, x := range []struct {
		name   string
		told   int // before that many halves have answered; 0: never
		answer limiter.Decision
		after  time.Duration
		repeat bool
	}{
		{"it was told when both had answered", 2, earlier, memory - 1, true},
		{"it was told when one had answered", 1, earlier, memory - 1, true},
		{"it was told so long ago that it has forgotten", 2, earlier, memory, false},
		{"it was told so long ago that it has forgotten", 1, earlier, memory, false},
		{"nobody has told it", 0, earlier, 0, false},
		{"it says something else", 2, other, 0, false},
	} {
		w := newWorld(&plan{
			seed: 1, sky: outage, machines: make([]machinePlan, 3), sweepEvery: 5 * time.Second,
			limits: []rule{{Spec: limiter.Spec{
				Name: "a", Algorithm: limiter.FixedWindow, Limit: 10, Per: time.Minute,
			}}},
		}, nil)
		p, j, a := w.machines[2].process, w.judge.once, w.judge.account("a", "one")
		for i, says := range []limiter.Decision{earlier, latest} {
			j.memories.add(j.memories.answers.get(take), take, w.machines[i].process, w.now,
				[]limiter.Decision{says}, true)
			if x.told == i+1 {
				j.memories.tells(p, []cluster.Memory{
					{ID: take, Decisions: []limiter.Decision{earlier}},
				})
			}
		}
		w.now += x.after
		got := j.remembered(p, j.memories.answers.get(take), take,
			[]asked{{account: a, cost: 1, id: take}}, []limiter.Decision{x.answer})
		switch {
		case x.repeat != (got != nil):
			t.Errorf("%s, told after %d answers: it is a repeat: %v; want %v", x.name, x.told,
				got != nil, x.repeat)
		case x.repeat && !slices.Equal(got, []limiter.Decision{x.answer}):
			t.Errorf("%s, told after %d answers: it repeats %v; want %v", x.name, x.told, got,
				x.answer)
		case x.repeat && a.reference.strictest().count != 0:
			t.Errorf("%s, told after %d answers: the repeat is charged", x.name, x.told)
		}
	}
}

// Promise: a node that has lost its right answers from its share, or as it remembers. It may have
// admitted a take as on_error says, got the key, and asked itself for that take: only then does it
// say what nobody has seen it answer (world 72000152).
func TestAnswerOfANodeToItself(t *testing.T) {
	refused := limiter.Decision{Limit: 10, RetryAfter: limiter.Never, ResetAfter: time.Second}
	ofShare := limiter.Decision{Limit: 5, RetryAfter: time.Second, ResetAfter: time.Second}
	for _, x := range []struct {
		name   string
		owes   bool
		shared bool // a share of it has answered
		held   bool // it has held the key since
		counts bool // refusals count
		got    limiter.Decision
		after  time.Duration
		may    bool
	}{
		{"it has refused that itself", true, false, true, false, refused, memory, true},
		{"it has forgotten", true, false, true, false, refused, 2 * memory, false},
		{"it has never had the key", true, false, false, false, refused, memory, false},
		{"it owes nothing", false, false, true, false, refused, memory, false},
		{"a share has answered", true, true, true, false, refused, memory - 1, false},
		{"it answers by its share", true, false, true, false, ofShare, memory, false},
		{"it has only reported that", true, false, true, true, refused, memory, false},
	} {
		w := newWorld(&plan{
			seed: 1, sky: lossy, machines: make([]machinePlan, 2), sweepEvery: 5 * time.Second,
			limits: []rule{{Spec: limiter.Spec{
				Name: "a", Algorithm: limiter.FixedWindow, Limit: 10, Per: time.Minute,
				CountRejected: x.counts,
			}}},
		}, nil)
		p, j, a := w.machines[0].process, w.judge.marked, w.judge.account("a", "one")
		it := cluster.Item{
			Limit: "a", Key: "one", Cost: 1, ID: cluster.ID{Origin: clientOrigin, Sequence: 7},
		}
		h := &hearing{process: p, request: &request{}, items: []cluster.Item{it}}
		if x.owes {
			a.reference.owes(a, p, it.ID, it.Cost)
		}
		if x.shared {
			p.shares.add(nil, it.ID, p, w.now, []limiter.Decision{ofShare}, false)
		}
		if x.held {
			p.stated.shifted += 2 // it got it, and has lost it
		}
		w.now += x.after
		if _, surely, may := j.remembers(h, nil, &it, x.got); may != x.may || surely {
			t.Errorf("%s: it may say so: %v, surely: %v; want %v", x.name, may, surely, x.may)
		}
	}
}
