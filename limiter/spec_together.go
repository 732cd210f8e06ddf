package limiter

import (
	"fmt"
	"math/bits"
	"time"
)

// checkTogether refuses what is right field by field but not together, once the defaults are in.
func (s *Spec) checkTogether() error {
	switch {
	case (s.Algorithm == GCRA || s.Algorithm == StatedBucket) && !fills(s.Burst, s.Limit, s.Per):
		return &SpecError{"burst", fmt.Sprintf("%d units at %d per %v take over %d years to "+
			"refill; burst/limit×per must be at most 2^61 ns",
			s.Burst, s.Limit, s.Per, MaxFill/MaxPer)}
	case s.Algorithm == LeakyBucket && !fills(s.Burst+1, s.Limit, s.Per):
		return &SpecError{"burst", fmt.Sprintf("%d units at %d per %v would wait for over %d "+
			"years; (burst+1)/limit×per must be at most 2^61 ns",
			s.Burst, s.Limit, s.Per, MaxFill/MaxPer)}
	case s.Algorithm == TokenBucket && !s.ClientTime && !s.fillsInTime():
		return &SpecError{"refill", fmt.Sprintf("%d tokens, %d every %v, take over %d years to "+
			"refill; limit/refill×per must be at most 2^61 ns",
			s.Limit, s.Refill, s.Per, MaxFill/MaxPer)}
	case s.MaxDebt > 0 && !s.Delays() && !s.paysInTime():
		return &SpecError{"max_debt", fmt.Sprintf("%d units at %d per %v take over %d years to "+
			"pay; with what a full bucket has it must be at most 2^61 ns",
			s.MaxDebt, s.Limit, s.Per, MaxFill/MaxPer)}
	case s.Buckets != 0 && (s.Per%time.Duration(s.Buckets) != 0 ||
		s.Per/time.Duration(s.Buckets) < time.Millisecond):
		return &SpecError{"buckets", fmt.Sprintf("%d do not divide %v into equal parts of at "+
			"least 1ms; divisors from 1 to %d are accepted",
			s.Buckets, s.Per, min(MaxBuckets, s.Per/time.Millisecond))}
	}
	return s.checkWaiting()
}

// fills reports whether burst units at limit per per refill within MaxFill.
func fills(burst, limit int64, per time.Duration) bool {
	hi, lo := bits.Mul64(uint64(burst), uint64(per))
	most, rest := bits.Mul64(uint64(MaxFill), uint64(limit))
	return hi < most || hi == most && lo <= rest
}

// paysInTime reports whether the bucket of s is full within MaxFill also from its largest debt on,
// with as many units waiting as may.
func (s Spec) paysInTime() bool {
	switch s.Algorithm {
	case GCRA:
		return fills(s.Burst+s.MaxDebt+s.waiting(), s.Limit, s.Per)
	case LeakyBucket:
		return fills(s.Burst+1+s.MaxDebt, s.Limit, s.Per)
	case TokenBucket:
		s.Limit += s.MaxDebt + s.waiting()
		return s.fillsInTime()
	}
	return true
}

// mostOwed is the debt that a replicated limit may have: what a hundred nodes admit at once.
func (s *Spec) mostOwed() int64 {
	if s.Algorithm == SlidingLog {
		return MaxLog - s.Limit
	}
	return min(100*max(s.Limit, s.Burst), MaxLimit)
}
