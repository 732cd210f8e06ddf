package sim

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/cluster/ownership"
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
					p.machine.disk.head.Others = nil
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

// Promise: what a file is short of is forgiven also where the first decisions leave as many whole
// units as if nothing were: a sliding window counts a part of the window before, and a look tells
// only what would be left after it. A file is written each second.
func TestWhatAFileIsShortOfMayShowLater(t *testing.T) {
	const ms = time.Millisecond
	for _, x := range []struct {
		name string
		spec limiter.Spec
		asks []arrival
	}{
		{
			"a third of a window's units, of which a part counts",
			limiter.Spec{Algorithm: limiter.SlidingWindow, Limit: 10, Per: 3 * time.Second},
			// after the crash 0.6, then 0.4 of 2 units count; of 3 it would be 1.8, then 1.2
			[]arrival{
				takes(500*ms, 2), takes(1500*ms, 1), takes(4200*ms, 1),
				takes(4800*ms, 1),
			},
		},
		{
			"what came after a refund that a bucket's file lacks as well",
			limiter.Spec{Algorithm: limiter.LeakyBucket, Limit: 50, Per: time.Minute, Burst: 1},
			// when it is looked at, 0.05 s of the first unit wait, and 0.45 s of the last would
			[]arrival{
				takes(900*ms, 1), takes(1200*ms, -4), takes(1300*ms, 1),
				peeks(2050*ms, 1), takes(2300*ms, 1),
			},
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.spec.Name = "a"
			w := newWorld(&plan{
				seed: 1, sky: outage, length: 5 * time.Second,
				machines: []machinePlan{{
					disk: true, clock: clock{start: 1_700_000_001_000_000_000},
				}},
				saveEvery: time.Second, sweepEvery: time.Second,
				weather: weather{inOrder: true}, limits: []rule{{Spec: x.spec}}, script: x.asks,
				faults: []fault{{at: 1800 * ms, kind: crashes}, {at: 1900 * ms, kind: boots}},
			}, nil)
			w.run()
			if f := w.judge.failure; f != nil {
				t.Fatal(f.Detail)
			}
			if got := w.judge.counted.loss; w.faults.Restored != 1 || got.Units != 0 ||
				got.Marked != 1 {
				t.Errorf("%d starts with a file, forgotten: %+v; want one of each, marked",
					w.faults.Restored, got)
			}
		})
	}
}

// Promise: what a file is short of is forgiven when it shows. A unit that was given back after the
// first file was written counts again after the first crash, until it runs out. It stands for the
// one that the second crash forgets, which no sum shows before that. A file is written each second.
func TestWhatCountsAgainHidesWhatAFileIsShortOf(t *testing.T) {
	const ms = time.Millisecond
	for _, x := range []struct {
		name   string
		per    time.Duration
		asks   []arrival
		faults []fault
	}{
		{
			"until the one that counts again has run out", 4 * time.Second,
			[]arrival{takes(4700*ms, 1)},
			nil,
		},
		{
			"also if some is given back meanwhile", 4 * time.Second,
			[]arrival{takes(3000*ms, -1), takes(4700*ms, 1)},
			nil,
		},
		{
			"also after a third crash", 4 * time.Second,
			[]arrival{takes(3800*ms, 1), takes(4700*ms, 1)},
			[]fault{{at: 3700 * ms, kind: crashes}, {at: 3750 * ms, kind: boots}},
		},
		{"until the end, where nobody asks before", 33 * time.Second, nil, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(&plan{
				seed: 1, sky: outage, length: 5 * time.Second,
				machines:  []machinePlan{{disk: true}},
				saveEvery: time.Second, sweepEvery: time.Second, weather: weather{inOrder: true},
				limits: []rule{{Spec: limiter.Spec{
					Name: "a", Algorithm: limiter.SlidingLog, Limit: 10, Per: x.per,
				}}},
				script: append([]arrival{
					takes(500*ms, 1), takes(1200*ms, -1), takes(2500*ms, 1), takes(2800*ms, 1),
				}, x.asks...),
				faults: append([]fault{
					{at: 1300 * ms, kind: crashes},
					{at: 1350 * ms, kind: boots},
					{at: 2600 * ms, kind: crashes},
					{at: 2650 * ms, kind: boots},
				}, x.faults...),
			}, nil)
			w.run()
			if f := w.judge.failure; f != nil {
				t.Fatal(f.Detail)
			}
			if loss := w.judge.counted.loss; loss.Units+loss.Marked != 1 {
				t.Errorf("%d units were found to be forgotten, and %d with a mark; want 1 in all",
					loss.Units, loss.Marked)
			}
		})
	}
}

// Promise: all nodes were down, and two have met again. Each must know what the file of the other
// one says before it decides, unless a cut has parted them meanwhile and it says that it may have
// forgotten; one that has left has told all.
func TestAPairThatIsPartedWaitsForNoFile(t *testing.T) {
	const down, now = 5 * time.Second, 8 * time.Second
	both := []ownership.Member{{ID: "n1", Boot: 1}, {ID: "n2", Boot: 2}}
	leaving := []ownership.Member{{ID: "n1", Boot: 1, Role: ownership.RoleLeaving}, both[1]}
	for _, x := range []struct {
		name      string
		met, with []ownership.Member
		marked    time.Duration
		want      bool
	}{
		{"together", both, both, now, true},
		{"parted, and marked", both, both[1:], now, false},
		{"parted, and not marked", both, both[1:], 0, true},
		{"parted, and marked before", both, both[1:], now - 1, true},
		{"they have never met", both[1:], both[1:], now, true},
		{"the other one has left", leaving, both[1:], now, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(&plan{
				seed: 1, sky: outage, machines: []machinePlan{{disk: true}, {disk: true}},
				saveEvery: time.Second, sweepEvery: time.Second, limits: []rule{{Spec: limiter.Spec{
					Name: "a", Algorithm: limiter.FixedWindow, Limit: 7, Per: time.Hour,
				}}},
			}, nil)
			n1, n2 := w.machines[0], w.machines[1]
			p, a := n2.process, w.judge.account("a", "one")
			w.now, w.wentDown, w.allDown, a.marked = now, down, down, x.marked
			p.began, p.restored = down+1, &file{named: []string{n1.id}}
			p.stated = statement{agreed: &ownership.Configuration{Members: x.met}}
			p.stated.agrees(&ownership.Configuration{Members: x.with})
			if got := w.judge.carrier.disk.waitsForDisk(p, n1, a); got != x.want {
				t.Errorf("it must wait: %v, want %v", got, x.want)
			}
		})
	}
}

// takes is a client that asks for so many units of a key under the limit "a".
func takes(at time.Duration, cost int64) arrival {
	return arrival{
		at: at, patience: cluster.DefaultDeadline, calls: []calling{{}},
		items: []cluster.Item{{Limit: "a", Key: "one", Cost: cost}},
	}
}

// peeks is one that asks whether it would get them.
func peeks(at time.Duration, cost int64) arrival {
	a := takes(at, cost)
	a.items[0].Op = cluster.OpPeek
	return a
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
