package limiter_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"penstock/limiter"
)

// In a small world a period has a few ticks, a limit a few units, and clocks go by ticks: so
// requests come at the very instants at which windows end, units return and gaps are over.

func oneOf[T any](draw *rand.Rand, from ...T) T { return from[draw.IntN(len(from))] }

func chance(draw *rand.Rand, percent int) bool { return draw.IntN(100) < percent }

const tick = time.Millisecond

// smallShape draws what counters belong to.
func smallShape(draw *rand.Rand, a limiter.Algorithm) limiter.Spec {
	s := limiter.Spec{Name: "small", Algorithm: a, Per: tick * oneOf[time.Duration](draw, 4, 6, 12)}
	switch a {
	case limiter.FixedWindow, limiter.TokenBucket:
		s.Anchor = oneOf(draw, limiter.Epoch, limiter.FirstHit)
		s.ClientTime = a == limiter.TokenBucket && chance(draw, 40)
		s.Sessions = a == limiter.TokenBucket && s.Anchor == limiter.FirstHit && chance(draw, 40)
	case limiter.SlidingCounter, limiter.Concurrency:
		s.Buckets = oneOf(draw, 1, 2, 4)
	}
	return s
}

// smallParams draws what may change in place.
func smallParams(draw *rand.Rand, s limiter.Spec) limiter.Spec {
	s.Limit = 1 + draw.Int64N(6)
	s.MaxDebt = oneOf[int64](draw, 0, 0, 1, 3)
	switch s.Algorithm {
	case limiter.GCRA, limiter.LeakyBucket:
		s.Burst = draw.Int64N(6)
	case limiter.TokenBucket:
		s.Refill, s.Drain, s.Strict = draw.Int64N(4), chance(draw, 25), chance(draw, 25)
	case limiter.FixedWindow:
		s.CountRejected, s.Drain = chance(draw, 30), chance(draw, 30)
	case limiter.SlidingLog:
		s.CountRejected = chance(draw, 30)
		s.MinGap = oneOf(draw, 0, 0, tick, 2*tick, s.Per)
	case limiter.SlidingCounter:
		s.CountRejected, s.Lenient = chance(draw, 30), chance(draw, 50)
	}
	if chance(draw, 30) {
		s.OnDeny, s.MaxDelay = limiter.DenyDelay, tick*time.Duration(draw.IntN(9))
	}
	return s
}

// smallLimit draws until a limit is accepted.
func smallLimit(draw *rand.Rand, shape limiter.Spec) (limiter.Spec, *limiter.Limit) {
	for {
		s := smallParams(draw, shape)
		if l, err := limiter.New(s); err == nil {
			return s, l
		}
	}
}

func smallRequest(draw *rand.Rand, s limiter.Spec, now limiter.Instant) limiter.Request {
	r := limiter.Request{Cost: draw.Int64N(capacity(s)+6) - 3}
	if chance(draw, 40) {
		return r
	}
	r.Report, r.Drain, r.Strict = chance(draw, 25), chance(draw, 25), chance(draw, 25)
	if r.Bounded = chance(draw, 40); r.Bounded {
		r.MaxDelay = tick * time.Duration(draw.IntN(9))
	}
	if r.Timed = chance(draw, 50); r.Timed {
		r.At = now.Millis() + limiter.Millis(draw.IntN(20)-10)
	}
	return r
}

// smallStep is how far the clock goes.
func smallStep(draw *rand.Rand, s limiter.Spec) time.Duration {
	step := tick * time.Duration(oneOf(draw, 0, 0, 1, 1, 2, 3, draw.IntN(14), draw.IntN(40), -1,
		-draw.IntN(10)))
	switch {
	case chance(draw, 20):
		step = s.Per * time.Duration(draw.IntN(4))
	case chance(draw, 20):
		step = s.Per / time.Duration(s.Limit) // to where a unit of a meter returns
	}
	return step + time.Duration(oneOf(draw, 0, 0, 0, 0, 0, 0, 1, -1))
}

// Promise: in a small world, around the epoch as well, every field of every decision is that of the
// naive limiter.
func TestSmallWorldsEqualNaive(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(smallWorlds) {
				draw := rand.New(rand.NewPCG(seed, uint64(a)))
				shape := smallShape(draw, a)
				spec, l := smallLimit(draw, shape)
				table := limiter.NewTable(limiter.TableConfig{Bytes: 1, Shards: 1})
				believed := naive{}
				now := oneOf(draw, start, 0, -limiter.Instant(tick)*limiter.Instant(draw.IntN(30)))
				for range 40 {
					if chance(draw, 5) {
						spec, l = smallLimit(draw, shape)
					}
					now = now.Add(smallStep(draw, spec))
					r := smallRequest(draw, spec, now)
					compare(t, table, believed, now, l, spec, "a", r, chance(draw, 15))
				}
			}
		})
	}
}

const smallWorlds = 200
