package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// DiskSeeds is the first seed of the worlds with disks: a node knows what it has written down when
// it starts again. Now and then all machines go down at once, and then only the disks know it.
// Seeds below mean other worlds.
const DiskSeeds = 2_000_000_000

const (
	diskPlanStream = 10
	allDownStream  = 14
)

// drawDisks is the world of a seed from DiskSeeds on. Nobody sets the clocks in it: a file is older
// or younger by that much then, and what it says is due earlier or later.
func drawDisks(seed uint64) *plan {
	r := stream(seed, diskPlanStream)
	p := &plan{seed: seed, sky: outage}
	p.machines = drawMachines(r)
	if r.IntN(3) == 0 {
		p.machines = p.machines[:1] // nobody else knows anything
	}
	for i := range p.machines {
		p.machines[i].disk = r.IntN(5) > 0
	}
	// the last is penstock's
	p.saveEvery = oneOf(r, 100*time.Millisecond, time.Second, 5*time.Second)
	p.weather = drawWeather(r, p.sky)
	p.limits = drawLimits(r)
	p.sweepEvery = 5 * time.Second
	p.length = time.Duration(5+r.IntN(30)) * time.Second
	p.traffic = drawTraffic(r, p.length)
	if r.IntN(2) == 0 {
		p.faults = drawFaults(r, len(p.machines), p.length)
	}
	p.gossip = drawGossip(r)
	drawMembers(r, p)
	p.faults = slices.DeleteFunc(p.faults, func(f fault) bool { return f.kind == steps })
	for range 1 + r.IntN(3) {
		p.faults = append(p.faults, drawDowntime(r, p)...)
	}
	if len(p.machines) > 1 && seed%3 == 0 {
		drawAllDown(stream(seed, allDownStream), p)
	}
	slices.SortStableFunc(p.faults, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	return p
}

// drawAllDown makes p a world in which all machines have disks and nothing else happens than that
// all go down at once, some of them perhaps after saying goodbye, and come back one after the
// other: what their files know then somebody decides with, or nobody does.
func drawAllDown(r *rand.Rand, p *plan) {
	p.weather.loss = 0
	p.faults = nil
	for i := range p.machines {
		p.machines[i].disk, p.machines[i].later = true, false
	}
	at, down := p.length/4+time.Duration(r.Int64N(int64(p.length/4))), time.Duration(0)
	if r.IntN(2) == 0 {
		down = 1500 * time.Millisecond // after the first have begun to say goodbye
	}
	most := oneOf(r, 50*time.Millisecond, time.Second, 4*time.Second)
	for i := range p.machines {
		if down > 0 && r.IntN(2) == 0 {
			p.faults = append(p.faults, fault{at: at, kind: leaves, node: i})
		}
		p.faults = append(p.faults, fault{at: at + down, kind: crashes, node: i},
			fault{at: at + down + time.Duration(r.Int64N(int64(most))), kind: boots, node: i})
	}
}

// drawDowntime has all machines go down at once, or one of them, and come back one after the other.
func drawDowntime(r *rand.Rand, p *plan) (faults []fault) {
	at, all := time.Duration(r.Int64N(int64(p.length))), r.IntN(2) == 0
	one := r.IntN(len(p.machines))
	for i := range p.machines {
		if p.machines[i].later || !all && i != one {
			continue
		}
		back := at + time.Duration(
			r.Int64N(int64(oneOf(r, 50*time.Millisecond, time.Second, 4*time.Second))))
		faults = append(faults, fault{at: at, kind: crashes, node: i},
			fault{at: back, kind: boots, node: i})
	}
	return faults
}
