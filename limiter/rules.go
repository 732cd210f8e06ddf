package limiter

import (
	"sync"
	"sync/atomic"
)

// A rule is a limit as a table knows it: an entry holds the rule's number, 15 bits, instead of its
// parameters. Limits of one identity that come from different overrides are rules of their own,
// since they decide at the same time; an entry becomes one of another of them when its key is next
// decided by that (see shard.find).
type rule struct {
	id    uint32                // its number, 1 to maxRules
	limit atomic.Pointer[Limit] // the latest of this identity and override that was asked for
	live  atomic.Int64          // entries
	dead  atomic.Bool           // being reclaimed: under a shard's lock, no entry is made for it
	gone  atomic.Bool           // reclaimed: its number may be another's
	// keys without an entry are refused until this Instant; 0: they are not
	shut  atomic.Int64
	class int // see classOf

	family    *family
	namesakes *namesakes // nil of a share
}

// A family is the rules of one identity, from a limit and its overrides: where a key may have the
// counters that it has.
type family struct {
	rules atomic.Pointer[[]*rule]
	count int // that are not gone
}

// namesakes are rules of one name and of several identities, one of each of the latest few: where a
// key may have counters that count no longer. There may be many of one name, that of the limits
// without one.
type namesakes struct {
	rules atomic.Pointer[[]*rule]
	count int // of that name, in rules or not, that are not gone
}

const maxNamesakes = 5

// joinLocked makes r, a new rule for l, known to those that it belongs to.
func (rs *rules) joinLocked(r *rule, l *Limit) {
	if rs.families == nil {
		rs.families, rs.names = map[uint64]*family{}, map[string]*namesakes{}
	}
	if r.family = rs.families[l.seed]; r.family == nil {
		r.family = new(family)
		rs.families[l.seed] = r.family
	}
	r.family.count++
	r.family.rules.Store(with(r, r.family.rules.Load(), func(*rule) bool { return false }))
	if l.isShare() {
		return
	}
	if r.namesakes = rs.names[l.Name]; r.namesakes == nil {
		r.namesakes = new(namesakes)
		rs.names[l.Name] = r.namesakes
	}
	r.namesakes.count++
	latest := with(r, r.namesakes.rules.Load(), func(other *rule) bool {
		return other.limit.Load().sameIdentity(l)
	})
	*latest = (*latest)[:min(len(*latest), maxNamesakes)]
	r.namesakes.rules.Store(latest)
}

// with is a list with r before the others, without those that are gone or meant by except.
func with(r *rule, others *[]*rule, except func(*rule) bool) *[]*rule {
	list := []*rule{r}
	if others != nil {
		for _, other := range *others {
			if !other.gone.Load() && !except(other) {
				list = append(list, other)
			}
		}
	}
	return &list
}

// partLocked lets go of the family and the name of r, which is gone, if it was the last of them.
func (rs *rules) partLocked(r *rule) {
	l := r.limit.Load()
	if r.family.count--; r.family.count == 0 {
		delete(rs.families, l.seed)
	}
	if r.namesakes == nil {
		return
	}
	if r.namesakes.count--; r.namesakes.count == 0 {
		delete(rs.names, l.Name)
	}
}

// of is a rule by which the entries of l can be found, or nil.
func (rs *rules) of(l *Limit) *rule {
	if r := rs.index.Load().find(l); r != nil {
		return r
	}
	return rs.related(l)
}

// related is a rule for l, which has none, that only finds what others have: those of its family,
// and its namesakes. It is nil if there are none.
func (rs *rules) related(l *Limit) *rule {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := &rule{family: rs.families[l.seed], namesakes: rs.names[l.Name]}
	if r.family == nil && r.namesakes == nil {
		return nil
	}
	if r.family == nil {
		r.family = new(family)
		r.family.rules.Store(new([]*rule))
	}
	return r
}

// maxRules bounds the limits that have entries in one table at once. Clients may send limits of
// their own, so this must be bounded; at its bound, rules without entries are reclaimed.
const (
	ruleBits = 15
	maxRules = 1<<ruleBits - 1
)

// MaxInline bounds those of them that requests have brought along (Spec.Inline). Clients draw names
// as they please, and with long periods their entries stay for long. So all other numbers are kept
// for the limits of files. Those are 10,000 at most, and may need two numbers each: for the limit,
// and for its share while an owner is away.
const MaxInline = maxRules - 2*10_000

// Classes of limits, which do not compete for numbers.
const (
	configured = iota // the limits of files, of Admin, and what follows from them
	inline            // those that requests bring along
	classes
)

func classOf(l *Limit) int {
	if l.Inline {
		return inline
	}
	return configured
}

// rules knows the limits of a table. Reading takes no lock: a rule is added to the index by storing
// a pointer, and the index is replaced as a whole when it must grow or forget.
type rules struct {
	index atomic.Pointer[ruleIndex]

	// requests, and states from elsewhere, under limits without a number
	refused [classes]atomic.Uint64
	lost    [classes]lostStates

	// guards below and the counts of families and namesakes, and makes changes one at a time
	mu      sync.Mutex
	count   int
	brought int // of count, those of class inline
	// refusals counts, for each class, how many newcomers are still refused before the next try to
	// reclaim. A try looks at every rule, so a client with ever new limits must not cause one for
	// each of them.
	refusals [classes]int
	// The rest is for the rules that have something to do with each other.
	families map[uint64]*family // by identity
	names    map[string]*namesakes
	free     []uint32 // numbers that were given back
}

// ruleIndex finds rules by limit and by number. It has room for half as many as it has probes.
type ruleIndex struct {
	probe []atomic.Pointer[rule] // open addressing by ruleSeed
	rules []atomic.Pointer[rule] // by number; 0 is nobody's
}

func newRuleIndex(size int) *ruleIndex {
	return &ruleIndex{
		probe: make([]atomic.Pointer[rule], size),
		rules: make([]atomic.Pointer[rule], size/2),
	}
}

// add makes r known. Its number comes first: a reader that finds r may ask for it by number.
func (x *ruleIndex) add(r *rule) {
	x.rules[r.id].Store(r)
	mask := len(x.probe) - 1
	i := int(r.limit.Load().ruleSeed) & mask
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

// shutFor refuses keys without an entry for as long as the state w counts, for which there is no
// room anywhere: it may be anyone's.
func (r *rule) shutFor(now Instant, l *Limit, w []int64) {
	putOff(&r.shut, now.Add(l.debtOf(w, now).reset))
}

// putOff makes end, an Instant or 0 for none, no earlier than until.
func putOff(end *atomic.Int64, until Instant) {
	if until == 0 {
		until = 1
	}
	for old := end.Load(); (old == 0 || old < int64(until)) &&
		!end.CompareAndSwap(old, int64(until)); old = end.Load() {
	}
}

// reopen ends what is over of shutFor, so that the rule can be reclaimed.
func (x *ruleIndex) reopen(now Instant) {
	for r := range x.all {
		if until := r.shut.Load(); until <= int64(now) {
			r.shut.CompareAndSwap(until, 0)
		}
	}
}

func (x *ruleIndex) byID(id uint32) *rule { return x.rules[id].Load() }

// find returns the rule of l's identity and override, or nil.
func (x *ruleIndex) find(l *Limit) *rule {
	mask := len(x.probe) - 1
	for i := int(l.ruleSeed) & mask; ; i = (i + 1) & mask {
		r := x.probe[i].Load()
		if r == nil {
			return nil
		}
		if known := r.limit.Load(); known == l || known.sameRule(l) {
			return r
		}
	}
}

// learn returns the rule of l's identity and override and makes one if there is none; nil if there
// are maxRules with entries, or MaxInline of those that requests bring along, or if l has none
// because it counts nothing. It may lock the shards one after the other, so the caller must hold
// none of them.
func (rs *rules) learn(l *Limit, shards []shard) *rule {
	if l.Unlimited {
		return nil
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	x := rs.index.Load()
	if r := x.find(l); r != nil {
		return r
	}
	class := classOf(l)
	if rs.leftLocked(class) == 0 {
		if rs.refusals[class] > 0 {
			rs.refusals[class]--
			return nil
		}
		x = rs.reclaimLocked(x, shards)
		rs.refusals[class] = max(0, maxRules/64-rs.leftLocked(class))
		if rs.leftLocked(class) == 0 {
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
	if class == inline {
		rs.brought++
	}
	number := uint32(rs.count)
	if n := len(rs.free); n > 0 {
		number, rs.free = rs.free[n-1], rs.free[:n-1]
	}
	r := &rule{id: number, class: class}
	r.limit.Store(l)
	rs.joinLocked(r, l)
	x.add(r)
	return r
}

// leftLocked is how many more rules of a class there may be.
func (rs *rules) leftLocked(class int) int {
	if class == inline {
		return min(maxRules-rs.count, MaxInline-rs.brought)
	}
	return maxRules - rs.count
}

// reclaimLocked forgets the rules without entries. Another goroutine may have looked such a rule up
// and be about to make an entry. So the rule is marked first, then every shard's lock is taken
// once. After that, every later holder of a lock sees the mark, and every earlier one has made its
// entry.
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
			rs.partLocked(r)
			rs.free = append(rs.free, r.id)
			rs.count--
			if r.class == inline {
				rs.brought--
			}
			continue
		}
		r.dead.Store(false)
		kept.add(r)
	}
	rs.index.Store(kept)
	return kept
}
