package limiter

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

// plainShards is how many shards a table of so many bytes has: as many as are wanted, rounded up to
// a power of two, or by default one for each MiB, and at least 16 for each core. Of those that are
// wanted none has less than 32 KiB, by default none has less than 64 KiB.
func plainShards(size int64, wanted int) (n int64) {
	most := int64(4096)
	if n = int64(wanted); wanted == 0 {
		n = max(size>>20, 16*int64(runtime.GOMAXPROCS(0)))
		most = min(most, size/(64<<10))
	}
	n = max(1, min(n, most))
	for n&(n-1) != 0 {
		n++
	}
	for size/n < 32<<10 {
		n /= 2
	}
	return n
}

// Promise: a table has as many shards as plainShards says. Each has a part of the budget that ends
// less than 64 cache lines before the next one, and of that a 16th for cells, or 8 KiB. Keys lie by
// the top bits of their hash, or if the table has a seed, of another one.
func TestPartsOfATable(t *testing.T) {
	for _, size := range []int64{1, 64 << 10, 65 << 10, 128<<10 - 1, 128 << 10, 3 << 20, 64 << 20} {
		for _, wanted := range []int{-1, 0, 1, 2, 3, 4, 63, 64, 65, 4096, 4097, 1 << 20} {
			for _, seed := range []uint64{0, 7} {
				table := NewTable(TableConfig{Bytes: size, Shards: wanted, Seed: seed})
				budget := max(size, 64<<10)
				n := plainShards(budget, wanted)
				if int64(len(table.shards)) != n || table.Stats().Budget != budget {
					t.Fatalf("%d bytes, %d wanted: %d shards, want %d", size, wanted,
						len(table.shards), n)
				}
				partsOf(t, table, int(budget/n), seed)
			}
		}
	}
}

func partsOf(t *testing.T, table *Table, part int, seed uint64) {
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	width := bits.Len(uint(len(table.shards))) - 1
	for i := range table.shards {
		entries, cells := table.shards[i].entries.size(), table.place.sketches[i].size()
		want := max((entries+cells)/16, 8<<10) / 64 * 64
		if left := part - entries - cells; left < 0 || left >= 64*64+64 || cells != want ||
			(entries+cells)/64%64 != 37 {
			t.Fatalf("of %d bytes %d are for entries and %d for cells, want %d", part, entries,
				cells, want)
		}
		if key := fmt.Sprint(i); width > 0 {
			hash := uint64(i)<<(64-width) | 12345
			s, _ := table.shard(l, key, hash)
			if there := s == &table.shards[i]; seed == 0 && !there {
				t.Fatalf("hash %x does not lie in shard %d of %d", hash, i, len(table.shards))
			}
			place := table.place.of(key, hash)
			if s != &table.shards[place>>(64-width)] || (seed == 0) != (place == hash) {
				t.Fatalf("key %s does not lie by %x", key, place)
			}
		}
	}
}

// Promise: an insertion into a store removes nothing and lays nothing out anew where there is room,
// also at either end. Full to three quarters, a store grows by an eighth, or 16 homes, as far as
// its memory goes.
func TestInsertionsIntoRoom(t *testing.T) {
	grown, fine, refused := 0, 0, 0
	for seed := range uint64(200) {
		draw := rand.New(rand.NewPCG(seed, 1))
		table := NewTable(TableConfig{Bytes: 1, Shards: 1})
		st, index := &table.shards[0].entries, table.rules.index.Load()
		l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
		r := table.rules.learn(l, table.shards)
		now := Instant(1e18)
		for i := range 1 + draw.IntN(700) {
			mix := max(1, draw.Uint32()>>oneOf(draw, 0, 0, 0, 0, 3, 8, 16, 24, 31))
			if seed%2 == 1 { // all in one corner, each before all others
				mix = 1000 - uint32(i)
			}
			before, swept, room := st.capacity, st.swept, st.roomFor()
			at, _ := st.spot(mix)
			full := st.count*4 >= st.capacity*3
			state := []int64{int64(now) + oneOf[int64](draw, -1, 1, 1, 1)} // some are fresh
			if !st.insert(now, index, &owner{mix: mix, rule: r.id, key: fmt.Sprint(i), cells: 1},
				state) {
				if again, _ := st.spot(mix); at >= 0 || again >= 0 {
					t.Fatalf("seed %d: no room for %x, which belongs to %d or %d", seed, mix, at,
						again)
				}
				refused++
				continue
			}
			if could := room >= before+max(16, before/8); full && could && st.capacity == before &&
				st.swept == swept {
				t.Fatalf("seed %d: with %d of %d, room for %d is not used", seed, st.count-1,
					before, room)
			}
			if at >= 0 && !full {
				if fine++; st.capacity != before || st.swept != swept {
					t.Fatalf("seed %d: with %d of %d, %d were removed and there are %d", seed,
						st.count-1, before, st.swept-swept, st.capacity)
				}
			}
			if st.capacity != before {
				want := min(before+max(16, before/8), room)
				if grown++; at >= 0 && (!full || st.capacity != want) {
					t.Fatalf("seed %d: %d homes became %d, want %d", seed, before, st.capacity,
						want)
				}
			}
		}
		st.check(t)
	}
	if grown < 100 || fine < 1000 || refused < 1000 {
		t.Errorf("%d grew, %d had room, %d not; that proves little", grown, fine, refused)
	}
}

// Promise: of keys without an entry those that were charged are told, once each, with what they
// have last. Where as many were told as cells have memory for, no other key is charged until they
// are heard.
func TestKeysOfCellsAreTold(t *testing.T) {
	now := Instant(1e18)
	table, _ := full(now)
	table.Track()
	l := mustBe(New(Spec{Name: "l", Algorithm: FixedWindow, Limit: 1 << 30, Per: time.Hour}))
	most := table.place.sketches[0].size() / (8 + 16*l.words())
	for range 2 {
		left, told := map[string]int64{}, &table.shards[0].changed.sketch
		for i := range 2 * most {
			key := fmt.Sprintf("%08d", i)
			for range 1 + i%3 {
				if d := table.Take(now, l, key, Hash(key), 1); d.Allowed {
					left[key] = d.Remaining
				}
			}
			if _, charged := left[key]; !charged && len(*told) != most {
				t.Fatalf("%s is refused when %d of %d keys are to be told", key, len(*told), most)
			}
		}
		if len(left) == 2*most || len(*told) != most {
			t.Fatalf("%d of %d keys are to be told, %d are charged", len(*told), most, len(left))
		}
		table.Changed(now, func(_ uint64, e Entry) {
			var d Decision
			w, err := l.DecodeState(e.State, now)
			if err != nil {
				t.Fatal(err)
			}
			if l.decide(w, now, 0, &d); left[e.Key] != d.Remaining {
				t.Errorf("%s is told with %d, want %d", e.Key, d.Remaining, left[e.Key])
			}
			delete(left, e.Key)
		})
		if len(left) > 0 {
			t.Errorf("%d keys are not told", len(left))
		}
	}
}

// Promise: a newcomer without room takes the place of the entry that is nearest to full of those in
// the 32 slots from its home on: of those that have a large enough block, if it needs one; of none
// of a stated limit; and of none that is farther from full than the newcomer.
func TestNearestToFullInPlainWords(t *testing.T) {
	found, none := 0, 0
	for seed := range uint64(2000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		table := NewTable(TableConfig{Bytes: 1, Shards: 1})
		st, now := &table.shards[0].entries, Instant(1e18)
		limits := []*Limit{
			mustBe(New(Spec{Name: "a", Algorithm: GCRA, Limit: 5, Per: time.Second})),
			mustBe(New(Spec{Name: "b", Algorithm: SlidingLog, Limit: 9, Per: time.Second})),
			mustBe(New(Spec{Name: "c", Algorithm: StatedWindow, Limit: 5, Per: time.Second})),
			mustBe(New(Spec{Name: "d", Algorithm: FixedWindow, Limit: 5, Per: time.Hour})),
		}
		for i := range draw.IntN(300) {
			key := fmt.Sprint(oneOf(draw, "", "a long key for a block "), i)
			table.Take(now.Add(time.Duration(i)), oneOf(draw, limits...), key, draw.Uint64(),
				1+draw.Int64N(4))
		}
		if draw.IntN(4) == 0 { // changed in place: its entries have another length
			s := limits[1].Spec
			s.Limit--
			change := mustBe(New(s))
			table.Take(now, change, "changed", draw.Uint64(), 1)
		}
		index := table.rules.index.Load()
		o := &owner{mix: max(1, draw.Uint32()), key: oneOf(draw, "x", fmt.Sprintf("%060d", 1))}
		words, most := 1+draw.IntN(12), debt{uint64(draw.IntN(1 << 20)), time.Hour}
		place, _ := st.spot(o.mix)
		needs := 0
		if place >= 0 && words*8+len(o.key) > 56 { // there is a slot, but no block
			needs = words + (len(o.key)+7)/8 + 1
		}
		least, want := most, -1
		for i := st.home(o.mix); i < min(st.home(o.mix)+32, st.end()); i++ {
			e := &st.slots[i]
			if e.head == 0 || needs > 0 && (e.inlined() || e.blockSize() < needs) {
				continue
			}
			l := index.byID(e.rule()).limit.Load()
			if l.Algorithm == StatedWindow || e.words() != l.words() {
				continue
			}
			d := l.debtOf(st.state(e), now)
			if d.used < least.used || d.used == least.used && d.reset <= least.reset {
				least, want = d, i
			}
		}
		if got := st.nearestToFull(now, index, o, words, most); got != want {
			t.Fatalf("seed %d: slot %d is the nearest, want %d", seed, got, want)
		}
		if want >= 0 {
			found++
		} else {
			none++
		}
	}
	if found < 200 || none < 200 {
		t.Errorf("%d found, %d not; that proves little", found, none)
	}
}

// Promise: of requests together of which one has a limit without room, each other one hears whether
// it would be admitted, and what remains now: nothing is charged, drained or reserved.
func TestTogetherWithoutRoomForALimit(t *testing.T) {
	now := Instant(1e18)
	table := NewTable(TableConfig{Bytes: 1, Shards: 1})
	l := mustBe(New(Spec{Name: "l", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	stranger := mustBe(New(Spec{Name: "stranger", Algorithm: GCRA, Limit: 5, Per: time.Hour}))
	table.Take(now, l, "k", Hash("k"), 2)
	table.rules.count = maxRules // each with entries
	left := table.Peek(now, l, "k", Hash("k"), 0)
	var items []Item
	for _, r := range []Request{{Cost: 1}, {Cost: 3}, {Cost: 4}, {Cost: 4, Drain: true}, {}} {
		items = append(items, Item{l, "k", Hash("k"), r})
	}
	items = append(items, Item{stranger, "k", Hash("k"), Request{Cost: 1}})
	out := make([]Decision, len(items))
	if table.TakeAll(now, items, out) {
		t.Fatalf("all are taken: %+v", out)
	}
	for i, d := range out[:5] {
		if d.Allowed != (i != 2 && i != 3) || d.Drained != 0 || d.Remaining != 3 ||
			d.ResetAfter != left.ResetAfter {
			t.Errorf("%+v: %+v, when there is %+v", items[i].Request, d, left)
		}
	}
	if out[5] != noRoom(stranger) {
		t.Errorf("without room: %+v", out[5])
	}
	if table.reserveAll(now, items, out) || table.Peek(now, l, "k", Hash("k"), 0) != left {
		t.Errorf("something is charged or reserved: %+v", out)
	}
	for i := range out {
		if out[i] != noRoom(items[i].Limit) {
			t.Errorf("reserved without room: %+v", out[i])
		}
	}
}

// Promise: under a seed a key lies by all of its bytes and by its length, and by nothing that
// stands beside it in memory.
func TestHiddenPlacesInPlainWords(t *testing.T) {
	number := func(b string) (x uint64) { // the first byte is the least
		for i := range len(b) {
			x |= uint64(b[i]) << (8 * i)
		}
		return x
	}
	fold := func(a, b uint64) uint64 {
		p := new(big.Int).Mul(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
		high := new(big.Int).Rsh(p, 64)
		return high.Uint64() ^ p.And(p, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	}
	for seed := range uint64(20000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		p := newPlacement(1+draw.Uint64N(9), 60, 1)
		for i, x := range p.secret {
			if x&1 == 0 || x == p.secret[(i+1)%3] {
				t.Fatalf("seed %d: a product with %x loses something", seed, x)
			}
		}
		bytes := make([]byte, 90)
		for i := range bytes {
			bytes[i] = byte(draw.Uint32())
		}
		at, n := 20+draw.IntN(8), draw.IntN(60)
		key := unsafe.String(&bytes[at], n)
		x := p.secret[0] ^ uint64(n)*p.secret[2]
		for rest := key; len(rest) > 16; rest = rest[16:] {
			x = fold(number(rest[:8])^p.secret[1], number(rest[8:16])^x)
		}
		var a, b uint64
		switch {
		case n > 16:
			a, b = number(key[n-16:n-8]), number(key[n-8:])
		case n >= 8:
			a, b = number(key[:8]), number(key[n-8:])
		case n >= 4:
			a, b = number(key[:4]), number(key[n-4:])
		case n > 0:
			a = number(key[n-1:] + key[n/2:n/2+1] + key[:1])
		}
		if got, want := p.of(key, 5), fold(a^p.secret[1], b^x); got != want {
			t.Fatalf("seed %d: %d bytes lie at %x, want %x", seed, n, got, want)
		}
	}
	if p := newPlacement(0, 60, 1); p.of("key", 5) != 5 {
		t.Error("without a seed a key does not lie by its public hash")
	}
}
