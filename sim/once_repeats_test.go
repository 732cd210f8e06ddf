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
