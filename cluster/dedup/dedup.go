// Package dedup makes a take happen once, however often it is delivered.
//
// A take that changes a key has an [ID]. The node that decides it runs it through [Window.Once]:
// the first delivery is charged and its answer remembered, and each further one within [Lasts] gets
// that answer and is charged nothing. When a partition changes hands, the old holder reads what it
// remembers of it with [Window.Each], the memories travel with the counters, and the new holder
// takes them over with [Window.Learn].
//
// A Window owns its state and its locks. Ids are spread over shards, so takes of different origins
// rarely meet at one lock.
package dedup

import (
	"math/bits"
	"time"

	"penstock/limiter"
)

// Lasts is how long an answer is remembered. A caller that repeats a take later than this may be
// charged twice.
const Lasts = 2 * time.Second

// ID names one take or reset: Origin is the boot of the node or client that drew the ID, Sequence
// counts its takes. The zero ID names nothing: such a take cannot be recognised.
type ID struct {
	Origin, Sequence uint64
}

// Memory is a remembered answer on its way to another node.
type Memory struct {
	ID        ID
	Partition uint16        // of the first key
	Age       time.Duration // since the take was answered
	Decisions []limiter.Decision
	GivesBack bool // the take made a key freer than it was: executed again, it would admit more
}

// Take is what [Window.Once] may have been asked for before.
type Take struct {
	ID        ID
	Partition int  // of the first key
	GivesBack bool // as of a [Memory]
	// a share of the limit has admitted the take, and it is to be charged: then the answer of this
	// node's own share does not count, for it has charged nothing. A client that repeats the take
	// still hears it. Only of a take with a single decision
	Owed bool
}

const (
	shards = 16
	run    = 64 // consecutive ids that share a shard
)

// Window remembers the answers of the last two seconds by the ID of their take. The zero Window is
// empty and ready. Its methods are safe for concurrent use.
type Window struct {
	seed   uint64
	shards [shards]shard
}

// Seed spreads ids over shards by a secret, so that a client that chooses its ids cannot aim them
// all at one. It is called before the first take.
func (w *Window) Seed(secret uint64) { w.seed = secret }

// shard is where the memory of id lives, and place is its place there. Ids are drawn in sequence:
// consecutive ids share a shard, where their places are adjacent in memory and distinct, and their
// records follow each other.
func (w *Window) shard(id ID) (s *shard, place uint64) {
	hi, lo := bits.Mul64(id.Origin^w.seed, id.Sequence>>20^0x9e3779b97f4a7c15)
	h := (hi ^ lo) + id.Sequence
	return &w.shards[h/run%shards], h/(run*shards)*run + h%run
}

// Once runs do unless the take was answered within [Lasts]; then it copies that answer into out and
// reports true. do must fill out, and reports whether the answer is to be remembered. Repeats of
// the same take wait until do returns.
func (w *Window) Once(
	now limiter.Instant, t Take, out []limiter.Decision, do func() bool,
) (repeated bool) {
	s, place := w.shard(t.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.findLocked(now, t, place, len(out)); p >= 0 {
		s.answersLocked(p, out)
		return true
	}
	if do() {
		s.addLocked(now, t.ID, place, uint16(t.Partition), t.flags())
		s.keepLocked(out)
	}
	return false
}

// OnceAlone is Once for a take with a single decision.
func (w *Window) OnceAlone(
	now limiter.Instant, t Take, out *limiter.Decision, do func() bool,
) (repeated bool) {
	s, place := w.shard(t.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.findLocked(now, t, place, 1)
	if p >= 0 && !(t.Owed && s.atLocked(p).flag(isShare)) {
		*out = s.answerLocked(p)
		return true
	}
	if do() && p < 0 {
		s.addLocked(now, t.ID, place, uint16(t.Partition), t.flags())
		s.keepOneLocked(out)
	}
	return false
}

func (t *Take) flags() recordFlags {
	if t.GivesBack {
		return isBack
	}
	return 0
}

// Each calls fn with every memory of the owner's answers of the partitions that are wanted, shard
// by shard, oldest first.
func (w *Window) Each(now limiter.Instant, wanted func(partition uint16) bool, fn func(Memory)) {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		s.expireLocked(now)
		for k := s.head; k < s.tail; k++ {
			if x := s.atLocked(k); !x.flag(isShare|isOutdated) && wanted(x.partition) {
				fn(s.memoryLocked(now, k))
			}
		}
		s.mu.Unlock()
	}
}

// GivenBack calls fn with every memory of what was given back in the partitions that are wanted. A
// take that runs is waited for: what it has changed by then is told.
func (w *Window) GivenBack(
	now limiter.Instant, wanted func(partition uint16) bool, fn func(Memory),
) {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		s.backLocked(now, s.head, wanted, fn)
		s.mu.Unlock()
	}
}

// NewlyGivenBack is GivenBack for all that was given back here since it was called last.
func (w *Window) NewlyGivenBack(now limiter.Instant, fn func(Memory)) {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		s.backLocked(now, s.told, func(uint16) bool { return true }, fn)
		s.told = s.tail
		s.mu.Unlock()
	}
}

// Recall calls fn with the owner's answer to id, if it is remembered. The key is in partition.
func (w *Window) Recall(now limiter.Instant, id ID, partition int, fn func(Memory)) {
	s, place := w.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.answeredLocked(now, id, place, partition); p >= 0 {
		fn(s.memoryLocked(now, p))
	}
}

// Knows reports whether the owner's answer to id is remembered. The key is in partition.
func (w *Window) Knows(now limiter.Instant, id ID, partition int) (known bool) {
	w.Recall(now, id, partition, func(Memory) { known = true })
	return known
}

// Learn takes over memories of another node. Each lasts as long as an answer given now, which is a
// little longer than need be. An answer that this node has to the same take stays the answer to it,
// and lasts as long as the one that it has learned.
func (w *Window) Learn(now limiter.Instant, list []Memory) {
	for i := range list {
		w.learn(now, &list[i])
	}
}

func (w *Window) learn(now limiter.Instant, m *Memory) {
	s, place := w.shard(m.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := Take{ID: m.ID, Partition: int(m.Partition), GivesBack: m.GivesBack}
	p := s.findLocked(now, t, place, len(m.Decisions))
	switch {
	case p < 0, s.atLocked(p).flag(isShare) && m.Decisions[0].Allowed:
		// a share's yes has charged nothing, and an owner's yes has
		is := isLearned
		if m.GivesBack {
			is |= isBack
		}
		s.addLocked(now, m.ID, place, m.Partition, is)
		s.keepLocked(m.Decisions)
	case !s.atLocked(p).flag(isShare) && s.atLocked(p).at < now.Add(-m.Age):
		// The take was charged anew while this node had lost the partition, and once is enough.
		s.renewLocked(now, place, p)
	}
}

// Learned reports whether another node answered t, with one decision, and this one learned it from
// there.
func (w *Window) Learned(now limiter.Instant, t Take) bool {
	return w.flags(now, t, 0)&isLearned != 0
}

// Share notes that t was answered, with one decision, from a share of the limit. Such an answer is
// remembered by the node that gave it, and by no other: Each does not tell it.
func (w *Window) Share(now limiter.Instant, t Take) { w.flags(now, t, isShare) }

// Shared reports whether t was answered from a share.
func (w *Window) Shared(now limiter.Instant, t Take) bool { return w.flags(now, t, 0)&isShare != 0 }

// flags adds some to the answer to t with one decision, and returns all that it has.
func (w *Window) flags(now limiter.Instant, t Take, more recordFlags) recordFlags {
	s, place := w.shard(t.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.findLocked(now, t, place, 1)
	if p < 0 {
		return 0
	}
	x := s.atLocked(p)
	x.is |= more
	return x.is
}
