package sim

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"penstock/cluster"
	"penstock/limiter/policy"
)

func TestMinimal(t *testing.T) {
	for _, needed := range [][]int{{}, {0}, {99}, {3, 4}, {0, 50, 99}, {10, 11, 12, 70}} {
		list := make([]int, 100)
		for i := range list {
			list[i] = i
		}
		tries := 0
		got := minimal(list, func(part []int) bool {
			tries++
			for _, x := range needed {
				if !slices.Contains(part, x) {
					return false
				}
			}
			return true
		})
		if !slices.Equal(got, needed) && len(needed)+len(got) > 0 {
			t.Errorf("left %v, want %v", got, needed)
		}
		if tries > 150 {
			t.Errorf("%v took %d tries", needed, tries)
		}
	}
}

// The kind of a world follows from what is in it, so it stays true when something is left out.
func TestSkyFollowsFromThePlan(t *testing.T) {
	for seed := range uint64(500) {
		p := draw(seed)
		if got := skyOf(p); got != p.sky {
			t.Errorf("seed %d: %s was drawn, it looks %s", seed, p.sky, got)
		}
	}
}

// forgetful is a fault: takes that are repeated are charged twice.
var forgetful = onDeliver(func(d door, a *cluster.Ask) *cluster.Answer {
	for i := range a.Items {
		a.Items[i].ID = cluster.ID{}
	}
	return d.Deliver(a)
})

// A failing seed becomes a handful of lines that break the same promise, and go on to do so when
// they are read back.
func TestFailingSeedIsMadeSmall(t *testing.T) {
	shrunk := 0
	for seed := uint64(1); seed < 60 && shrunk < 3; seed++ {
		if !Run(seed).OK() { // it fails for another reason
			continue
		}
		s := shrink(draw(seed), forgetful)
		if s == nil {
			continue
		}
		shrunk++
		if s.requests[1] > 12 || 10*s.requests[1] > s.requests[0] {
			t.Errorf("seed %d: %d of %d requests left; a repeat needs a few", seed, s.requests[1],
				s.requests[0])
		}
		w := newWorld(draw(seed), forgetful)
		w.run()
		if s.report.Failure == nil || s.report.Failure.Promise != w.judge.failure.Promise {
			t.Fatalf("seed %d breaks %q, made smaller %+v", seed, w.judge.failure.Promise,
				s.report.Failure)
		}
		for _, without := range []func(*plan){
			func(p *plan) {
				p.script = p.script[1:]
			}, func(p *plan) { p.script = p.script[:len(p.script)-1] },
		} {
			p := *s.scenario.plan
			without(&p)
			smaller := newWorld(&p, forgetful)
			if smaller.run(); smaller.judge.failure != nil && smaller.judge.failure.Promise ==
				s.report.Failure.Promise {
				t.Errorf("seed %d: a request can still be left out", seed)
			}
		}
		again := parsed(t, yamlOf(t, s.scenario)).run(forgetful)
		if again.TraceHash != s.report.TraceHash || again.Failure == nil ||
			again.Failure.Detail != s.report.Failure.Detail {
			t.Errorf("seed %d: read back, it goes another way:\n%s", seed, yamlOf(t, s.scenario))
		}
		t.Logf("%d worlds\n%s", s.worlds, yamlOf(t, s.scenario))
	}
	if shrunk < 3 {
		t.Errorf("only %d of 60 seeds failed with a fault in every owner", shrunk)
	}
}

func yamlOf(t *testing.T, s *Scenario) string {
	t.Helper()
	var b strings.Builder
	if err := s.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Another promise that breaks is another failure.
func TestShrinkingKeepsThePromise(t *testing.T) {
	p := draw(18)
	w := newWorld(p, forgetful)
	w.run()
	if w.judge.failure == nil {
		t.Fatal("the fault breaks nothing here; take another seed")
	}
	for promise, want := range map[string]bool{w.judge.failure.Promise: true, "another": false} {
		s := &shrinking{plant: forgetful, promise: promise}
		if s.breaks(p) != want {
			t.Errorf("%s: %t", promise, !want)
		}
	}
	s := &shrinking{plant: forgetful, promise: w.judge.failure.Promise, events: mostShrinking + 1}
	if s.breaks(p) || s.worlds > 0 {
		t.Error("it goes on although enough has been tried")
	}
}

// Every world that is drawn can be written down and read back, and happens again, to the event.
func TestDrawnWorldsCanBeWrittenDown(t *testing.T) {
	t.Parallel()
	written := 0
	for n := range uint64(50) {
		if testing.Short() && n%40 > 7 {
			continue
		}
		seed := n
		if n >= 40 {
			seed = HoldSeeds + n
		}
		if n >= 45 {
			seed = DiskSeeds + n
		}
		if n >= 48 {
			seed = CopySeeds + 2*n
		}
		p := draw(seed)
		p.traffic, p.script = traffic{}, recorded(draw(seed))
		s := p.scenario()
		text := yamlOf(t, s)
		if len(text) > min(policy.MaxFile, 1<<20) { // larger ones take long
			continue
		}
		written++
		read, err := ReadScenario("f", []byte(text), noLogs)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range p.limits { // those of a file have their defaults
			p.limits[i].Spec = mustLimit(p.limits[i].Spec).Spec
		}
		got := read.plan
		for what, same := range map[string]bool{
			"seed": got.seed == p.seed, "sky": got.sky == p.sky || len(p.faults) == 0,
			"machines": slices.Equal(got.machines, p.machines),
			"weather":  got.weather == p.weather, "gossip": got.gossip == p.gossip,
			"limits": slices.Equal(got.limits, p.limits),
			"faults": slices.Equal(got.faults, p.faults), "length": got.length == p.length,
			"sweeps":   got.sweepEvery == p.sweepEvery,
			"requests": reflect.DeepEqual(got.script, p.script),
		} {
			if !same {
				t.Errorf("seed %d: the %s are read back otherwise", seed, what)
			}
		}
		if got, want := read.Run().TraceHash, s.Run().TraceHash; got != want {
			t.Errorf("seed %d: trace %s, and %s when it was read back", seed, want, got)
		}
	}
	if written < 20 && !testing.Short() {
		t.Errorf("only %d of 50 worlds are small enough for a file", written)
	}
}
