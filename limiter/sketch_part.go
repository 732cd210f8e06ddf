package limiter

import (
	"sync"
	"sync/atomic"
)

// sketch is the part of the sketch for keys with some public hashes, with a lock of its own. A
// shard takes it last, and one at a time.
type sketch struct {
	mu      sync.Mutex // guards what follows
	cells   store
	rules   *rules
	scratch [2][]int64
	charged uint64 // so many times

	groups atomic.Int64 // as many as cells has: without any, nobody waits for the lock
	_      [64]byte     // the next one is used by others
}

func (s *sketch) init(memory []int64, rules *rules) {
	s.cells, s.rules = newStore(memory, new(storeView)), rules
}

// sketch is the part for keys with a public hash.
func (p *placement) sketch(hash uint64) *sketch { return &p.sketches[hash>>p.shift] }

// empty reports whether no key has a cell.
func (s *sketch) empty() bool { return s.groups.Load() == 0 }

// count tells empty what there is now.
func (s *sketch) count() { s.groups.Store(int64(s.cells.count)) }

// size is the memory there is, in bytes; it never changes.
func (s *sketch) size() int { return s.cells.size() }

// words is n words of scratch space, the same for each call with the same part.
func (s *sketch) words(part, n int) []int64 {
	if len(s.scratch[part]) < n {
		s.scratch[part] = make([]int64, n)
	}
	return s.scratch[part][:n]
}

// sweep removes what is as good as never seen, and returns how many groups that were.
func (s *sketch) sweep(now Instant, index *ruleIndex) int {
	if s.empty() {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.cells.swept
	s.cells.sweep(now, index, 0, s.cells.capacity)
	s.cells.trim(now, index)
	s.count()
	return int(s.cells.swept - before)
}

func (s *sketch) addTo(sum *TableStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum.Cells += s.cells.count
	sum.Slots += s.cells.capacity
	sum.Bytes += int64(s.cells.bytes())
	sum.Swept += s.cells.swept
	sum.Overflowed += s.charged
}

// share merges w, the state of a key without an entry, into its cells. It reports false if there is
// no room for them.
func (p *placement) share(now Instant, hash uint64, rule uint32, l *Limit, w []int64) bool {
	s := p.sketch(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.share(now, mixOf(hash, l), rule, l, w)
}
