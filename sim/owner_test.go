package sim

import (
	"testing"
	"time"

	"penstock/cluster"
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
		others  []ownership.Lineage // of those that have held the key since, in this order
		begins  bool                // to hold something, before it decides
		refused bool
	}{
		{"nobody has held it", nil, false, false},
		{"one of its lineage has", []ownership.Lineage{mine}, false, true},
		{"one has, before the two parted", []ownership.Lineage{root}, false, true},
		{"one has in a child", []ownership.Lineage{mine.Child(3)}, false, true},
		{"one of its lineage has, and it has it back", []ownership.Lineage{mine}, true, false},
		{"the other half has", []ownership.Lineage{rival}, false, false},
		{"one of the other half has", []ownership.Lineage{rival.Child(3)}, false, false},
		{"one of its lineage, then the other half", []ownership.Lineage{mine, rival}, false, true},
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
		holds(p, mine)
		for i, l := range x.others {
			holds(w.machines[1+i].process, l)
		}
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

// A gift may come late: to a member that was evicted while its machine stood still, or to the half
// of a pair from which the giver has parted. Without a right that one decides nothing, so the node
// that has claimed the partition meanwhile goes on without taking it over again.
func TestGiftsWithoutARight(t *testing.T) {
	for name, hasRight := range map[string]bool{
		"it has a right": true, "its right is over": false,
	} {
		w := newWorld(&plan{
			seed: 1, sky: outage, machines: make([]machinePlan, 3), sweepEvery: 5 * time.Second,
			limits: []rule{{Spec: limiter.Spec{
				Name: "a", Algorithm: limiter.GCRA, Limit: 1, Per: time.Minute,
			}}},
		}, nil)
		j, a := w.judge.exact.owner, w.judge.account("a", "one")
		k := w.plan.partition(a.hash)
		giver, late, p := w.machines[0].process, w.machines[1].process, w.machines[2].process
		for _, q := range []*process{late, p} {
			q.stated.agreed = &ownership.Configuration{
				Epoch: ownership.Epoch{Lineage: ownership.Founded(1)},
			}
		}
		j.holdsNow(k, p)
		late.stated.put(k, true)
		if late.stated.until = late.now(); hasRight {
			late.stated.until++
		}
		j.moved(giver, late, &cluster.Move{Giving: cluster.Giving{Gift: []uint16{uint16(k)}}})
		if j.mayTakeOver(p, a); (j.failure != nil) != hasRight {
			t.Errorf("%s: a promise is broken: %v", name, j.failure != nil)
		}
	}
}
