package history

import (
	"math/bits"
	"sync/atomic"

	"penstock/limiter"
)

// Work that observing may make, a second. What is above is thinned out.
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

// adjust is called once a second.
func (s *sampling) adjust() {
	old := s.levels.Load()
	keys := nextLevel(old&0xff, s.answers.Swap(0), mostAnswers)
	checks := nextLevel(old>>8, s.counted.Swap(0), mostCounted)
	s.levels.Store(keys | checks<<8)
}

// nextLevel halves the work until it is below most, and doubles it when there is room for that.
func nextLevel(level uint32, done, most int64) uint32 {
	for done > most && level < mostLevel {
		level, done = level+1, done/2
	}
	if level > 0 && done < most/4 {
		level--
	}
	return level
}
