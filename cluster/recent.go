package cluster

import (
	"slices"
	"sync"
	"time"

	"penstock/limiter"
)

// recent remembers the answers of the last two seconds by the ID of their take. A take that arrives twice, because
// the network doubled it or because the asker gave up waiting and asked again, is charged once and answered the
// same. It is split by ID so that takes of different askers rarely meet at one lock.
type recent struct {
	shards [recentShards]recentShard
}

const (
	recentShards = 16
	recentWindow = 2 * time.Second
	// recentMax bounds the memory: per shard, hence a million takes per two seconds and about 150 MB at the very
	// most. Beyond it the oldest answer is forgotten early, which can only charge a late repeat twice.
	recentMax = 1 << 16
)

type recentShard struct {
	mu    sync.Mutex // guards all below, and is held while a take is charged: its repeat waits for the answer
	index map[ID]int // position in queue, counted from the first record ever
	queue []record   // ring buffer, oldest first
	head  int        // number of records ever removed
	tail  int        // number of records ever added
}

type record struct {
	id        ID
	at        limiter.Instant
	partition uint16             // of its first key
	answers   []limiter.Decision // one, or one per item of an atomic ask
	one       [1]limiter.Decision
}

func (r *recent) shard(id ID) *recentShard {
	h := (id.Sequence ^ id.Origin) * 0x9e3779b97f4a7c15
	return &r.shards[h>>60]
}

// once runs take unless the take id was answered in the last two seconds; then it copies that answer into out and
// reports true. take must fill out, and reports whether there is something to remember. partition is that of its first key.
func (r *recent) once(now limiter.Instant, id ID, partition int, out []limiter.Decision, take func() bool) (repeated bool) {
	s := r.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked(now)
	if i, ok := s.index[id]; ok && len(s.queue[i%len(s.queue)].answers) == len(out) {
		copy(out, s.queue[i%len(s.queue)].answers)
		return true
	} // else its items were decided one by one here, while their owner was away
	if take() {
		s.addLocked(now, id, uint16(partition), out)
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
			if x := &s.queue[k%len(s.queue)]; wanted(x.partition) {
				fn(Memory{x.id, x.partition, time.Duration(now - x.at), slices.Clone(x.answers)})
			}
		}
		s.mu.Unlock()
	}
}

// learn takes over what another node remembers. It lives as long as a record that is made now, which is a little long.
func (r *recent) learn(now limiter.Instant, m *Memory) {
	s := r.shard(m.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked(now)
	if _, ok := s.index[m.ID]; !ok {
		s.addLocked(now, m.ID, m.Partition, m.Decisions)
	}
}

func (s *recentShard) expireLocked(now limiter.Instant) {
	for s.head < s.tail {
		if r := &s.queue[s.head%len(s.queue)]; r.at.Add(recentWindow) > now {
			return
		}
		s.dropLocked()
	}
}

func (s *recentShard) dropLocked() {
	r := &s.queue[s.head%len(s.queue)]
	if s.index[r.id] == s.head {
		delete(s.index, r.id)
	}
	*r = record{}
	s.head++
}

func (s *recentShard) addLocked(now limiter.Instant, id ID, partition uint16, answers []limiter.Decision) {
	if s.tail-s.head == len(s.queue) {
		s.growLocked()
	}
	r := &s.queue[s.tail%len(s.queue)]
	r.id, r.at, r.partition = id, now, partition
	if len(answers) == 1 {
		r.one[0] = answers[0]
		r.answers = r.one[:]
	} else {
		r.answers = append([]limiter.Decision(nil), answers...)
	}
	s.index[id] = s.tail
	s.tail++
}

// growLocked makes room for one record: twice the queue, or at its bound the oldest record's place.
func (s *recentShard) growLocked() {
	if len(s.queue) >= recentMax {
		s.dropLocked()
		return
	}
	queue := make([]record, max(64, 2*len(s.queue)))
	for i := s.head; i < s.tail; i++ {
		r := &queue[i%len(queue)]
		*r = s.queue[i%len(s.queue)]
		if len(r.answers) == 1 {
			r.answers = r.one[:]
		}
	}
	s.queue = queue
	if s.index == nil {
		s.index = make(map[ID]int)
	}
}
