package cluster

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"penstock/limiter"
	"penstock/limiter/rules"
)

// MaxPut bounds the limits that PutLimit makes.
const MaxPut = 1000

var (
	// ErrGiven: a name belongs to SetLimits, so to a file, and is not changed by hand.
	ErrGiven = errors.New("name: a limit of this name comes from a file; change it there")
	// ErrNotPut: there is no limit of that name.
	ErrNotPut = errors.New("name: no limit of this name was put here")
	// ErrManyPut: MaxPut limits were put.
	ErrManyPut = errors.New("limit: 1000 limits were put here already, which is the most; delete some, or write them into a file")
)

// catalog is the limits and rules in force at one node. It owns them and their lock. A set of limits
// is never changed: a new one takes its place, so a request reads one set from beginning to end.
type catalog struct {
	limits  atomic.Pointer[Limits]                  // in force: given, and of put what given has no name of
	inForce atomic.Pointer[map[string]limitInForce] // limits, with the tallies of their answers
	rules   atomic.Pointer[rules.Set]
	counts  *Stats

	limitsHash, rulesHash atomic.Uint64 // see LimitsHash

	setting sync.Mutex // guards below; held alone
	given   Limits     // by SetLimits
	put     Limits     // by PutLimit
}

// begin makes a catalog without limits, whose answers s counts.
func (c *catalog) begin(s *Stats) {
	c.limits.Store(&Limits{})
	c.inForce.Store(&map[string]limitInForce{})
	c.limitsHash.Store(hashLimits(nil))
	c.counts, s.inForce = s, &c.inForce
}

// Limits are the named limits in force.
func (c *catalog) Limits() Limits { return *c.limits.Load() }

// SetLimits replaces the named limits, but for those that PutLimit made: of these, it takes the
// place of those whose names it has. Counters of limits that keep name, algorithm and window live
// on.
func (c *catalog) SetLimits(l Limits) {
	c.setting.Lock()
	defer c.setting.Unlock()
	c.given = l
	c.limitsHash.Store(hashLimits(l))
	for name := range l {
		delete(c.put, name)
	}
	c.uniteLimitsLocked()
}

// PutLimit makes a named limit, or replaces one that it made before. It is this node's alone:
// others need it if they are to be asked under that name, and not to decide. The error is ErrGiven
// or ErrManyPut.
func (c *catalog) PutLimit(l *limiter.Limit) (replaced bool, err error) {
	c.setting.Lock()
	defer c.setting.Unlock()
	_, replaced = c.put[l.Name]
	switch {
	case c.given[l.Name] != nil:
		return false, ErrGiven
	case !replaced && len(c.put) == MaxPut:
		return false, ErrManyPut
	case c.put == nil:
		c.put = Limits{}
	}
	c.put[l.Name] = l
	c.uniteLimitsLocked()
	return replaced, nil
}

// DeleteLimit takes a limit away that PutLimit made. The error is ErrGiven or ErrNotPut.
func (c *catalog) DeleteLimit(name string) error {
	c.setting.Lock()
	defer c.setting.Unlock()
	switch {
	case c.given[name] != nil:
		return ErrGiven
	case c.put[name] == nil:
		return ErrNotPut
	}
	delete(c.put, name)
	c.uniteLimitsLocked()
	return nil
}

// IsPut reports whether PutLimit made the limit of that name.
func (c *catalog) IsPut(name string) bool {
	c.setting.Lock()
	defer c.setting.Unlock()
	return c.put[name] != nil
}

// uniteLimitsLocked puts in force what there is.
func (c *catalog) uniteLimitsLocked() {
	all := c.given
	if len(c.put) > 0 {
		all = Limits{}
		maps.Copy(all, c.put)
		maps.Copy(all, c.given)
	}
	c.limits.Store(&all)
	c.tallyLocked(all)
}

// A decider finds by which limit the owner of a key decides on what other nodes ask. Where nodes
// have different files, each asker would bring its own numbers along, and one key would have
// several limits. So the owner's limit of that name decides, as long as it can answer what is
// asked; the asker's decides if the owner has none of that name.
type decider struct {
	limits       Limits // the owner's
	asked, named *limiter.Limit
}

// of is the limit for an item. Most items of an ask have the same limit, which is then looked up
// once.
func (d *decider) of(it *AskItem) *limiter.Limit {
	if it.Limit != d.asked {
		d.asked, d.named = it.Limit, d.limits[it.Limit.Name]
	}
	if d.named == nil {
		return it.Limit
	}
	own := d.named.For(it.Key)
	switch {
	case own.Consistency == limiter.Replicated, it.Op == OpLease && own.Consistency != limiter.Leased:
		return it.Limit
	case (own.Algorithm == limiter.Concurrency) != (it.Limit.Algorithm == limiter.Concurrency):
		return it.Limit
	case it.Terms != (Terms{}):
		r := it.of(it.Cost)
		if own.Accepts(&r) != nil {
			return it.Limit
		}
	}
	return own
}

// sameLimit reports whether own is the limit that was asked for, as far as that travels. If it is
// not, the files of owner and asker differ, as they do for a moment when both are changed. Then the
// asker must not remember a denial: the owner's limit may become the asker's without any change at
// the asker.
func sameLimit(own, asked *limiter.Limit) bool {
	if own == asked {
		return true
	}
	a, b := own.Spec, asked.Spec
	for _, s := range []*limiter.Spec{&a, &b} {
		s.OnError, s.OnPartition, s.OnDeny, s.DryRun = 0, 0, 0, false // which do not travel, or not as they are
	}
	return a == b
}
