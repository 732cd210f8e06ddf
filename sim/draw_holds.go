package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"penstock/limiter"
)

// HoldSeeds is the first seed of the worlds of holds: their clients reserve and settle, take
// permits, and ask often for keys of leased limits. Seeds below mean other worlds.
const HoldSeeds = 1_000_000_000

// More streams of a seed.
const (
	holdPlanStream    = 8
	holdTrafficStream = 9
)

// drawHolds is the world of a seed from HoldSeeds on. Its machines, its weather and what goes wrong
// are drawn as in all others.
func drawHolds(seed uint64) *plan {
	r := stream(seed, holdPlanStream)
	p := &plan{seed: seed, sky: drawSky(r)}
	p.machines = drawMachines(r)
	p.weather = drawWeather(r, p.sky)
	p.limits = drawHoldLimits(r)
	p.sweepEvery = 5 * time.Second
	p.length = time.Duration(2+r.IntN(15)) * time.Second
	p.traffic = traffic{
		requests: 100 + r.IntN(500), keys: oneOf(r, 1, 3, 20),
		skew:  oneOf(r, "uniform", "zipf", "hot"),
		crowd: oneOf(r, 0, 0.3, 0.9), again: oneOf(r, 0, 0.1, 0.3), hurry: oneOf(r, 0, 0.2),
		holds: true,
	}
	p.traffic.gap = time.Duration(float64(p.length) /
		(float64(p.traffic.requests) * (1 - p.traffic.crowd)))
	if p.sky == outage {
		p.faults = drawFaults(r, len(p.machines), p.length)
	}
	p.gossip = drawGossip(r)
	drawMembers(r, p)
	p.distances = drawDistances(r, len(p.machines))
	return p
}

// drawHoldLimits draws 1 to 4 limits: to reserve of, of permits, and leased ones.
func drawHoldLimits(r *rand.Rand) []rule {
	rules := make([]rule, 1+r.IntN(4))
	for i := range rules {
		s := &rules[i].Spec
		s.Limit = oneOf[int64](r, 3, 10, 50, 300, 1000)
		s.Per = oneOf(r, 500*time.Millisecond, time.Second, 7*time.Second, time.Minute)
		s.OnError = oneOf(r, limiter.ErrorLocal, limiter.ErrorLocal, limiter.ErrorAllow,
			limiter.ErrorDeny)
		s.Algorithm = oneOf(r, limiter.GCRA, limiter.GCRA, limiter.FixedWindow,
			limiter.SlidingWindow, limiter.SlidingLog,
			limiter.TokenBucket, limiter.LeakyBucket, limiter.SlidingCounter)
		switch r.IntN(5) {
		case 4:
			s.Consistency = limiter.Replicated
			s.Algorithm = oneOf(r, limiter.GCRA, limiter.GCRA, limiter.FixedWindow)
		case 0:
			s.Algorithm = limiter.Concurrency
			s.Limit = oneOf[int64](r, 1, 2, 5, 20)
			s.Per = time.Minute
			// the judge has no reference for permits of a node that decides alone
			s.OnError = oneOf(r, limiter.ErrorAllow, limiter.ErrorDeny)
		case 1, 2:
			s.Consistency = limiter.Leased
			s.Limit = oneOf[int64](r, 50, 300, 1000, 5000)
			if s.Algorithm == limiter.LeakyBucket { // it cannot be leased
				s.Algorithm = limiter.GCRA
			}
		}
		switch s.Algorithm {
		case limiter.GCRA:
			s.Burst = oneOf[int64](r, 0, s.Limit, 2*s.Limit)
		case limiter.LeakyBucket:
			s.Burst = s.Limit
		case limiter.SlidingLog:
			s.Limit = min(s.Limit, 300)
		case limiter.SlidingCounter:
			s.Buckets = oneOf(r, 1, 5, 10)
		}
		if s.Algorithm != limiter.Concurrency && s.Consistency != limiter.Replicated {
			s.MaxDebt = oneOf[int64](r, 0, 0, 5, 100)
			if s.Algorithm == limiter.SlidingLog {
				s.MaxDebt = min(s.MaxDebt, 5)
			}
		}
		if s.Consistency == limiter.Exact {
			s.Unsettled = oneOf(r, limiter.UnsettledCharge, limiter.UnsettledCharge,
				limiter.UnsettledRelease)
		}
		s.Name = fmt.Sprintf("%s-%d", s.Algorithm, i+1)
	}
	return rules
}
