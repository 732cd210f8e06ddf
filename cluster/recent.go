package cluster

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"penstock/limiter"
)

// recent remembers the answers of the last two seconds by the ID of their take. A take that arrives twice, because
// the network doubled it or because the asker gave up waiting and asked again, is charged once and answered the
// same. It is split by ID so that takes of different askers rarely meet at one lock.
type recent struct {
	seed   uint64 // Config.Secret
	shards [recentShards]recentShard
}

const (
	recentShards = 16
	recentWindow = 2 * time.Second
	// recentMax bounds the memory: per shard, hence a million takes per two seconds and about 150 MB at the very
	// most. Beyond it the oldest answer is forgotten early, which can only charge a late repeat twice.
	recentMax = 1 << 16
)

// recentShard has no pointer per answer, so the collector has nothing to look at, and an index of which nothing is ever
// removed: an answer that is forgotten is older than the queue, and so is all that stands behind it.
type recentShard struct {
	mu     sync.Mutex                 // guards all below, and is held while a take is charged: its repeat waits for the answer
	queue  []record                   // ring buffer, oldest first; as long as a power of two
	latest []int                      // by the lower bits of a place: 1 + position of the last record there, counted from the first record ever
	head   int                        // number of records ever removed
	tail   int                        // number of records ever added
	many   map[int][]limiter.Decision // answers of atomic asks, by position
}

type record struct {
	id        ID
	place     uint64
	at        limiter.Instant
	before    int // as in latest: the record before this one there
	answer    [1]limiter.Decision
	partition uint16 // of its first key
	learned   bool   // another node has answered it
	together  bool   // an atomic ask was answered: the answers stand in many, by position
}

// shard is where the memory of id is, and place says where there. Ids are drawn one after the other, and so lie side by side: their
// places come from memory together, and do not meet.
func (r *recent) shard(id ID) (s *recentShard, place uint64) {
	hi, lo := bits.Mul64(id.Origin^r.seed, id.Sequence>>20^0x9e3779b97f4a7c15)
	h := (hi ^ lo) + id.Sequence
	return &r.shards[h%recentShards], h / recentShards
}

func (s *recentShard) atLocked(position int) *record { return &s.queue[position&(len(s.queue)-1)] }

// findLocked is the position of the last answer to id that has so many decisions, or -1: items that stand or fall together are answered as
// one where they are decided, and one by one, each under its own id, by who decides while their owner is away.
func (s *recentShard) findLocked(id ID, place uint64, decisions int) int {
	if len(s.queue) == 0 {
		return -1
	}
	p := s.latest[place&uint64(len(s.latest)-1)] - 1
	for p >= s.head && (s.atLocked(p).id != id || len(s.answersLocked(p)) != decisions) {
		p = s.atLocked(p).before - 1
	}
	if p < s.head {
		return -1
	}
	return p
}

// answersLocked are those of the record at a position.
func (s *recentShard) answersLocked(position int) []limiter.Decision {
	if x := s.atLocked(position); !x.together {
		return x.answer[:]
	}
	return s.many[position]
}

// once runs take unless the take id was answered in the last two seconds; then it copies that answer into out and
// reports true. take must fill out, and reports whether there is something to remember. partition is that of its first key.
func (r *recent) once(now limiter.Instant, id ID, partition int, out []limiter.Decision, take func() bool) (repeated bool) {
	s, place := r.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked(now)
	if p := s.findLocked(id, place, len(out)); p >= 0 {
		copy(out, s.answersLocked(p))
		return true
	}
	if take() {
		s.addLocked(now, id, place, uint16(partition), out)
	}
	return false
}

// of calls fn with what is remembered of the partitions that are wanted.
func (r *recent) of(now limiter.Instant, wanted func(partition uint16) bool, fn func(Memory)) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		s.expireLocked(now)
		for k := s.head; k < s.tail; k++ {
			if x := s.atLocked(k); wanted(x.partition) {
				fn(Memory{x.id, x.partition, time.Duration(now - x.at), slices.Clone(s.answersLocked(k))})
			}
		}
		s.mu.Unlock()
	}
}

// learn takes over what another node remembers. It lives as long as a record that is made now, which is a little long.
func (r *recent) learn(now limiter.Instant, m *Memory) {
	s, place := r.shard(m.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked(now)
	if s.findLocked(m.ID, place, len(m.Decisions)) < 0 {
		s.addLocked(now, m.ID, place, m.Partition, m.Decisions)
		s.atLocked(s.tail - 1).learned = true
	}
}

// learned reports whether it was another node that has answered id with one decision.
func (r *recent) learned(id ID) bool {
	s, place := r.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.findLocked(id, place, 1)
	return p >= 0 && s.atLocked(p).learned
}

func (s *recentShard) expireLocked(now limiter.Instant) {
	for s.head < s.tail && s.atLocked(s.head).at.Add(recentWindow) <= now {
		s.dropLocked()
	}
}

func (s *recentShard) dropLocked() {
	if s.atLocked(s.head).together {
		delete(s.many, s.head)
	}
	s.head++
}

func (s *recentShard) addLocked(now limiter.Instant, id ID, place uint64, partition uint16, answers []limiter.Decision) {
	if s.tail-s.head == len(s.queue) {
		s.growLocked()
	}
	x, latest := s.atLocked(s.tail), &s.latest[place&uint64(len(s.latest)-1)]
	x.id, x.place, x.at, x.partition, x.learned, x.together, x.before = id, place, now, partition, false, len(answers) != 1, *latest
	if x.together {
		if s.many == nil {
			s.many = make(map[int][]limiter.Decision)
		}
		s.many[s.tail] = slices.Clone(answers)
	} else {
		x.answer[0] = answers[0]
	}
	s.tail++
	*latest = s.tail
}

// growLocked makes room for one record: twice the queue, or at its bound the oldest record's place.
func (s *recentShard) growLocked() {
	if len(s.queue) >= recentMax {
		s.dropLocked()
		return
	}
	old := s.queue
	s.queue = make([]record, max(8, 2*len(old)))
	s.latest = make([]int, len(s.queue))
	for p := s.head; p < s.tail; p++ {
		x := s.atLocked(p)
		*x = old[p&(len(old)-1)]
		latest := &s.latest[x.place&uint64(len(s.latest)-1)]
		x.before, *latest = *latest, p+1
	}
}
