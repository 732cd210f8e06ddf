package sim

import (
	"slices"
	"testing"
	"time"

	"penstock/cluster/ownership"
)

// Promise: a crash is over within the time of a crash, unless cut lines keep so many voters from
// seeing it that the others are too few to agree on it.
func TestCrashThatVotersSee(t *testing.T) {
	voters := []int{1, 2, 3} // the last of which dies
	for _, x := range []struct {
		name string
		cut  [][2]int
		gone []int
		want bool
	}{
		{"all lines are open", nil, nil, true},
		{"one of two that are left does not hear it", [][2]int{{3, 2}}, nil, false},
		{"it does not hear one of two", [][2]int{{2, 3}}, nil, false},
		{"one that has no vote does not hear it", [][2]int{{3, 0}}, nil, true},
		{"one of two has no line to the other", [][2]int{{1, 2}}, nil, true},
		{"too few are left", [][2]int{{3, 2}}, []int{1}, true},
	} {
		w := newWorld(&plan{
			seed: 1, sky: outage, machines: make([]machinePlan, 4), sweepEvery: 5 * time.Second,
		}, nil)
		config := &ownership.Configuration{Epoch: ownership.Epoch{Number: 2}}
		for i, m := range w.machines {
			boot := ownership.Boot(i + 1)
			config.Members = append(config.Members, ownership.Member{ID: m.id, Boot: boot})
			if slices.Contains(voters, i) {
				config.Voters = append(config.Voters, boot)
			}
			m.process.stated.agreed = &ownership.Configuration{Epoch: ownership.Epoch{Number: 1}}
		}
		w.machines[0].process.stated.agreed = config
		for _, c := range x.cut {
			w.network.lines[c[0]][c[1]].cut = true
		}
		for _, i := range x.gone {
			w.machines[i].process = nil
		}
		if got := w.judge.available.there.isSeenGone(w.machines[3]); got != x.want {
			t.Errorf("%s: it is seen at once: %v; want %v", x.name, got, x.want)
		}
	}
}
