package limiter

// A block holds a state and a key that do not fit into a slot: the words, the key's bytes up to a
// whole word, and a footer that names its slot. Blocks fill the end of a store's memory downwards.
// A freed block is garbage until another takes its place or compact slides the others up over it.
// The footer stands last because compact goes from the top down.
//
//	words … │ key … │ mix<<32 | size of the block; mix 0: garbage
const footerWords = 1

func blockSize(words, keyLen int) int { return words + (keyLen+7)/8 + footerWords }

func (s *slot) blockSize() int { return blockSize(s.words(), s.keyLen()) }

func (st *store) blockWords() int { return len(st.memory) - st.low }

// alloc makes a block of size words for the slot with mix, which the caller fills in, and returns
// its place, or -1 if there is no room.
func (st *store) alloc(mix uint32, size int) int {
	end := (st.capacity + st.spill) * slotWords
	if st.low-size < end && st.hole.size < size && st.garbage >= max(size, st.blockWords()/32) {
		st.compact()
	}
	at := st.low - size
	switch {
	case at >= end:
		st.low, st.lowest = at, min(st.lowest, at)
	case st.hole.size >= size:
		st.hole.size -= size
		st.garbage -= size
		if st.hole.size > 0 {
			st.memory[st.hole.at+st.hole.size-1] = int64(st.hole.size)
		}
		at = st.hole.at + st.hole.size
	default:
		return -1
	}
	st.memory[at+size-1] = int64(mix)<<32 | int64(size)
	return at
}

// free gives up the block of s, if it has one.
func (st *store) free(s *slot) {
	if s.inlined() {
		return
	}
	at, size := s.place(), s.blockSize()
	if at == st.low {
		st.low += size
		return
	}
	st.memory[at+size-1] = int64(size)
	st.garbage += size
	if size > st.hole.size {
		st.hole = hole{at, size}
	}
}

// hole is the largest block of those freed of late: in a store that is full, it is the room for the
// next.
type hole struct{ at, size int }

// compact slides the blocks in use together at the end of memory and tells their slots.
func (st *store) compact() {
	to := len(st.memory)
	for end := len(st.memory); end > st.low; {
		footer := uint64(st.memory[end-1])
		mix, size := uint32(footer>>32), int(uint32(footer))
		at := end - size
		if mix != 0 {
			to -= size
			if to != at {
				s := st.ownerOf(mix, at)
				copy(st.memory[to:to+size], st.memory[at:end])
				s.setPlace(to)
			}
		}
		end = at
	}
	st.low, st.garbage, st.hole = to, 0, hole{}
}

// ownerOf is the slot of the block at.
func (st *store) ownerOf(mix uint32, at int) *slot {
	for i := st.home(mix); st.slots[i].head != 0; i++ {
		if s := &st.slots[i]; s.mix() == mix && !s.inlined() && s.place() == at {
			return s
		}
	}
	panic("limiter: a block in use belongs to no slot")
}
