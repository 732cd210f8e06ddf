package limiter

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

// check panics unless everything that a store relies on is so: the order, the places, the counts, the blocks.
func (st *store) check(t interface{ Fatalf(string, ...any) }) {
	taken, blocks, to := 0, 0, 0
	var last uint64
	for i := range st.slots {
		s := &st.slots[i]
		if i >= st.capacity+st.spill {
			break
		}
		if s.mix == 0 {
			continue
		}
		taken++
		if s.mix < last {
			t.Fatalf("slot %d is out of order", i)
		}
		last = s.mix
		if to = max(to, st.home(s.mix)); to != i {
			t.Fatalf("slot %d belongs to %d", i, to)
		}
		to++
		if i-st.home(s.mix) > st.reach+reachSlack {
			t.Fatalf("slot %d is %d from home, more than %d", i, i-st.home(s.mix), st.reach)
		}
		if !s.inlined() {
			at := int(s.body[0])
			blocks += s.blockSize()
			if at < st.low || st.memory[at+s.blockSize()-2] != int64(s.mix) ||
				st.memory[at+s.blockSize()-1] != int64(s.rule)<<32|int64(s.blockSize()) {
				t.Fatalf("slot %d has lost its block", i)
			}
		}
	}
	if taken != st.count {
		t.Fatalf("%d slots are taken, %d counted", taken, st.count)
	}
	if blocks+st.garbage != st.blockWords() {
		t.Fatalf("%d words in blocks and %d of garbage are not %d", blocks, st.garbage, st.blockWords())
	}
	if (st.capacity+st.spill)*slotWords > st.low && st.capacity > 0 {
		t.Fatalf("%d slots reach into the blocks from %d", st.capacity+st.spill, st.low)
	}
}

// TestStoreKeepsItsOrder: whatever is added, removed, forgotten, refitted and swept, with keys of all lengths and many
// with one hash, in a table that is mostly full.
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
		draw := func(n int) int { x ^= x << 13; x ^= x >> 7; x ^= x << 17; return int(x % uint64(n)) }
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
				table.Reset(l, key, hash)
			case 1:
				table.Sweep(now, draw(300))
			case 2:
				now += Instant(draw(int(time.Second / 5)))
			case 3:
				table.Merge(now, l, key, hash, []int64{int64(now) + int64(draw(1e9)), int64(draw(5)), int64(draw(5))})
			case 4:
				items := []Item{{l, key, hash, int64(draw(5))}, {l, key + "x", hash, int64(draw(9))}, {limits[draw(len(limits))], key, hash, 1}}
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
		for _, st := range []*store{&t.shards[i].entries, &t.shards[i].crowd} {
			st.check(tt)
			for s := range st.all {
				live[s.rule]++
			}
		}
	}
	for r := range t.rules.index.Load().all {
		if r.live.Load() != live[r.id] {
			tt.Fatalf("limit %s has %d entries and counts %d", r.limit.Load().Name, live[r.id], r.live.Load())
		}
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
			"shard": unsafe.Pointer(s), "slots": unsafe.Pointer(&s.entries.slots[0]), "crowd": unsafe.Pointer(&s.crowd.slots[0]),
		} {
			if uintptr(p)%64 != 0 {
				t.Errorf("the %s of shard %d begin within a cache line", what, i)
			}
		}
	}
}

// TestBudget: all memory that a table can ever use is within its budget, whatever the budget and the shards.
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
			words += len(table.shards[i].entries.memory) + len(table.shards[i].crowd.memory)
		}
		n := len(table.shards)
		budget := max(c.Bytes, MinBytes)
		if c.Bytes == 0 {
			budget = DefaultBytes
		}
		if int64(words)*8 > budget || int64(words)*8 < budget*9/10 || n&(n-1) != 0 || table.Stats().Budget != budget {
			t.Errorf("%+v: %d shards of %d bytes", c, n, words*8/n)
		}
	}
}

// TestNoHomeBehindTheLast: the largest mix there is has a home in the smallest store, and room behind it.
func TestNoHomeBehindTheLast(t *testing.T) {
	table := NewTable(TableConfig{Bytes: 1, Shards: 1})
	st := &table.shards[0].entries
	l := mustBe(New(Spec{Name: "last", Algorithm: GCRA, Limit: 1, Per: time.Hour}))
	r := table.rules.learn(l, table.shards)
	n := 0
	for i := range 1000 {
		if !st.insert(5, table.rules.index.Load(), ^uint64(0), r.id, fmt.Sprint(i), []int64{1 << 60}) {
			break
		}
		n++
	}
	st.check(t)
	if n < st.reach || n > st.reach+1 {
		t.Errorf("%d keys with the largest mix, reach is %d", n, st.reach)
	}
	for i := range n {
		if st.find(^uint64(0), r.id, fmt.Sprint(i)) < 0 {
			t.Errorf("key %d is lost", i)
		}
	}
}
