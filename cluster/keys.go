package cluster

import "penstock/limiter"

// Keys calls fn with keys that begin with a prefix and that this node decides for; see
// limiter.Table.Keys, whose cursor it takes and returns. So of all nodes together each key comes
// once, although others have copies.
func (n *Node) Keys(prefix string, from limiter.Cursor, most int, fn func(l *limiter.Limit, key string, d limiter.Decision)) (next limiter.Cursor, more bool) {
	return n.table.Keys(n.clock.Now(), prefix, from, most, func(l *limiter.Limit, key string, d limiter.Decision) {
		if n.Holds(limiter.Hash(key)) {
			fn(l, key, d)
		}
	})
}
