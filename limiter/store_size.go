package limiter

import (
	"fmt"
	"sync/atomic"
)

// sweep removes what is fresh among the n slots from slot from, and behind the last home, and moves
// up those behind that stand too far from home. It costs a look at each slot, and at those after
// them up to the end of their run.
func (st *store) sweep(now Instant, rules *ruleIndex, from, n int) {
	to := from // where the next entry stands if its home allows
	for i, end := from, st.end(); i < end; i++ {
		s := &st.slots[i]
		switch {
		case s.head == 0 && i >= from+n:
			return
		case s.head == 0:
			continue
		case (i < from+n || i >= st.capacity) && st.spare(now, rules, s):
			st.drop(rules, s)
			st.swept++
			continue
		}
		to = max(to, st.home(s.mix()))
		if to == i && i >= from+n && i < st.capacity {
			return
		}
		st.move(to, i)
		to++
	}
}

// discard takes n slots from slot from, or behind the last home. If their keys are not wanted, it
// gives them the states of keys never seen, and the next sweep removes them. Shares are always
// wanted.
func (st *store) discard(rules *ruleIndex, from, n int, wanted func(hash uint64) bool) {
	end := st.end()
	for i := from; i < end; i++ {
		if i == from+n {
			i = max(i, st.capacity)
		}
		s := &st.slots[i]
		if s.head != 0 && !wanted(Hash(st.key(s))) && !rules.byID(s.rule()).limit.Load().isLocal() {
			clear(st.state(s))
		}
	}
}

// move brings the entry in slot from to the empty slot to; they may be the same.
func (st *store) move(to, from int) {
	if to != from {
		st.slots[to] = st.slots[from]
		st.slots[from].head = 0
	}
}

// spare reports whether s can be removed without loss: it is as good as never seen, and nodes with
// copies of its earlier state have been told so.
func (st *store) spare(now Instant, rules *ruleIndex, s *slot) bool {
	return s.head&untold == 0 && st.fresh(now, rules, s)
}

func (st *store) fresh(now Instant, rules *ruleIndex, s *slot) bool {
	l := rules.byID(s.rule()).limit.Load()
	for w := range st.cellsOf(s) {
		if len(w) != l.words() {
			fitted := make([]int64, l.words())
			l.refit(fitted, w)
			w = fitted
		}
		if !l.fresh(w, now) {
			return false
		}
	}
	return true
}

// grow makes an eighth more homes, unless removing fresh entries makes room enough. It reports
// false, and has changed nothing, if there is no memory for more, or if the store is so empty that
// more homes would not help: then somebody has chosen keys for their hashes.
func (st *store) grow(now Instant, rules *ruleIndex) bool {
	if st.count < st.capacity/8*5 {
		return false
	}
	grown := st.capacity + max(firstCapacity, st.capacity/8)
	if st.roomFor() < grown && st.garbage > st.blockWords()/32 {
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

// relay lays all slots out anew for a capacity, and leaves out what is fresh. If that empties much
// of a store that was to grow, it keeps the capacity it has. One pass moves the slots up to where
// the last will stand, in order; a second brings each to its place, which is never behind where the
// first pass put it. Nothing farther up is touched, for a page costs memory from when it is first
// written to.
func (st *store) relay(now Instant, rules *ruleIndex, capacity int) {
	before, after := st.capacity+st.spill, capacity+st.spill
	// blocks lay there
	clear(st.slots[min(max(before, st.lowest/slotWords), max(before, after)):max(before, after)])
	end, _ := st.layout(capacity)
	top := max(st.end(), end)
	first := top
	for i := st.end() - 1; i >= 0; i-- {
		s := &st.slots[i]
		if s.head == 0 {
			continue
		}
		if st.spare(now, rules, s) {
			st.drop(rules, s)
			st.swept++
			continue
		}
		first--
		st.move(first, i)
	}
	if capacity < st.capacity || st.count >= st.capacity/8*5 {
		st.capacity = capacity
		atomic.StoreUintptr(&st.view.homes, uintptr(capacity))
	}
	to := 0
	for i := first; i < top; i++ {
		to = max(to, st.home(st.slots[i].mix()))
		if to > i || to >= st.capacity+st.spill {
			panic(fmt.Sprintf("limiter: slot %d of %d belongs to %d, which is not free", i, top,
				to))
		}
		st.move(to, i)
		to++
	}
}

// trim shrinks a store that has become nearly empty, and gives the memory between slots and blocks
// back.
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

// fits reports whether the slots could stand at that capacity without anybody being pushed out of
// reach.
func (st *store) fits(capacity int) bool {
	_, reach := st.layout(capacity)
	return reach <= st.reach
}

// layout is where the slots would end at that capacity, and the farthest that the end of one would
// lie behind its home.
func (st *store) layout(capacity int) (end, reach int) {
	for s := range st.all {
		home := homeOf(s.mix(), capacity)
		end = max(end, home) + 1
		reach = max(reach, end-home)
	}
	return end, reach
}
