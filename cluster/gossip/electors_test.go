package gossip

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/cluster"
)

// elects is nil if a node takes these for the electorate.
func (n *node) elects(expected, size int, ids ...string) error {
	if s, i := n.Electors(expected); s != size || !slices.Equal(i, ids) {
		return fmt.Errorf(
			"%s takes %d for the electorate and knows %v; want %d and %v",
			n.id,
			s,
			i,
			size,
			ids,
		)
	}
	return nil
}

// Promise: the electorate are this node and one for each seed, whether it is there yet or not; a
// seed that is this node itself counts once, and one of an agent does not.
func TestElectors(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w := newWire()
		alone := start(t, w, "alone", 9, nil)
		if err := alone.elects(0, 1, "alone"); err != nil {
			t.Error(err)
		}
		a := start(t, w, "a", 1, join(1, 2, 3, 4))
		eventually(t, func() error { return a.elects(0, 4, "a") })
		b := start(t, w, "b", 2, join(1, 2, 3, 4))
		for _, n := range []*node{a, b} {
			eventually(t, func() error { return n.elects(0, 4, "a", "b") })
		}
		start(t, w, "agent", 4, func(c *Config) { join(1)(c); c.Member.Role = cluster.RoleAgent })
		for _, n := range []*node{a, b} {
			eventually(t, func() error { return n.elects(0, 3, "a", "b") })
		}
		time.Sleep(10 * time.Second)
		if err := b.elects(0, 3, "a", "b"); err != nil {
			t.Error(err)
		}
	})
}

// Promise: where the number is given, all members that are known may vote, and it is no smaller
// than they are.
func TestElectorsExpected(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		a, b, c := three(t, newWire())
		for _, n := range []*node{a, b, c} {
			eventually(t, func() error { return n.elects(5, 5, "a", "b", "c") })
			eventually(t, func() error { return n.elects(2, 3, "a", "b", "c") })
		}
	})
}
