// Package charges has what a node has charged to replicated limits and not told others of yet.
package charges

import (
	"strings"
	"sync"
	"time"

	"penstock/limiter"
)

// A Charge is what a node has charged to a key of a replicated limit since it last said so;
// negative: given back. Or it is all that the node knows of the key, for one that has just come.
type Charge struct {
	Limit *limiter.Limit
	Key   string
	Units int64
	Reset bool          // the key was reset before
	State string        // all that is known, as a limiter.Entry has it; empty: Units are told
	Age   time.Duration // of State, when the message was made
}

type chargeKey struct {
	limit *limiter.Limit
	key   string
}

// Untold is what a node has charged since it last told others. The zero Untold has nothing. Its
// methods are safe for concurrent use.
type Untold struct {
	mu    sync.Mutex // guards below
	list  []untold
	where map[chargeKey]int
}

// Add notes that so many units were charged, or given back if they are negative. It keeps no key.
func (c *Untold) Add(l *limiter.Limit, key string, units int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ofLocked(l, key).add(units)
}

// Reset notes that a key was reset: what was charged to it before need not be told.
func (c *Untold) Reset(l *limiter.Limit, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.ofLocked(l, key)
	u.Charge.Reset, u.back, u.Units = true, 0, 0
}

// ofLocked is what is untold of a key.
func (c *Untold) ofLocked(l *limiter.Limit, key string) *untold {
	i, again := c.where[chargeKey{l, key}]
	if !again {
		if c.where == nil {
			c.where = make(map[chargeKey]int)
		}
		i = len(c.list)
		key = strings.Clone(key) // it may lie in a frame
		c.where[chargeKey{l, key}] = i
		c.list = append(c.list, untold{Charge: Charge{Limit: l, Key: key}})
	}
	return &c.list[i]
}

// Tell is what other nodes have to hear, once, in the order of the first charges.
func (c *Untold) Tell() (list []Charge) {
	c.mu.Lock()
	waiting := c.list
	c.list, c.where = nil, nil
	c.mu.Unlock()
	for i := range waiting {
		list = waiting[i].told(list)
	}
	return list
}

// untold is what has become of one key: reset, if it was, then back given back, then units taken.
type untold struct {
	Charge
	back int64 // below 0, or 0
}

func (u *untold) add(units int64) {
	u.Units += min(max(units, -limiter.MaxLimit), limiter.MaxLimit)
	u.back += min(u.Units, 0)
	u.Units = max(u.Units, 0)
}

// told appends to list what the others hear of it.
func (u *untold) told(list []Charge) []Charge {
	c := u.Charge
	if u.back < 0 {
		c.Units = u.back
		list = append(list, c)
		c.Units = u.Units
	}
	if c.Units != 0 || c.Reset {
		list = append(list, c)
	}
	return list
}
