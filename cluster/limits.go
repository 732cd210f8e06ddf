package cluster

import (
	"errors"
	"maps"

	"penstock/limiter"
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

// SetLimits replaces the named limits, but for those that PutLimit made: of these, it takes the
// place of those whose names it has. Counters of limits that keep name, algorithm and window live
// on.
func (n *Node) SetLimits(l Limits) {
	n.limitsMu.Lock()
	defer n.limitsMu.Unlock()
	n.given = l
	n.limitsHash.Store(hashLimits(l))
	for name := range l {
		delete(n.put, name)
	}
	n.uniteLimitsLocked()
}

// PutLimit makes a named limit, or replaces one that it made before. It is this node's alone:
// others need it if they are to be asked under that name, and not to decide. The error is ErrGiven
// or ErrManyPut.
func (n *Node) PutLimit(l *limiter.Limit) (replaced bool, err error) {
	n.limitsMu.Lock()
	defer n.limitsMu.Unlock()
	_, replaced = n.put[l.Name]
	switch {
	case n.given[l.Name] != nil:
		return false, ErrGiven
	case !replaced && len(n.put) == MaxPut:
		return false, ErrManyPut
	case n.put == nil:
		n.put = Limits{}
	}
	n.put[l.Name] = l
	n.uniteLimitsLocked()
	return replaced, nil
}

// DeleteLimit takes a limit away that PutLimit made. The error is ErrGiven or ErrNotPut.
func (n *Node) DeleteLimit(name string) error {
	n.limitsMu.Lock()
	defer n.limitsMu.Unlock()
	switch {
	case n.given[name] != nil:
		return ErrGiven
	case n.put[name] == nil:
		return ErrNotPut
	}
	delete(n.put, name)
	n.uniteLimitsLocked()
	return nil
}

// IsPut reports whether PutLimit made the limit of that name.
func (n *Node) IsPut(name string) bool {
	n.limitsMu.Lock()
	defer n.limitsMu.Unlock()
	return n.put[name] != nil
}

// uniteLimitsLocked puts in force what there is.
func (n *Node) uniteLimitsLocked() {
	all := n.given
	if len(n.put) > 0 {
		all = Limits{}
		maps.Copy(all, n.put)
		maps.Copy(all, n.given)
	}
	n.limits.Store(&all)
	n.tallyLocked(all)
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
