package limiter

import (
	"encoding/binary"
	"math/bits"
	"time"
	"unsafe"
)

// The sketch is used when the budget is spent and nothing can be removed without loss. A newcomer
// then takes the place of a nearby entry: the one nearest to full, if it is nearer than the
// newcomer. It is never the least recently used one, or a flood of keys would get a full bucket
// back. An evicted key, or one without a place, lives on in a count-min sketch: cells that keys of
// one limit share.
//
// A key has a cell in each of several rows. Every one of its cells has consumed at least as much as
// the key has. So each cell is a bound for the key, and the least consumed of them is the best: the
// key is decided from that one, and the result is merged into all of them. The merge keeps the more
// consumed state and does not add up. That keeps the bound, and a thousand keys charged once each
// before they were evicted leave a cell charged once. A key that gets an entry later begins with
// its least consumed cell. A cell can only under-admit, and it is forgotten when it is as good as
// never seen, as any state.
//
// Cells lie in the slots of a store of their own, in groups of as many as fit, and are created when
// they are charged. There are two levels. The groups of the fine level would take half of the
// memory for one limit. The coarse level has a few groups per limit, for when the fine groups of
// many limits have taken three quarters. A key is charged on the level that has room, and bound by
// both. If the coarse level has no room either, newcomers are refused. If a state from another node
// has no room, all newcomers of its limit are refused for as long as it counts.
const (
	sketchRows   = 2
	sketchLevels = 2 // 0 is the fine one

	maxFineBits = 8 // groups of a row on the fine level: at most 2^8
	coarseBits  = 2
)

// cellGroup is a slot of the sketch: its place in the sketch, and the sketch's limit. Newcomers
// that state different limits have different sketches: in a window or at a rate of another, a key
// would be admitted its used units again.
type cellGroup struct {
	seed               uint64 // Limit.sketchSeed
	level, row, number uint32
}

// groupBits says how many groups of l a row of s has on a level, 2 to the power of that. It is the
// same for all limits of an identity, of which a sliding log may have states of many lengths.
func (s *sketch) groupBits(l *Limit, level uint32) int {
	if level > 0 {
		return coarseBits
	}
	words := l.words()
	if l.Algorithm == SlidingLog {
		words = 32
	}
	size := 8 * slotWords
	if !inlined(words, groupKeyLen(l)) {
		size += 8 * blockSize(words, groupKeyLen(l))
	}
	return min(max(bits.Len(uint(s.cells.size()/2/sketchRows/size))-1, coarseBits), maxFineBits)
}

// groupKey is the room that the key of a group needs.
type groupKey [2 + 8]byte

// owner is the owner of slot g, of a limit with the number rule.
func (g cellGroup) owner(l *Limit, rule uint32, key *groupKey, cells int) *owner {
	id := g.level<<9 | g.row<<8 | g.number
	binary.LittleEndian.PutUint16(key[:], uint16(id))
	binary.LittleEndian.PutUint64(key[2:], g.seed)
	hi, lo := bits.Mul64(g.seed^0xd6e8feb86659fd93, uint64(id)*2+0x9e3779b97f4a7c15)
	return &owner{
		mix: max(1, uint32((hi^lo)>>32)), rule: rule,
		key: unsafe.String(&key[0], groupKeyLen(l)), cells: cells,
	}
}

// groupKeyLen leaves the seed out where it follows from the limit's identity, so that more cells
// fit.
func groupKeyLen(l *Limit) int {
	if l.stated() {
		return len(groupKey{})
	}
	return 2
}

// cellFor is the group and the cell of a key under l with mix, in a row. Where a row has fewer
// groups, a key's group has a number with fewer bits, the first ones.
func (s *sketch) cellFor(l *Limit, mix, level, row uint32) (cellGroup, int) {
	x := (uint64(mix) + uint64(row+1)<<32) * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	number := x >> (64 - s.groupBits(l, level))
	return cellGroup{l.sketchSeed, level, row, uint32(number)},
		int(x & 0xffff * uint64(cellsPerGroup(l)) >> 16)
}

// cellsPerGroup is how many states of l lie beside each other in a slot.
func cellsPerGroup(l *Limit) int { return max(1, (bodyWords*8-groupKeyLen(l))/8/l.words()) }

// bound finds the least consumed cell of a key with mix on a level, where it was charged. It
// returns nil if it was not: some row has no such group then. The words may be in place.
func (s *sketch) bound(now Instant, level, mix uint32, rule uint32, l *Limit) (least []int64) {
	var best debt
	for row := range uint32(sketchRows) {
		g, cell := s.cellFor(l, mix, level, row)
		var key groupKey
		o := g.owner(l, rule, &key, 0)
		i := s.cells.find(o.mix, o.rule, o.key)
		if i < 0 {
			return nil
		}
		w := s.cell(now, i, cell, l)
		if d := l.debtOf(w, now); least == nil || d.less(best) {
			least, best = w, d
		}
	}
	return least
}

// cell is a cell of the group in slot i. If that was made while the limit had states of another
// length, it is what all of its cells together are.
func (s *sketch) cell(now Instant, i, cell int, l *Limit) []int64 {
	e := &s.cells.slots[i]
	if all, n := s.cells.state(e), l.words(); len(all) == e.cells()*n {
		return all[cell*n : (cell+1)*n]
	}
	w, other := make([]int64, l.words()), make([]int64, l.words())
	for c := range s.cells.cellsOf(e) {
		l.refit(other, c)
		l.merge(w, other, now)
	}
	return w
}

// share merges w, the state of a key without an entry, into its cells. It reports false if there is
// no room for them.
func (s *sketch) share(now Instant, mix, rule uint32, l *Limit, w []int64) bool {
	for level := range uint32(sketchLevels) {
		if s.shareAt(now, level, mix, rule, l, w) {
			s.charged++
			return true
		}
	}
	return false
}

func (s *sketch) shareAt(now Instant, level, mix, rule uint32, l *Limit, w []int64) bool {
	for row := range uint32(sketchRows) {
		g, cell := s.cellFor(l, mix, level, row)
		if !s.shareIn(now, g, cell, rule, l, w) {
			return false
		}
	}
	return true
}

// shareIn merges w into a cell, or into all cells of the group if cell is negative.
func (s *sketch) shareIn(
	now Instant, g cellGroup, cell int, rule uint32, l *Limit, w []int64,
) bool {
	n, words := cellsPerGroup(l), l.words()
	var key groupKey
	o := g.owner(l, rule, &key, n)
	i := s.cells.find(o.mix, o.rule, o.key)
	all := s.words(0, n*words)
	if i >= 0 && len(s.cells.state(&s.cells.slots[i])) == len(all) &&
		s.cells.slots[i].cells() == n {
		all = s.cells.state(&s.cells.slots[i])
	} else if i >= 0 { // the limit had states of another length
		whole := s.cell(now, i, 0, l)
		for c := range n {
			copy(all[c*words:], whole)
		}
	} else if clear(all); g.level == 0 && s.cells.taken() > s.cells.size()*3/4 {
		return false
	}
	other := s.words(1, words)
	for c := range n {
		if c == cell || cell < 0 {
			copy(other, w)
			l.merge(all[c*words:(c+1)*words], other, now)
		}
	}
	switch {
	case i < 0:
		defer s.count()
		return s.cells.insert(now, s.rules.index.Load(), o, all)
	case &all[0] == &s.words(0, 1)[0]:
		return s.cells.replace(i, o, all)
	}
	return true
}

// A cell leaves its table in the binary form of its state, with one field more, which comes first:
// where in the sketch it lies and which part of all hashes it is for, part of parts. The reader
// merges it into the same cell of every shard that has any of these hashes, so that keys which were
// charged there are bound here. It may have more shards or fewer.
//
//	bytes cell = 3; // seed, 8 bytes; as varints: id, bits of the group's number, cell,
//	                // cells of the group, part, parts
const wireCell = 3<<3 | 2

// IsCell reports whether e is of a cell.
func (e *Entry) IsCell() bool { return len(e.State) > 0 && e.State[0] == wireCell }

// copyCells copies the cells of part of parts, without those of shares.
func (s *sketch) copyCells(now Instant, part, parts int) (cells []Entry) {
	if s.empty() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	index := s.rules.index.Load()
	for e := range s.cells.all {
		l := index.byID(e.rule()).limit.Load()
		if l.isLocal() {
			continue
		}
		key := s.cells.key(e)
		id := binary.LittleEndian.Uint16([]byte(key))
		seed := l.sketchSeed
		if len(key) > 2 {
			seed = binary.LittleEndian.Uint64([]byte(key[2:]))
		}
		at := 0
		for w := range s.cells.cellsOf(e) {
			where := binary.LittleEndian.AppendUint64(nil, seed)
			for _, x := range []int{
				int(id), s.groupBits(l, uint32(id>>9)), at, e.cells(), part,
				parts,
			} {
				where = binary.AppendUvarint(where, uint64(x))
			}
			at++
			head := append([]byte{wireCell, byte(len(where))}, where...)
			fitted := s.words(0, l.words())
			l.refit(fitted, w)
			if state := l.appendState(head, fitted, now); len(state) > len(head) {
				cells = append(cells, Entry{Limit: l, State: state})
			}
		}
	}
	return cells
}

// importCell takes a cell over. It reports false if it is broken.
func (t *Table) importCell(now Instant, e *Entry) bool {
	c, rest, good := readCell(e)
	if !good {
		return false
	}
	state := make([]int64, e.Limit.words())
	if _, err := e.Limit.readState(state, rest, e.at(now)); err != nil {
		return false
	}
	shards := uint64(len(t.shards))
	for i := c.part * shards / c.parts; i <= ((c.part+1)*shards-1)/c.parts; i++ {
		s := &t.shards[i]
		r := t.lock(now, s, e.Limit)
		if r == nil {
			t.lose(now, e.Limit, state)
			return true // no room for the limit: its requests are refused
		}
		if !e.Limit.fresh(state, now) {
			// under the lock of a shard, so that the rule stays
			t.place.sketches[i].importCell(now, c.group, c.groupBits, c.cell, r, e.Limit, state)
		}
		s.mu.Unlock()
	}
	return true
}

// foreignCell says where a cell comes from.
type foreignCell struct {
	group       cellGroup
	groupBits   int
	cell        int    // negative: the limit has states of another length here
	part, parts uint64 // of all hashes
}

// readCell reads where the cell of an entry lies, and returns the state that follows.
func readCell(e *Entry) (c foreignCell, rest []byte, good bool) {
	const seedEnd = 2 + 8
	if len(e.State) < seedEnd || int(e.State[1]) < 8 || len(e.State) < 2+int(e.State[1]) {
		return c, nil, false
	}
	end := 2 + int(e.State[1])
	rest = e.State[seedEnd:end]
	var x [6]uint64
	for i := range x {
		v, n := binary.Uvarint(rest)
		if n <= 0 || v > 1<<16 {
			return c, nil, false
		}
		x[i], rest = v, rest[n:]
	}
	id, cells := uint32(x[0]), int(x[3])
	g := cellGroup{binary.LittleEndian.Uint64(e.State[2:]), id >> 9, id >> 8 & 1, id & 0xff}
	if !e.Limit.stated() {
		g.seed = e.Limit.sketchSeed
	}
	c = foreignCell{group: g, groupBits: int(x[1]), cell: int(x[2]), part: x[4], parts: x[5]}
	good = c.within() && c.cell < cells
	if cells != cellsPerGroup(e.Limit) {
		c.cell = -1
	}
	return c, e.State[end:], good
}

// within reports whether the numbers of c are those of some sketch.
func (c *foreignCell) within() bool {
	return c.group.level < sketchLevels && c.groupBits <= maxFineBits &&
		c.group.number>>c.groupBits == 0 && c.part < c.parts &&
		c.parts <= maxShards && c.parts&(c.parts-1) == 0
}

// importCell merges a cell in, of a group with a number of so many bits. A key is bound on a level
// only by its cells in all rows, so where there is no room for this one on the fine level, it goes
// to all keys of the coarse one.
func (s *sketch) importCell(
	now Instant, g cellGroup, groupBits, cell int, r *rule, l *Limit, w []int64,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number, more := g.number, s.groupBits(l, g.level)-groupBits
	for i := range uint32(1) << max(0, more) {
		g.number = number>>max(0, -more)<<max(0, more) + i
		if !s.shareIn(now, g, cell, r.id, l, w) {
			s.importCoarsely(now, g.seed, r, l, w)
			return
		}
	}
}

func (s *sketch) importCoarsely(now Instant, seed uint64, r *rule, l *Limit, w []int64) {
	for row := range uint32(sketchRows) {
		for n := range uint32(1) << coarseBits {
			if !s.shareIn(now, cellGroup{seed, sketchLevels - 1, row, n}, -1, r.id, l, w) {
				r.shutFor(now, l, w)
				return
			}
		}
	}
}

// A debt says how far a key is from being as good as never seen: first by the part of the limit
// that is used up, then by the time until all of it is there again.
type debt struct {
	used  uint64 // of 2^20
	reset time.Duration
}

func (l *Limit) debtOf(w []int64, now Instant) debt {
	var d Decision
	l.decide(w, now, 0, &d)
	// in 128 bits: a bucket with ClientTime may be as large as an int64
	high, low := bits.Mul64(uint64(max(0, d.Limit-d.Remaining)), 1<<20)
	used, _ := bits.Div64(high, low, uint64(d.Limit))
	return debt{used, d.ResetAfter}
}

func (a debt) less(b debt) bool { return a.used < b.used || a.used == b.used && a.reset < b.reset }
