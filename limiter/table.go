package limiter

import (
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Bounds of a Table.
const (
	// MaxKey is the longest key, in bytes, that gets an entry of its own. Longer ones share the
	// crowd's cells, and so may be admitted too little.
	MaxKey = 1024
	// DefaultBytes is the budget of a table that is given none, MinBytes the smallest there is.
	DefaultBytes = 256 << 20
	MinBytes     = 64 << 10

	minShardBytes = 32 << 10
	shardBytes    = 1 << 20 // so that a pass over a shard is short
	minCrowdBytes = 8 << 10
	maxShards     = 1 << 12
)

// TableConfig sizes a Table.
type TableConfig struct {
	// budget for all states and keys; below MinBytes counts as that; default DefaultBytes
	Bytes int64
	// locks, rounded up to a power of two, at most 4096 and one per 32 KiB; default: one per MiB,
	// and enough for the cores
	Shards int
}

// Table keeps the states of all keys under all limits within a budget of memory. It may be used by
// many goroutines.
//
// Instants come from the caller. A clock that goes back is borne as each algorithm says, except
// that an entry which has been removed as fresh stays so.
type Table struct {
	shards []shard     // a power of two of them
	views  []storeView // of their entries
	shift  uint        // of a hash, to the number of its shard
	budget int64
	rules  rules
	guard  func(now Instant, hash uint64) bool // see GuardAt
	kept   func(hash uint64) bool
	told   atomic.Pointer[[]Entry] // room for Changed

	cursor struct {
		sync.Mutex  // guards where the next Sweep begins
		shard, slot int
	}
}

// Item is one request of several that stand or fall together.
type Item struct {
	Limit *Limit
	Key   string
	Hash  uint64 // Hash(Key)
	Request
}

// TableStats are counted since the table was made, except where they are sizes.
type TableStats struct {
	Keys   int    // entries, the crowd's cells not among them
	Cells  int    // groups of the crowd's cells
	Slots  int    // places for entries and groups, taken or not
	Limits int    // that are known, at most 32767
	Bytes  int64  // memory in use by slots and what does not fit into them
	Budget int64  // most that Bytes can become
	Swept  uint64 // entries and groups removed because they were as good as never seen
	// entries moved into the sketch to make room for others that were farther from full
	Evicted uint64
	// charges to the sketch's cells, of newcomers without an entry and of evicted entries
	Overflowed uint64
	// requests refused because not even the crowd had room, or their limit had none
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
		n = int(min(max(c.Bytes/shardBytes, int64(16*runtime.GOMAXPROCS(0))), maxShards, c.Bytes/(2*minShardBytes)))
	}
	shift := bits.Len(uint(n - 1))
	for c.Bytes>>shift < minShardBytes {
		shift--
	}
	t := &Table{budget: c.Bytes, shards: make([]shard, 1<<shift), views: make([]storeView, 1<<shift), shift: uint(64 - shift)}
	t.rules.index.Store(newRuleIndex(16))

	part := staggered(int(c.Bytes>>shift)/64) * 8
	crowd := max(part/16, minCrowdBytes/8) / 8 * 8
	memory := reserve(part<<shift, &t.shards[0])
	for i := range t.shards {
		s := &t.shards[i]
		m := memory[i*part : (i+1)*part]
		s.entries = newStore(m[:part-crowd], &t.views[i])
		s.crowd = newStore(m[part-crowd:], new(storeView))
		s.rules = &t.rules
	}
	return t
}

// staggered is a number of cache lines a little below lines, such that parts of this size begin at
// different places in the caches. At a power of two they would compete for the same few places,
// with their most used first lines.
func staggered(lines int) int { return lines - (lines-37)&63 }

// shardOf returns the shard for a key with this hash. The top bits of the hash pick it, without the
// limit: all limits of a key lie under one lock.
func (t *Table) shardOf(hash uint64) *shard { return &t.shards[hash>>t.shift] }

// shard returns the shard for a key with this hash, and the mix by which it knows the key under l.
func (t *Table) shard(hash uint64, l *Limit) (*shard, uint32) { return t.shardOf(hash), mixOf(hash, l) }

// lock locks s with the rule of l, which it makes if there is none. It returns nil, and has not
// locked, if the table knows too many limits.
func (t *Table) lock(now Instant, s *shard, l *Limit) *rule {
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
func (t *Table) Expect(l *Limit, hash uint64) {
	t.views[hash>>t.shift].expect(mixOf(hash, l))
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
	s, mix := t.shard(hash, l)
	rule := t.lock(now, s, l)
	if rule == nil {
		*d = without(l)
		return
	}
	switch {
	case t.closed(now, l, hash):
		*d = Decision{Closed: true}
	case s.aside != nil:
		s.takeBeside(within(now), &target{rule, l, mix, key}, r, d)
	default:
		s.take(within(now), &target{rule, l, mix, key}, r, d)
	}
	s.mu.Unlock()
}

// Peek is what Take would answer. It never writes.
func (t *Table) Peek(now Instant, l *Limit, key string, hash uint64, cost int64) (d Decision) {
	t.peek(now, l, key, hash, &Request{Cost: cost}, &d)
	return d
}

// Would is what Do would answer. It never writes.
func (t *Table) Would(now Instant, l *Limit, key string, hash uint64, r Request) (d Decision) {
	t.peek(now, l, key, hash, &r, &d)
	return d
}

// ruleOf is a rule by which the entries of l can be found, or nil.
func (t *Table) ruleOf(l *Limit) *rule {
	if r := t.rules.index.Load().find(l); r != nil {
		return r
	}
	return t.rules.related(l)
}

func (t *Table) peek(now Instant, l *Limit, key string, hash uint64, r *Request, d *Decision) {
	if l.Unlimited {
		*d = without(l)
		return
	}
	s, mix := t.shard(hash, l)
	rule := t.ruleOf(l)
	s.mu.Lock()
	if t.closed(now, l, hash) {
		*d = Decision{Closed: true}
	} else {
		s.peekBeside(within(now), &target{rule, l, mix, key}, r, d)
	}
	s.mu.Unlock()
}

// TakeAll takes all items at once, or none: if one is refused, nothing is charged anywhere, not
// even by a limit that counts what it rejects. It reports which, and out, as long as items, says
// for each what it got; or, after a refusal, whether it would have been admitted, and what remains
// now, for nothing was charged. Items of one key and limit add up. If one is Closed, all are.
func (t *Table) TakeAll(now Instant, items []Item, out []Decision) bool {
	if slices.ContainsFunc(items, Item.uncounted) {
		return onlyCounted(items, out, func(items []Item, out []Decision) bool { return t.TakeAll(now, items, out) })
	}
	targets, locks := t.targetsOf(items)
	if !t.lockAll(now, &locks, targets) {
		for i, it := range items {
			t.peek(now, it.Limit, it.Key, it.Hash, &items[i].Request, &out[i])
			if t.rules.index.Load().find(it.Limit) == nil {
				out[i] = noRoom(it.Limit)
			} else {
				var left Decision
				t.peek(now, it.Limit, it.Key, it.Hash, it.look(), &left)
				out[i].ShowsLeft(&left)
			}
		}
		return false
	}
	defer t.unlockAll(&locks)
	if closedAll(t, now, items, out) {
		return false
	}
	return t.takeAllLocked(within(now), items, targets, out)
}

// targetsOf is where the items are to be found, and the shards that have to be locked for them.
func (t *Table) targetsOf(items []Item) ([]target, shardSet) {
	targets := make([]target, len(items))
	var locks shardSet
	for i := range items {
		it := &items[i]
		targets[i] = target{limit: it.Limit, mix: mixOf(it.Hash, it.Limit), key: it.Key}
		locks.add(it.Hash >> t.shift)
	}
	return targets, locks
}

// closedAll answers all items with Closed if one of them is, and reports that.
func closedAll(t *Table, now Instant, items []Item, out []Decision) bool {
	if !slices.ContainsFunc(items, func(it Item) bool { return t.closed(now, it.Limit, it.Hash) }) {
		return false
	}
	for i := range out {
		out[i] = Decision{Closed: true}
	}
	return true
}

// takeAllLocked decides on copies of the states first, and stores them if all items are admitted.
func (t *Table) takeAllLocked(now Instant, items []Item, targets []target, out []Decision) bool {
	copies := make([]stateCopy, len(items))
	all := true
	for i := range items {
		x, c, d := &targets[i], &copies[i], &out[i]
		// the first item of a key has the state of all
		if j := slices.IndexFunc(targets[:i], x.same); j >= 0 {
			if c = &copies[j]; len(c.now) != x.limit.words() { // two limits of one identity
				w := make([]int64, x.limit.words())
				x.limit.refit(w, c.now)
				c.now, targets[j].limit = w, x.limit
			}
		} else {
			w, bound, entry := t.shardOf(items[i].Hash).read(now, x)
			*c = stateCopy{before: slices.Clone(w), now: slices.Clone(w), bound: bound, entry: entry}
		}
		aside := t.shardOf(items[i].Hash).asideOf(x)
		switch r := &items[i].Request; {
		case !c.entry && x.shut(now):
			*d = noRoom(x.limit)
		case aside > 0 && r.Cost > 0 && !r.Report && !x.limit.admitsBeside(slices.Clone(c.now), now, r, aside, d):
		case c.entry || c.charged:
			x.limit.answer(c.now, now, r, d)
			c.charged = c.charged || r.Cost != 0
		default:
			c.own, c.charged = t.shardOf(items[i].Hash).charge(now, x, c.now, c.bound, r, d)
		}
		if d.Hold != HoldInTheWay {
			d.Remaining = max(0, d.Remaining-aside)
		}
		if !c.entry {
			d.Restarted = t.shardOf(items[i].Hash).restarts(now, x)
		}
		all = all && d.Allowed
	}
	if !all {
		t.sayWhatIsLeft(now, items, targets, out)
		return false
	}
	for i := range items {
		if !copies[i].charged || t.shardOf(items[i].Hash).put(now, &targets[i], &copies[i]) {
			continue
		}
		// There is no room. What has been put already is taken back; cells are left as they are,
		// and so may admit too little.
		for j := range i {
			if copies[j].charged {
				t.shardOf(items[j].Hash).restore(&targets[j], &copies[j])
			}
		}
		t.sayWhatIsLeft(now, items, targets, out)
		out[i] = noRoom(items[i].Limit)
		return false
	}
	return true
}

// sayWhatIsLeft completes the decisions on items that were refused together.
func (t *Table) sayWhatIsLeft(now Instant, items []Item, targets []target, out []Decision) {
	for i := range items {
		x, left := targets[i], Decision{}
		x.limit = items[i].Limit // of two limits of one identity, one has taken the other's place
		t.shardOf(items[i].Hash).peekBeside(now, &x, items[i].look(), &left)
		out[i].ShowsLeft(&left)
	}
}

// look asks for the state that r would meet.
func (r *Request) look() *Request { return &Request{At: r.At, Timed: r.Timed} }

// ShowsLeft takes over from left, the answer to a request that costs nothing, what remains now: d
// stands beside a refusal, and nothing is charged.
func (d *Decision) ShowsLeft(left *Decision) {
	d.Remaining, d.ResetAfter, d.Drained = left.Remaining, left.ResetAfter, 0
}

// lockAll finds or makes the rules of all targets and locks the shards, always in the same order.
// It reports false, and has not locked, if the table knows too many limits.
func (t *Table) lockAll(now Instant, locks *shardSet, targets []target) bool {
	for {
		for i := range targets {
			x := &targets[i]
			if x.rule = t.rules.index.Load().find(x.limit); x.rule == nil || x.rule.dead.Load() {
				x.rule = t.learn(now, x.limit)
			}
			if x.rule == nil {
				return false
			}
		}
		for i := range locks.all {
			t.shards[i].mu.Lock()
		}
		if !slices.ContainsFunc(targets, func(x target) bool { return x.rule.dead.Load() }) {
			break
		}
		t.unlockAll(locks)
	}
	for _, x := range targets {
		if x.rule.limit.Load() != x.limit {
			x.rule.limit.Store(x.limit)
		}
	}
	return true
}

func (t *Table) unlockAll(locks *shardSet) {
	for i := range locks.all {
		t.shards[i].mu.Unlock()
	}
}

// shardSet is a set of shards.
type shardSet [maxShards / 64]uint64

func (set *shardSet) add(i uint64) { set[i/64] |= 1 << (i % 64) }

// all yields the shards in ascending order.
func (set *shardSet) all(yield func(int) bool) {
	for i, w := range set {
		for ; w != 0; w &= w - 1 {
			if !yield(i*64 + bits.TrailingZeros64(w)) {
				return
			}
		}
	}
}

// Reset forgets what key has consumed under l, and answers what Peek of cost 0 would after that.
func (t *Table) Reset(now Instant, l *Limit, key string, hash uint64) (d Decision) {
	if l.Unlimited {
		return without(l)
	}
	s, mix := t.shard(hash, l)
	x := target{t.ruleOf(l), l, mix, key}
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

// Guard makes the table ask open, under the lock of the key, before it decides: where that says no,
// nothing happens and the Decision is Closed. So a node can stop deciding for some keys, and hand
// over exactly what was decided until then (see Changed). What kept says no to is removed by Sweep,
// fresh or not. Neither is asked about a share (Limit.Share) or a replicated limit. Guard must be
// called before the table is used by several goroutines.
func (t *Table) Guard(open, kept func(hash uint64) bool) {
	t.GuardAt(func(_ Instant, hash uint64) bool { return open(hash) }, kept)
}

// GuardAt is Guard for a node that may decide until some instant: open compares that with the
// instant of the request, so a node that was stopped on its way to the lock decides nothing too
// late.
func (t *Table) GuardAt(open func(now Instant, hash uint64) bool, kept func(hash uint64) bool) {
	t.guard = open
	t.kept = kept
}

func (t *Table) closed(now Instant, l *Limit, hash uint64) bool {
	return t.guard != nil && !t.guard(now, hash) && !l.isLocal()
}

// Merge takes over a state that comes from elsewhere, with words as Each gives them: of that and
// what the table has, more consumed wins. At one now it is commutative, associative and idempotent,
// and it never gives back what was consumed. If there is no room for an entry, the state is merged
// into the crowd; if there is none there either, keys of l that have no entry are refused for as
// long as it counts.
func (t *Table) Merge(now Instant, l *Limit, key string, hash uint64, state []int64) {
	s, mix := t.shard(hash, l)
	r := t.lock(now, s, l)
	if r == nil {
		w := make([]int64, l.words())
		l.refit(w, state)
		t.lose(within(now), l, w)
		return
	}
	other := s.words(1, l.words())
	l.refit(other, state)
	s.merge(within(now), &target{r, l, mix, key}, other)
	s.mu.Unlock()
}

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
		before := s.swept()
		end := s.entries.capacity
		step := max(0, min(n, sweepStep, end-t.cursor.slot))
		if t.kept != nil {
			s.entries.discard(index, t.cursor.slot, step, t.kept)
		}
		s.entries.sweep(now, index, t.cursor.slot, step)
		t.cursor.slot += step
		n -= max(1, step)
		if t.cursor.slot >= end {
			s.crowd.sweep(now, index, 0, s.crowd.capacity)
			s.entries.trim(now, index)
			s.crowd.trim(now, index)
			t.cursor.slot, t.cursor.shard = 0, (t.cursor.shard+1)%len(t.shards)
			if t.cursor.shard == 0 {
				index.reopen(now)
				rounds++
			}
		}
		removed += int(s.swept() - before)
		s.mu.Unlock()
	}
	return removed
}

// sweepStep is how many slots are looked at under one lock.
const sweepStep = 1024

// Each calls fn with every entry until fn returns false. Entries are copied shard by shard, so
// nobody waits for fn, which may use the table, and what fn sees of one shard was true at one time.
// The crowd's cells belong to no key and are left out. state is fn's only during the call; d is
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
		sum.Cells += s.crowd.count
		sum.Slots += s.entries.capacity + s.crowd.capacity
		sum.Bytes += int64(s.entries.bytes() + s.crowd.bytes())
		sum.Swept += s.swept()
		sum.Evicted += s.evicted
		sum.Overflowed += s.overflowed
		sum.Refused += s.refused
		s.mu.Unlock()
	}
	return sum
}
