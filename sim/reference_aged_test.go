package sim

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// A copy that has lain at the door of a machine while it stood still is as young there as when it
// was sent. A member to which it is lent denies too early by it for a window, and nobody is said to
// be denied too early as long as it may count (world 40009811). Of other copies nothing is excused.
func TestCopiesThatLayAtADoor(t *testing.T) {
	const frozen = 2 * time.Second
	for _, x := range []struct {
		name  string
		sky   sky
		stood bool // the machine that reads the copy
		lends bool // to the process that goes on
		holds bool // that process decides already
		after time.Duration
		blind bool
	}{
		{"it is lent, and counts still", outage, true, true, false, 0, true},
		{"it is lent to the holder", outage, true, true, true, 0, true},
		{"it may count still", outage, true, true, false, longCarriage, true},
		{"it has run out", outage, true, true, false, longCarriage + time.Second, false},
		{"it is not lent", outage, true, false, false, 0, false},
		{"no machine stood still", outage, false, true, false, 0, false},
		{"none stood still, and it is lent to the holder", outage, false, true, true, 0, false},
		{"nothing fails", calm, true, true, false, 0, false},
	} {
		w := newWorld(&plan{
			seed: 1, sky: x.sky, machines: make([]machinePlan, 3), sweepEvery: 5 * time.Second,
			limits: []rule{{Spec: limiter.Spec{
				Name: "a", Algorithm: limiter.SlidingLog, Limit: 50, Per: 100 * time.Millisecond,
			}}},
		}, nil)
		j, a := w.judge.carrier, w.judge.account("a", "one")
		holder, heir := w.machines[0].process, w.machines[1].process
		p := w.machines[2].process
		a.reference.by = holder
		a.reference.loose.charge(holder.now(), a.spec, 9)
		a.note(holder, 9)
		var copies cluster.Move
		copies.Entries = []limiter.Entry{{Limit: &limiter.Limit{Spec: *a.spec}, Key: "one"}}
		w.now += frozen // and what was charged has run out
		if x.stood {
			heir.machine.thawed = w.now
		}
		j.ages(holder, heir, &copies)
		if x.holds {
			j.bring(a, p)
		}
		w.now += time.Millisecond
		if x.lends {
			j.ages(heir, p, &copies)
		}
		w.now += x.after
		if !x.holds {
			j.bring(a, p)
		}
		if got := a.reference.isBlind(); got != x.blind {
			t.Errorf("%s: what is denied may be too early: %v; want %v", x.name, got, x.blind)
		}
	}
}
