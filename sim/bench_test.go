package sim

import (
	"testing"
	"time"

	"penstock/limiter"
)

// BenchmarkWorld is how fast a world of five nodes goes by, judge included: decisions per second of
// one core.
func BenchmarkWorld(b *testing.B) {
	p := &plan{
		seed: 1, sky: calm, machines: make([]machinePlan, 5), sweepEvery: 5 * time.Second,
		weather: weather{
			near: time.Millisecond, mean: time.Millisecond, far: 60 * time.Millisecond,
			twice: 0.01,
		},
		length: 20 * time.Second,
		traffic: traffic{
			requests: 20_000, gap: time.Millisecond, keys: 1000, skew: "zipf",
			odd: 0.1, again: 0.01,
		},
	}
	for i := range p.machines {
		p.machines[i].clock = clock{start: 1_700_000_000_000_000_000, drift: int64(i)}
	}
	for _, s := range []limiter.Spec{
		{Name: "a", Algorithm: limiter.GCRA, Limit: 10, Per: time.Second, Burst: 30},
		{Name: "b", Algorithm: limiter.FixedWindow, Limit: 100, Per: time.Second},
		{Name: "c", Algorithm: limiter.SlidingWindow, Limit: 50, Per: time.Second},
	} {
		p.limits = append(p.limits, rule{Spec: s})
	}
	b.ReportAllocs()
	decisions := 0
	for b.Loop() {
		w := newWorld(p, nil)
		w.run()
		r := w.report()
		if !r.OK() {
			b.Fatal(r.Failure.Detail)
		}
		for _, l := range r.Limits {
			decisions += l.Asked
		}
	}
	b.ReportMetric(float64(decisions)/b.Elapsed().Seconds(), "decisions/s")
}

// BenchmarkScenario is how fast a scenario of five nodes goes by, judge and report included:
// decisions per second of one core.
func BenchmarkScenario(b *testing.B) {
	s, err := ReadScenario("five.yaml", []byte(`
nodes: 5
duration: 20s
links: {delay: 300us, jitter: 200us}
limits:
  - {name: api, algorithm: gcra, limit: 10, per: 1s, burst: 30}
traffic:
  - {limit: api, key: customer, keys: 1000, spread: zipf, rate: 5000/s}
`), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	decisions := 0
	for b.Loop() {
		r := s.Run()
		if !r.OK() {
			b.Fatal(r.Failure.Detail)
		}
		decisions += r.Requests.Items
	}
	b.ReportMetric(float64(decisions)/b.Elapsed().Seconds(), "decisions/s")
}
