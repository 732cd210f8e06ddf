package limiter

import (
	"fmt"
	"testing"
	"time"
)

// Promise: a state that was on its way counts as of that much earlier, and never as of later; one
// that would be of before all times counts as of their beginning.
func TestAgesInPlainWords(t *testing.T) {
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 60, Per: time.Minute}))
	for _, now := range []Instant{1e18, 0, earliest} {
		state := l.EncodeState([]int64{int64(now) + 20e9}, now)
		for age := -3 * time.Second; age < 30*time.Second; age += time.Second {
			table := NewTable(TableConfig{Bytes: 1})
			e := Entry{Limit: l, Key: "k", State: state, Age: age}
			if !table.Import(now, &e, false) {
				t.Fatal("the state is broken")
			}
			want := max(0, 20*time.Second-max(0, age))
			if now == earliest {
				want = 20 * time.Second
			}
			if d := table.Peek(now, l, "k", Hash("k"), 0); d.ResetAfter != want {
				t.Errorf("after %v at %d it is full in %v, want %v", age, now, d.ResetAfter, want)
			}
		}
	}
}

// Promise: cells are scanned under the first of 2^17 names that has a wanted hash, and not at all
// if none has.
func TestNamesOfCells(t *testing.T) {
	now := Instant(1e18)
	table, l := full(now)
	for i := range 300 {
		key := fmt.Sprint("newcomer ", i)
		table.Take(now, l, key, Hash(key), 1)
	}
	for _, name := range []int{0, 7, 1<<17 - 1, 1 << 17} {
		asked, told := 0, 0
		wanted := func(hash uint64) bool {
			asked++
			return hash == Hash(fmt.Sprint("cell-", name))
		}
		table.Scan(now, 1, wanted, func(hash uint64, e Entry) {
			if told++; e.Key != fmt.Sprint("cell-", name) || hash != Hash(e.Key) {
				t.Errorf("a cell is scanned under %q", e.Key)
			}
		})
		if asked != min(name+1, 1<<17) || (told > 0) != (name < 1<<17) {
			t.Errorf("name %d: %d names are tried, %d cells are told", name, asked, told)
		}
	}
}

// Promise: keys and states that are copied together share pieces of memory, some dozens in each.
func TestCopiesShareTheirMemory(t *testing.T) {
	const now, keys = Instant(1e18), 1000
	l := mustBe(New(Spec{Name: "l", Algorithm: FixedWindow, Limit: 5, Per: time.Hour}))
	table := NewTable(TableConfig{Bytes: 1 << 20, Shards: 1})
	for i := range keys {
		key := fmt.Sprint("key ", i)
		table.Take(now, l, key, Hash(key), 1)
	}
	n := testing.AllocsPerRun(5, func() {
		if len(table.Save(now, 0)) != keys {
			t.Error("some are not saved")
		}
	})
	if n > keys/20 {
		t.Errorf("%d entries are copied into %v pieces", keys, n)
	}
}
