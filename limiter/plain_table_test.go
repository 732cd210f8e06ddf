package limiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// held is how many slots a table has, of entries and of cells.
func (t *Table) held() (entries, cells int) {
	for i := range t.shards {
		entries += t.shards[i].entries.capacity
		cells += t.place.sketches[i].cells.capacity
	}
	return entries, cells
}

// at is how many slots lie before the next one that is to be swept.
func (t *Table) at() (slots int) {
	for i := range t.cursor.shard {
		slots += t.shards[i].entries.capacity
	}
	return slots + t.cursor.slot
}

// Promise: a sweep looks at as many slots as is said, one after the other, from where the last one
// ended, and no further than to the end of its second round; it removes what is as good as never
// seen and not kept, and tells how much that was.
func TestSweepsInPlainWords(t *testing.T) {
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	for seed := range uint64(30) {
		draw := rand.New(rand.NewPCG(seed, 1))
		now := Instant(1e18)
		table := NewTable(TableConfig{Bytes: 4 << 20, Shards: oneOf(draw, 1, 2, 8)})
		keys := draw.IntN(4000)
		for i := range keys {
			key := fmt.Sprint("k", i)
			table.Take(now, l, key, Hash(key), 5)
		}
		all, cells := table.held()
		if s := table.Stats(); s.Slots != all+cells || s.Keys != keys {
			t.Fatalf("seed %d: %d slots and %d keys, want %d and %d", seed, s.Slots, s.Keys,
				all+cells, keys)
		}
		for range 60 { // all keys live, so nothing moves
			from := table.at()
			n := oneOf(draw, 0, -1, 1, 2, draw.IntN(all), sweepStep, sweepStep+1, all, 3*all)
			if removed := table.Sweep(now, n); removed != 0 {
				t.Fatalf("seed %d: %d of what lives is removed", seed, removed)
			}
			if again, _ := table.held(); again != all {
				all = again // it was shrunk to what it holds
				continue
			}
			if want := min(from+max(0, n), 2*all) % all; table.at() != want {
				t.Fatalf("seed %d: %d slots from %d on end at %d of %d, want %d", seed, n, from,
					table.at(), all, want)
			}
		}
		later := now.Add(time.Hour)
		before := table.Stats()
		removed := 0
		for step := 1 + draw.IntN(2*all); table.Stats().Keys > 0; step = 1 + draw.IntN(2*all) {
			n := table.Sweep(later, step)
			removed += n
			if n > step+nearby*len(table.shards) || keys-removed != table.Stats().Keys {
				t.Fatalf("seed %d: %d of %d are removed, and %d are left", seed, removed, keys,
					table.Stats().Keys)
			}
		}
		if s := table.Stats(); s.Swept != before.Swept+uint64(keys) {
			t.Fatalf("seed %d: %d of %d are swept", seed, s.Swept-before.Swept, keys)
		}
	}
}

// Promise: what a table saves is all that outlives its process: the cells, and of the entries those
// that are kept and those of replicated limits, whatever is kept, but no shares.
func TestWhatIsSaved(t *testing.T) {
	const now = Instant(1e18)
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	r := mustBe(New(Spec{
		Name: "r", Algorithm: GCRA, Limit: 5, Per: time.Hour, Consistency: Replicated,
	}))
	odd := func(hash uint64) bool { return hash%2 == 1 }
	for _, kept := range []func(uint64) bool{nil, odd} {
		table := NewTable(TableConfig{Bytes: 4 << 20, Shards: 4})
		if kept != nil {
			table.Guard(func(Instant, uint64) bool { return true }, kept)
		}
		var want []string
		for i := range 600 {
			key := fmt.Sprint("k", i)
			of := []*Limit{l, r, l.Share(2), r.Share(2)}[i%4]
			table.Take(now, of, key, Hash(key), 2)
			if i%4 == 1 || i%4 == 0 && (kept == nil || odd(Hash(key))) {
				want = append(want, of.Name+" "+key)
			}
		}
		var got []string
		for part := range table.Parts() {
			for _, e := range table.Save(now, part) {
				got = append(got, e.Limit.Name+" "+e.Key)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("kept: %t: %d entries are saved, want %d", kept != nil, len(got), len(want))
		}
	}
}

// full is a table without room for any more entry, so that newcomers share cells.
func full(now Instant) (table *Table, filler *Limit) {
	table = NewTable(TableConfig{Bytes: 1, Shards: 1})
	filler = mustBe(New(Spec{Name: "filler", Algorithm: GCRA, Limit: 2, Per: 1000 * time.Hour}))
	for i := 0; table.Stats().Overflowed == 0; i++ {
		key := fmt.Sprint(i)
		table.Take(now, filler, key, Hash(key), 2)
	}
	return table, filler
}

// Promise: cells are swept, counted and saved as entries are; without one there is nothing to do.
func TestCellsAreSwept(t *testing.T) {
	now := Instant(1e18)
	table, _ := full(now)
	quick := mustBe(New(Spec{Name: "quick", Algorithm: GCRA, Limit: 2, Per: time.Second}))
	cells := &table.place.sketches[0]
	before := cells.cells.count
	for i := range 50 {
		key := fmt.Sprint("newcomer ", i)
		table.Take(now, quick, key, Hash(key), 1)
	}
	groups := cells.cells.count - before
	if groups == 0 || cells.empty() || table.Stats().Cells != cells.cells.count {
		t.Fatalf("newcomers have %d groups of cells, of %d; %+v", groups, cells.cells.count,
			table.Stats())
	}
	entries, slots := table.held()
	if s := table.Stats(); s.Slots != entries+slots {
		t.Errorf("%d slots, want %d and %d", s.Slots, entries, slots)
	}
	saved := table.Save(now, 1)
	named := func(e Entry) bool { return e.Key != "cell" }
	if len(saved) == 0 || slices.ContainsFunc(saved, named) {
		t.Errorf("of the cells %v are saved", saved)
	}
	index := table.shards[0].rules.index.Load()
	swept := cells.cells.swept
	if n := cells.sweep(now, index); n != 0 || cells.cells.count != before+groups {
		t.Errorf("%d groups that count are removed", n)
	}
	later := now.Add(2 * time.Second)
	if n := cells.sweep(later, index); n != groups || cells.cells.count != before ||
		cells.cells.swept != swept+uint64(n) {
		t.Errorf("%d groups are removed, want %d", n, groups)
	}
	if n := cells.sweep(now.Add(2000*time.Hour), index); n != before || !cells.empty() ||
		table.Stats().Cells != 0 {
		t.Errorf("%d groups are removed at last, want %d: %+v", n, before, table.Stats())
	}
	if n := cells.sweep(now, index); n != 0 {
		t.Errorf("%d of no groups are removed", n)
	}
}
