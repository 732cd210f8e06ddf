package limiter_test

import (
	"maps"
	"math/big"
	"slices"

	"penstock/limiter"
)

// What the naive limiter knows of the algorithms that keep more than two numbers.
type naiveKinds struct {
	log     []int64                   // SlidingLog: every entry, in order
	buckets map[[2]int64]*naiveBucket // TokenBucket: by limit and refill; absent = never seen
	parts   map[int64]*big.Int        // SlidingCounter, Concurrency: by beginning
	// SlidingCounter: the last that was counted in, if there are parts
	last int64
}

type naiveBucket struct {
	value, mark *big.Int
	session     limiter.Millis
}

func (s naiveKinds) clone() naiveKinds {
	c := naiveKinds{
		log: slices.Clone(s.log), buckets: map[[2]int64]*naiveBucket{},
		parts: maps.Clone(s.parts), last: s.last,
	}
	for k, b := range s.buckets {
		c.buckets[k] = &naiveBucket{b.value, b.mark, b.session}
	}
	return c
}

// bound is what a log forgets: of entries older than the limit-th newest, when they were. They
// count from then on as if they had come with that one.
func (s *naiveKinds) bound(limit int64) {
	older := int64(len(s.log)) - limit
	for i := range older {
		s.log[i] = s.log[older]
	}
	s.log = s.log[max(0, older-limiter.MaxLog):]
}

// logAt is the clock of a log, and how many entries count.
func (s *naiveKinds) logAt(spec limiter.Spec, now int64) (at int64, live int) {
	at = now
	for _, t := range s.log {
		at = max(at, t)
	}
	for _, t := range s.log {
		if t > at-int64(spec.Per) {
			live++
		}
	}
	return at, live
}

func (s *naiveKinds) gapIsOver(spec limiter.Spec, now int64) bool {
	at, _ := s.logAt(spec, now)
	return len(s.log) == 0 || at-s.log[len(s.log)-1] >= int64(spec.MinGap)
}

func (s *naiveKinds) chargeLog(spec limiter.Spec, now, cost int64) {
	at, live := s.logAt(spec, now)
	if cost < 0 && live == 0 {
		return
	}
	s.log = slices.DeleteFunc(s.log, func(t int64) bool { return t <= at-int64(spec.Per) })
	for range max(0, cost) {
		s.log = append(s.log, at)
	}
	s.log = s.log[:int64(len(s.log))-min(int64(len(s.log)), -max(min(cost, 0), -1<<60))]
	s.bound(spec.Limit)
}

// bucket is the token bucket at now, as Smyte's view makes it.
func (s *naiveKinds) bucket(spec limiter.Spec, now *big.Int) naiveBucket {
	per, now := big64(int64(spec.Per)), clientTick(spec, now)
	b := s.buckets[bucketName(spec)]
	if b == nil {
		if spec.Anchor == limiter.Epoch {
			return naiveBucket{value: big64(spec.Limit), mark: mul(floorDiv(now, per), per)}
		}
		return naiveBucket{value: big64(spec.Limit), mark: now}
	}
	k := floorDiv(larger(new(big.Int), sub(now, b.mark)), per)
	value := add(b.value, mul(k, big64(refill(spec))))
	if full := big64(spec.Limit); value.Cmp(full) > 0 {
		value = full
	}
	return naiveBucket{value, add(b.mark, mul(k, per)), b.session}
}

// clientTick is now in the unit of the bucket's clock: clients say milliseconds.
func clientTick(spec limiter.Spec, now *big.Int) *big.Int {
	if !spec.ClientTime {
		return now
	}
	return mul(floorDiv(now, big64(1e6)), big64(1e6))
}

func bucketName(spec limiter.Spec) [2]int64 { return [2]int64{spec.Limit, refill(spec)} }

func refill(spec limiter.Spec) int64 {
	if spec.Refill == 0 {
		return spec.Limit
	}
	return spec.Refill
}

func (s *naiveKinds) chargeBucket(spec limiter.Spec, now *big.Int, cost *big.Int) {
	b := s.bucket(spec, now)
	if cost.Sign() < 0 && b.value.Cmp(big64(spec.Limit)) == 0 {
		return
	}
	spec.Strict = spec.Strict && cost.Sign() > 0
	if b.value = sub(b.value, cost); b.value.Cmp(big64(spec.Limit)) > 0 {
		b.value = big64(spec.Limit)
	}
	s.putBucket(spec, now, b)
}

// refuseBucket is what a refusal does to a bucket.
func (s *naiveKinds) refuseBucket(spec limiter.Spec, now *big.Int) {
	b := s.bucket(spec, now)
	if spec.Strict && b.value.Sign() <= 0 {
		s.putBucket(spec, now, b)
	}
}

func (s *naiveKinds) putBucket(spec limiter.Spec, now *big.Int, b naiveBucket) {
	if spec.Strict && b.value.Sign() <= 0 {
		if b.mark = larger(b.mark, now); spec.ClientTime {
			b.mark = clientTick(spec, now) // also back: the client is believed
		}
	}
	if spec.Anchor == limiter.FirstHit && b.mark.Sign() == 0 &&
		b.value.Cmp(big64(spec.Limit)) == 0 {
		// full since the epoch: the mark before it stands for that one
		b.mark = big64(-int64(spec.Per))
	}
	s.buckets[bucketName(spec)] = &b
	if spec.Anchor == limiter.Epoch && b.value.Cmp(big64(spec.Limit)) == 0 {
		delete(s.buckets, bucketName(spec)) // it has no phase to keep
	}
}

// partsAt is the clock of sub-windows, and the beginnings of those that count, from the newest.
func (s *naiveKinds) partsAt(spec limiter.Spec, now int64) (at int64, counted []int64) {
	at = now
	if len(s.parts) > 0 {
		at = max(at, s.last)
	}
	from, part := at-int64(spec.Per), partOf(spec)
	if !spec.Lenient && at%part != 0 {
		from -= part
	}
	for begin := range s.parts {
		if begin >= from {
			counted = append(counted, begin)
		}
	}
	slices.Sort(counted)
	slices.Reverse(counted)
	return at, counted
}

func partOf(spec limiter.Spec) int64 {
	switch {
	case spec.Buckets == 0 && spec.Algorithm == limiter.Concurrency:
		spec.Buckets = 16
	case spec.Buckets == 0:
		spec.Buckets = 60
	}
	return int64(spec.Per) / int64(spec.Buckets)
}

func (s *naiveKinds) sumOfParts(spec limiter.Spec, now int64) *big.Int {
	sum := new(big.Int)
	_, counted := s.partsAt(spec, now)
	for _, begin := range counted {
		sum = add(sum, s.parts[begin])
	}
	return sum
}

func (s *naiveKinds) chargeParts(spec limiter.Spec, now int64, cost *big.Int) {
	at, counted := s.partsAt(spec, now)
	empty := s.sumOfParts(spec, now).Sign() == 0
	if cost.Sign() < 0 && empty {
		return
	}
	if empty {
		at, counted = now, nil
	}
	maps.DeleteFunc(s.parts, func(begin int64, _ *big.Int) bool {
		return !slices.Contains(counted, begin)
	})
	part := big64(partOf(spec))
	s.last = mul(floorDiv(big64(at), part), part).Int64()
	if s.parts[s.last] == nil {
		s.parts[s.last] = new(big.Int)
	}
	if cost.Sign() > 0 {
		s.parts[s.last] = add(s.parts[s.last], cost)
		return
	}
	back := new(big.Int).Neg(cost)
	if spec.Algorithm == limiter.Concurrency { // what is returned counts as the oldest
		slices.Reverse(counted)
	}
	for _, begin := range counted {
		left := larger(new(big.Int), sub(s.parts[begin], back))
		back = sub(back, sub(s.parts[begin], left))
		s.parts[begin] = left
	}
	if s.sumOfParts(spec, now).Sign() == 0 {
		clear(s.parts)
	}
}
