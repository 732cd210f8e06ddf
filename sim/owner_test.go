package sim

import (
	"testing"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// Promise: a node decides on a key that another node of its lineage has held since only after it
// has taken the key over again. The half of a cut pair that goes on need not: the other half has
// decided in a lineage of its own, however long ago that was.
func TestWhatAnotherHasHeldIsTakenOver(t *testing.T) {
	root := ownership.Founded(1)
	mine, rival := root.Child(1), root.Child(2)
	for _, x := range []struct {
		name    string
		in      ownership.Lineage   // that it was in when it held the key
		others  []ownership.Lineage // of those that have held the key since, in this order
		begins  bool                // to hold something, before it decides
		refused bool
	}{
		{"nobody has held it", mine, nil, false, false},
		{"one of its lineage has", mine, []ownership.Lineage{mine}, false, true},
		{"one has, before the two parted", root, []ownership.Lineage{root}, false, true},
		{"one has in a child", mine, []ownership.Lineage{mine.Child(3)}, false, true},
		{"one of its lineage has, and it has it back", mine, []ownership.Lineage{mine}, true, false},
		{"one has that did not come along", mine, []ownership.Lineage{root}, false, false},
		{"the other half has", mine, []ownership.Lineage{rival}, false, false},
		{"one of the other half has", mine, []ownership.Lineage{rival.Child(3)}, false, false},
		{
			"one of its lineage, then the other half", mine,
			[]ownership.Lineage{mine, rival},
			false, true,
		},
	} {
		w := newWorld(&plan{
			seed: 1, sky: outage, machines: make([]machinePlan, 3), sweepEvery: 5 * time.Second,
			limits: []rule{{Spec: limiter.Spec{
				Name: "a", Algorithm: limiter.GCRA, Limit: 1, Per: time.Minute,
			}}},
		}, nil)
		j, a := w.judge.exact.owner, w.judge.account("a", "one")
		k, p := w.plan.partition(a.hash), w.machines[0].process
		holds := func(p *process, l ownership.Lineage) {
			p.stated.agreed = &ownership.Configuration{Epoch: ownership.Epoch{Lineage: l}}
			j.holdsNow(k, p)
		}
		holds(p, x.in)
		for i, l := range x.others {
			holds(w.machines[1+i].process, l)
		}
		p.stated.agreed = &ownership.Configuration{Epoch: ownership.Epoch{Lineage: mine}}
		if x.begins {
			p.stated.begun++
		}
		w.now = time.Hour
		j.mayTakeOver(p, a)
		if got := j.failure != nil; got != x.refused {
			t.Errorf("%s: a promise is broken: %v; want %v", x.name, got, x.refused)
		}
	}
}
