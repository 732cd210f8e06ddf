package limiter

import "slices"

// Sweep looks at the next n slots, shard after shard and from the beginning again, and removes
// entries that equal those of keys never seen. It holds no lock for longer than a thousand slots
// take, except that a shard which has become nearly empty is shrunk at once. A timer above calls
// it.
func (t *Table) Sweep(now Instant, n int) (removed int) {
	now = within(now)
	t.cursor.Lock()
	defer t.cursor.Unlock()
	// the second time around ends with what it has not seen, at the least
	for rounds := 0; n > 0 && rounds < 2; {
		s := &t.shards[t.cursor.shard]
		s.mu.Lock()
		index := s.rules.index.Load()
		cells := &t.place.sketches[t.cursor.shard]
		before := s.entries.swept
		end := s.entries.capacity
		step := max(0, min(n, sweepStep, end-t.cursor.slot))
		if t.kept != nil {
			s.entries.discard(index, t.cursor.slot, step, t.kept)
		}
		s.entries.sweep(now, index, t.cursor.slot, step)
		t.cursor.slot += step
		n -= max(1, step)
		if t.cursor.slot >= end {
			removed += cells.sweep(now, index)
			s.entries.trim(now, index)
			t.cursor.slot, t.cursor.shard = 0, (t.cursor.shard+1)%len(t.shards)
			if t.cursor.shard == 0 {
				index.reopen(now)
				rounds++
			}
		}
		removed += int(s.entries.swept - before)
		s.mu.Unlock()
	}
	return removed
}

// Discard gives every key that is not kept (see Guard) the state of a key never seen, as Sweep
// would within its next round. It takes the lock of each shard once, for as long as it takes to
// look at all of its keys.
func (t *Table) Discard() {
	if t.kept == nil {
		return
	}
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.entries.discard(s.rules.index.Load(), 0, s.entries.capacity, t.kept)
		s.mu.Unlock()
	}
}

// sweepStep is how many slots are looked at under one lock.
const sweepStep = 1024

// Each calls fn with every entry until fn returns false. Entries are copied shard by shard, so
// nobody waits for fn, which may use the table, and what fn sees of one shard was true at one time.
// The sketch's cells belong to no key and are left out. state is fn's only during the call; d is
// what a Take of cost 0 would answer.
//
// The order within a shard is spread: entries that come one after the other are far apart in the
// slots. In the order of the slots they would fill a small table, into which they are merged, from
// one end.
func (t *Table) Each(now Instant, fn func(l *Limit, key string, state []int64, d Decision) bool) {
	now = within(now)
	var c shardCopy
	for i := range t.shards {
		c.take(&t.shards[i])
		keys := string(c.keys)
		step := spread(len(c.entries))
		for k, n := 0, len(c.entries); n > 0; n-- {
			e := c.entries[k]
			k = (k + step) % len(c.entries)
			w := c.words[e.words : e.words+e.limit.words()]
			var d Decision
			e.limit.decide(w, now, 0, &d)
			if !fn(e.limit, keys[e.key:e.key+e.keyLen], w, d) {
				return
			}
		}
	}
}

// spread is a step by which one comes to each of n places before the first again: by the golden
// ratio, or a little more.
func spread(n int) int {
	step := n*618/1000 + 1
	for gcd(step, n) > 1 {
		step++
	}
	return step
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// shardCopy is the entries of a shard at one time.
type shardCopy struct {
	entries []entryCopy
	keys    []byte
	words   []int64
}

type entryCopy struct {
	limit              *Limit
	key, keyLen, words int // where in keys and words
}

func (c *shardCopy) take(s *shard) {
	c.entries, c.keys, c.words = c.entries[:0], c.keys[:0], c.words[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	index := s.rules.index.Load()
	for e := range s.entries.all {
		l := index.byID(e.rule()).limit.Load()
		c.entries = append(c.entries, entryCopy{l, len(c.keys), e.keyLen(), len(c.words)})
		c.keys = append(c.keys, s.entries.key(e)...)
		at := len(c.words)
		c.words = slices.Grow(c.words, l.words())[:at+l.words()]
		l.refit(c.words[at:], s.entries.state(e))
	}
}
