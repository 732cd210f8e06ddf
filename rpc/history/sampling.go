package history

import (
	"math/bits"
	"sync/atomic"

	"penstock/limiter"
)

// The work that observing may make, a second. Each time that so many answers, or checks, were taken
// within a second, half as many are taken from then on. So a burst of a million checks a second
// after a pause costs no more than a dozen times as much.
const (
	mostAnswers = 500  // that are remembered
	mostCounted = 1000 // that are counted by key
	mostLevel   = 30
)

// sampling says which answers are looked at. Of answers it takes all those about one in 2^n keys,
// so that what is remembered of a key is complete; of checks to count by key it takes one in 2^n.
type sampling struct {
	levels  atomic.Uint32 // of keys; above it 8 bits of checks
	watched atomic.Pointer[map[uint64]int64]

	answers, counted atomic.Int64 // taken since the last adjust
}

// tookAnswer counts an answer that is remembered, and tookCheck a check that is counted. Their
// caller keeps others away.
func (s *sampling) tookAnswer() { s.took(&s.answers, mostAnswers, 1) }

func (s *sampling) tookCheck() { s.took(&s.counted, mostCounted, 1<<8) }

// took raises a level by step whenever most more were taken.
func (s *sampling) took(taken *atomic.Int64, most int64, step uint32) {
	if taken.Add(1)%most != 0 {
		return
	}
	levels := s.levels.Load()
	if level := levels / step & 0xff; level < mostLevel {
		s.levels.Store(levels + step)
	}
}

// mix spreads what differs in any bit over all bits (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// takesKey reports whether answers about a key are remembered.
func (s *sampling) takesKey(hash uint64) bool {
	if level := s.levels.Load() & 0xff; mix(hash)&(1<<level-1) == 0 {
		return true
	}
	w := s.watched.Load()
	return w != nil && (*w)[hash] != 0
}

// takesCheck reports whether a check is counted by its key.
func (s *sampling) takesCheck(now limiter.Instant, hash uint64) bool {
	level := s.levels.Load() >> 8
	return mix(uint64(now)^bits.RotateLeft64(hash, 17))&(1<<level-1) == 0
}

// weight is how many checks one stands for that is counted.
func (s *sampling) weight() int64 { return 1 << (s.levels.Load() >> 8) }

// keyShare is 1 in how many keys is remembered.
func (s *sampling) keyShare() int64 { return 1 << (s.levels.Load() & 0xff) }

// adjust is called once a second. It doubles the work where there is room for that. Its caller
// keeps others away.
func (s *sampling) adjust() {
	levels := s.levels.Load()
	if levels&0xff > 0 && s.answers.Load() < mostAnswers/4 {
		levels--
	}
	if levels>>8 > 0 && s.counted.Load() < mostCounted/4 {
		levels -= 1 << 8
	}
	s.levels.Store(levels)
	s.answers.Store(0)
	s.counted.Store(0)
}
