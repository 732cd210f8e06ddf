package cluster

import (
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// What others ask of a node besides checks.

// Held is the number of partitions that this node decides for, or is just giving away: a leaving
// node waits until it is 0. Where members agree it counts one more until all know that the node has
// left.
func (n *Node) Held() int {
	return n.parts.Held()
}

// Holds reports whether this node decides now for the key with this hash.
func (n *Node) Holds(hash uint64) bool {
	return n.holder.Holds(hash)
}

// HoldsPartition reports whether this node decides for the keys of a partition.
func (n *Node) HoldsPartition(p int) bool {
	return n.parts.HoldsPartition(p)
}

// Deciding reports whether the node has the right to decide for what it holds.
func (n *Node) Deciding() bool {
	return n.right.Deciding()
}

// Agreed is the configuration that this node is a member of, or nil.
func (n *Node) Agreed() *ownership.Configuration {
	return n.right.Agreed()
}

// Copies counts the partitions of this node. A node that is alone has no copies: all its partitions
// are unreplicated.
func (n *Node) Copies() Copies {
	return n.copier.Copies()
}

// Keys calls fn with keys that begin with a prefix and that this node decides for; see
// limiter.Table.Keys for the cursor. So of all nodes together each key comes
// once, although others have copies.
func (n *Node) Keys(prefix string, from limiter.Cursor, most int,
	fn func(l *limiter.Limit, key string, d limiter.Decision),
) (next limiter.Cursor, more bool) {
	return n.holder.Keys(prefix, from, most, fn)
}

// OpenHolds lists the open holds that f asks for, on keys that this node decides for, those that
// run out first in front; most of them at most, and how many there are. So of all nodes together
// each hold comes once, although others have copies. If f has a key that another node decides for,
// elsewhere is that node, as far as is known, and else "".
func (n *Node) OpenHolds(
	f limiter.HoldFilter, most int,
) (list []OpenHold, there int, elsewhere string) {
	return n.holder.OpenHolds(f, most)
}

// HoldCounts counts the open holds. It looks at all of them.
func (n *Node) HoldCounts() (c HoldCounts) {
	return n.holder.HoldCounts()
}

// Restore takes over entries and holds that were written so long ago. It must be called before the
// first SetView. It returns how many were in order.
func (n *Node) Restore(age time.Duration, entries []limiter.Entry, holds []HoldCopy) (taken int) {
	return n.restorer.Restore(age, entries, holds)
}

// MustNotify reports whether some node has to be told of what a has given back before answer is
// sent: Confirm does that, and waits.
func (n *Node) MustNotify(a *Ask, answer *Answer) bool {
	return n.notices.MustNotify(a, answer)
}
