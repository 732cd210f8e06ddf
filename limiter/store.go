package limiter

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// A store keeps states by rule and key in one piece of memory that it never leaves:
//
//	slots →        free        ← blocks
//
// A slot is one cache line: whose it is, and the state and the key's bytes if they fit. What does not fit lies in a
// block, and the slot holds the block's place. Slots grow upwards and blocks downwards until they meet, so the budget
// is kept by construction, and nothing is ever copied to a second, larger array.
//
// Slots are open addressing with linear probing, in the order of their mix. A slot's home is mix × capacity / 2^64,
// so this order is that of the homes at any capacity, and a store is grown, shrunk or swept by passes from one end to
// the other. A lookup reads on from the home, on average two slots, which lie side by side in memory: the processor has
// the second before it is asked for. (A separate array of one-byte tags was tried: it saves reading slots that are not
// wanted, and costs a wait for memory of its own, 280 ns instead of 240 where both are out of the caches.)
//
// All state is owned by whoever holds the shard's lock.
type store struct {
	slots    []slot // all that ever fit; the first capacity+spill are in use
	capacity int    // number of homes
	count    int    // slots taken
	reach    int    // farthest that the end of a run may lie behind the home of a newcomer
	spill    int    // slots behind the last home, so that a run at the end never wraps around

	memory  []int64
	low     int // blocks lie in memory[low:]
	garbage int // words of freed blocks among them

	swept uint64 // entries removed because they were as good as never seen
}

type slot struct {
	mix    uint64 // hash of key and limit; 0 is an empty slot
	rule   uint32
	keyLen uint16
	words  uint16
	body   [bodyWords]int64 // state words, then key; or body[0] is the place of the block that has them
}

const (
	bodyWords = 6
	slotWords = int(unsafe.Sizeof(slot{})) / 8

	firstCapacity = 16
	minReach      = 16
	maxReach      = 256
	// Growth pushes a run a slot farther from its home while the homes in it lie within a few slots of each other,
	// which growth ends.
	reachSlack = 8
)

// newStore makes an empty store of memory, which must be zero and begin with a cache line.
func newStore(memory []int64) store {
	total := len(memory) / slotWords
	reach := min(max(total/8, minReach), maxReach)
	return store{
		slots:  unsafe.Slice((*slot)(unsafe.Pointer(unsafe.SliceData(memory))), total),
		reach:  reach,
		spill:  reach + reachSlack,
		memory: memory,
		low:    len(memory),
	}
}

func homeOf(mix uint64, capacity int) int {
	hi, _ := bits.Mul64(mix, uint64(capacity))
	return int(hi)
}

func (st *store) home(mix uint64) int { return homeOf(mix, st.capacity) }

// find returns the index of the slot of rule and key, or -1.
func (st *store) find(mix uint64, rule uint32, key string) int {
	at := st.home(mix)
	for st.slots[at].mix-1 < mix-1 { // an empty slot, 0, becomes the largest
		at++
	}
	for ; ; at++ {
		s := &st.slots[at]
		if s.mix != mix {
			return -1
		}
		if s.rule == rule && st.key(s) == key {
			return at
		}
	}
}

func inlined(words, keyLen int) bool { return words*8+keyLen <= bodyWords*8 }

func (s *slot) inlined() bool { return inlined(int(s.words), int(s.keyLen)) }

// state is the words of s, in place.
func (st *store) state(s *slot) []int64 {
	if s.inlined() {
		return s.body[:s.words]
	}
	at := int(s.body[0])
	return st.memory[at : at+int(s.words)]
}

// key is the key of s, in place: it is gone when the store is next changed.
func (st *store) key(s *slot) string {
	p := unsafe.Pointer(&s.body)
	if !s.inlined() {
		p = unsafe.Pointer(&st.memory[s.body[0]])
	}
	return unsafe.String((*byte)(unsafe.Add(p, int(s.words)*8)), int(s.keyLen))
}

// fill puts a state and a key into s, which has not been placed yet. It reports false if there is no room for them.
func (st *store) fill(s *slot, state []int64, key string) bool {
	s.words, s.keyLen = uint16(len(state)), uint16(len(key))
	if s.inlined() {
		copy(s.body[:], state)
		copy(bytesOf(s.body[len(state):]), key)
		return true
	}
	at := st.alloc(s)
	if at < 0 {
		return false
	}
	copy(st.memory[at:], state)
	copy(bytesOf(st.memory[at+len(state):]), key)
	s.body[0] = int64(at)
	return true
}

// insert adds an entry that is not there yet. It reports false, and has added nothing, if there is no room for it.
func (st *store) insert(now Instant, rules *ruleIndex, mix uint64, rule uint32, key string, state []int64) bool {
	i, end := st.spot(mix)
	for i < 0 && st.grow(now, rules) {
		i, end = st.spot(mix)
	}
	if i < 0 {
		st.sweep(now, rules, st.home(mix), nearby)
		i, end = st.spot(mix)
	}
	s := slot{mix: mix, rule: rule}
	if i < 0 || !st.fill(&s, state, key) {
		return false
	}
	copy(st.slots[i+1:end+1], st.slots[i:end])
	st.slots[i] = s
	st.count++
	rules.byID(rule).live.Add(1)
	return true
}

// nearby is how many slots a newcomer looks at for one that is as good as empty, once the store cannot grow.
const nearby = 32

// spot is where a newcomer with mix belongs: in slot i, once those from there to the empty slot end have moved up by
// one. i is -1 if the store is full for its capacity, or too full here: nobody may be pushed farther than reach, or
// keys chosen for their hashes could make lookups long.
func (st *store) spot(mix uint64) (i, end int) {
	if st.count >= st.capacity-st.capacity/8 {
		return -1, 0
	}
	home := st.home(mix)
	for i = home; st.slots[i].mix != 0 && st.slots[i].mix <= mix; i++ {
	}
	for end = i; st.slots[end].mix != 0; end++ {
	}
	if end-home > st.reach {
		return -1, 0
	}
	return i, end
}

// remove drops the entry in slot i and closes the gap.
func (st *store) remove(rules *ruleIndex, i int) {
	st.drop(rules, &st.slots[i])
	end := i + 1
	for st.slots[end].mix != 0 && st.home(st.slots[end].mix) < end {
		end++
	}
	copy(st.slots[i:], st.slots[i+1:end])
	st.slots[end-1].mix = 0
}

// drop ends what belongs to s; its place in the order is the caller's.
func (st *store) drop(rules *ruleIndex, s *slot) {
	rules.byID(s.rule).live.Add(-1)
	st.count--
	st.free(s)
	s.mix = 0
}

// end is the number of the slot after the last that is taken, or a little more.
func (st *store) end() int {
	end := st.capacity
	for st.slots[end].mix != 0 {
		end++
	}
	return end
}

// sweep removes what is fresh among the n slots from slot from, and behind the last home, and moves up those behind
// that stand too far from home. It costs a look at each slot, and at those after them up to the end of their run.
func (st *store) sweep(now Instant, rules *ruleIndex, from, n int) {
	to := from // where the next entry stands if its home allows
	for i, end := from, st.end(); i < end; i++ {
		s := &st.slots[i]
		switch {
		case s.mix == 0 && i >= from+n:
			return
		case s.mix == 0:
			continue
		case (i < from+n || i >= st.capacity) && st.fresh(now, rules, s):
			st.drop(rules, s)
			st.swept++
			continue
		}
		to = max(to, st.home(s.mix))
		if to == i && i >= from+n {
			return
		}
		st.move(to, i)
		to++
	}
}

// move brings the entry in slot from to the empty slot to; they may be the same.
func (st *store) move(to, from int) {
	if to != from {
		st.slots[to] = st.slots[from]
		st.slots[from].mix = 0
	}
}

func (st *store) fresh(now Instant, rules *ruleIndex, s *slot) bool {
	l := rules.byID(s.rule).limit.Load()
	w := st.state(s)
	if len(w) != l.words() {
		fitted := make([]int64, l.words())
		l.refit(fitted, w)
		w = fitted
	}
	return l.fresh(w, now)
}

// grow makes a quarter more homes, unless removing fresh entries makes room enough. It reports false, and has changed
// nothing, if there is no memory for more, or if the store is so empty that more homes would not help: then somebody
// has chosen keys for their hashes.
func (st *store) grow(now Instant, rules *ruleIndex) bool {
	if st.count < st.capacity/2 {
		return false
	}
	grown := max(firstCapacity, st.capacity+st.capacity/4)
	if st.roomFor() < grown && st.garbage > st.blockWords()/8 {
		st.compact()
	}
	capacity := min(grown, st.roomFor())
	if capacity < st.capacity+max(1, st.capacity/16) {
		return false
	}
	st.relay(now, rules, capacity)
	return true
}

// roomFor is the largest capacity for which there is memory.
func (st *store) roomFor() int { return st.low/slotWords - st.spill }

// relay lays all slots out anew for a capacity, and leaves out what is fresh. If that empties half of a store that was
// to grow, it keeps the capacity it has. One pass moves the slots up to the end, in order; a second brings each to its
// place, which is never behind where the first pass put it.
func (st *store) relay(now Instant, rules *ruleIndex, capacity int) {
	top := max(st.capacity, capacity) + st.spill
	first := top
	for i := st.end() - 1; i >= 0; i-- {
		s := &st.slots[i]
		if s.mix == 0 {
			continue
		}
		if st.fresh(now, rules, s) {
			st.drop(rules, s)
			st.swept++
			continue
		}
		first--
		st.move(first, i)
	}
	if capacity < st.capacity || st.count >= st.capacity/2 {
		st.capacity = capacity
	}
	to := 0
	for i := first; i < top; i++ {
		to = max(to, st.home(st.slots[i].mix))
		if to > i || to >= st.capacity+st.spill {
			panic(fmt.Sprintf("limiter: slot %d of %d belongs to %d, which is not free", i, top, to))
		}
		st.move(to, i)
		to++
	}
}

// trim shrinks a store that has become nearly empty, and gives the memory between slots and blocks back.
func (st *store) trim(now Instant, rules *ruleIndex) {
	if st.garbage*2 > st.blockWords() {
		st.compact()
	}
	capacity := max(firstCapacity, st.count*2)
	if capacity >= st.capacity/2 || !st.fits(capacity) {
		return
	}
	st.relay(now, rules, capacity)
	release(st.memory[(st.capacity+st.spill)*slotWords : st.low])
}

// fits reports whether the slots could stand at that capacity without anybody being pushed out of reach.
func (st *store) fits(capacity int) bool {
	to := 0
	for s := range st.all {
		home := homeOf(s.mix, capacity)
		to = max(to, home) + 1
		if to-home > st.reach {
			return false
		}
	}
	return true
}

// all yields the slots that are taken. The store must not change meanwhile.
func (st *store) all(yield func(*slot) bool) {
	for i := range st.end() {
		if st.slots[i].mix != 0 && !yield(&st.slots[i]) {
			return
		}
	}
}

// bytes is the memory in use.
func (st *store) bytes() int { return (st.capacity*slotWords + st.blockWords()) * 8 }

func bytesOf(words []int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
}
