package limiter

import (
	"math/bits"
	"strings"
	"sync"
	"unsafe"
)

// A shard is a part of the table with a lock of its own: the entries of its keys, and the crowd.
//
// The crowd is for when the budget is spent and nothing can be removed without loss. A newcomer gets no entry then,
// and nobody's entry is dropped for it. It is decided from a cell that it shares with other newcomers of its limit:
// what they are admitted adds up there, so the cell has consumed at least what each of them has, and can only admit
// too little. A newcomer that gets an entry later begins with a copy of its cell. The crowd has memory of its own;
// if even that is full, newcomers are refused.
type shard struct {
	shardState
	_ [64 - unsafe.Sizeof(shardState{})%64]byte // so that each shard begins with a cache line
}

type shardState struct {
	mu      sync.Mutex // guards all below; with what a lookup reads of entries it is one cache line
	entries store
	crowd   store
	rules   *rules
	scratch []int64

	overflowed uint64 // charges to the crowd
	refused    uint64 // requests for which not even the crowd had room
}

// target is whom a request is about.
type target struct {
	rule  *rule
	limit *Limit
	mix   uint64
	key   string
}

// mixOf joins a key's hash with a limit. Every bit of both counts for every bit of the result, so shard and slot do
// not follow from the partition (hash mod 4093), and the limits of one key are spread. It is never 0.
func mixOf(hash uint64, l *Limit) uint64 {
	hi, lo := bits.Mul64(hash^l.seed, 0x9e3779b97f4a7c15)
	return max(1, hi^lo)
}

// crowdCells is how many cells the newcomers of one limit share, per shard.
const crowdCells = 16

// cellMix is the mix of the cell for a newcomer.
func (t *target) cellMix() uint64 {
	cell := t.mix >> 32 % crowdCells
	hi, lo := bits.Mul64(t.limit.seed^0xd6e8feb86659fd93, 2*cell+0x9e3779b97f4a7c15)
	return max(1, hi^lo)
}

// take decides into d, and stores.
func (s *shard) take(now Instant, t *target, cost int64, d *Decision) {
	i := s.entries.find(t.mix, t.rule.id, t.key)
	if i < 0 {
		s.takeNew(now, t, cost, d)
		return
	}
	if e := &s.entries.slots[i]; int(e.words) == t.limit.words() || s.entries.fit(i, t.limit) {
		t.limit.decide(s.entries.state(e), now, cost, d)
		return
	}
	s.refused++
	*d = noRoom(t.limit)
}

// takeNew decides on a key without an entry, and makes one if it is charged. There is nothing to give back to it: its
// cell in the crowd is not its alone.
func (s *shard) takeNew(now Instant, t *target, cost int64, d *Decision) {
	w, shared := s.begin(t)
	t.limit.decide(w, now, max(0, cost), d)
	if cost <= 0 || !d.Allowed && !t.limit.countsRefused(cost) {
		return
	}
	if shared {
		// The cell's window may be older than the one that the key opens by itself, and must not end before it.
		var alone Decision
		own := s.words(1, len(w))
		clear(own)
		t.limit.decide(own, now, cost, &alone)
		t.limit.merge(w, own, now)
		t.limit.decide(w, now, 0, &alone)
		d.Remaining, d.ResetAfter = alone.Remaining, alone.ResetAfter
	}
	if !s.keep(now, t, w) {
		*d = noRoom(t.limit)
	}
}

// noRoom is the answer where nothing can be counted. Room comes as windows end, so a window's length is its hint.
func noRoom(l *Limit) Decision {
	return Decision{Limit: l.Capacity(), RetryAfter: l.Per, ResetAfter: l.Per}
}

// peek answers into d what take would. t.rule may be nil: nothing is known of the limit.
func (s *shard) peek(now Instant, t *target, cost int64, d *Decision) {
	i := -1
	if t.rule != nil {
		i = s.entries.find(t.mix, t.rule.id, t.key)
	}
	if i < 0 {
		w, _ := s.begin(t)
		t.limit.decide(w, now, max(0, cost), d)
		return
	}
	w := s.words(0, t.limit.words())
	t.limit.refit(w, s.entries.state(&s.entries.slots[i]))
	t.limit.decide(w, now, cost, d)
}

// merge makes the key's state one of which both it and other are true. It may change other.
func (s *shard) merge(now Instant, t *target, other []int64) {
	if i := s.entries.find(t.mix, t.rule.id, t.key); i >= 0 {
		if s.entries.fit(i, t.limit) {
			t.limit.merge(s.entries.state(&s.entries.slots[i]), other, now)
		}
		return
	}
	w, _ := s.begin(t)
	t.limit.merge(w, other, now)
	if !t.limit.fresh(w, now) {
		s.keep(now, t, w)
	}
}

// begin is the state from which a key without an entry begins: that of its cell, if there is one.
func (s *shard) begin(t *target) (w []int64, shared bool) {
	w = s.words(0, t.limit.words())
	clear(w)
	c := s.cell(t)
	if c != nil {
		t.limit.refit(w, s.crowd.state(c))
	}
	return w, c != nil
}

func (s *shard) swept() uint64 { return s.entries.swept + s.crowd.swept }

func (s *shard) cell(t *target) *slot {
	if s.crowd.count == 0 || t.rule == nil {
		return nil
	}
	i := s.crowd.find(t.cellMix(), t.rule.id, "")
	if i < 0 {
		return nil
	}
	return &s.crowd.slots[i]
}

// keep stores the state of a key that has no entry, in one or else in its cell, where w must have come from. It
// reports false if there is no room for either.
func (s *shard) keep(now Instant, t *target, w []int64) bool {
	index := s.rules.index.Load()
	if len(t.key) <= MaxKey && s.entries.insert(now, index, t.mix, t.rule.id, t.key, w) {
		return true
	}
	s.overflowed++
	mix := t.cellMix()
	if i := s.crowd.find(mix, t.rule.id, ""); i < 0 {
		if s.crowd.insert(now, index, mix, t.rule.id, "", w) {
			return true
		}
	} else if s.crowd.fit(i, t.limit) {
		copy(s.crowd.state(&s.crowd.slots[i]), w)
		return true
	}
	s.refused++
	return false
}

// forget removes the entry of the key, and reports whether there was one.
func (s *shard) forget(t *target) bool {
	i := s.entries.find(t.mix, t.rule.id, t.key)
	if i < 0 {
		return false
	}
	s.entries.remove(s.rules.index.Load(), i)
	return true
}

// A mark is what is needed to undo a take: the state that was, and where.
type mark struct {
	where place
	words []int64
}

type place uint8

const (
	nowhere place = iota
	inEntry
	inCell
)

// mark notes the state of the key before a take, at the end of notes.
func (s *shard) mark(t *target, notes []int64) (mark, []int64) {
	var m mark
	var w []int64
	if i := s.entries.find(t.mix, t.rule.id, t.key); i >= 0 {
		m.where, w = inEntry, s.entries.state(&s.entries.slots[i])
	} else if c := s.cell(t); c != nil {
		m.where, w = inCell, s.crowd.state(c)
	}
	from := len(notes)
	notes = append(notes, w...)
	m.words = notes[from:len(notes):len(notes)]
	return m, notes
}

// undo makes the state of the key what it was at the mark. Marks are undone from the last to the first.
func (s *shard) undo(now Instant, t *target, m mark) {
	if m.where == inEntry {
		if i := s.entries.find(t.mix, t.rule.id, t.key); i >= 0 {
			t.limit.refit(s.entries.state(&s.entries.slots[i]), m.words)
			return
		}
		// It was given back so much that it was removed to make room for another.
		s.merge(now, t, m.words)
		return
	}
	s.forget(t)
	c := s.cell(t)
	switch {
	case c == nil:
	case m.where == inCell:
		t.limit.refit(s.crowd.state(c), m.words)
	default:
		s.crowd.remove(s.rules.index.Load(), s.crowd.find(t.cellMix(), t.rule.id, ""))
	}
}

// words is the scratch space, the same for each call with the same part: 0 or 1, of n words.
func (s *shard) words(part, n int) []int64 {
	if len(s.scratch) < 2*n {
		s.scratch = make([]int64, 2*n)
	}
	return s.scratch[part*n : (part+1)*n]
}

// fit makes the state in slot i as long as l has it now. A limit that is changed in place may need more words or
// fewer. It reports false if there is no room.
func (st *store) fit(i int, l *Limit) bool {
	old := &st.slots[i]
	if int(old.words) == l.words() {
		return true
	}
	w := make([]int64, l.words())
	l.refit(w, st.state(old))
	s := slot{mix: old.mix, rule: old.rule}
	if !st.fill(&s, w, strings.Clone(st.key(old))) {
		return false
	}
	st.free(old)
	*old = s
	return true
}
