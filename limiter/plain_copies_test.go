package limiter

import (
	"cmp"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// cellsPair is a table with cells of limits of all kinds, and a copy of those.
type cellsPair struct {
	draw       *rand.Rand
	from, to   *Table
	limits     []*Limit
	hashes     []uint64
	local, all int // states that were shared, and those of them that stay here
}

func newCellsPair(seed uint64) *cellsPair {
	p := &cellsPair{draw: rand.New(rand.NewPCG(seed, 1))}
	c := TableConfig{Bytes: 1 << 19, Shards: oneOf(p.draw, 1, 2, 4)}
	p.from = NewTable(c)
	if p.draw.IntN(2) == 0 {
		c = TableConfig{Bytes: oneOf[int64](p.draw, 1<<22, 1<<24), Shards: oneOf(p.draw, 1, 2, 8)}
	}
	p.to = NewTable(c)
	for _, s := range []Spec{
		{Name: "a", Algorithm: GCRA, Limit: 5},
		{Name: "a", Algorithm: GCRA, Limit: 5, Consistency: Replicated},
		{Name: "b", Algorithm: FixedWindow, Limit: 6},
		{Name: "c", Algorithm: StatedWindow, Limit: 6},
		{Name: "c", Algorithm: StatedWindow, Limit: 7},
		{Name: "d", Algorithm: SlidingLog, Limit: oneOf[int64](p.draw, 2, 3, 5)},
	} {
		s.Per = time.Hour
		if s.Consistency == Replicated {
			s.Name = "replicated"
		}
		p.limits = append(p.limits, mustBe(New(s)))
	}
	p.limits = append(p.limits, p.limits[0].Share(2))
	for range 60 {
		p.hashes = append(p.hashes, p.draw.Uint64())
	}
	return p
}

func (p *cellsPair) share(now Instant) {
	l, hash := oneOf(p.draw, p.limits...), oneOf(p.draw, p.hashes...)
	if l.Algorithm == SlidingLog && p.draw.IntN(4) == 0 { // changed in place
		s := l.Spec
		s.Limit = oneOf[int64](p.draw, 2, 3, 5)
		i := slices.Index(p.limits, l)
		l = mustBe(New(s))
		p.limits[i] = l
	}
	r := p.from.rules.learn(l, p.from.shards)
	r.limit.Store(l)
	w := make([]int64, l.words())
	var d Decision
	l.decide(w, now, 1+p.draw.Int64N(3), &d)
	if p.from.place.share(now, hash, r.id, l, w); l.isLocal() {
		p.local++
	}
	p.all++
}

// bound is what binds a key of a hash in a table on a level, in binary form; empty if nothing does.
func (t *Table) bound(now Instant, l *Limit, hash uint64, level uint32) []byte {
	s, r := t.place.sketch(hash), t.rules.index.Load().find(l)
	if r == nil {
		return nil
	}
	return l.EncodeState(s.bound(now, level, mixOf(hash, l), r.id, l), now)
}

// cellOf is a cell of a group, nil if the group is not there.
func (s *sketch) cellOf(now Instant, r *rule, l *Limit, g cellGroup, cell int) []int64 {
	var key groupKey
	o := g.owner(l, r.id, &key, 0)
	if i := s.cells.find(o.mix, o.rule, o.key); i >= 0 {
		return s.cell(now, i, cell, l)
	}
	return nil
}

// boundThere is what has to bind a key of a hash where the cells are copied to: in each row all
// cells that keys with its place there may have been charged to, and the least of the rows.
func (p *cellsPair) boundThere(now Instant, l *Limit, hash uint64) []byte {
	r, there := p.from.rules.index.Load().find(l), p.to.place.sketch(hash)
	if r == nil || l.isLocal() {
		return nil
	}
	n, m := uint64(len(p.from.shards)), uint64(len(p.to.shards))
	place := bits.TrailingZeros64(m)
	j := hash >> 1 >> (63 - place) // of the parts there
	var least []int64
	for row := range uint32(2) {
		g, cell := there.cellFor(l, mixOf(hash, l), 0, row)
		all := make([]int64, l.words())
		for k := range n {
			if k*m >= (j+1)*n || j*n >= (k+1)*m { // no hash is of both parts
				continue
			}
			s := &p.from.place.sketches[k]
			wide, narrow := there.groupBits(l, 0), s.groupBits(l, 0)
			for number := range uint32(1) << narrow {
				few := min(wide, narrow) // the first bits of both
				if number>>(narrow-few) != g.number>>(wide-few) {
					continue
				}
				own := cellGroup{l.sketchSeed, 0, row, number}
				if w := s.cellOf(now, r, l, own, cell); w != nil {
					l.merge(all, slices.Clone(w), now)
				}
			}
		}
		if least == nil || l.debtOf(all, now).less(l.debtOf(least, now)) {
			least = all
		}
	}
	return l.EncodeState(least, now)
}

// Promise: a copy of the cells of a table binds each key by all cells that it may have been charged
// to, however many shards and groups there are here and there, and no other key. Shares and
// replicated limits stay where they are. A copy from a file is the same, and no cell is copied that
// is as good as never seen.
func TestCopiedCellsBindTheSame(t *testing.T) {
	now, bound := Instant(1e18), 0
	for seed := range uint64(100) {
		p := newCellsPair(seed)
		for range p.draw.IntN(120) {
			p.share(now)
			now = now.Add(time.Second)
		}
		for part := range p.from.Parts() {
			if seed%2 == 0 {
				for _, e := range p.from.Save(now, part) {
					if len(e.State) <= 2+int(e.State[1]) {
						t.Fatalf("seed %d: a cell of nothing is saved", seed)
					}
					p.to.Import(now, &e, true)
				}
				continue
			}
			p.from.Scan(now, part, func(uint64) bool { return true }, func(_ uint64, e Entry) {
				p.to.Import(now, &e, true)
			})
		}
		for _, l := range p.limits {
			for _, hash := range p.hashes {
				want, got := p.boundThere(now, l, hash), p.to.bound(now, l, hash, 0)
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d: %x under %+v is bound by %v, want %v", seed, hash, l.Spec,
						got, want)
				}
				if want != nil {
					bound++
				}
			}
		}
		p.to.check(t)
	}
	if bound < 1000 {
		t.Errorf("%d are bound; that proves little", bound)
	}
}

// Promise: a key of which the groups are not all there is charged on the fine level, if at most
// three quarters of the memory are taken when each of them is made, and else on the coarse one.
func TestCoarseCellsInPlainWords(t *testing.T) {
	fine, coarse := 0, 0
	for seed := range uint64(2) {
		draw := rand.New(rand.NewPCG(seed, 1))
		table := NewTable(TableConfig{Bytes: 8 << 20, Shards: 1})
		now, s := Instant(1e18), &table.place.sketches[0]
		p := &plainCells{s, map[cellGroup][][]int64{}}
		var limits []*Limit
		for i := range 16 {
			limits = append(limits, mustBe(New(Spec{
				Name: fmt.Sprint(i), Algorithm: GCRA, Limit: 5, Per: time.Hour,
			})))
		}
		for coarseBefore := coarse; coarse < coarseBefore+300; {
			l, hash := oneOf(draw, limits...), draw.Uint64()
			r := table.rules.learn(l, table.shards)
			w := make([]int64, l.words())
			var d Decision
			l.decide(w, now, 1+draw.Int64N(5), &d)
			level := uint32(0)
			for row := range uint32(2) {
				g, _ := s.cellFor(l, mixOf(hash, l), 0, row)
				if p.groups[g] == nil && 64*len(p.groups) > s.size()*3/4 {
					level = 1
				}
				if level == 0 {
					p.shareIn(now, l, mixOf(hash, l), 0, row, w)
				}
			}
			if level == 0 {
				fine++
			} else if coarse++; true {
				p.shareIn(now, l, mixOf(hash, l), 1, 0, w)
				p.shareIn(now, l, mixOf(hash, l), 1, 1, w)
			}
			taken, charged := s.cells.taken(), s.charged
			if !table.place.share(now, hash, r.id, l, w) || s.charged != charged+1 {
				t.Fatalf("seed %d: %d of %d bytes are taken, and there is no room", seed, taken,
					s.size())
			}
			for level := range uint32(2) {
				got := s.bound(now, level, mixOf(hash, l), r.id, l)
				if want := p.bound(now, l, mixOf(hash, l), level); !slices.Equal(got, want) {
					t.Fatalf("seed %d: with %d of %d, level %d: %v, want %v", seed, taken, s.size(),
						level, got, want)
				}
			}
			now = now.Add(time.Millisecond)
		}
		if len(p.groups) != s.cells.count {
			t.Fatalf("seed %d: %d groups, want %d", seed, s.cells.count, len(p.groups))
		}
	}
	if fine < 1000 {
		t.Errorf("%d on the fine level; that proves little", fine)
	}
}

// Promise: a cell without room on the fine level binds all keys of its limit in the parts that it
// is for, and no keys of others; where there is no room either, the limit is shut.
func TestCellsWithoutRoomBindAll(t *testing.T) {
	now := Instant(1e18)
	l := mustBe(New(Spec{Name: "l", Algorithm: FixedWindow, Limit: 9, Per: time.Hour}))
	other := mustBe(New(Spec{Name: "other", Algorithm: FixedWindow, Limit: 9, Per: time.Hour}))
	from := NewTable(TableConfig{Bytes: 1, Shards: 1})
	long := fmt.Sprintf("%0*d", MaxKey+1, 1)
	from.Take(now, l, long, Hash(long), 3)
	cells := from.Save(now, 1)
	for _, crowded := range []bool{false, true} {
		to := NewTable(TableConfig{Bytes: 4 << 20, Shards: 2})
		s := &to.place.sketches[1]
		more := 2000 // than there is room for on the fine level
		for i := uint64(0); s.cells.taken() <= s.size()*3/4 || crowded && more > 0; i++ {
			of := mustBe(New(Spec{
				Name: fmt.Sprint(i % 40), Algorithm: GCRA, Limit: 5, Per: time.Hour,
			}))
			r := to.rules.learn(of, to.shards)
			w := []int64{int64(now) + 5}
			to.place.share(now, 1<<63|i*0x9e3779b97f4a7c15>>1, r.id, of, w)
			if s.cells.taken() > s.size()*3/4 {
				more--
			}
		}
		for _, e := range cells {
			if to.Import(now, &e, true); !to.place.sketches[0].empty() {
				continue
			}
			t.Error("a cell for all hashes is not in both parts")
		}
		r := to.rules.index.Load().find(l)
		if shut := r.shut.Load() != 0; shut != crowded {
			t.Errorf("crowded: %t, shut: %t", crowded, shut)
		}
		bound := 0
		for hash := range uint64(300) {
			low, high := hash<<40*0x9e3779b97f4a7c15>>1, 1<<63|hash<<40*0x9e3779b97f4a7c15>>1
			coarse := to.bound(now, l, high, 1)
			if w, _ := l.DecodeState(coarse, now); !crowded && w[1] != 3 {
				t.Fatalf("a key is bound by %v", coarse)
			}
			if to.bound(now, l, low, 1) != nil || to.bound(now, other, high, 1) != nil {
				t.Fatal("keys of other parts or limits are bound")
			}
			if to.bound(now, l, low, 0) != nil {
				bound++
			}
		}
		if bound > 30 {
			t.Errorf("%d of 300 keys are bound in a part with room", bound)
		}
	}
}

// Promise: a key is charged to the cells where nodes of other versions look for it.
func TestPlacesOfCellsStay(t *testing.T) {
	for i, of := range []Spec{
		{Algorithm: GCRA, Limit: 5},
		{Algorithm: FixedWindow, Limit: 5, Anchor: FirstHit},
		{Algorithm: FixedWindow, Limit: 5, Calendar: Days, TimeZone: "UTC", Per: day},
		{Algorithm: TokenBucket, Limit: 5, Refill: 2},
		{Algorithm: TokenBucket, Limit: 5, ClientTime: true, Sessions: true, Anchor: FirstHit},
		{Algorithm: SlidingCounter, Limit: 5, Buckets: 3},
		{Algorithm: StatedWindow, Limit: 5},
		{Algorithm: StatedBucket, Limit: 5, Burst: 7},
		{Algorithm: GCRA, Limit: 5, Nameless: true},
	} {
		of.Name, of.Per = "l", cmp.Or(of.Per, time.Minute)
		l := mustBe(New(of))
		s := &NewTable(TableConfig{Bytes: 1 << 24, Shards: 1}).place.sketches[0]
		got := fmt.Sprintf("%x %x", l.seed, l.sketchSeed)
		for row := range uint32(2) {
			g, cell := s.cellFor(l, mixOf(Hash("k"), l), 0, row)
			got += fmt.Sprintf(" %d.%d", g.number, cell)
		}
		if want := placesOfCells[i]; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// each with the hash of its identity, that of its sketch, and its group and cell in either row
var placesOfCells = []string{
	"58b5aeeb62d6f2a4 58b5aeeb62d6f2a4 175.3 81.2",
	"7ad04874c9f2ca2b 7ad04874c9f2ca2b 94.2 111.0",
	"fd7131130c393e37 fd7131130c393e37 92.2 138.0",
	"41961e46d23ce849 41961e46d23ce849 92.2 182.2",
	"8498c887939d33c4 8498c887939d33c4 215.0 137.0",
	"416b6bca5cbfbdae 416b6bca5cbfbdae 70.0 77.0",
	"6751f87ee06fdd6f 695c35f15a8acf27 253.0 223.0",
	"d3fa781db559d11 e12e11fa42d984f8 126.0 9.0",
	"538ba5d35193cb94 538ba5d35193cb94 198.0 241.4",
}
