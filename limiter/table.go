package limiter

import (
	"math/bits"
	"runtime"
	"sync"
)

// Bounds of a Table.
const (
	// MaxKey is the longest key, in bytes, that gets an entry of its own. Longer ones share the
	// sketch's cells, and so may be admitted too little.
	MaxKey = 1024
	// DefaultBytes is the budget of a table that is given none, MinBytes the smallest there is.
	DefaultBytes = 256 << 20
	MinBytes     = 64 << 10

	minShardBytes  = 32 << 10
	shardBytes     = 1 << 20 // so that a pass over a shard is short
	minSketchBytes = 8 << 10
	maxShards      = 1 << 12
)

// TableConfig sizes a Table.
type TableConfig struct {
	// budget for all states and keys; below MinBytes counts as that; default DefaultBytes
	Bytes int64
	// locks, rounded up to a power of two, at most 4096 and one per 32 KiB; default: one per MiB,
	// and enough for the cores
	Shards int
	// Seed makes the place of keys in the table a secret (seed.go). 0: they lie by their public
	// Hash, which is well where nobody hostile chooses keys, and the same in each process.
	Seed uint64
}

// Table keeps the states of all keys under all limits within a budget of memory. It may be used by
// many goroutines.
//
// Instants come from the caller. A clock that goes back is borne as each algorithm says, except
// that an entry which has been removed as fresh stays so.
type Table struct {
	shards []shard     // a power of two of them
	views  []storeView // of their entries
	place  placement
	budget int64
	rules  rules
	guard  func(now Instant, hash uint64) bool // see Guard
	kept   func(hash uint64) bool

	cursor struct {
		sync.Mutex  // guards where the next Sweep begins
		shard, slot int
	}
}

// TableStats are counted since the table was made, except where they are sizes.
type TableStats struct {
	Keys   int    // entries, the sketch's cells not among them
	Cells  int    // groups of the sketch's cells
	Slots  int    // places for entries and groups, taken or not
	Limits int    // that are known, at most 32767
	Bytes  int64  // memory in use by slots and what does not fit into them
	Budget int64  // most that Bytes can become
	Swept  uint64 // entries and groups removed because they were as good as never seen
	// entries moved into the sketch to make room for others that were farther from full
	Evicted uint64
	// charges to the sketch's cells, of newcomers without an entry and of evicted entries
	Overflowed uint64
	// requests refused because not even the sketch had room, or their limit had none
	Refused uint64
	Inline  int // of Limits, those that requests have brought along, at most MaxInline
	// Requests, and states from elsewhere, under limits without room: of limits that requests bring
	// along, and of others.
	RefusedInline, RefusedLimits uint64
}

// NewTable makes an empty table. It reserves the whole budget as address space and uses memory as
// keys come.
func NewTable(c TableConfig) *Table {
	if c.Bytes == 0 {
		c.Bytes = DefaultBytes
	}
	c.Bytes = max(c.Bytes, MinBytes)
	n := min(max(c.Shards, 1), maxShards)
	if c.Shards == 0 {
		n = int(min(max(c.Bytes/shardBytes, int64(16*runtime.GOMAXPROCS(0))), maxShards,
			c.Bytes/(2*minShardBytes)))
	}
	shift := bits.Len(uint(n - 1))
	for c.Bytes>>shift < minShardBytes {
		shift--
	}
	t := &Table{
		budget: c.Bytes, shards: make([]shard, 1<<shift),
		views: make([]storeView, 1<<shift),
	}
	t.place = newPlacement(c.Seed, uint(64-shift), 1<<shift)
	t.rules.index.Store(newRuleIndex(16))

	part := staggered(int(c.Bytes>>shift)/64) * 8
	sketch := max(part/16, minSketchBytes/8) / 8 * 8
	memory := reserve(part<<shift, &t.shards[0])
	for i := range t.shards {
		s := &t.shards[i]
		m := memory[i*part : (i+1)*part]
		s.entries = newStore(m[:part-sketch], &t.views[i])
		s.rules, s.place = &t.rules, &t.place
		t.place.sketches[i].init(m[part-sketch:], &t.rules)
	}
	return t
}

// staggered is a number of cache lines a little below lines, such that parts of this size begin at
// different places in the caches. At a power of two they would compete for the same few places,
// with their most used first lines.
func staggered(lines int) int { return lines - (lines-37)&63 }

// shard returns the shard of a key with this hash, and the key under l as the shard knows it. All
// limits of a key lie under one lock.
func (t *Table) shard(l *Limit, key string, hash uint64) (*shard, target) {
	place := t.place.of(key, hash)
	x := target{limit: l, mix: mixOf(place, l), key: key, hash: hash}
	return &t.shards[place>>t.place.shift], x
}

// shardOf is the shard of an item.
func (t *Table) shardOf(it *Item) *shard {
	return &t.shards[t.place.of(it.Key, it.Hash)>>t.place.shift]
}

// lock locks s with the rule of l, which it makes if there is none. It returns nil, and has not
// locked, if the table knows too many limits, or if l counts nothing: a rule that it would find is
// of a limit that counted.
func (t *Table) lock(now Instant, s *shard, l *Limit) *rule {
	if l.Unlimited {
		return nil
	}
	r := t.rules.index.Load().find(l)
	for {
		if r == nil {
			if r = t.learn(now, l); r == nil {
				return nil
			}
		}
		s.mu.Lock()
		if !r.dead.Load() {
			if r.limit.Load() != l {
				r.limit.Store(l) // the limit was changed in place
			}
			return r
		}
		s.mu.Unlock()
		r = nil
	}
}

// Expect says that a request for a key will come soon. It waits for nothing and changes nothing: it
// has the processor fetch the key's entry from memory, which takes longer than the rest of a
// decision. A caller with many requests announces all of them first, and the table waits once for
// all, instead of once for each.
func (t *Table) Expect(l *Limit, key string, hash uint64) {
	place := t.place.of(key, hash)
	t.views[place>>t.place.shift].expect(mixOf(place, l))
}

// Take decides on a request of cost units for key under l, and charges it if it is admitted. hash
// is Hash(key). A cost of 0 reports the state and never writes; a negative cost gives back, at most
// all that was charged; a cost above l.Capacity() is refused, with RetryAfter Never. It allocates
// nothing.
func (t *Table) Take(now Instant, l *Limit, key string, hash uint64, cost int64) (d Decision) {
	t.DoInto(now, l, key, hash, &Request{Cost: cost}, &d)
	return d
}

// Do is Take for a request that asks for more than a cost.
func (t *Table) Do(now Instant, l *Limit, key string, hash uint64, r Request) (d Decision) {
	t.DoInto(now, l, key, hash, &r, &d)
	return d
}

// DoInto is Do with the answer where the caller wants it, so that it need not be copied.
func (t *Table) DoInto(now Instant, l *Limit, key string, hash uint64, r *Request, d *Decision) {
	if r.Cost == 0 {
		t.peek(now, l, key, hash, r, d)
		return
	}
	place := t.place.of(key, hash)
	s := &t.shards[place>>t.place.shift]
	rule := t.lock(now, s, l)
	if rule == nil {
		*d = without(l)
		return
	}
	switch {
	case t.closed(now, l, hash):
		*d = Decision{Closed: true}
	case s.reserved != nil:
		s.takeBeside(within(now), &target{rule, l, mixOf(place, l), key, hash}, r, d)
	default:
		s.take(within(now), &target{rule, l, mixOf(place, l), key, hash}, r, d)
	}
	s.mu.Unlock()
}

// Peek is what Take would answer. It never writes.
func (t *Table) Peek(now Instant, l *Limit, key string, hash uint64, cost int64) (d Decision) {
	t.peek(now, l, key, hash, &Request{Cost: cost}, &d)
	return d
}

// PeekRequest is what Do would answer. It never writes.
func (t *Table) PeekRequest(
	now Instant, l *Limit, key string, hash uint64, r Request,
) (d Decision) {
	t.peek(now, l, key, hash, &r, &d)
	return d
}

func (t *Table) peek(now Instant, l *Limit, key string, hash uint64, r *Request, d *Decision) {
	if l.Unlimited {
		*d = without(l)
		return
	}
	place := t.place.of(key, hash)
	s := &t.shards[place>>t.place.shift]
	rule := t.rules.of(l)
	s.mu.Lock()
	if t.closed(now, l, hash) {
		*d = Decision{Closed: true}
	} else {
		s.peekBeside(within(now), &target{rule, l, mixOf(place, l), key, hash}, r, d)
	}
	s.mu.Unlock()
}

// Reset forgets what key has consumed under l, and answers what Peek of cost 0 would after that.
func (t *Table) Reset(now Instant, l *Limit, key string, hash uint64) (d Decision) {
	if l.Unlimited {
		return without(l)
	}
	s, x := t.shard(l, key, hash)
	x.rule = t.rules.of(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.closed(now, l, hash) {
		d.Closed = true
		return d
	}
	if x.known() {
		s.reset(&x)
	}
	s.peekBeside(within(now), &x, &Request{}, &d)
	return d
}

// Guard makes the table ask open, under the lock of the key, before it decides at an instant: where
// that says no, nothing happens and the Decision is Closed. So a node can stop deciding for some
// keys, and hand over exactly what was decided until then (see Changed); and one that was stopped
// on its way to the lock decides nothing after its right has ended. What kept says no to is removed
// by Sweep, fresh or not. Neither is asked about a share (Limit.Share) or a replicated limit. Guard
// must be called before the table is used by several goroutines.
func (t *Table) Guard(open func(now Instant, hash uint64) bool, kept func(hash uint64) bool) {
	t.guard = open
	t.kept = kept
}

func (t *Table) closed(now Instant, l *Limit, hash uint64) bool {
	return t.guard != nil && !t.guard(now, hash) && !l.isLocal()
}

// Merge takes over a state that comes from elsewhere, with words as Each gives them: of that and
// what the table has, more consumed wins. At one now it is commutative, associative and idempotent,
// and it never gives back what was consumed. If there is no room for an entry, the state is merged
// into the sketch; if there is none there either, keys of l that have no entry are refused for as
// long as it counts.
func (t *Table) Merge(now Instant, l *Limit, key string, hash uint64, state []int64) {
	s, x := t.shard(l, key, hash)
	if x.rule = t.lock(now, s, l); x.rule == nil {
		w := make([]int64, l.words())
		l.refit(w, state)
		t.lose(within(now), l, w)
		return
	}
	other := s.words(1, l.words())
	l.refit(other, state)
	s.merge(within(now), &x, other)
	s.mu.Unlock()
}

// Turned counts the requests, and states from elsewhere, that were refused because there was no
// room for their limit: of limits that are configured, and of those that requests bring along. It
// takes no lock.
func (t *Table) Turned() (limits, inlines uint64) {
	return t.rules.refused[configured].Load(), t.rules.refused[inline].Load()
}

// Stats adds up the shards, one after the other.
func (t *Table) Stats() TableStats {
	sum := TableStats{Budget: t.budget}
	t.rules.mu.Lock()
	sum.Limits, sum.Inline = t.rules.count, t.rules.brought
	t.rules.mu.Unlock()
	sum.RefusedLimits, sum.RefusedInline = t.Turned()
	sum.Refused = sum.RefusedLimits + sum.RefusedInline
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		sum.Keys += s.entries.count
		sum.Slots += s.entries.capacity
		sum.Bytes += int64(s.entries.bytes())
		sum.Swept += s.entries.swept
		sum.Evicted += s.evicted
		sum.Refused += s.refused
		s.mu.Unlock()
		t.place.sketches[i].addTo(&sum)
	}
	return sum
}
