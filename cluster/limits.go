package cluster

import (
	"maps"
	"sync"
	"sync/atomic"

	"penstock/limiter"
	"penstock/limiter/rules"
)

// catalog is the limits and rules in force at one node. It owns them and their lock. A set of
// limits is never changed: a new one takes its place, so a request reads one set from beginning to
// end.
type catalog struct {
	limits  atomic.Pointer[Limits]                  // in force: put, and the rest of given
	inForce atomic.Pointer[map[string]limitInForce] // limits, with the tallies of their answers
	rules   atomic.Pointer[rules.Set]
	counts  *Stats

	limitsHash, rulesHash atomic.Uint64 // see LimitsHash

	put   atomic.Pointer[Limits] // by PutLimits; changed under setting
	early atomic.Bool            // what was put at other nodes is not known yet

	setting sync.Mutex // guards below; held alone
	given   Limits     // by SetLimits
}

// begin makes a catalog without limits; s counts the answers under those that come.
func (c *catalog) begin(s *Stats) {
	c.limits.Store(&Limits{})
	c.inForce.Store(&map[string]limitInForce{})
	c.limitsHash.Store(hashLimits(nil))
	c.counts, s.inForce = s, &c.inForce
}

// Limits are the named limits in force.
func (c *catalog) Limits() Limits { return *c.limits.Load() }

// SetLimits replaces the named limits of files. Counters of limits that keep name, algorithm and
// window live on.
func (c *catalog) SetLimits(l Limits) {
	c.setting.Lock()
	defer c.setting.Unlock()
	c.given = l
	c.limitsHash.Store(hashLimits(l))
	c.uniteLimitsLocked()
}

// PutLimits replaces the limits that were put at all nodes, beside those of files. Where both have
// a name, the limit that was put is in force, also for the rules of files. So all nodes decide by
// it, whichever files they have.
func (c *catalog) PutLimits(l Limits) {
	c.setting.Lock()
	defer c.setting.Unlock()
	c.put.Store(&l)
	c.uniteLimitsLocked()
}

// AwaitLimits says whether limits that were put at other nodes are still to come. While they are, a
// request under an unknown name is told to try again (UnknownLimitError.Early).
func (c *catalog) AwaitLimits(still bool) { c.early.Store(still) }

// orEarly is err, which says so if a limit may only be unknown yet.
func (c *catalog) orEarly(err error) error {
	if unknown, is := err.(*UnknownLimitError); is {
		unknown.Early = c.early.Load()
	}
	return err
}

// IsPut reports whether the limit of that name was put.
func (c *catalog) IsPut(name string) bool { return c.putLimit(name) != nil }

func (c *catalog) putLimit(name string) *limiter.Limit {
	if put := c.put.Load(); put != nil {
		return (*put)[name]
	}
	return nil
}

// Given is the limit that files have under that name, in force or not; nil if they have none.
func (c *catalog) Given(name string) *limiter.Limit {
	c.setting.Lock()
	defer c.setting.Unlock()
	return c.given[name]
}

// uniteLimitsLocked puts in force what there is.
func (c *catalog) uniteLimitsLocked() {
	all := c.given
	if put := c.put.Load(); put != nil && len(*put) > 0 {
		all = Limits{}
		maps.Copy(all, c.given)
		maps.Copy(all, *put)
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
	own, err := d.named.Under(it.Limit.Plan(), it.Key)
	switch {
	case err != nil: // it has not heard of the plan
		return it.Limit
	case own.Consistency == limiter.Replicated, it.Op == OpLease &&
		own.Consistency != limiter.Leased:
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
		// which do not travel, or not as they are
		s.OnError, s.OnPartition, s.OnDeny, s.DryRun = 0, 0, 0, false // MaxDelay tells delay apart
		s.Answers, s.Parent = limiter.Answers{}, ""
	}
	return a == b
}
