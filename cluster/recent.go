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
	// recentMax bounds the memory: per shard, hence a million takes per two seconds and about 70 MB at the very
	// most. Beyond it the oldest answer is forgotten early, which can only charge a late repeat twice.
	recentMax = 1 << 16
	recentRun = 64 // ids in a row that share a shard
)

// recentShard has no pointer per answer, so the collector has nothing to look at, and an index of which nothing is ever
// removed: an answer that is forgotten is older than the queue, and so is all that stands behind it.
type recentShard struct {
	mu     sync.Mutex                 // guards all below, and is held while a take is charged: its repeat waits for the answer
	queue  []record                   // ring buffer, oldest first; as long as a power of two
	latest []uint32                   // by the lower bits of a place: 1 + position of the last record there, cut to 32 bits
	head   int                        // number of records ever removed
	tail   int                        // number of records ever added
	oldest limiter.Instant            // when the first record was made, if there is one
	many   map[int][]limiter.Decision // answers that do not fit into a record, by position
}

// record is one answer, in one cache line: two seconds of answers are more than a processor keeps at hand, so each line that is written is
// waited for.
type record struct {
	id                     ID
	at                     limiter.Instant
	limit, remaining       int64
	retryAfter, resetAfter time.Duration
	before                 uint32 // how many records ago the last one of its place was made; 0: there is none
	partition              uint16 // of its first key
	is                     recordFlags
}

type recordFlags uint8

const (
	isAllowed recordFlags = 1 << iota
	isLearned             // another node has answered it
	isAside               // the answers stand in many: there are several, or one has more to say than a record has room for
)

func (x *record) flag(f recordFlags) bool { return x.is&f != 0 }

// shard is where the memory of id is, and place says where there. Ids are drawn one after the other: runs of them share a shard, where
// their places come from memory together, and do not meet, and their records follow each other.
func (r *recent) shard(id ID) (s *recentShard, place uint64) {
	hi, lo := bits.Mul64(id.Origin^r.seed, id.Sequence>>20^0x9e3779b97f4a7c15)
	h := (hi ^ lo) + id.Sequence
	return &r.shards[h/recentRun%recentShards], h/(recentRun*recentShards)*recentRun + h%recentRun
}

func (s *recentShard) atLocked(position int) *record { return &s.queue[position&(len(s.queue)-1)] }

// findLocked is the position of the last answer to id that has so many decisions, or -1: items that stand or fall together are answered as
// one where they are decided, and one by one, each under its own id, by who decides while their owner is away.
func (s *recentShard) findLocked(now limiter.Instant, id ID, place uint64, decisions int) int {
	for p := s.latestLocked(place); p >= s.head; {
		x := s.atLocked(p)
		if x.id == id && x.at.Add(recentWindow) > now && s.decisionsLocked(p) == decisions {
			return p
		}
		if x.before == 0 {
			break
		}
		p -= int(x.before)
	}
	return -1
}

// latestLocked is the position of the last record at place, or one below head. What is so old that its position is some other's by now is a
// record of another place: its id is looked at.
func (s *recentShard) latestLocked(place uint64) int {
	if len(s.queue) == 0 {
		return -1
	}
	return s.tail - int(uint32(s.tail)+1-s.latest[place&uint64(len(s.latest)-1)])
}

// decisionsLocked is how many the record at a position has.
func (s *recentShard) decisionsLocked(position int) int {
	if s.atLocked(position).flag(isAside) {
		return len(s.many[position])
	}
	return 1
}

// answersLocked copies those of the record at a position.
func (s *recentShard) answersLocked(position int, out []limiter.Decision) {
	if s.atLocked(position).flag(isAside) {
		copy(out, s.many[position])
		return
	}
	out[0] = s.atLocked(position).answer()
}

// answerLocked is the first of those of the record at a position.
func (s *recentShard) answerLocked(position int) limiter.Decision {
	if s.atLocked(position).flag(isAside) {
		return s.many[position][0]
	}
	return s.atLocked(position).answer()
}

// keepLocked notes what the last record answers.
func (s *recentShard) keepLocked(answers []limiter.Decision) {
	if len(answers) == 1 {
		s.keepOneLocked(&answers[0])
		return
	}
	s.asideLocked(slices.Clone(answers))
}

func (s *recentShard) keepOneLocked(d *limiter.Decision) {
	x := s.atLocked(s.tail - 1)
	x.limit, x.remaining, x.retryAfter, x.resetAfter = d.Limit, d.Remaining, d.RetryAfter, d.ResetAfter
	if d.Allowed {
		x.is |= isAllowed
	}
	if x.answer() != *d {
		s.asideLocked([]limiter.Decision{*d})
	}
}

func (s *recentShard) asideLocked(answers []limiter.Decision) {
	s.atLocked(s.tail - 1).is |= isAside
	if s.many == nil {
		s.many = make(map[int][]limiter.Decision)
	}
	s.many[s.tail-1] = answers
}

func (x *record) answer() limiter.Decision {
	return limiter.Decision{Allowed: x.flag(isAllowed), Limit: x.limit, Remaining: x.remaining, RetryAfter: x.retryAfter, ResetAfter: x.resetAfter}
}

// once runs take unless the take id was answered in the last two seconds; then it copies that answer into out and
// reports true. take must fill out, and reports whether there is something to remember. partition is that of its first key.
func (r *recent) once(now limiter.Instant, id ID, partition int, out []limiter.Decision, take func() bool) (repeated bool) {
	s, place := r.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.findLocked(now, id, place, len(out)); p >= 0 {
		s.answersLocked(p, out)
		return true
	}
	if take() {
		s.addLocked(now, id, place, uint16(partition), 0)
		s.keepLocked(out)
	}
	return false
}

// onceAlone is once for a single decision, as most are.
func (r *recent) onceAlone(now limiter.Instant, id ID, partition int, out *limiter.Decision, take func() bool) (repeated bool) {
	s, place := r.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.findLocked(now, id, place, 1); p >= 0 {
		*out = s.answerLocked(p)
		return true
	}
	if take() {
		s.addLocked(now, id, place, uint16(partition), 0)
		s.keepOneLocked(out)
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
				answers := make([]limiter.Decision, s.decisionsLocked(k))
				s.answersLocked(k, answers)
				fn(Memory{x.id, x.partition, time.Duration(now - x.at), answers})
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
	if s.findLocked(now, m.ID, place, len(m.Decisions)) < 0 {
		s.addLocked(now, m.ID, place, m.Partition, isLearned)
		s.keepLocked(m.Decisions)
	}
}

// learned reports whether it was another node that has answered id with one decision.
func (r *recent) learned(now limiter.Instant, id ID) bool {
	s, place := r.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.findLocked(now, id, place, 1)
	return p >= 0 && s.atLocked(p).flag(isLearned)
}

// expireLocked forgets what is older than recentWindow.
func (s *recentShard) expireLocked(now limiter.Instant) {
	for s.head < s.tail && s.oldest.Add(recentWindow) <= now {
		s.dropLocked()
	}
}

func (s *recentShard) dropLocked() {
	if s.atLocked(s.head).flag(isAside) {
		delete(s.many, s.head)
	}
	if s.head++; s.head < s.tail {
		s.oldest = s.atLocked(s.head).at
	}
}

// addLocked makes the next record, which answers nothing yet.
func (s *recentShard) addLocked(now limiter.Instant, id ID, place uint64, partition uint16, is recordFlags) {
	// Together what expires comes from memory faster than one by one, whenever one is added.
	if s.oldest.Add(recentWindow+recentWindow/16) <= now {
		s.expireLocked(now)
	}
	if s.tail-s.head == len(s.queue) {
		s.growLocked(now)
	}
	if s.head == s.tail {
		s.oldest = now
	}
	x := s.atLocked(s.tail)
	x.id, x.at, x.partition, x.is = id, now, partition, is
	latest := &s.latest[place&uint64(len(s.latest)-1)]
	if x.before = uint32(s.tail) + 1 - *latest; int64(x.before) > int64(s.tail-s.head) {
		x.before = 0
	}
	s.tail++
	*latest = uint32(s.tail)
}

// growLocked makes room for one record: twice the queue, or at its bound the oldest record's place. A place becomes two, which have the
// records of before in common.
func (s *recentShard) growLocked(now limiter.Instant) {
	if s.expireLocked(now); s.tail-s.head < len(s.queue) {
		return
	}
	if len(s.queue) >= recentMax {
		s.dropLocked()
		return
	}
	old := s.queue
	s.queue, s.latest = make([]record, max(8, 2*len(old))), slices.Concat(s.latest, s.latest)
	if len(old) == 0 {
		s.latest = make([]uint32, len(s.queue))
	}
	for p := s.head; p < s.tail; p++ {
		*s.atLocked(p) = old[p&(len(old)-1)]
	}
}
