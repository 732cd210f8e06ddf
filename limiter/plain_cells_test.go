package limiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// plainCells are the cells of a sketch: a state for each cell of a group, if the group is there.
type plainCells struct {
	s      *sketch
	groups map[cellGroup][][]int64
}

// share merges the state of a key into its cells of the fine level.
func (p *plainCells) share(now Instant, l *Limit, mix uint32, w []int64) {
	for row := range uint32(2) {
		p.shareIn(now, l, mix, 0, row, w)
	}
}

// shareIn merges it into its cell in one row.
func (p *plainCells) shareIn(now Instant, l *Limit, mix, level, row uint32, w []int64) {
	g, cell := p.s.cellFor(l, mix, level, row)
	if p.groups[g] == nil {
		p.groups[g] = make([][]int64, plainPerGroup(l))
		for i := range p.groups[g] {
			p.groups[g][i] = make([]int64, l.words())
		}
	}
	p.fit(now, l, g)
	l.merge(p.groups[g][cell], slices.Clone(w), now)
}

// fit gives each cell what all cells of the group are together, if they have another length.
func (p *plainCells) fit(now Instant, l *Limit, g cellGroup) {
	cells := p.groups[g]
	if len(cells) == plainPerGroup(l) && len(cells[0]) == l.words() {
		return
	}
	all, other := make([]int64, l.words()), make([]int64, l.words())
	for _, cell := range cells {
		l.refit(other, cell)
		l.merge(all, other, now)
	}
	p.groups[g] = nil
	for range plainPerGroup(l) {
		p.groups[g] = append(p.groups[g], slices.Clone(all))
	}
}

// plainPerGroup is how many states have room in the 56 bytes of a slot, behind 2 bytes that say
// which group it is, or 10 of a stated limit. One state may be larger.
func plainPerGroup(l *Limit) int {
	room := 54
	if l.stated() {
		room = 46
	}
	return max(1, room/(8*l.words()))
}

// bytesOfGroup is the memory of a group: a slot, and a block if a state does not fit.
func bytesOfGroup(l *Limit) int {
	name := 2
	if l.stated() {
		name = 10
	}
	if 8*l.words()+name <= 56 {
		return 64
	}
	return 64 + 8*(l.words()+(name+7)/8+1)
}

// bound is the least consumed of a key's cells on a level, nil if one of its groups is missing.
func (p *plainCells) bound(now Instant, l *Limit, mix, level uint32) (least []int64) {
	for row := range uint32(2) {
		g, cell := p.s.cellFor(l, mix, level, row)
		if p.groups[g] == nil {
			return nil
		}
		w := slices.Clone(p.groups[g])
		p.fit(now, l, g)
		own := slices.Clone(p.groups[g][cell])
		if p.groups[g] = w; least == nil || l.debtOf(own, now).less(l.debtOf(least, now)) {
			least = own
		}
	}
	return least
}

// Promise: a state that is shared is merged into a cell of each row, and a key is bound by the
// least consumed of its cells.
func TestCellsInPlainWords(t *testing.T) {
	bound := 0
	for seed := range uint64(20) {
		draw := rand.New(rand.NewPCG(seed, 1))
		table := NewTable(TableConfig{Bytes: 1 << 19, Shards: 1})
		now, s := Instant(1e18), &table.place.sketches[0]
		p := &plainCells{s, map[cellGroup][][]int64{}}
		logs := make([]*Limit, 3)
		for i := range logs {
			logs[i] = mustBe(New(Spec{
				Name: "log", Algorithm: SlidingLog, Limit: oneOf[int64](draw, 2, 3, 5),
				Per: time.Hour,
			}))
		}
		limits := append([]*Limit{
			mustBe(New(Spec{Name: "a", Algorithm: GCRA, Limit: 5, Per: time.Hour})),
			mustBe(New(Spec{Name: "b", Algorithm: FixedWindow, Limit: 6, Per: time.Hour})),
			mustBe(New(Spec{Name: "c", Algorithm: StatedWindow, Limit: 6, Per: time.Hour})),
		}, logs...)
		for range 1500 {
			if s.cells.taken() > s.size()/2 {
				break // a little more, and chance decides whether there is a slot
			}
			l, hash := oneOf(draw, limits...), draw.Uint64N(500)<<55|draw.Uint64N(4)
			r := table.rules.learn(l, table.shards)
			r.limit.Store(l)
			for range draw.IntN(3) {
				w := make([]int64, l.words())
				var d Decision
				l.decide(w, now, 1+draw.Int64N(2), &d)
				taken, charged := s.cells.taken(), s.charged
				if !table.place.share(now, hash, r.id, l, w) || s.charged != charged+1 {
					t.Fatalf("seed %d: %d of %d bytes are taken, and there is no room", seed, taken,
						s.size())
				}
				p.share(now, l, mixOf(hash, l), w)
				now = now.Add(time.Millisecond)
			}
			for level := range uint32(2) {
				got := s.bound(now, level, mixOf(hash, l), r.id, l)
				want := p.bound(now, l, mixOf(hash, l), level)
				if !slices.Equal(got, want) || (got == nil) != (want == nil) {
					t.Fatalf("seed %d: level %d of %s: %v, want %v", seed, level, l.Name, got,
						want)
				}
				if want != nil {
					bound++
				}
			}
			if len(p.groups) != s.cells.count || s.empty() != (len(p.groups) == 0) {
				t.Fatalf("seed %d: %d groups, want %d", seed, s.cells.count, len(p.groups))
			}
		}
		s.cells.check(t)
	}
	if bound < 1000 {
		t.Errorf("%d bounds; that proves little", bound)
	}
}

// Promise: a row has as many fine groups, to a power of two, as half of the memory has room for in
// both rows, 4 at the least and 256 at most, and 4 coarse ones. With fewer groups, a key's group
// has the first bits of its number; all groups and cells get as many keys.
func TestGroupsInPlainWords(t *testing.T) {
	for _, size := range []int64{1, 1 << 20, 1 << 22, 1 << 24} {
		for _, of := range []Spec{
			{Algorithm: GCRA, Limit: 5},
			{Algorithm: FixedWindow, Limit: 5},
			{Algorithm: StatedWindow, Limit: 5},
			{Algorithm: SlidingCounter, Limit: 5, Buckets: 4},
			{Algorithm: SlidingCounter, Limit: 5, Buckets: 20},
			{Algorithm: StatedBucket, Limit: 5},
			{Algorithm: SlidingLog, Limit: 100},
		} {
			of.Name, of.Per = "l", time.Hour
			l := mustBe(New(of))
			s := &NewTable(TableConfig{Bytes: size, Shards: 1}).place.sketches[0]
			each := bytesOfGroup(l)
			if l.Algorithm == SlidingLog { // as of a state of 32 words, whatever its limit
				each = 64 + 8*(32+1+1)
			}
			bits := 2
			for bits < 8 && 2<<(bits+1)*each <= s.size()/2 {
				bits++
			}
			if s.groupBits(l, 0) != bits || s.groupBits(l, 1) != 2 {
				t.Errorf("%d bytes, %+v: %d and %d bits of groups, want %d and 2", s.size(), of,
					s.groupBits(l, 0), s.groupBits(l, 1), bits)
			}
			var quarters [4]int // of the store, where groups lie
			for i := range uint32(2 << bits) {
				g := cellGroup{l.sketchSeed, 0, i & 1, i >> 1}
				var key groupKey
				quarters[g.owner(l, 1, &key, 1).mix>>30]++
			}
			for i, n := range quarters {
				if few := 2 << bits / 4; bits == 8 && (n < few/2 || n > few*3/2) {
					t.Errorf("%+v: quarter %d has %d groups, others %d", of, i, n, few)
				}
			}
			keys := map[string]int{}
			const all = 20000
			for mix := range uint32(all) {
				for row := range uint32(2) {
					g, cell := s.cellFor(l, mix*0x9e3779b9, 0, row)
					coarse, _ := s.cellFor(l, mix*0x9e3779b9, 1, row)
					if g.number>>(bits-2) != coarse.number || g.row != row || g.level != 0 ||
						g.seed != l.sketchSeed || coarse.level != 1 {
						t.Fatalf("of group %+v the first bits are %+v", g, coarse)
					}
					keys[fmt.Sprint(row, g.number>>(bits-2), cell)]++
				}
			}
			want := 2 * 4 * plainPerGroup(l)
			if len(keys) != want {
				t.Errorf("%+v: %d cells are used, want %d", of, len(keys), want)
			}
			for cell, n := range keys {
				if even := 2 * all / want; n < even*7/10 || n > even*13/10 {
					t.Errorf("%+v: cell %s has %d keys, others %d", of, cell, n, even)
				}
			}
		}
	}
}

// Promise: a cell that comes from elsewhere is of one of two levels, of a group with a number of at
// most 8 bits, and for one of up to 4096 parts of all hashes, a power of two.
func TestForeignCellsInPlainWords(t *testing.T) {
	parts := map[uint64]bool{}
	for n := uint64(1); n <= 4096; n *= 2 {
		parts[n] = true
	}
	for seed := range uint64(40000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		bits := draw.IntN(11)
		c := foreignCell{
			group: cellGroup{
				level:  uint32(draw.IntN(4)),
				number: oneOf(draw, 0, 1, uint32(1)<<bits-1, uint32(1)<<bits),
			},
			groupBits: bits,
			parts: oneOf[uint64](draw, 0, 1, 2, 3, 4, 96, 1024, 2048, 4095, 4096, 4097, 6144,
				8192),
		}
		c.part = oneOf(draw, 0, 1, c.parts-1, c.parts)
		want := c.group.level <= 1 && bits <= 8 && c.group.number < 1<<bits && parts[c.parts] &&
			c.part < c.parts
		if c.within() != want {
			t.Fatalf("%+v is within: %t", c, !want)
		}
	}
}

// Promise: a state that comes for a key of cells is merged with what binds the key, and with no
// more.
func TestStatesThatComeToCells(t *testing.T) {
	now := Instant(1e18)
	table, _ := full(now)
	l := mustBe(New(Spec{Name: "l", Algorithm: FixedWindow, Limit: 1000, Per: time.Hour}))
	for i := range 400 {
		key := fmt.Sprint("newcomer ", i%150)
		table.Take(now, l, key, Hash(key), int64(i%3))
		before := table.Peek(now, l, key, Hash(key), 0).Remaining
		count := int64(1 + i*7%100)
		w := []int64{floorTo(int64(now), int64(time.Hour)), count}
		if i%2 == 0 {
			table.Merge(now, l, key, Hash(key), w)
		} else {
			e := Entry{Limit: l, Key: key, State: l.EncodeState(w, now)}
			table.Import(now, &e, false)
		}
		after := table.Peek(now, l, key, Hash(key), 0).Remaining
		if want := min(before, 1000-count); after != want {
			t.Fatalf("%d: %d are left, and %d are used elsewhere: then %d, want %d", i, before,
				count, after, want)
		}
	}
	if table.place.sketches[0].empty() {
		t.Error("no key has cells")
	}
}
