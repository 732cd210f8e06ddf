package sim

import (
	"testing"
	"time"

	"penstock/limiter"
)

// diskFaults are faults in what nodes know from before they were started. They break nothing but
// the bound of what a crash may cost on a machine with a disk (diskJudge.unsaved): without that
// bound, each crash is forgiven a capacity. They show in worlds of disks.
func diskFaults() []planted {
	return []planted{
		{"what a file says is not used", []promise{exact, bounded}, func(p *process) {
			if f := p.machine.disk; f != nil {
				f.entries = nil
			}
		}},
		{"a file is taken for a minute old", []promise{exact, bounded}, func(p *process) {
			if p.machine.disk != nil {
				p.machine.disk.shown -= limiter.Instant(time.Minute)
			}
		}},
		{
			"a node does not wait for the members in its file",
			[]promise{exact, bounded},
			func(p *process) {
				if p.machine.disk != nil {
					p.machine.disk.others = nil
				}
			},
		},
	}
}

// Promise (--data-dir): what one node alone forgets in a crash is what was charged since its file
// was written, and nothing of that which was charged before.
func TestCrashOfANodeWithADisk(t *testing.T) {
	p := &plan{
		seed: 1, sky: outage, machines: []machinePlan{{disk: true}}, length: 10 * time.Second,
		saveEvery: time.Second, sweepEvery: time.Second,
		weather: weather{inOrder: true}, traffic: traffic{
			requests: 500, gap: 10 * time.Millisecond,
			keys: 3, skew: "uniform",
		},
		limits: []rule{{Spec: limiter.Spec{
			Name: "day", Algorithm: limiter.FixedWindow, Limit: 400,
			Per: time.Hour, Anchor: limiter.FirstHit,
		}}},
		faults: []fault{
			{at: 2500 * time.Millisecond, kind: crashes},
			{at: 2600 * time.Millisecond, kind: boots},
		},
	}
	w := newWorld(p, nil)
	w.run()
	if f := w.judge.failure; f != nil {
		t.Fatal(f.Detail)
	}
	if r := w.faults; r.Restored != 1 || r.Saves < 5 {
		t.Errorf("%d starts with a file, and %d files; want 1 and one a second", r.Restored,
			r.Saves)
	}
	var left, charged int64
	for _, a := range w.judge.order {
		m := w.machines[0].process
		left += w.judge.counters(m)(a).Remaining
		charged += 400
	}
	if admitted := w.judge.tallies["day"].Admitted; charged-left >= int64(admitted) ||
		charged-left < int64(admitted)-70 {
		t.Errorf("%d are charged in the end of %d that were admitted; half a second of 100 a "+
			"second is lost", charged-left, admitted)
	}
}

// A seed from DiskSeeds on is a world of disks, one below is not.
func TestSeedsOfDisks(t *testing.T) {
	for seed, disks := range map[uint64]bool{
		1: false, DiskSeeds - 1: false, DiskSeeds: true,
		DiskSeeds + 7: true,
	} {
		r := Run(seed)
		if !r.OK() {
			t.Errorf("seed %d: %+v", seed, r.Failure)
		}
		if got := r.Faults.Saves > 0; got != disks {
			t.Errorf("seed %d: %+v", seed, r.Faults)
		}
		if again := Run(seed); again.TraceHash != r.TraceHash {
			t.Errorf("seed %d: trace %s, then %s", seed, r.TraceHash, again.TraceHash)
		}
	}
}
