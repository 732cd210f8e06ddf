package limiter

import (
	"iter"
	"sync/atomic"
	"unsafe"
)

// A store keeps states by rule and key in one piece of memory that it never leaves:
//
//	slots →        free        ← blocks
//
// A slot is one cache line: its key's owner and length, and the state and the key's bytes if they
// fit. Otherwise these lie in a block, and the slot holds the block's place. Slots grow upwards and
// blocks downwards until they meet. So the budget is kept by construction, and nothing is ever
// copied to a second, larger array.
//
// Slots use open addressing with linear probing, in the order of their mix. A slot's home is mix ×
// capacity / 2^32, so this order is that of the homes at any capacity. A store is grown, shrunk or
// swept by passes from one end to the other. A lookup reads on from the home, on average two slots.
// They lie side by side in memory, so the processor has the second before it is asked for. (A
// separate array of one-byte tags was tried: it saves reading unwanted slots, and costs a wait for
// memory that is as long.)
//
// All state is guarded by the shard's lock.
type store struct {
	slots    []slot // all that ever fit; the first capacity+spill are in use
	capacity int    // number of homes
	view     *storeView
	count    int // slots taken
	reach    int // farthest that the end of a run may lie behind the home of a newcomer
	spill    int // slots behind the last home, so that a run at the end never wraps around

	memory  []int64
	low     int // blocks lie in memory[low:]
	lowest  int // and never lay before memory[lowest:]
	garbage int // words of freed blocks among them
	hole    hole

	swept uint64 // entries removed because they were as good as never seen
}

type slot struct {
	head uint64 // owner and length of the key; 0 is an empty slot
	// state words, then key; or body[0] is place | words<<32 | bytes of key<<48 of a block
	body [bodyWords]int64
}

// The head of a slot, from its highest bits: 32 of mix, which is never 0, 15 of the rule's number,
// 3 of how many cells its words are, 3 of how many words and 6 of how many bytes of key there are
// in the body, whether those are in a block instead, whether something was given back that Changed
// has not told yet, and whether changes lists the entry.
const (
	mixAt, ruleAt, cellsAt, wordsAt, keyLenAt = 32, 17, 14, 11, 5

	inBlock, untold, listed = 1, 2, 4
)

const (
	bodyWords = 7
	slotWords = int(unsafe.Sizeof(slot{})) / 8

	firstCapacity = 16
	minReach      = 16
	maxReach      = 256
	// Growth pushes a run a slot farther from its home while the homes in it lie within a few slots
	// of each other, which growth ends.
	reachSlack = 8
)

func (s *slot) mix() uint32  { return uint32(s.head >> mixAt) }
func (s *slot) rule() uint32 { return uint32(s.head>>ruleAt) & maxRules }
func (s *slot) setRule(id uint32) {
	s.head = s.head&^(maxRules<<ruleAt) | uint64(id)<<ruleAt
}
func (s *slot) cells() int    { return int(s.head >> cellsAt & 7) }
func (s *slot) inlined() bool { return s.head&inBlock == 0 }

func (s *slot) words() int {
	if s.inlined() {
		return int(s.head >> wordsAt & 7)
	}
	return int(s.body[0] >> 32 & 0xffff)
}

func (s *slot) keyLen() int {
	if s.inlined() {
		return int(s.head >> keyLenAt & 63)
	}
	return int(s.body[0] >> 48)
}

func (s *slot) place() int { return int(uint32(s.body[0])) }

func (s *slot) setPlace(at int) { s.body[0] = s.body[0]&^0xffffffff | int64(at) }

// newStore makes an empty store of memory, which must be zero and begin with a cache line. view
// shows it.
func newStore(memory []int64, view *storeView) store {
	total := len(memory) / slotWords
	view.slots = unsafe.Pointer(unsafe.SliceData(memory))
	reach := min(max(total/8, minReach), maxReach)
	return store{
		slots:  unsafe.Slice((*slot)(unsafe.Pointer(unsafe.SliceData(memory))), total),
		reach:  reach,
		spill:  reach + reachSlack,
		view:   view,
		memory: memory,
		low:    len(memory),
		lowest: len(memory),
	}
}

func homeOf(mix uint32, capacity int) int { return int(uint64(mix) * uint64(capacity) >> 32) }

func (st *store) home(mix uint32) int { return homeOf(mix, st.capacity) }

// storeView locates the slots for readers without the lock. It lies apart from the fields that each
// decision writes.
type storeView struct {
	slots unsafe.Pointer
	homes uintptr // is capacity, written by relay and read by expect as atomic
}

// expect has the processor fetch the slots in which a key with mix most likely is. Nobody need hold
// the lock: if slots are moved meanwhile, the wrong ones are fetched.
func (v *storeView) expect(mix uint32) { prefetch(v.home(mix)) }

func (v *storeView) home(mix uint32) unsafe.Pointer {
	return unsafe.Add(v.slots, homeOf(mix, int(atomic.LoadUintptr(&v.homes)))*slotWords*8)
}

// find returns the index of the slot of rule and key, or -1.
func (st *store) find(mix, rule uint32, key string) int {
	who := uint64(mix)<<mixAt | uint64(rule)<<ruleAt
	least := uint64(mix) << mixAt
	at := st.home(mix)
	for st.slots[at].head-1 < least { // an empty slot, 0, becomes the largest
		at++
	}
	for ; ; at++ {
		s := &st.slots[at]
		if (s.head^who)>>ruleAt == 0 {
			if st.hasKey(s, key) {
				return at
			}
		} else if s.mix() != mix {
			return -1
		}
	}
}

func (st *store) hasKey(s *slot, key string) bool {
	if s.keyLen() != len(key) {
		return false
	}
	if !s.inlined() || len(key) < 8 {
		return st.key(s) == key
	}
	return equalBytes(unsafe.Pointer(&s.body[s.head>>wordsAt&7]),
		unsafe.Pointer(unsafe.StringData(key)), uintptr(len(key)))
}

// equalBytes compares n bytes, 8 to 48, without a branch that depends on n: lengths of keys are
// what a processor guesses wrong. Of a short key it compares the last 8 bytes several times.
func equalBytes(a, b unsafe.Pointer, n uintptr) bool {
	last := n - 8
	return difference(a, b, 0)|difference(a, b, min(8, last))|difference(a, b, min(16, last))|
		difference(a, b, min(24, last))|difference(a, b, min(32, last))|difference(a, b, last) == 0
}

func difference(a, b unsafe.Pointer, at uintptr) uint64 {
	return *(*uint64)(unsafe.Add(a, at)) ^ *(*uint64)(unsafe.Add(b, at))
}

func inlined(words, keyLen int) bool { return words*8+keyLen <= bodyWords*8 }

// state is the words of s, in place.
func (st *store) state(s *slot) []int64 {
	if s.inlined() {
		return s.body[:s.head>>wordsAt&7]
	}
	at := s.place()
	return st.memory[at : at+s.words()]
}

// key is the key of s, in place: it is gone when the store is next changed.
func (st *store) key(s *slot) string {
	p := unsafe.Pointer(&s.body)
	if !s.inlined() {
		p = unsafe.Pointer(&st.memory[s.place()])
	}
	return unsafe.String((*byte)(unsafe.Add(p, s.words()*8)), s.keyLen())
}

// owner identifies the key and rule of a slot.
type owner struct {
	mix, rule uint32
	key       string
	cells     int // states of one length, one after the other; 1 but in the sketch
	listed    bool
}

// fill puts owner and state into s, which has not been placed yet. It reports false if there is no
// room for them.
func (st *store) fill(s *slot, o *owner, state []int64) bool {
	words, keyLen := len(state), len(o.key)
	s.head = uint64(o.mix)<<mixAt | uint64(o.rule)<<ruleAt | uint64(o.cells)<<cellsAt
	if o.listed {
		s.head |= listed
	}
	if inlined(words, keyLen) {
		s.head |= uint64(words)<<wordsAt | uint64(keyLen)<<keyLenAt
		copy(s.body[:], state)
		copy(bytesOf(s.body[words:]), o.key)
		return true
	}
	at := st.alloc(o.mix, blockSize(words, keyLen))
	if at < 0 {
		return false
	}
	s.head |= inBlock
	s.body[0] = int64(at) | int64(words)<<32 | int64(keyLen)<<48
	copy(st.memory[at:], state)
	copy(bytesOf(st.memory[at+words:]), o.key)
	return true
}

// insert adds an entry that is not there yet. It reports false, and has added nothing, if there is
// no room for it.
func (st *store) insert(now Instant, rules *ruleIndex, o *owner, state []int64) bool {
	if st.count >= st.capacity-st.capacity/4 {
		st.grow(now, rules)
	}
	i, end := st.spot(o.mix)
	for i < 0 && st.grow(now, rules) {
		i, end = st.spot(o.mix)
	}
	var s slot
	if i < 0 || !st.fill(&s, o, state) {
		st.sweep(now, rules, st.home(o.mix), nearby)
		if i, end = st.spot(o.mix); i < 0 || !st.fill(&s, o, state) {
			return false
		}
	}
	copy(st.slots[i+1:end+1], st.slots[i:end])
	st.slots[i] = s
	st.count++
	rules.byID(o.rule).live.Add(1)
	return true
}

// nearby is how many slots a newcomer looks at, once the store cannot grow, for one that is as good
// as empty or that can be given up.
const nearby = 32

// nearestToFull is the slot with the least debt among those near home that would make room for a
// newcomer: any slot of the same run, or, if a block is wanted, one with a block that is large
// enough. It returns -1 if all have more than most.
func (st *store) nearestToFull(now Instant, rules *ruleIndex, o *owner, words int, most debt) int {
	least := -1
	block := 0
	if !inlined(words, len(o.key)) {
		if i, _ := st.spot(o.mix); i >= 0 {
			block = blockSize(words, len(o.key))
		}
	}
	for i, end := st.home(o.mix), st.end(); i < min(end, st.home(o.mix)+nearby); i++ {
		s := &st.slots[i]
		if s.head == 0 || block > 0 && (s.inlined() || s.blockSize() < block) {
			continue
		}
		l := rules.byID(s.rule()).limit.Load()
		// a stated limit: the next request may state any other
		if s.words() != l.words() || l.stated() {
			continue
		}
		if d := l.debtOf(st.state(s), now); !most.less(d) {
			least, most = i, d
		}
	}
	return least
}

// spot is where a newcomer with mix belongs: in slot i, once those from there to the empty slot end
// have moved up by one. i is -1 if the store is full for its capacity, or too full here: nobody may
// be pushed farther than reach, or keys chosen for their hashes could make lookups long.
func (st *store) spot(mix uint32) (i, end int) {
	if st.count >= st.capacity-st.capacity/8 {
		return -1, 0
	}
	home := st.home(mix)
	for i = home; st.slots[i].head != 0 && st.slots[i].mix() <= mix; i++ {
	}
	for end = i; st.slots[end].head != 0; end++ {
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
	for st.slots[end].head != 0 && st.home(st.slots[end].mix()) < end {
		end++
	}
	copy(st.slots[i:], st.slots[i+1:end])
	st.slots[end-1].head = 0
}

// drop ends what belongs to s; its place in the order is the caller's.
func (st *store) drop(rules *ruleIndex, s *slot) {
	rules.byID(s.rule()).live.Add(-1)
	st.count--
	st.free(s)
	s.head = 0
}

// end is the number of the slot after the last that is taken, or a little more.
func (st *store) end() int {
	end := st.capacity
	for st.slots[end].head != 0 {
		end++
	}
	return end
}

// cellsOf yields the states of s: one, but in the sketch.
func (st *store) cellsOf(s *slot) iter.Seq[[]int64] {
	return func(yield func([]int64) bool) {
		all, n := st.state(s), s.cells()
		for i := range n {
			if !yield(all[i*len(all)/n : (i+1)*len(all)/n]) {
				return
			}
		}
	}
}

// all yields the slots that are taken. The store must not change meanwhile.
func (st *store) all(yield func(*slot) bool) {
	for i := range st.end() {
		if st.slots[i].head != 0 && !yield(&st.slots[i]) {
			return
		}
	}
}

// size is the memory there is, in bytes.
func (st *store) size() int { return len(st.memory) * 8 }

// taken is the memory of slots and blocks that are taken, in bytes.
func (st *store) taken() int { return (st.count*slotWords + st.blockWords() - st.garbage) * 8 }

// bytes is the memory in use.
func (st *store) bytes() int { return (st.capacity*slotWords + st.blockWords()) * 8 }

func bytesOf(words []int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
}
