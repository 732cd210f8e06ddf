package limiter

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

// check panics unless everything that a store relies on is so: the order, the places, the counts,
// the blocks.
func (st *store) check(t interface{ Fatalf(string, ...any) }) {
	taken, blocks, to := 0, 0, 0
	var last uint32
	for i := range st.slots {
		s := &st.slots[i]
		if i >= st.capacity+st.spill {
			break
		}
		if s.head == 0 {
			continue
		}
		taken++
		if s.mix() < last {
			t.Fatalf("slot %d is out of order", i)
		}
		last = s.mix()
		if to = max(to, st.home(s.mix())); to != i {
			t.Fatalf("slot %d belongs to %d", i, to)
		}
		to++
		if i-st.home(s.mix()) > st.reach+reachSlack {
			t.Fatalf("slot %d is %d from home, more than %d", i, i-st.home(s.mix()), st.reach)
		}
		if !s.inlined() {
			at := s.place()
			blocks += s.blockSize()
			if at < st.low ||
				st.memory[at+s.blockSize()-1] != int64(s.mix())<<32|int64(s.blockSize()) {
				t.Fatalf("slot %d has lost its block", i)
			}
		}
	}
	if h := st.hole; h.size > 0 && (h.at < st.low || st.memory[h.at+h.size-1] != int64(h.size)) {
		t.Fatalf("the hole of %d words at %d is none", h.size, h.at)
	}
	if taken != st.count {
		t.Fatalf("%d slots are taken, %d counted", taken, st.count)
	}
	if blocks+st.garbage != st.blockWords() {
		t.Fatalf("%d words in blocks and %d of garbage are not %d", blocks, st.garbage,
			st.blockWords())
	}
	if (st.capacity+st.spill)*slotWords > st.low && st.capacity > 0 {
		t.Fatalf("%d slots reach into the blocks from %d", st.capacity+st.spill, st.low)
	}
}

// TestStoreKeepsItsOrder: entries are added, removed, forgotten, refitted and swept, with keys of
// all lengths and many with one hash, in a table that is mostly full.
func TestStoreKeepsItsOrder(t *testing.T) {
	var limits []*Limit
	for i, s := range shapes {
		s.Name = fmt.Sprint(i)
		limits = append(limits, mustBe(New(s)))
		if s.Algorithm == GCRA {
			s.Limit ^= 1 // the same identity with the other kind of interval
			limits = append(limits, mustBe(New(s)))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		table := NewTable(TableConfig{Bytes: 1, Shards: 1})
		now := Instant(1_700_000_000e9)
		lengths := rapid.SampledFrom([]int{20, 60, 1100}).Draw(t, "longest key")
		x := rapid.Uint64().Draw(t, "seed") | 1
		draw := func(n int) int {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			return int(x % uint64(n))
		}
		for range rapid.IntRange(1, 1500).Draw(t, "steps") {
			n := draw(900)
			key := fmt.Sprintf("%d-%s", n, strings.Repeat("k", n*7%lengths))
			hash := Hash(key)
			if n < 400 && n%2 == 0 {
				hash = uint64(n / 100)
			}
			l := limits[draw(len(limits))]
			switch k := draw(20); k {
			case 0:
				table.Reset(now, l, key, hash)
			case 1:
				table.Sweep(now, draw(300))
			case 2:
				now += Instant(draw(int(time.Second / 5)))
			case 3:
				table.Merge(now, l, key, hash,
					[]int64{int64(now) + int64(draw(1e9)), int64(draw(5)), int64(draw(5))})
			case 4:
				items := []Item{
					{l, key, hash, Request{Cost: int64(draw(5))}},
					{l, key + "x", hash, Request{Cost: int64(draw(9))}},
					{limits[draw(len(limits))], key, hash, Request{Cost: 1}},
				}
				table.TakeAll(now, items, make([]Decision, 3))
			default:
				table.Take(now, l, key, hash, int64(k%5)-1)
			}
			if draw(50) == 0 {
				table.check(t)
			}
		}
		table.check(t)
	})
}

func mustBe(l *Limit, err error) *Limit {
	if err != nil {
		panic(err)
	}
	return l
}

// check checks the shards, and that the rules' counts are those of the entries.
func (t *Table) check(tt interface{ Fatalf(string, ...any) }) {
	live := map[uint32]int64{}
	for i := range t.shards {
		for _, st := range []*store{&t.shards[i].entries, &t.place.sketches[i].cells} {
			st.check(tt)
			for s := range st.all {
				live[s.rule()]++
			}
		}
	}
	for r := range t.rules.index.Load().all {
		if r.live.Load() != live[r.id] {
			tt.Fatalf("limit %s has %d entries and counts %d", r.limit.Load().Name, live[r.id],
				r.live.Load())
		}
		delete(live, r.id)
	}
	if len(live) > 0 {
		tt.Fatalf("there are entries of limits that are not known: %v", live)
	}
}

// TestCacheLines: a slot is one, and so is what a lookup reads of its shard.
func TestCacheLines(t *testing.T) {
	table := NewTable(TableConfig{Shards: 256})
	if unsafe.Sizeof(slot{}) != 64 {
		t.Errorf("a slot has %d bytes", unsafe.Sizeof(slot{}))
	}
	if n := unsafe.Offsetof(shard{}.entries) + unsafe.Offsetof(store{}.capacity) + 8; n > 64 {
		t.Errorf("a lookup reads %d bytes of its shard", n)
	}
	for i := range table.shards {
		s := &table.shards[i]
		for what, p := range map[string]unsafe.Pointer{
			"shard": unsafe.Pointer(s), "slots": unsafe.Pointer(&s.entries.slots[0]),
			"sketch": unsafe.Pointer(&table.place.sketches[i].cells.slots[0]),
		} {
			if uintptr(p)%64 != 0 {
				t.Errorf("the %s of shard %d begin within a cache line", what, i)
			}
		}
	}
}

// TestBudget: all memory that a table can ever use is within its budget, for any budget and number
// of shards.
func TestBudget(t *testing.T) {
	for _, c := range []TableConfig{
		{},
		{Bytes: 1},
		{Bytes: 1, Shards: 64},
		{Bytes: 100_000, Shards: 3},
		{Bytes: 1 << 20, Shards: 1 << 20},
		{Bytes: 3_333_333},
		{Bytes: 1 << 30, Shards: 1},
		{Bytes: -5, Shards: -5},
	} {
		table := NewTable(c)
		words := 0
		for i := range table.shards {
			words += len(table.shards[i].entries.memory) + len(table.place.sketches[i].cells.memory)
		}
		n := len(table.shards)
		budget := max(c.Bytes, MinBytes)
		if c.Bytes == 0 {
			budget = DefaultBytes
		}
		if int64(words)*8 > budget || int64(words)*8 < budget*9/10 || n&(n-1) != 0 ||
			table.Stats().Budget != budget {
			t.Errorf("%+v: %d shards of %d bytes", c, n, words*8/n)
		}
		// shards begin at different places in the caches: that is all that is left out
		if wasted := budget/int64(n) - int64(words)*8/int64(n); wasted >= 64*64+64 {
			t.Errorf("%+v: %d bytes of each shard are not used", c, wasted)
		}
	}
}

// TestNoHomeBehindTheLast: the largest mix there is has a home in the smallest store, and room
// behind it.
func TestNoHomeBehindTheLast(t *testing.T) {
	table := NewTable(TableConfig{Bytes: 1, Shards: 1})
	st := &table.shards[0].entries
	l := mustBe(New(Spec{Name: "last", Algorithm: GCRA, Limit: 1, Per: time.Hour}))
	r := table.rules.learn(l, table.shards)
	n := 0
	for i := range 1000 {
		if !st.insert(5, table.rules.index.Load(),
			&owner{mix: ^uint32(0), rule: r.id, key: fmt.Sprint(i), cells: 1}, []int64{1 << 60}) {
			break
		}
		n++
	}
	st.check(t)
	if n < st.reach || n > st.reach+1 {
		t.Errorf("%d keys with the largest mix, reach is %d", n, st.reach)
	}
	for i := range n {
		if st.find(^uint32(0), r.id, fmt.Sprint(i)) < 0 {
			t.Errorf("key %d is lost", i)
		}
	}
	st.sweep(latest, table.rules.index.Load(), 0, st.capacity)
	if st.check(t); st.count != 0 {
		t.Errorf("%d of them are never swept", st.count)
	}
}

// TestOneMixTwoLimits: also where the hash of key and limit is the same, counters of two limits are
// two.
func TestOneMixTwoLimits(t *testing.T) {
	table := NewTable(TableConfig{Bytes: 1, Shards: 1})
	one := mustBe(New(Spec{Name: "one", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	two := mustBe(New(Spec{Name: "two", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	for _, l := range []*Limit{one, two} {
		if d := table.Take(5, l, "k", 77^l.seed, 3); d.Remaining != 2 {
			t.Errorf("%s: %+v", l.Name, d)
		}
	}
	if n := table.Stats().Keys; n != 2 {
		t.Errorf("%d entries", n)
	}
}

// TestShrinkLeavesClusters: a store that has become nearly empty stays large if the keys that are
// left would be too close together in a small one, and shrinks when they are gone.
func TestShrinkLeavesClusters(t *testing.T) {
	table := NewTable(TableConfig{Bytes: 1 << 20, Shards: 1})
	st, index := &table.shards[0].entries, table.rules.index.Load()
	r := table.rules.learn(mustBe(New(Spec{Name: "x", Algorithm: GCRA, Limit: 1, Per: time.Hour})),
		table.shards)
	put := func(mix uint32, key string) {
		if !st.insert(5, index, &owner{mix: mix, rule: r.id, key: key, cells: 1},
			[]int64{1 << 60}) {
			t.Fatalf("no room for %s", key)
		}
	}
	const others = 6000
	for i := range uint32(others) {
		put(i*0x9e3779b1|1, fmt.Sprint(i))
	}
	st.relay(5, index, 11_000)                      // as if it had grown just now
	apart := ^uint32(0) / uint32(st.capacity) * 300 // homes
	for i := range uint32(3 * 100) {
		put(1<<31+i/100*apart, fmt.Sprint("cluster", i))
	}
	for i := range uint32(others) {
		st.remove(index, st.find(i*0x9e3779b1|1, r.id, fmt.Sprint(i)))
	}
	large := st.capacity
	st.trim(5, index)
	if st.check(t); st.capacity != large || st.count != 300 {
		t.Errorf("capacity %d, then %d, with %d entries", large, st.capacity, st.count)
	}
	st.trim(latest, index) // all are over, but only a sweep removes them
	st.sweep(latest, index, 0, st.capacity)
	st.trim(latest, index)
	if st.check(t); st.capacity != firstCapacity || st.count != 0 {
		t.Errorf("capacity %d with %d entries", st.capacity, st.count)
	}
}

// TestGrowthWritesWhereEntriesStand: the room behind the last home, which is for runs that hardly
// ever come, takes no memory: a page costs from when it is first written to, and a table of many
// shards has as much of that room as of some entries.
func TestGrowthWritesWhereEntriesStand(t *testing.T) {
	table := NewTable(TableConfig{Bytes: 1 << 20, Shards: 1})
	st, index := &table.shards[0].entries, table.rules.index.Load()
	r := table.rules.learn(mustBe(New(Spec{Name: "x", Algorithm: GCRA, Limit: 1, Per: time.Hour})),
		table.shards)
	const untouched = 7
	for i := range st.slots {
		st.slots[i].body[bodyWords-1] = untouched
	}
	last := 0
	for i := range uint32(6000) {
		if !st.insert(5, index, &owner{mix: i*0x9e3779b1 | 1, rule: r.id, key: "k", cells: 1},
			[]int64{1 << 60}) {
			t.Fatalf("no room for entry %d", i)
		}
		last = max(last, st.end())
	}
	st.check(t)
	for i := last; i < len(st.slots); i++ {
		if st.slots[i].body[bodyWords-1] != untouched {
			t.Fatalf("slot %d was written to, where no entry ever stood behind slot %d; %d homes",
				i, last, st.capacity)
		}
	}
}

// TestRoomOfTheForgotten: the blocks of long keys that were reset are used again without a sweep,
// although they lie scattered among others.
func TestRoomOfTheForgotten(t *testing.T) {
	table := NewTable(TableConfig{Bytes: 1 << 20, Shards: 1})
	l := mustBe(New(Spec{Name: "x", Algorithm: GCRA, Limit: 1, Per: time.Hour}))
	key := func(i int) string { return fmt.Sprintf("%0*d", 500+i%500, i) }
	var live []int
	for i := range 20_000 {
		if len(live) < 900 {
			live = append(live, i)
		} else {
			old := &live[i*7919%len(live)]
			table.Reset(5, l, key(*old), Hash(key(*old)))
			*old = i
		}
		table.Take(5, l, key(i), Hash(key(i)), 1)
	}
	table.check(t)
	if s := table.Stats(); s.Keys != 900 || s.Overflowed != 0 {
		t.Errorf("%+v", s)
	}
}

// TestRuleIsReclaimed plays the three moments at which somebody may hold a rule that is just being
// reclaimed.
func TestRuleIsReclaimed(t *testing.T) {
	limit := func(i int) *Limit {
		return mustBe(New(Spec{Name: fmt.Sprint(i), Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	}
	full := func() (*Table, *rule) {
		table := NewTable(TableConfig{Bytes: 1 << 20, Shards: 2})
		for i := range maxRules {
			table.rules.learn(limit(i), table.shards)
		}
		return table, table.rules.index.Load().find(limit(7))
	}

	// An entry is made before the reclaimer has passed the shard's lock: the rule stays.
	table, r := full()
	s := &table.shards[1]
	s.mu.Lock()
	done := make(chan *rule)
	go func() { done <- table.rules.learn(limit(maxRules), table.shards) }()
	for !r.dead.Load() {
		runtime.Gosched()
	}
	s.entries.insert(5, s.rules.index.Load(), &owner{mix: 1, rule: r.id, key: "k", cells: 1},
		[]int64{1 << 60})
	s.mu.Unlock()
	other := <-done
	if kept := table.rules.index.Load().find(limit(7)); kept != r || r.dead.Load() {
		t.Error("a rule with an entry was reclaimed")
	}
	if other.id == r.id || table.rules.count != 2 {
		t.Errorf("%d rules are left, want the one with an entry and the new one", table.rules.count)
	}
	table.check(t)

	// A request finds the mark: it waits, and makes its entry under a new rule.
	table, r = full()
	table.rules.mu.Lock()
	r.dead.Store(true)
	decided := make(chan Decision)
	go func() { decided <- table.Take(5, limit(7), "k", 1, 1) }()
	go func() {
		out := make([]Decision, 1)
		table.TakeAll(5, []Item{{limit(7), "k", 1, Request{Cost: 1}}}, out)
		decided <- out[0]
	}()
	for range 1000 {
		runtime.Gosched()
	}
	table.rules.reclaimLocked(table.rules.index.Load(), table.shards)
	table.rules.mu.Unlock()
	if a, b := <-decided, <-decided; a.Remaining+b.Remaining != 4+3 {
		t.Errorf("%+v and %+v", a, b)
	}
	table.check(t)

	// The number is used again, and a holder of the old rule finds nothing.
	if again := table.rules.index.Load().find(limit(7)); again == r || !r.gone.Load() ||
		again.gone.Load() {
		t.Error("a reclaimed rule is in use")
	}
	other = table.rules.learn(limit(maxRules+1), table.shards)
	for other.id != r.id {
		other = table.rules.learn(limit(maxRules+int(other.id)), table.shards)
	}
	x := target{rule: other, limit: other.limit.Load(), mix: 9, key: "k"}
	s.mu.Lock()
	s.entries.insert(5, s.rules.index.Load(),
		&owner{mix: x.mix, rule: other.id, key: x.key, cells: 1}, []int64{1 << 60})
	_, _, known := s.read(5, &x)
	x.rule = r
	_, _, taken := s.read(5, &x)
	s.mu.Unlock()
	if !known || taken {
		t.Errorf("an entry of the rule that has the number now is found: %v, by the one that had "+
			"it: %v", known, taken)
	}
}

// TestBlocksFindRoom: a block finds room where as much is free as it needs: below the others, in
// one piece, or, if it is a good part of all, in many pieces that are slid together.
func TestBlocksFindRoom(t *testing.T) {
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	rapid.Check(t, func(t *rapid.T) {
		r, index := &rule{id: 1}, newRuleIndex(16)
		r.limit.Store(l)
		index.add(r)
		var view storeView
		st := newStore(make([]int64, 64*slotWords), &view)
		var in []string
		full := 0
		for i := range 300 {
			n := rapid.IntRange(0, 9).Draw(t, "what")
			if n == 0 && len(in) > 0 || len(in) > 40 {
				k := rapid.IntRange(0, len(in)-1).Draw(t, "which")
				st.remove(index, st.find(mixOf(Hash(in[k]), l), 1, in[k]))
				in = slices.Delete(in, k, k+1)
				continue
			}
			words, key := 1, fmt.Sprintf("%0*d", 60+8*n, i)
			size := blockSize(words, len(key))
			for st.count >= st.capacity-st.capacity/4 && st.grow(0, index) {
			}
			free := st.low - (st.capacity+st.spill)*slotWords
			most := st.hole.size
			if st.garbage >= max(size, st.blockWords()/32) {
				most = size
			}
			room := free >= size || most >= size
			o := &owner{mix: mixOf(Hash(key), l), rule: 1, key: key, cells: 1}
			if at, _ := st.spot(o.mix); at < 0 {
				continue
			}
			// far ahead, so that nothing is swept
			if got := st.insert(0, index, o, []int64{1 << 62}); got != room {
				t.Fatalf("a block of %d words finds room: %t, with %d free, a hole of %d and %d "+
					"of garbage", size, got, free, st.hole.size, st.garbage)
			} else if got {
				in = append(in, key)
			} else {
				full++
			}
			st.check(t)
		}
	})
}
