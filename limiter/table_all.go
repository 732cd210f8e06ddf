package limiter

import (
	"math/bits"
	"slices"
)

// Item is one request of several that stand or fall together.
type Item struct {
	Limit *Limit
	Key   string
	Hash  uint64 // Hash(Key)
	Request
}

// TakeAll takes all items at once, or none: if one is refused, nothing is charged anywhere, not
// even by a limit that counts what it rejects. It reports which, and out, as long as items, says
// for each what it got; or, after a refusal, whether it would have been admitted, and what remains
// now, for nothing was charged. Items of one key and limit add up. If one is Closed, all are.
func (t *Table) TakeAll(now Instant, items []Item, out []Decision) bool {
	if slices.ContainsFunc(items, Item.uncounted) {
		return onlyCounted(items, out, func(items []Item, out []Decision) bool {
			return t.TakeAll(now, items, out)
		})
	}
	targets, locks := targetsOf(t, items)
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
func targetsOf(t *Table, items []Item) ([]target, shardSet) {
	targets := make([]target, len(items))
	var locks shardSet
	for i := range items {
		it := &items[i]
		_, targets[i] = t.shard(it.Limit, it.Key, it.Hash)
		locks.add(t.place.of(it.Key, it.Hash) >> t.place.shift)
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
		s, c := t.shardOf(&items[i]), copyFor(now, t, items, targets, copies, i)
		c.decide(now, s, &targets[i], &items[i].Request, &out[i])
		all = all && out[i].Allowed
	}
	if !all {
		t.sayWhatIsLeft(now, items, targets, out)
		return false
	}
	for i := range items {
		if !copies[i].charged || t.shardOf(&items[i]).put(now, &targets[i], &copies[i]) {
			continue
		}
		// There is no room. What has been put already is taken back; cells are left as they are,
		// and so may admit too little.
		for j := range i {
			if copies[j].charged {
				t.shardOf(&items[j]).restore(&targets[j], &copies[j])
			}
		}
		t.sayWhatIsLeft(now, items, targets, out)
		out[i] = noRoom(items[i].Limit)
		return false
	}
	return true
}

// copyFor is the copy of the state that item i is decided on. The first item of a key has the state
// of all.
func copyFor(
	now Instant, t *Table, items []Item, targets []target, copies []stateCopy, i int,
) *stateCopy {
	x, c := &targets[i], &copies[i]
	j := slices.IndexFunc(targets[:i], x.same)
	if j < 0 {
		w, bound, entry := t.shardOf(&items[i]).read(now, x)
		*c = stateCopy{before: slices.Clone(w), now: slices.Clone(w), bound: bound, entry: entry}
		return c
	}
	if c = &copies[j]; len(c.now) != x.limit.words() { // two limits of one identity
		w := make([]int64, x.limit.words())
		x.limit.refit(w, c.now)
		c.now, targets[j].limit = w, x.limit
	}
	return c
}

// decide decides r on c, the copy of the state of x in s.
func (c *stateCopy) decide(now Instant, s *shard, x *target, r *Request, d *Decision) {
	reserved, beside := s.reservedOf(x), Decision{}
	switch {
	case !c.entry && x.shut(now):
		if r.Cost != 0 {
			s.refused++
		}
		*d = noRoom(x.limit)
	case reserved > 0 && r.Cost > 0 && !r.Report &&
		!x.limit.admitsBeside(slices.Clone(c.now), now, r, reserved, &beside):
		*d = beside
	case c.entry || c.charged:
		x.limit.answer(c.now, now, r, d)
		c.charged = c.charged || r.Cost != 0
	default:
		c.own, c.charged = s.charge(now, x, c.now, c.bound, r, d)
	}
	if reserved > 0 && d.Hold != HoldInTheWay {
		x.limit.standBeside(slices.Clone(c.now), now, reserved, beside.Delay, d)
	}
	if !c.entry {
		d.Restarted = s.restarts(now, x)
	}
}

// sayWhatIsLeft completes the decisions on items that were refused together.
func (t *Table) sayWhatIsLeft(now Instant, items []Item, targets []target, out []Decision) {
	for i := range items {
		x, left := targets[i], Decision{}
		x.limit = items[i].Limit // of two limits of one identity, one has taken the other's place
		t.shardOf(&items[i]).peekBeside(now, &x, items[i].look(), &left)
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

// put stores what was read and charged where the key's state is now.
func (s *shard) put(now Instant, t *target, c *stateCopy) bool {
	i := s.adopt(t)
	if i < 0 && s.keep(now, t, c.now, c.own, true) {
		return true
	}
	if i < 0 || !s.entries.fit(i, t.limit) {
		s.refused++
		return false
	}
	copy(s.entries.state(&s.entries.slots[i]), c.now)
	if s.changed != nil {
		e := &s.entries.slots[i]
		s.changed.add(e)
		e.head |= untold
	}
	return true
}

// stateCopy is the state of a key while several requests are decided together.
type stateCopy struct {
	before, now []int64
	own         debt // if it has no entry
	// whether it began in the sketch, whether it has an entry, whether it is to be stored
	bound, entry, charged bool
}

// restore makes the state of the key what it was before it was put.
func (s *shard) restore(t *target, c *stateCopy) {
	i := s.find(t)
	switch {
	case i < 0: // it lies in cells, or has been evicted into them
	case c.entry:
		t.limit.refit(s.entries.state(&s.entries.slots[i]), c.before)
	default:
		s.forget(t)
	}
}

// same reports whether t and other are about one state.
func (t *target) same(other target) bool {
	return t.mix == other.mix && t.key == other.key && t.limit.sameIdentity(other.limit)
}
