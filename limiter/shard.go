package limiter

import (
	"math/bits"
	"strings"
	"sync"
	"unsafe"
)

// A shard is a part of the table with a lock of its own: the entries of its keys. Those without an
// entry share cells of the sketch (see sketch.go).
type shard struct {
	shardState
	_ [64 - unsafe.Sizeof(shardState{})%64]byte // so that each shard begins with a cache line
}

type shardState struct {
	// guards all below; with what a lookup reads of entries it is one cache line
	mu       sync.Mutex
	changed  *changes               // since they were last asked for, or nil: nobody will ask
	reserved map[reservedKey]*int64 // units of open holds (reserved.go); nil if there are none
	entries  store
	place    *placement
	rules    *rules
	scratch  [3][]int64

	evicted uint64 // entries that made room for others
	refused uint64 // requests for which not even the sketch had room
}

// target is the key that a request is about.
type target struct {
	rule  *rule
	limit *Limit
	mix   uint32
	key   string
	hash  uint64 // the public one
}

// mixOf joins a key's hash with a limit. Every bit of both counts for every bit of the result, so
// the slot does not follow from the shard (the top bits of the hash), and the limits of one key are
// spread. It is never 0.
func mixOf(hash uint64, l *Limit) uint32 {
	hi, lo := bits.Mul64(hash^l.seed, 0x9e3779b97f4a7c15)
	return max(1, uint32((hi^lo)>>32))
}

// take decides into d, and stores.
func (s *shard) take(now Instant, t *target, r *Request, d *Decision) {
	i := s.entries.find(t.mix, t.rule.id, t.key)
	if i < 0 && !t.alone() {
		i = s.adopt(t)
	}
	if i < 0 {
		s.takeNew(now, t, r, d)
		return
	}
	if e := &s.entries.slots[i]; e.words() == t.limit.words() || s.entries.fit(i, t.limit) {
		t.limit.answer(s.entries.state(e), now, r, d)
		if s.changed != nil && r.writes(t.limit, d) {
			s.changed.add(e)
			if r.Cost < 0 {
				e.head |= untold
			}
		}
		return
	}
	if r.Report {
		w, _, _ := s.read(now, t)
		t.limit.answer(w, now, r, d)
		s.entries.remove(s.rules.index.Load(), i)
		s.keepAnyway(now, t, w)
		return
	}
	s.refused++
	*d = noRoom(t.limit)
}

// takeNew decides on a key without an entry, and makes one if it is charged.
func (s *shard) takeNew(now Instant, t *target, r *Request, d *Decision) {
	if t.shut(now) && !r.Report {
		s.refused++
		*d = noRoom(t.limit)
		return
	}
	w, bound := s.begin(now, t)
	own, charged := s.charge(now, t, w, bound, r, d)
	d.Restarted = s.restarts(now, t)
	switch {
	case !charged:
	case s.keep(now, t, w, own, true):
		if t.limit.inCredit(w) && s.entries.find(t.mix, t.rule.id, t.key) < 0 { // it was lost
			clear(w)
			t.limit.answer(w, now, r.charging(), d)
		}
	case r.Report:
		s.keepAnyway(now, t, w)
	default:
		s.refused++
		*d = noRoom(t.limit)
	}
}

// keepAnyway stores the state of a key that has no entry, and of which a report was charged: that
// speaks of something that has happened, and is never refused. Where not even the sketch has room,
// keys of the limit that have no entry are refused for as long as the state counts.
func (s *shard) keepAnyway(now Instant, t *target, w []int64) {
	s.tell(now, t.limit, t.key, w, true)
	if !s.place.share(now, t.hash, t.rule.id, t.limit, w) {
		t.rule.shutFor(now, t.limit, w)
	}
}

// charge decides on a key without an entry, which begins from w, and reports whether w has to be
// kept, and what debt is surely the key's own. bound says that w comes from the sketch. There is
// nothing to give back to such a key, its cells are not its alone, but a credit may be given.
func (s *shard) charge(
	now Instant, t *target, w []int64, bound bool, r *Request, d *Decision,
) (own debt, charged bool) {
	if r.Cost < 0 && !bound && t.limit.credits() {
		t.limit.answer(w, now, r, d)
		return debt{}, true
	}
	t.limit.answer(w, now, r.charging(), d)
	if r.Cost <= 0 || !d.Allowed && d.Drained == 0 && !t.limit.countsRefused(r.Cost) {
		return debt{}, false
	}
	if !bound {
		return t.limit.debtOf(w, now), true
	}
	var alone Decision
	other := s.words(1, len(w))
	clear(other)
	t.limit.answer(other, now, r, &alone)
	own = t.limit.debtOf(other, now)
	// The cell's window may be older than the one that the key opens by itself, and must not end
	// before it.
	t.limit.merge(w, other, now)
	t.limit.decide(w, now, 0, &alone)
	d.Remaining, d.ResetAfter = alone.Remaining, alone.ResetAfter
	return own, true
}

// noRoom is the answer where nothing can be counted. Room comes as windows end, so a window's
// length is its hint.
func noRoom(l *Limit) Decision {
	return Decision{Limit: l.Capacity(), RetryAfter: l.Per, ResetAfter: l.Per}
}

// known reports whether entries of t.rule, which may be nil, can be looked up.
func (t *target) known() bool { return t.rule != nil && !t.rule.gone.Load() }

// shut reports whether keys of the limit that have no entry are refused.
func (t *target) shut(now Instant) bool {
	if !t.known() {
		return false
	}
	for _, r := range *t.rule.family.rules.Load() {
		if until := r.shut.Load(); until != 0 && until > int64(now) && !r.gone.Load() {
			return true
		}
	}
	return false
}

// peek answers into d what take would. t.rule may be nil: nothing is known of the limit.
func (s *shard) peek(now Instant, t *target, r *Request, d *Decision) {
	w, bound, entry := s.read(now, t)
	if !entry && t.shut(now) {
		*d = noRoom(t.limit)
		return
	}
	if !entry && (bound || !t.limit.credits()) {
		r = r.charging()
	}
	t.limit.answer(w, now, r, d)
	if !entry {
		d.Restarted = s.restarts(now, t)
	}
}

// read copies the state of the key: of its entry, or what it begins from.
func (s *shard) read(now Instant, t *target) (w []int64, bound, entry bool) {
	if t.known() {
		if i := s.find(t); i >= 0 {
			w = s.words(0, t.limit.words())
			t.limit.refit(w, s.entries.state(&s.entries.slots[i]))
			return w, false, true
		}
	}
	w, bound = s.begin(now, t)
	return w, bound, false
}

// merge makes the key's state one of which both it and other are true. It may change other.
func (s *shard) merge(now Instant, t *target, other []int64) {
	if i := s.adopt(t); i >= 0 {
		if s.entries.fit(i, t.limit) {
			t.limit.merge(s.entries.state(&s.entries.slots[i]), other, now)
		}
		return
	}
	w, _ := s.begin(now, t)
	own := t.limit.debtOf(other, now)
	t.limit.merge(w, other, now)
	if !t.limit.fresh(w, now) && !s.keep(now, t, w, own, false) {
		s.refused++
		t.rule.shutFor(now, t.limit, w)
	}
}

// begin is the state from which a key without an entry begins, and whether that comes from the
// sketch.
func (s *shard) begin(now Instant, t *target) (w []int64, bound bool) {
	w = s.words(0, t.limit.words())
	clear(w)
	cells := s.place.sketch(t.hash)
	if cells.empty() || !t.known() {
		return w, false
	}
	other := s.words(2, len(w))
	cells.mu.Lock()
	defer cells.mu.Unlock()
	for _, r := range *t.rule.family.rules.Load() {
		if r.live.Load() == 0 { // as of one that is gone
			continue
		}
		l := r.limit.Load()
		for level := range uint32(sketchLevels) {
			if least := cells.bound(now, level, mixOf(t.hash, l), r.id, l); least != nil {
				bound = true
				t.limit.refit(other, least)
				t.limit.merge(w, other, now)
			}
		}
	}
	return w, bound
}

// keep stores the state of a key that has no entry, in one or else in its cells, from which w must
// have come. own is the part of its debt that is surely its own; changed says that Changed has to
// tell. It reports false if there is no room for either.
func (s *shard) keep(now Instant, t *target, w []int64, own debt, changed bool) bool {
	o := &owner{mix: t.mix, rule: t.rule.id, key: t.key, cells: 1, listed: changed &&
		s.changed != nil}
	if len(t.key) <= MaxKey {
		index := s.rules.index.Load()
		if s.entries.insert(now, index, o, w) || s.evictFor(now, index, o, len(w), own) &&
			s.entries.insert(now, index, o, w) {
			if o.listed {
				s.changed.append(t.mix, t.rule.id)
			}
			return true
		}
	}
	if t.limit.inCredit(w) {
		return true // and it is lost: in a cell it would be everybody's
	}
	return (!changed || s.tell(now, t.limit, t.key, w, false)) &&
		s.place.share(now, t.hash, t.rule.id, t.limit, w)
}

// evictFor moves an entry into the sketch, if there is room, that is as near to full as a newcomer
// is by what it has consumed itself, or nearer. What newcomers have got from the sketch does not
// count: that adds up over all of them, and would drive out keys that have consumed more than any
// newcomer.
func (s *shard) evictFor(now Instant, index *ruleIndex, o *owner, words int, own debt) bool {
	i := s.entries.nearestToFull(now, index, o, words, own)
	if i < 0 {
		return false
	}
	e := &s.entries.slots[i]
	l, state := index.byID(e.rule()).limit.Load(), s.entries.state(e)
	key := s.entries.key(e)
	if !s.tell(now, l, key, state, false) || !s.place.share(now, Hash(key), e.rule(), l, state) {
		return false
	}
	s.entries.remove(index, i)
	s.evicted++
	return true
}

// forget removes the entry of the key, if there is one.
func (s *shard) forget(t *target) {
	if i := s.find(t); i >= 0 {
		s.entries.remove(s.rules.index.Load(), i)
	}
}

// reset makes the key as good as never seen. Where changes are tracked its entry stays until it has
// been copied: a node with a copy must be told.
func (s *shard) reset(t *target) {
	i := s.find(t)
	if i >= 0 && s.changed != nil {
		e := &s.entries.slots[i]
		clear(s.entries.state(e))
		s.changed.add(e)
		e.head |= untold
		return
	}
	s.forget(t)
}

// words is n words of scratch space, the same for each call with the same part.
func (s *shard) words(part, n int) []int64 {
	if len(s.scratch[part]) < n {
		s.scratch[part] = make([]int64, n)
	}
	return s.scratch[part][:n]
}

// fit makes the state in slot i as long as l has it now. A limit that is changed in place may need
// more words or fewer. It reports false if there is no room.
func (st *store) fit(i int, l *Limit) bool {
	old := &st.slots[i]
	if old.words() == l.words() {
		return true
	}
	w := make([]int64, l.words())
	l.refit(w, st.state(old))
	return st.replace(i, &owner{
		mix: old.mix(), rule: old.rule(), key: strings.Clone(st.key(old)),
		cells: old.cells(),
	}, w)
}

// replace gives slot i another state, of another length. It reports false if there is no room.
func (st *store) replace(i int, o *owner, state []int64) bool {
	var s slot
	if !st.fill(&s, o, state) {
		return false
	}
	s.head |= st.slots[i].head & (untold | listed)
	st.free(&st.slots[i])
	st.slots[i] = s
	return true
}
