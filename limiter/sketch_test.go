package limiter

import (
	"fmt"
	"math"
	"math/rand"
	"testing"
	"time"
)

// flooded is a table of one shard with the smallest budget, which n keys have been charged in, by
// one unit each.
func flooded(l *Limit, now Instant, n int) *Table {
	t := NewTable(TableConfig{Bytes: 1, Shards: 1})
	for i := range n {
		key := fmt.Sprint("flood-", i)
		t.Take(now, l, key, Hash(key), 1)
	}
	return t
}

// slow is a limit of the kind of s with nothing refilled for minutes.
func slow(s Spec) *Limit {
	s.Name = "l"
	if s.Per != 0 {
		s.Per = time.Hour
	}
	return mustBe(New(s))
}

// TestNobodyYieldsToLess: a key is evicted only for one that has itself consumed as much. During
// any flood of new keys, keys that have consumed more keep their entries and are decided exactly.
func TestNobodyYieldsToLess(t *testing.T) {
	const now = Instant(1e18)
	for _, s := range shapes {
		l := slow(s)
		table := NewTable(TableConfig{Bytes: 1, Shards: 1})
		for i := range 200 {
			table.Take(now, l, fmt.Sprint("known-", i), Hash(fmt.Sprint("known-", i)), 2)
		}
		for i := range lessIfShort(20_000, 4000) {
			key := fmt.Sprint("stranger-", i)
			table.Take(now, l, key, Hash(key), 1)
		}
		for i := range 200 {
			key := fmt.Sprint("known-", i)
			id := table.rules.index.Load().find(l).id
			if table.shards[0].entries.find(mixOf(Hash(key), l), id, key) < 0 {
				t.Fatalf("%v: %s has lost its entry", l.Algorithm, key)
			}
		}
		if st := table.Stats(); st.Overflowed == 0 {
			t.Errorf("%v: %+v", l.Algorithm, st)
		}
	}
}

// TestNearestToFullYields: of the entries nearby, the one with the least debt is evicted, not the
// oldest or the last used; it can be admitted no more than before; and its room is used.
func TestNearestToFullYields(t *testing.T) {
	const now = Instant(1e18)
	for _, longest := range []int{1, 300} { // slots are wanting, or blocks
		l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 1000, Per: time.Hour}))
		table := NewTable(TableConfig{Bytes: 1, Shards: 1})
		key := func(i int) string { return fmt.Sprintf("%0*d", longest, i) }
		debts := map[string]int64{}
		rnd := rand.New(rand.NewSource(1))
		for i := 0; table.Stats().Overflowed == 0; i++ {
			debts[key(i)] = 10 + rnd.Int63n(400)
			table.Take(now, l, key(i), Hash(key(i)), debts[key(i)])
		}
		full := table.Stats()
		for i := range full.Keys / 3 {
			k := key(1_000_000 + i)
			if d := table.Take(now, l, k, Hash(k), 500); !d.Allowed {
				continue // its cells were charged too much already
			}
			debts[k] = 500
		}
		s := table.Stats()
		if s.Evicted < uint64(full.Keys/6) || s.Keys < full.Keys*9/10 || s.Bytes > s.Budget {
			t.Errorf("keys of %d bytes: %+v, then %+v", longest, full, s)
		}
		st, r := &table.shards[0].entries, table.rules.index.Load().find(l)
		poor, rich := 0, 0
		for k, debt := range debts {
			if d := table.Peek(now, l, k, Hash(k), 0); d.Remaining > 1000-debt {
				t.Fatalf("%s has consumed %d, and %d remain", k, debt, d.Remaining)
			}
			switch in := st.find(mixOf(Hash(k), l), r.id, k) >= 0; {
			case in && debt < 100:
				poor++
			case in && debt >= 300 && debt < 500:
				rich++
			}
		}
		if poor*3 > rich {
			t.Errorf("keys of %d bytes: of those with little debt %d are left, of those with "+
				"much %d", longest, poor, rich)
		}
		table.check(t)
	}
}

// TestDebtOfHugeBucket: of buckets by clients' clocks as large as an int64, too, the emptier one is
// the farther from as good as never seen.
func TestDebtOfHugeBucket(t *testing.T) {
	const now = Instant(1e18)
	for _, limit := range []int64{1 << 40, 1 << 43, 1<<44 + 1, 1<<61 + 1, math.MaxInt64} {
		spec := Spec{
			Name: "huge", Algorithm: TokenBucket, Limit: limit, Per: time.Hour,
			ClientTime: true,
		}
		l := mustBe(New(spec))
		for part, want := range map[int64]uint64{limit: 1 << 20, limit / 2: 1<<19 - 1, 1: 0} {
			w, d := make([]int64, l.words()), Decision{}
			l.decide(w, now, part, &d)
			if got := l.debtOf(w, now).used; got != want && got != want+1 {
				t.Errorf("%d of %d: %d of 2^20 are used, want %d", part, limit, got, want)
			}
		}
	}
}

// TestNewcomersAreServed: how many newcomers to a full table, one request each, are wrongly
// refused. With 16 cells per shard and limit, nearly all were.
func TestNewcomersAreServed(t *testing.T) {
	const now = Instant(1e18)
	for _, c := range []struct {
		algorithm Algorithm
		least     float64 // part that is admitted
	}{{GCRA, 0.9}, {FixedWindow, 0.9}, {SlidingWindow, 0.5}} {
		l := mustBe(New(Spec{Name: "l", Algorithm: c.algorithm, Limit: 10, Per: time.Minute}))
		shards := lessIfShort(4, 1)
		table := NewTable(TableConfig{Bytes: int64(shards) << 20, Shards: shards})
		at := now
		for i := range 15_000 * shards { // these fill it
			key := fmt.Sprint("key-", i)
			table.Take(at, l, key, Hash(key), 1)
			at += 1000
		}
		admitted := 0
		newcomers := 15_000 * shards
		for i := range newcomers {
			key := fmt.Sprint("newcomer-", i)
			if table.Take(at, l, key, Hash(key), 1).Allowed {
				admitted++
			}
			at += 1000
		}
		s := table.Stats()
		if got := float64(admitted) / float64(newcomers); got < c.least || s.Overflowed == 0 {
			t.Errorf("%v: %.1f %% of newcomers are served: %+v", c.algorithm, 100*got, s)
		}
	}
}

// TestCellsMove: what keys without an entry have consumed is not admitted again where their hashes
// are moved to, however many shards and however much room there is: by a scan, and by what has
// changed since.
func TestCellsMove(t *testing.T) {
	const now = Instant(1e18)
	key := func(i int) string { return fmt.Sprint("flood-", i) }
	for _, s := range shapes {
		l := slow(s)
		for _, c := range []struct{ from, to TableConfig }{
			{TableConfig{Bytes: 1, Shards: 1}, TableConfig{Bytes: 8 << 20, Shards: 1}},
			{TableConfig{Bytes: 1, Shards: 1}, TableConfig{Bytes: 8 << 20, Shards: 16}},
			{TableConfig{Bytes: 256 << 10, Shards: 4}, TableConfig{Bytes: 8 << 20, Shards: 2}},
			{TableConfig{Bytes: 256 << 10, Shards: 4}, TableConfig{Bytes: 1, Shards: 1}},
		}[lessIfShort(0, 3):] {
			from, to, truth := NewTable(c.from), NewTable(c.to), NewTable(TableConfig{})
			from.Track()
			take := func(i int, cost int64) {
				if from.Take(now, l, key(i), Hash(key(i)), cost).Allowed {
					truth.Take(now, l, key(i), Hash(key(i)), cost)
				}
			}
			keys := lessIfShort(6000, 3000)
			for i := range keys {
				take(i, 1+int64(i%3))
				if i%500 == 0 {
					from.Changed(now, func(uint64, Entry) {})
				}
			}
			wanted := func(hash uint64) bool { return hash%3 == 0 }
			for part := range from.Parts() {
				from.Scan(now, part, wanted, func(hash uint64, e Entry) {
					if !wanted(hash) || hash != Hash(e.Key) || !to.Import(now, &e, true) {
						t.Fatalf("the table does not read its own %+v", e)
					}
				})
			}
			from.Changed(now, func(uint64, Entry) {})
			for i := range keys { // and what is charged after the scan is told
				if i%7 == 0 {
					take(i, 2)
				}
				if i%500 == 499 {
					from.Changed(now, func(hash uint64, e Entry) {
						if wanted(hash) {
							to.Import(now, &e, true)
						}
					})
				}
			}
			for i := range keys {
				if !wanted(Hash(key(i))) {
					continue
				}
				has, there := truth.Peek(now, l, key(i), Hash(key(i)), 1), to.Peek(now, l, key(i),
					Hash(key(i)), 1)
				if there.Allowed && !has.Allowed || there.Remaining > has.Remaining ||
					there.ResetAfter < has.ResetAfter {
					t.Fatalf("%v of %v: %s has %+v, and %+v where it was moved to", c, l.Algorithm,
						key(i), has, there)
				}
			}
			if from.Stats().Overflowed == 0 {
				t.Fatal("there was room for all: the test does not show what it should")
			}
		}
	}
}

// TestCellsMoveAsTheyAre: cells that are moved to a table with as many groups or more bind the same
// keys there, and no others.
func TestCellsMoveAsTheyAre(t *testing.T) {
	const now = Instant(1e18)
	key := func(i int) string { return fmt.Sprintf("%0*d", MaxKey+1, i) } // too long for an entry
	for _, s := range shapes {
		l := slow(s)
		from := NewTable(TableConfig{Bytes: 1, Shards: 1})
		for i := range 3 {
			from.Take(now, l, key(i), Hash(key(i)), 1+int64(i))
		}
		for _, c := range []TableConfig{
			{Bytes: 1, Shards: 1}, {Bytes: 8 << 20, Shards: 1}, {Bytes: 8 << 20, Shards: 16},
		} {
			to := NewTable(c)
			for part := range from.Parts() {
				from.Scan(now, part, func(uint64) bool { return true }, func(_ uint64, e Entry) {
					to.Import(now, &e, true)
				})
			}
			if n := to.Stats().Cells; n < from.Stats().Cells ||
				c.Bytes == 1 && n > from.Stats().Cells {
				t.Errorf("%v to %+v: %d groups of cells became %d", l.Algorithm, c,
					from.Stats().Cells, n)
			}
			for i := range lessIfShort(400, 100) {
				has := from.Peek(now, l, key(i), Hash(key(i)), 1)
				if d := to.Peek(now, l, key(i), Hash(key(i)), 1); d != has {
					t.Fatalf("%v to %+v: of key %d is said %+v, before %+v", l.Algorithm, c, i, d,
						has)
				}
			}
		}
	}
}

// TestNoRoomForWhatComes: an imported state or cell without room is not forgotten: keys that it may
// stand for are refused until it is over, and then no longer.
func TestNoRoomForWhatComes(t *testing.T) {
	const now = Instant(1e18)
	// no cell has room
	l := mustBe(New(Spec{Name: "comes", Algorithm: SlidingLog, Limit: 2000, Per: time.Minute}))
	from := flooded(l, now, 0)
	from.Take(now, l, "k", Hash("k"), 2000)
	full := func() *Table {
		to := flooded(mustBe(New(Spec{Name: "flood", Algorithm: GCRA, Limit: 5, Per: time.Hour})),
			now, 5000)
		to.Guard(func(Instant, uint64) bool { return true }, func(uint64) bool { return true })
		return to
	}
	entry := from.Entry(now, l, "k", Hash("k"))
	cell := entry
	cell.State = append([]byte{wireCell, 13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 1}[:2+8+6],
		entry.State...)
	cell.State[1] = 8 + 6
	for what, e := range map[string]Entry{"entry": entry, "cell": cell} {
		to := full()
		if !to.Import(now, &e, false) {
			t.Fatalf("the %s is called broken", what)
		}
		refused, before := noRoom(l), to.Stats().Refused
		to.Take(now, l, "k", Hash("k"), 1)
		if n := to.Stats().Refused - before; n != 1 {
			t.Errorf("%s: one refusal is counted as %d", what, n)
		}
		items := []Item{{l, "k", Hash("k"), Request{Cost: 1}}}
		out := make([]Decision, 1)
		before = to.Stats().Refused
		to.reserveAll(now, items, make([]Decision, 1))
		to.TakeAll(now, items, out)
		if n := to.Stats().Refused - before; n != 2 {
			t.Errorf("%s: a refusal of all, and one to reserve, are counted as %d", what, n)
		}
		for _, d := range []Decision{
			to.Take(now, l, "k", Hash("k"), 1),
			to.Peek(now, l, "k", Hash("k"), 1), out[0],
		} {
			if d != refused {
				t.Errorf("%s: %+v", what, d)
			}
		}
		later := now.Add(time.Minute)
		if d := to.Peek(later, l, "k", Hash("k"), 1); !d.Allowed {
			t.Errorf("%s, when it is over: %+v", what, d)
		}
		to.Sweep(later, 3*to.Stats().Slots)
		if r := to.rules.index.Load().find(l); r.shut.Load() != 0 {
			t.Errorf("%s: the limit is not open again", what)
		}
	}
}

// TestBrokenCell: a cell in binary form that is none is refused, and breaks nothing.
func TestBrokenCell(t *testing.T) {
	const now = Instant(1e18)
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	from := flooded(l, now, 3000)
	cells := from.Save(now, 1)
	if len(cells) == 0 || cells[0].State[0] != wireCell {
		t.Fatal("there are no cells")
	}
	for _, e := range cells[:min(5, len(cells))] {
		for n := range len(e.State) {
			to := NewTable(TableConfig{Bytes: 1, Shards: 2})
			cut := Entry{Limit: l, Key: e.Key, State: e.State[:n]}
			// behind its place and its algorithm it is a whole state of none
			if to.Import(now, &cut, false) && (to.Stats().Cells > 0 || n == 1) {
				t.Fatalf("%d of %d bytes are taken over", n, len(e.State))
			}
			for _, x := range []byte{0, 1, 0x7f, 0x80, 0xff} {
				broken := Entry{Limit: l, Key: e.Key, State: append([]byte(nil), e.State...)}
				broken.State[n] = x
				to.Import(now, &broken, false)
			}
			to.check(t)
		}
	}
}

// TestGrowthOverBlocks: slots may lie where blocks lay.
func TestGrowthOverBlocks(t *testing.T) {
	const now = Instant(1e18)
	// three fill the table
	log := mustBe(New(Spec{Name: "log", Algorithm: SlidingLog, Limit: 1960, Per: time.Hour}))
	l := mustBe(New(Spec{Name: "l", Algorithm: FixedWindow, Limit: 5, Per: time.Hour}))
	table := NewTable(TableConfig{Bytes: 1, Shards: 1})
	st := &table.shards[0].entries
	for i := range 3 {
		table.Take(now, log, fmt.Sprint(i), Hash(fmt.Sprint(i)), log.Limit)
	}
	if top := (st.capacity + st.spill + 3) * slotWords; st.low > top || st.count != 3 {
		t.Fatalf("%d blocks from %d on, slots would grow to %d: the test does not show what it "+
			"should", st.count, st.low, top)
	}
	for i := range 3 {
		table.Reset(now, log, fmt.Sprint(i), Hash(fmt.Sprint(i)))
	}
	for i := range 100 {
		key := fmt.Sprint(i)
		if d := table.Take(now, l, key, Hash(key), 1); d.Remaining != 4 {
			t.Fatalf("%s: %+v", key, d)
		}
		table.check(t)
	}
}

// lessIfShort is n, or a few of them with -short, as the race detector is asked for: it multiplies
// the time, and what it looks for is in the tests with goroutines.
func lessIfShort(n, few int) int {
	if testing.Short() {
		return few
	}
	return n
}

// TestNearestToFullLooksAtAll: of all entries nearby that would make room, the one with the least
// debt is found, whatever lies between: states of another length, or of a stated limit.
func TestNearestToFullLooksAtAll(t *testing.T) {
	const now = Instant(1e18)
	var limits []*Limit
	for _, s := range []Spec{
		{Algorithm: GCRA},
		{Algorithm: StatedBucket},
		{Algorithm: SlidingCounter, Buckets: 4},
		{Algorithm: SlidingCounter, Buckets: 20},
	} {
		s.Name, s.Limit, s.Per = fmt.Sprint(s.Algorithm, s.Buckets), 1000, time.Hour
		limits = append(limits, mustBe(New(s)))
	}
	rnd := rand.New(rand.NewSource(1))
	table := NewTable(TableConfig{Bytes: 1, Shards: 1})
	for i := 0; table.Stats().Overflowed < 10; i++ {
		key := fmt.Sprint("key-", i)
		table.Take(now, limits[i%len(limits)], key, Hash(key), 1+rnd.Int63n(900))
	}
	st, index := &table.shards[0].entries, table.rules.index.Load()
	found := 0
	for i := range 2000 {
		l, key := limits[i%len(limits)], fmt.Sprint("new-", i)
		o := &owner{mix: mixOf(Hash(key), l), rule: index.find(l).id, key: key}
		most := debt{used: uint64(rnd.Int63n(1 << 20)), reset: time.Hour}
		least, any, block := most, false, 0
		if at, _ := st.spot(o.mix); at >= 0 && !inlined(l.words(), len(key)) {
			block = blockSize(l.words(), len(key))
		}
		for at := st.home(o.mix); at < min(st.end(), st.home(o.mix)+nearby); at++ {
			e := &st.slots[at]
			if e.head == 0 {
				continue
			}
			of := index.byID(e.rule()).limit.Load()
			makesRoom := block == 0 || !e.inlined() && e.blockSize() >= block
			if d := of.debtOf(st.state(e), now); makesRoom && !of.stated() && !least.less(d) {
				least, any = d, true
			}
		}
		got := st.nearestToFull(now, index, o, l.words(), most)
		if got < 0 != !any {
			t.Fatalf("slot %d is found for %s, where one makes room: %t", got, key, any)
		}
		if got < 0 {
			continue
		}
		found++
		e := &st.slots[got]
		d := index.byID(e.rule()).limit.Load().debtOf(st.state(e), now)
		if d != least || block > 0 && (e.inlined() || e.blockSize() < block) {
			t.Fatalf("%s is to yield with the debt %+v, and the least is %+v", key, d, least)
		}
	}
	if found < 500 {
		t.Errorf("room was found %d times", found)
	}
}
