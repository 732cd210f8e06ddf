package limiter

import (
	"sync"
	"sync/atomic"
)

// A rule is a limit as a table knows it: an entry holds the rule's number, 12 bits, instead of its parameters.
type rule struct {
	id    uint32                // its number, 1 to maxRules
	limit atomic.Pointer[Limit] // the latest of this identity that was asked for
	live  atomic.Int64          // entries
	dead  atomic.Bool           // being reclaimed: whoever holds a shard's lock makes no entry for it
	gone  atomic.Bool           // reclaimed: its number may be another's
	shut  atomic.Int64          // keys without an entry are refused until this Instant; 0: they are not
}

// maxRules bounds the limits that have entries in one table at once. Clients may send limits of their own, so this
// must be bounded; at its bound, rules without entries are reclaimed.
const (
	ruleBits = 12
	maxRules = 1<<ruleBits - 1
)

// rules knows the limits of a table. Reading takes no lock: a rule is added to the index by storing a pointer, and the
// index is replaced as a whole when it must grow or forget.
type rules struct {
	index atomic.Pointer[ruleIndex]

	mu    sync.Mutex // guards below, and makes changes one at a time
	count int
	free  []uint32 // numbers that were given back
}

// ruleIndex finds rules by limit and by number. It has room for half as many as it has probes.
type ruleIndex struct {
	probe []atomic.Pointer[rule] // open addressing by seed
	rules []atomic.Pointer[rule] // by number; 0 is nobody's
}

func newRuleIndex(size int) *ruleIndex {
	return &ruleIndex{probe: make([]atomic.Pointer[rule], size), rules: make([]atomic.Pointer[rule], size/2)}
}

// add makes r known. Its number comes first: who finds r may ask for it by number.
func (x *ruleIndex) add(r *rule) {
	x.rules[r.id].Store(r)
	mask := len(x.probe) - 1
	i := int(r.limit.Load().seed) & mask
	for x.probe[i].Load() != nil {
		i = (i + 1) & mask
	}
	x.probe[i].Store(r)
}

// all yields the rules there are.
func (x *ruleIndex) all(yield func(*rule) bool) {
	for i := range x.rules {
		if r := x.rules[i].Load(); r != nil && !yield(r) {
			return
		}
	}
}

// shutFor refuses keys without an entry for as long as the state w counts, for which there is no room anywhere: it may be
// anyone's.
func (r *rule) shutFor(now Instant, l *Limit, w []int64) {
	until := int64(now.Add(l.debtOf(w, now).reset))
	if until == 0 {
		until = 1
	}
	for old := r.shut.Load(); (old == 0 || old < until) && !r.shut.CompareAndSwap(old, until); old = r.shut.Load() {
	}
}

// reopen ends what is over of shutFor, so that the rule can be reclaimed.
func (x *ruleIndex) reopen(now Instant) {
	for r := range x.all {
		if until := r.shut.Load(); until != 0 && until <= int64(now) {
			r.shut.CompareAndSwap(until, 0)
		}
	}
}

func (x *ruleIndex) byID(id uint32) *rule { return x.rules[id].Load() }

// find returns the rule of l's identity, or nil.
func (x *ruleIndex) find(l *Limit) *rule {
	mask := len(x.probe) - 1
	for i := int(l.seed) & mask; ; i = (i + 1) & mask {
		r := x.probe[i].Load()
		if r == nil {
			return nil
		}
		if known := r.limit.Load(); known == l || known.sameIdentity(l) {
			return r
		}
	}
}

// learn returns the rule of l's identity and makes one if there is none; nil if there are maxRules with entries.
// It may lock the shards one after the other, so the caller must hold none of them.
func (rs *rules) learn(l *Limit, shards []shard) *rule {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	x := rs.index.Load()
	if r := x.find(l); r != nil {
		return r
	}
	if rs.count == maxRules {
		if x = rs.reclaimLocked(x, shards); rs.count == maxRules {
			return nil
		}
	}
	if rs.count+1 == len(x.rules) {
		larger := newRuleIndex(2 * len(x.probe))
		x.all(func(r *rule) bool { larger.add(r); return true })
		x = larger
		rs.index.Store(x)
	}
	rs.count++
	number := uint32(rs.count)
	if n := len(rs.free); n > 0 {
		number, rs.free = rs.free[n-1], rs.free[:n-1]
	}
	r := &rule{id: number}
	r.limit.Store(l)
	x.add(r)
	return r
}

// reclaimLocked forgets the rules without entries. Somebody may have looked such a rule up and be about to make an
// entry: so it is first marked, then every shard's lock is taken once, after which all who hold one see the mark,
// and those who came before it have made their entry.
func (rs *rules) reclaimLocked(x *ruleIndex, shards []shard) *ruleIndex {
	for r := range x.all {
		if r.live.Load() == 0 && r.shut.Load() == 0 {
			r.dead.Store(true)
		}
	}
	for i := range shards {
		shards[i].mu.Lock()
		//lint:ignore SA2001 passing through is the point
		shards[i].mu.Unlock()
	}
	kept := newRuleIndex(len(x.probe))
	for r := range x.all {
		if r.dead.Load() && r.live.Load() == 0 {
			r.gone.Store(true)
			rs.free = append(rs.free, r.id)
			rs.count--
			continue
		}
		r.dead.Store(false)
		kept.add(r)
	}
	rs.index.Store(kept)
	return kept
}
