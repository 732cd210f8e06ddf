package dedup

import (
	"slices"
	"sync"
	"time"

	"penstock/limiter"
)

// most bounds the memory: records per shard, hence a million takes in two seconds and about 70 MB
// in all. Beyond it the oldest answer is forgotten early, so a late repeat of its take is charged
// twice.
const most = 1 << 16

// shard has no pointer per answer, so the garbage collector has nothing to scan. Nothing is ever
// removed from its index: a forgotten answer is older than the queue, and so is every record behind
// it.
type shard struct {
	// guards all below; held while a take is charged, so that its repeat waits for the answer
	mu    sync.Mutex
	queue []record // ring buffer, oldest first; as long as a power of two
	// by the lower bits of a place: 1 + position of its last record, cut to 32 bits
	latest []uint32
	head   int                        // number of records ever removed
	tail   int                        // number of records ever added
	oldest limiter.Instant            // when the record at head was made; of none, it says nothing
	many   map[int][]limiter.Decision // answers that do not fit into a record, by position
	back   []int                      // positions of what gives back, in order; some are forgotten
	told   int                        // those before this position were told as newly given back
}

// record is one answer, in one cache line: two seconds of answers exceed a processor's cache, so
// each line costs a wait for memory.
type record struct {
	id                     ID
	at                     limiter.Instant
	limit, remaining       int64
	retryAfter, resetAfter time.Duration
	// how many records ago the previous one of its place was made: it may be forgotten
	before    uint32
	partition uint16 // of its first key
	is        recordFlags
}

type recordFlags uint8

const (
	isAllowed recordFlags = 1 << iota
	isLearned             // another node answered it
	isShare               // a share of the limit answered it, not the owner of the key
	// the answers are in many: there are several, or one does not fit into a record
	isApart
	isBack     // something was given back
	isOutdated // there is a later record with the same answer
)

func (x *record) flag(f recordFlags) bool { return x.is&f != 0 }

func (s *shard) atLocked(position int) *record { return &s.queue[position&(len(s.queue)-1)] }

// findLocked is the position of the last answer to id with that number of decisions, or -1. The
// number matters: an atomic request has one answer for all its items at its owner, and one for each
// item, under the same first id, at a node that decides while the owner is away.
func (s *shard) findLocked(now limiter.Instant, t Take, place uint64, decisions int) int {
	return s.lastLocked(now, t.ID, place, func(position int) bool {
		return s.decisionsLocked(position) == decisions && s.atLocked(position).answers(t)
	})
}

// answers reports whether x may be the answer to t, which has its id: countsIn, and whether
// something is given back must be the same.
func (x *record) answers(t Take) bool {
	return x.countsIn(t.Partition) && (!x.flag(isLearned) || x.flag(isBack) == t.GivesBack)
}

// countsIn reports whether x is an answer to takes in a partition. What another node says that it
// has answered counts in the partition that it names: it is believed there (package cluster), and
// its word is not to answer takes of other keys. An answer of this node counts wherever the key
// is: the secret that places keys may have changed since.
func (x *record) countsIn(partition int) bool {
	return !x.flag(isLearned) || int(x.partition) == partition
}

// answeredLocked is the position of the last answer to id that is the owner's, and counts in
// partition, or -1.
func (s *shard) answeredLocked(now limiter.Instant, id ID, place uint64, partition int) int {
	return s.lastLocked(now, id, place, func(p int) bool {
		return !s.atLocked(p).flag(isShare) && s.atLocked(p).countsIn(partition)
	})
}

// lastLocked is the position of the last answer to id that fits, or -1.
func (s *shard) lastLocked(
	now limiter.Instant, id ID, place uint64, fits func(position int) bool,
) int {
	for p := s.latestLocked(place); p >= s.head; {
		x := s.atLocked(p)
		if x.id == id && x.at.Add(Lasts) > now && fits(p) {
			return p
		}
		if x.before == 0 {
			break
		}
		p -= int(x.before)
	}
	return -1
}

// latestLocked is the position of the last record at place, or one below head. A position so old
// that another record has it by now leads to a record of another place; findLocked compares ids, so
// it is passed over.
func (s *shard) latestLocked(place uint64) int {
	if len(s.queue) == 0 {
		return -1
	}
	return s.tail - int(uint32(s.tail)+1-s.latest[place&uint64(len(s.latest)-1)])
}

// decisionsLocked is the number of decisions of the record at a position.
func (s *shard) decisionsLocked(position int) int {
	if s.atLocked(position).flag(isApart) {
		return len(s.many[position])
	}
	return 1
}

// answersLocked copies the decisions of the record at a position.
func (s *shard) answersLocked(position int, out []limiter.Decision) {
	if s.atLocked(position).flag(isApart) {
		copy(out, s.many[position])
		return
	}
	out[0] = s.atLocked(position).answer()
}

// answerLocked is the first decision of the record at a position.
func (s *shard) answerLocked(position int) limiter.Decision {
	if s.atLocked(position).flag(isApart) {
		return s.many[position][0]
	}
	return s.atLocked(position).answer()
}

// memoryLocked is the answer at a position, to be told to another node.
func (s *shard) memoryLocked(now limiter.Instant, position int) Memory {
	x := s.atLocked(position)
	answers := make([]limiter.Decision, s.decisionsLocked(position))
	s.answersLocked(position, answers)
	return Memory{x.id, x.partition, time.Duration(now - x.at), answers, x.flag(isBack)}
}

// backLocked calls fn with what was given back and is not before a position.
func (s *shard) backLocked(
	now limiter.Instant, from int, wanted func(partition uint16) bool, fn func(Memory),
) {
	if len(s.back) == 0 {
		return
	}
	s.expireLocked(now)
	first, _ := slices.BinarySearch(s.back, s.head)
	s.back = s.back[first:] // its room goes when it grows
	first, _ = slices.BinarySearch(s.back, from)
	for _, p := range s.back[first:] {
		if x := s.atLocked(p); !x.flag(isShare|isOutdated) && wanted(x.partition) {
			fn(s.memoryLocked(now, p))
		}
	}
}

// renewLocked has the answer at a position, which is of place, last as long as one given now.
func (s *shard) renewLocked(now limiter.Instant, place uint64, position int) {
	x, answers := s.atLocked(position), make([]limiter.Decision, s.decisionsLocked(position))
	s.answersLocked(position, answers)
	x.is |= isOutdated
	s.addLocked(now, x.id, place, x.partition, x.is&(isLearned|isBack))
	s.keepLocked(answers)
}

// keepLocked stores the answers of the last record.
func (s *shard) keepLocked(answers []limiter.Decision) {
	if len(answers) == 1 {
		s.keepOneLocked(&answers[0])
		return
	}
	s.keepApartLocked(slices.Clone(answers))
}

func (s *shard) keepOneLocked(d *limiter.Decision) {
	x := s.atLocked(s.tail - 1)
	x.limit, x.remaining = d.Limit, d.Remaining
	x.retryAfter, x.resetAfter = d.RetryAfter, d.ResetAfter
	if d.Allowed {
		x.is |= isAllowed
	}
	if x.answer() != *d {
		s.keepApartLocked([]limiter.Decision{*d})
	}
}

func (s *shard) keepApartLocked(answers []limiter.Decision) {
	s.atLocked(s.tail - 1).is |= isApart
	if s.many == nil {
		s.many = make(map[int][]limiter.Decision)
	}
	s.many[s.tail-1] = answers
}

func (x *record) answer() limiter.Decision {
	return limiter.Decision{
		Allowed:    x.flag(isAllowed),
		Limit:      x.limit,
		Remaining:  x.remaining,
		RetryAfter: x.retryAfter,
		ResetAfter: x.resetAfter,
	}
}

// expireLocked forgets the answers older than Lasts.
func (s *shard) expireLocked(now limiter.Instant) {
	for s.head < s.tail && s.oldest.Add(Lasts) <= now {
		s.dropLocked()
	}
}

func (s *shard) dropLocked() {
	if s.atLocked(s.head).flag(isApart) {
		delete(s.many, s.head)
	}
	s.head++
	s.oldest = s.atLocked(s.head).at
}

// addLocked makes the next record, without an answer yet.
func (s *shard) addLocked(
	now limiter.Instant,
	id ID,
	place uint64,
	partition uint16,
	is recordFlags,
) {
	// Expiring many at once reads memory in sequence, which is faster than one at each call.
	if s.oldest.Add(Lasts+Lasts/16) <= now {
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
	x.before = uint32(s.tail) + 1 - *latest
	if is&isBack != 0 {
		s.back = append(s.back, s.tail)
	}
	s.tail++
	*latest = uint32(s.tail)
}

// growLocked makes room for one record: it doubles the queue, or at the bound drops the oldest
// record. Each place becomes two, which share the earlier records.
func (s *shard) growLocked(now limiter.Instant) {
	if s.expireLocked(now); s.tail-s.head < len(s.queue) {
		return
	}
	if len(s.queue) >= most {
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
