package limiter

import (
	"sync"
	"sync/atomic"
)

// A rule is a limit as a table knows it: an entry holds the rule's number, 4 bytes, instead of its parameters.
type rule struct {
	id    uint32                // index in ruleIndex.rules | generation<<ruleBits
	limit atomic.Pointer[Limit] // the latest of this identity that was asked for
	live  atomic.Int64          // entries
	dead  atomic.Bool           // being reclaimed: whoever holds a shard's lock makes no entry for it
}

// maxRules bounds the limits that have entries in one table at once. Clients may send limits of their own, so this
// must be bounded; at its bound, rules without entries are reclaimed.
const (
	ruleBits = 12
	maxRules = 1<<ruleBits - 1
)

// rules knows the limits of a table. Reading takes no lock: the index is replaced as a whole.
type rules struct {
	index atomic.Pointer[ruleIndex]

	mu          sync.Mutex           // guards below, and makes changes one at a time
	generations [maxRules + 1]uint32 // how often each number was given away: none is used twice
}

// ruleIndex is immutable; the rules that it points to are not.
type ruleIndex struct {
	probe []*rule // open addressing by seed, at most half full
	rules []*rule // by number; 0 is nobody's
	count int
}

func newRuleIndex(list []*rule) *ruleIndex {
	x := &ruleIndex{rules: list}
	size := 16
	for size < 2*len(list) {
		size *= 2
	}
	x.probe = make([]*rule, size)
	for _, r := range list {
		if r == nil {
			continue
		}
		x.count++
		i := int(r.limit.Load().seed) & (size - 1)
		for x.probe[i] != nil {
			i = (i + 1) & (size - 1)
		}
		x.probe[i] = r
	}
	return x
}

func (x *ruleIndex) byID(id uint32) *rule { return x.rules[id&maxRules] }

// find returns the rule of l's identity, or nil.
func (x *ruleIndex) find(l *Limit) *rule {
	mask := len(x.probe) - 1
	for i := int(l.seed) & mask; ; i = (i + 1) & mask {
		r := x.probe[i]
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
	if x.count == maxRules {
		if x = rs.reclaimLocked(x, shards); x.count == maxRules {
			return nil
		}
	}
	i := 1
	for i < len(x.rules) && x.rules[i] != nil {
		i++
	}
	list := make([]*rule, max(len(x.rules), i+1))
	copy(list, x.rules)
	rs.generations[i]++
	r := &rule{id: uint32(i) | rs.generations[i]<<ruleBits}
	r.limit.Store(l)
	list[i] = r
	rs.index.Store(newRuleIndex(list))
	return r
}

// reclaimLocked forgets the rules without entries. Somebody may have looked such a rule up and be about to make an
// entry: so it is first marked, then every shard's lock is taken once, after which all who hold one see the mark,
// and those who came before it have made their entry.
func (rs *rules) reclaimLocked(x *ruleIndex, shards []shard) *ruleIndex {
	for _, r := range x.rules {
		if r != nil && r.live.Load() == 0 {
			r.dead.Store(true)
		}
	}
	for i := range shards {
		shards[i].mu.Lock()
		//lint:ignore SA2001 passing through is the point
		shards[i].mu.Unlock()
	}
	list := append([]*rule(nil), x.rules...)
	for i, r := range list {
		switch {
		case r == nil || !r.dead.Load():
		case r.live.Load() == 0:
			list[i] = nil
		default:
			r.dead.Store(false)
		}
	}
	x = newRuleIndex(list)
	rs.index.Store(x)
	return x
}
