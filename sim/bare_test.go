package sim

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Promise: the heir of a holder that dies knows what was charged. Where all other members leave,
// the holder has its copies end, and what it knows is gone with it. As long as one member stays, or
// has a copy, that is no excuse.
func TestCopiesThatEndWhereAllLeave(t *testing.T) {
	for _, x := range []struct {
		name  string
		stays bool // a third member does
		says  []cluster.Copying
		gone  bool
	}{
		{
			"the copy has ended", false,
			[]cluster.Copying{{Begin: []uint16{0}}, {End: []uint16{0}}},
			true,
		},
		{"the copy goes on", false, []cluster.Copying{{Begin: []uint16{0}}}, false},
		{
			"it has begun again", false,
			[]cluster.Copying{{Begin: []uint16{0}}, {End: []uint16{0}}, {Begin: []uint16{0}}},
			false,
		},
		{
			"another member stays", true,
			[]cluster.Copying{{Begin: []uint16{0}}, {End: []uint16{0}}},
			false,
		},
	} {
		w := newWorld(&plan{
			seed: 1, sky: outage, machines: make([]machinePlan, 3), sweepEvery: 5 * time.Second,
			limits: []rule{{Spec: limiter.Spec{
				Name: "a", Algorithm: limiter.GCRA, Limit: 1, Per: time.Minute,
			}}},
		}, nil)
		j, a := w.judge.counted, w.judge.account("a", "one")
		k := w.plan.partition(a.hash)
		holder, leaver := w.machines[0].process, w.machines[1].process
		holder.stated.put(k, true)
		leaver.stated.held = 1 // it has still to give that away
		leaver.leaving, w.machines[2].process.leaving = true, !x.stays
		for _, c := range x.says {
			for _, list := range [][]uint16{c.Begin, c.End} {
				if len(list) > 0 {
					list[0] = uint16(k)
				}
			}
			j.copies(holder, leaver, &cluster.Move{Copying: c})
		}
		w.now = time.Second
		if j.dies(holder); (j.coldOf(a) == w.now) != x.gone {
			t.Errorf("%s: what the holder knew is gone since %v", x.name, j.coldOf(a))
		}
	}
}
