package limiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// someStore is a store with up to n entries of all lengths, and what was put into it.
func someStore(draw *rand.Rand, n int) (st *store, index *ruleIndex, put map[string][]int64) {
	table := NewTable(TableConfig{Bytes: 1, Shards: 1})
	st, index = &table.shards[0].entries, table.rules.index.Load()
	l := mustBe(New(Spec{Name: "l", Algorithm: SlidingLog, Limit: 8, Per: time.Hour}))
	r := table.rules.learn(l, table.shards)
	put = map[string][]int64{}
	for i := range n {
		o := &owner{mix: max(1, draw.Uint32()), rule: r.id, key: fmt.Sprint(i), cells: 1}
		state := someWords(draw)
		if draw.IntN(3) == 0 {
			o.key = fmt.Sprintf("%0*d", 40+draw.IntN(60), i)
		}
		if st.insert(0, index, o, state) {
			put[o.key] = state
		}
	}
	return st, index, put
}

// someWords is a log of one to 150 entries that never end.
func someWords(draw *rand.Rand) []int64 {
	w := make([]int64, 2+oneOf(draw, 0, 1, 3, 7, draw.IntN(150)))
	for i := range w {
		w[i] = int64(latest)
	}
	w[0] = int64(len(w) - 1)
	return w
}

// holds fails unless the store has what was put into it, and nothing else.
func (st *store) holds(t *testing.T, put map[string][]int64) {
	t.Helper()
	st.check(t)
	n := 0
	for e := range st.all {
		if n++; !slices.Equal(st.state(e), put[st.key(e)]) {
			t.Fatalf("%s has %v, want %v", st.key(e), st.state(e), put[st.key(e)])
		}
	}
	if n != len(put) || n != st.count {
		t.Fatalf("%d entries, %d counted, want %d", n, st.count, len(put))
	}
}

func (st *store) drawn(draw *rand.Rand) int {
	var taken []int
	for i := range st.end() {
		if st.slots[i].head != 0 {
			taken = append(taken, i)
		}
	}
	return oneOf(draw, taken...)
}

// Promise: a block lies before all others if there is room, else at the end of the largest hole; if
// that is too small, the blocks are slid together as soon as they leave room enough for it and a
// 32nd of what they have; and what is not moved stays as it is.
func TestBlocksInPlainWords(t *testing.T) {
	before, inHole, slid, none := 0, 0, 0, 0
	for seed := range uint64(80) {
		draw := rand.New(rand.NewPCG(seed, 1))
		st, index, put := someStore(draw, 20+draw.IntN(500))
		for range 60 {
			i := st.drawn(draw)
			if draw.IntN(5) == 0 && st.count > 5 {
				delete(put, st.key(&st.slots[i]))
				st.remove(index, i)
				continue
			}
			e := &st.slots[i]
			key, state := string([]byte(st.key(e))), someWords(draw)
			size := len(state) + (len(key)+7)/8 + 1
			end, low, hole := (st.capacity+st.spill)*8, st.low, st.hole
			all := len(st.memory) - low
			room := low-size >= end
			slides := !room && hole.size < size && st.garbage >= max(size, all/32)
			low += st.garbage // where the blocks begin when they are slid together
			at, fits := low-st.garbage-size, true
			switch {
			case len(state)*8+len(key) <= 56:
				at = -1
			case room:
				before++
			case slides:
				slid++
				at, fits = low-size, low-size >= end
			case hole.size >= size:
				inHole++
				at = hole.at + hole.size - size
			default:
				none++
				fits = false
			}
			o := &owner{mix: e.mix(), rule: e.rule(), key: key, cells: 1}
			marks := oneOf[uint64](draw, 0, untold, listed, untold|listed)
			if e.head = e.head&^(untold|listed) | marks; st.replace(i, o, state) != fits {
				t.Fatalf("seed %d: %d words: room %t, want %t", seed, size, !fits, fits)
			}
			if got := st.slots[i].head & (untold | listed); got != marks {
				t.Fatalf("seed %d: an entry with the marks %x has %x", seed, marks, got)
			}
			if fits {
				put[key] = state
				if at >= 0 && st.slots[i].place() != at {
					t.Fatalf("seed %d: a block of %d lies at %d, want %d", seed, size,
						st.slots[i].place(), at)
				}
			}
			if draw.IntN(8) == 0 {
				st.holds(t, put)
			}
		}
	}
	if before < 200 || inHole < 50 || slid < 50 || none < 10 {
		t.Errorf("%d before, %d in a hole, %d slid, %d without room; that proves little", before,
			inHole, slid, none)
	}
}

// Promise: a store of which more than half of the homes are too many for two a slot is shrunk to
// that, or to 16, unless that pushes an entry too far from home; it keeps all that lives. Blocks
// of which more than half are garbage are slid together.
func TestTrimsInPlainWords(t *testing.T) {
	shrunk, slid := 0, 0
	for seed := range uint64(40) {
		draw := rand.New(rand.NewPCG(seed, 1))
		st, index, put := someStore(draw, 30+draw.IntN(250))
		for range draw.IntN(st.count + 1) {
			i := st.drawn(draw)
			delete(put, st.key(&st.slots[i]))
			st.remove(index, i)
		}
		capacity, garbage := st.capacity, st.garbage
		if garbage*2 > st.blockWords() {
			garbage = 0
			slid++
		}
		if want := max(16, 2*st.count); want < capacity/2 && st.fits(want) {
			capacity = want
			shrunk++
		}
		if st.trim(0, index); st.capacity != capacity || st.garbage != garbage {
			t.Fatalf("seed %d: %d entries have %d homes and %d words of garbage, want %d and %d",
				seed, st.count, st.capacity, st.garbage, capacity, garbage)
		}
		st.holds(t, put)
	}
	if shrunk < 5 || slid < 5 {
		t.Errorf("%d shrunk, %d slid; that proves little", shrunk, slid)
	}
}

// Promise: a store that is laid out for another number of homes has all that lives, each entry at
// its home or right behind the one before it, and fits says how far that is.
func TestLayoutsInPlainWords(t *testing.T) {
	for seed := range uint64(40) {
		draw := rand.New(rand.NewPCG(seed, 1))
		st, index, put := someStore(draw, draw.IntN(200))
		capacity := max(16, st.count*8/7+draw.IntN(st.roomFor()-st.count*8/7))
		end, farthest := 0, 0
		for e := range st.all { // in the order of their homes
			home := int(uint64(e.mix()) * uint64(capacity) >> 32)
			end = max(end, home) + 1
			farthest = max(farthest, end-home)
		}
		at, reach := st.layout(capacity)
		if at != end || reach != farthest || st.fits(capacity) != (farthest <= st.reach) {
			t.Fatalf("seed %d: %d homes end at %d, at most %d from home; want %d and %d", seed,
				capacity, at, reach, end, farthest)
		}
		if !st.fits(capacity) || capacity > st.roomFor() {
			continue
		}
		if capacity < st.capacity || st.count >= st.capacity/8*5 {
			st.relay(0, index, capacity)
			if st.capacity != capacity || int(st.view.homes) != capacity {
				t.Fatalf("seed %d: %d homes, want %d", seed, st.capacity, capacity)
			}
			mix := draw.Uint32()
			if at := unsafe.Pointer(&st.slots[st.home(mix)]); st.view.home(mix) != at {
				t.Fatalf("seed %d: %x is expected at %v, and its home is at %v", seed, mix,
					st.view.home(mix), at)
			}
		}
		st.holds(t, put)
	}
}

// Promise: a store of which 5 of 8 homes are taken grows by an 8th, or 16 homes, or as far as there
// is memory, if that is a 16th at the least. Blocks are slid together first, if they are in the way
// and a 32nd of them is garbage.
func TestGrowthInPlainWords(t *testing.T) {
	grown, ended := 0, 0
	for seed := range uint64(400) {
		draw := rand.New(rand.NewPCG(seed, 1))
		st, index, put := someStore(draw, 200)
		for key := range put { // some garbage
			if i := st.find(st.mixOf(key), 1, key); draw.IntN(4) == 0 {
				st.remove(index, i)
				delete(put, key)
			}
		}
		for range 300 {
			o := &owner{mix: max(1, draw.Uint32()), rule: 1, cells: 1}
			o.key = fmt.Sprint(len(put), "x")
			state := []int64{1, int64(latest)}
			if draw.IntN(8) == 0 {
				state = someWords(draw)
			}
			before, garbage := st.capacity, st.garbage
			most, room := before+max(16, before/8), st.low/8-st.spill
			if slid := room < most && garbage > st.blockWords()/32; slid {
				room, garbage = (st.low+garbage)/8-st.spill, 0
			}
			want := min(most, room)
			grows := want >= before+max(1, before/16)
			if st.count < before/8*5 {
				grows, garbage = false, st.garbage
			}
			if !grows {
				want = before
			}
			if got := st.grow(0, index); got != grows || st.capacity != want ||
				st.garbage != garbage {
				t.Fatalf("seed %d: %d homes became %d, want %d; %d words of garbage, want %d", seed,
					before, st.capacity, want, st.garbage, garbage)
			}
			if grows {
				grown++
			} else if want < most {
				ended++
			}
			if st.insert(0, index, o, state) {
				put[o.key] = state
			}
		}
		st.holds(t, put)
	}
	if grown < 200 || ended < 200 {
		t.Errorf("%d grew, %d had no room; that proves little", grown, ended)
	}
}

// mixOf is the mix of the entry with that key.
func (st *store) mixOf(key string) (mix uint32) {
	for e := range st.all {
		if st.key(e) == key {
			mix = e.mix()
		}
	}
	return mix
}
