package sim

import (
	"slices"
	"testing"
	"time"

	"penstock/cluster"
)

// givenBackWorld is a world in which a machine crashes every other second, while all requests are
// repeated, and a fifth of them give something back.
func givenBackWorld(seed uint64, plant func(p *process)) *world {
	r := stream(seed, 77)
	p := draw(seed)
	p.seed, p.sky, p.length = seed, outage, 20*time.Second
	p.machines = make([]machinePlan, 4)
	for i := range p.machines {
		p.machines[i].clock.start = scenarioStart
	}
	p.weather.loss, p.weather.twice, p.weather.inOrder = 0, 0, true
	p.weather.mean, p.weather.far = time.Millisecond, calmDelay
	p.distances, p.faults = nil, nil
	p.traffic = traffic{
		requests: 2000, keys: oneOf(r, 10, 100), skew: "uniform", again: 1, odd: 1,
		together: oneOf(r, 0, 0.1), gap: p.length / 2000,
	}
	for at := 2 * time.Second; at < p.length; at += time.Second {
		kind, node := crashes, int(at/(2*time.Second))%len(p.machines)
		if at%(2*time.Second) != 0 {
			kind = boots
		}
		p.faults = append(p.faults, fault{at: at, kind: kind, node: node})
	}
	return newWorld(p, plant)
}

// Promise: no more is admitted than the limit says: what is repeated after the death of its owner
// is given back once, as far as counters are known that it has changed. The judge sees it if copies
// come without the answers to what was given back.
func TestGivenBackAmongCrashes(t *testing.T) {
	t.Parallel()
	silent := onMove(func(_ *process, m *cluster.Move) {
		if len(m.Gift) == 0 {
			m.Taken = slices.DeleteFunc(m.Taken,
				func(x cluster.Memory) bool { return x.GivesBack })
		}
	}, nil)
	caught := 0
	for seed := uint64(1); seed <= 24; seed++ {
		w := givenBackWorld(seed, nil)
		w.run()
		if f := w.judge.failure; f != nil {
			t.Errorf("seed %d: %s at %.3f s: %s", seed, f.Promise, f.AtMS/1000, f.Detail)
		}
		if caught > 0 {
			continue
		}
		w = givenBackWorld(seed, silent)
		w.run()
		if f := w.judge.failure; f != nil {
			caught++
			t.Logf("seed %d, without the answers: %s at %.3f s: %s", seed, f.Promise, f.AtMS/1000,
				f.Detail)
		}
	}
	if caught == 0 {
		t.Error("nobody sees that copies come without the answers to what was given back")
	}
}
