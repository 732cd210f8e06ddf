package limiter

import "strings"

// Cursor is a place among the keys of a table, where Keys goes on. The zero Cursor is the
// beginning. It means nothing to another table.
type Cursor struct {
	Part uint32 // see Table.Parts
	Mix  uint32 // the last that was looked at there
}

const (
	slotsAtOnce = 1024      // looked at under one lock
	slotsInCall = 64 * 1024 // and in one call of Keys
)

// Keys calls fn with the keys from a cursor on that begin with prefix, each with its limit and the
// answer to a Take of cost 0. It stops after most keys, or after some ten thousand others. It
// returns the next cursor, and whether there is more.
//
// A walk from beginning to end, at any pace, sees every key once that was in the table all the
// while, and no key twice. Keys that come or go meanwhile it may see or not. It holds a lock for at
// most a thousand slots, and never during fn, which may use the table. Keys with equal hashes come
// together, so there may be a few more than most. Shares are left out, and so are keys that have no
// entry because the table is full.
//
// The order is that of hashes: it is the same each time, and has no meaning.
func (t *Table) Keys(
	now Instant, prefix string, from Cursor, most int, fn func(l *Limit, key string, d Decision),
) (next Cursor, more bool) {
	now = within(now)
	var found []keyCopy
	for looked := 0; int(from.Part) < len(t.shards) && most > 0 &&
		looked < slotsInCall; looked += slotsAtOnce {
		s := &t.shards[from.Part]
		s.mu.Lock()
		found, from.Mix = s.keys(now, prefix, from.Mix, most, found[:0])
		s.mu.Unlock()
		for i := range found {
			fn(found[i].limit, found[i].key, found[i].d)
		}
		most -= len(found)
		if from.Mix == 0 {
			from.Part++
		}
	}
	return from, int(from.Part) < len(t.shards)
}

type keyCopy struct {
	limit *Limit
	key   string
	d     Decision
}

// keys appends to found what comes after a mix, until there are as many as most or as many slots
// were looked at as may be at once, but of one mix all. It returns the last mix that it has looked
// at, or 0 at the end.
func (s *shard) keys(
	now Instant, prefix string, after uint32, most int, found []keyCopy,
) ([]keyCopy, uint32) {
	st, index := &s.entries, s.rules.index.Load()
	first, last := st.home(after), after
	for i, end := first, st.end(); i < end; i++ {
		e := &st.slots[i]
		if e.mix() <= after { // an empty slot, too
			continue
		}
		if e.mix() != last && last != after && (len(found) >= most || i >= first+slotsAtOnce) {
			return found, last
		}
		last = e.mix()
		l := index.byID(e.rule()).limit.Load()
		if key := st.key(e); strings.HasPrefix(key, prefix) && !l.isShare() {
			w := s.words(0, l.words())
			if l.refit(w, st.state(e)); !l.fresh(w, now) {
				var d Decision
				l.decide(w, now, 0, &d)
				found = append(found, keyCopy{l, strings.Clone(key), d})
			}
		}
	}
	return found, 0
}
