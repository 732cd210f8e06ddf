package limiter

// A block holds a state and a key that do not fit into a slot: the words, the key's bytes up to a whole word, and a
// footer that says whose block it is. Blocks fill the end of a store's memory downwards and are only ever added at
// the lower end; freed ones are garbage until compact slides the others up over them. The footer stands last because
// compact goes from the top down.
//
//	words … │ key … │ mix │ rule<<32 | size of the block
const footerWords = 2

func (s *slot) blockSize() int { return int(s.words) + (int(s.keyLen)+7)/8 + footerWords }

func (st *store) blockWords() int { return len(st.memory) - st.low }

// alloc makes a block for the state and key of s, which the caller fills in, and returns its place, or -1 if there is
// no room.
func (st *store) alloc(s *slot) int {
	size := s.blockSize()
	end := (st.capacity + st.spill) * slotWords
	if st.low-size < end && st.garbage >= max(size, st.blockWords()/8) {
		st.compact()
	}
	if st.low-size < end {
		return -1
	}
	last := st.low - 1
	st.low -= size
	st.memory[last-1] = int64(s.mix)
	st.memory[last] = int64(s.rule)<<32 | int64(size)
	return st.low
}

// free gives up the block of s, if it has one.
func (st *store) free(s *slot) {
	if s.inlined() {
		return
	}
	at, size := int(s.body[0]), s.blockSize()
	if at == st.low {
		st.low += size
		return
	}
	st.memory[at+size-1] = int64(size) // rule 0: nobody's
	st.garbage += size
}

// compact slides the blocks in use together at the end of memory and tells their slots.
func (st *store) compact() {
	to := len(st.memory)
	for end := len(st.memory); end > st.low; {
		mix, last := uint64(st.memory[end-2]), uint64(st.memory[end-1])
		rule, size := uint32(last>>32), int(uint32(last))
		at := end - size
		if rule != 0 {
			to -= size
			if to != at {
				s := st.ownerOf(mix, at)
				copy(st.memory[to:to+size], st.memory[at:end])
				s.body[0] = int64(to)
			}
		}
		end = at
	}
	st.low, st.garbage = to, 0
}

// ownerOf is the slot whose block lies at.
func (st *store) ownerOf(mix uint64, at int) *slot {
	for i := st.home(mix); st.slots[i].mix != 0; i++ {
		if s := &st.slots[i]; s.mix == mix && !s.inlined() && s.body[0] == int64(at) {
			return s
		}
	}
	panic("limiter: a block in use belongs to no slot")
}
