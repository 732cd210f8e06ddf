package cluster

import "penstock/limiter"

// Keys is Node.Keys.
func (hd *holder) Keys(prefix string, from limiter.Cursor, most int,
	fn func(l *limiter.Limit, key string, d limiter.Decision),
) (next limiter.Cursor, more bool) {
	return hd.table.Keys(hd.clock.Now(), prefix, from, most,
		func(l *limiter.Limit, key string, d limiter.Decision) {
			if hd.Holds(limiter.Hash(key)) {
				fn(l, key, d)
			}
		})
}
