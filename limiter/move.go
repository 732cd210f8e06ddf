package limiter

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// Entries leave a table, and come in from another one. Replication, handover and snapshots are the
// same act: entries in binary form are merged or put into a table.

// Entry is the state of a key on its way, or of a cell that keys share which have no entry (see
// sketch.go).
type Entry struct {
	Limit *Limit
	Key   string // of a cell: any key that was wanted
	State []byte // binary form (see Limit.EncodeState); empty: as good as never seen
	// age of State; 0 counts a state that was on its way for d as d too young: stricter, never more
	// lenient
	Age time.Duration
}

// at is the instant at which State was so.
func (e *Entry) at(now Instant) Instant { return within(now.Add(-max(0, e.Age))) }

// Scan calls fn with the entries of part i of Parts with wanted hashes, without shares, or with
// the cells that wanted keys may have been charged to: the later parts are those of the sketch, so
// a key that loses its entry meanwhile is found there. A part is copied at one time, so no lock is
// held during fn, which may use the table. A pass over all parts, in their order and at any pace,
// sees every entry that was there all the while; Changed tells what comes or changes meanwhile.
func (t *Table) Scan(
	now Instant, i int, wanted func(hash uint64) bool, fn func(hash uint64, e Entry),
) {
	if i >= len(t.shards) {
		t.place.scan(now, i, len(t.shards), wanted, fn)
		return
	}
	s, lent := &t.shards[i], copies.Get().(*[]Entry)
	s.mu.Lock()
	*lent = s.copyEntries(within(now), *lent, func(l *Limit, hash uint64) bool {
		return !l.isLocal() && wanted(hash)
	})
	s.mu.Unlock()
	for e := range scattered(*lent) {
		fn(Hash(e.Key), e)
	}
	clear(*lent)
	*lent = (*lent)[:0]
	copies.Put(lent)
}

// copies are lists of entries that a Scan has used. A node that hands half of its keys over would
// make garbage several times as large as the keys.
var copies = sync.Pool{New: func() any { return new([]Entry) }}

// scan is Scan for the cells of part i.
func (p *placement) scan(
	now Instant, i, shards int, wanted func(hash uint64) bool, fn func(hash uint64, e Entry),
) {
	cells := p.cells(now, i, shards)
	if len(cells) == 0 {
		return
	}
	if label, ok := anyKey(wanted); ok {
		for _, e := range cells {
			e.Key = label
			fn(Hash(label), e)
		}
	}
}

// cells are those of part i, one of the later half of the parts of a table with so many shards.
func (p *placement) cells(now Instant, i, shards int) []Entry {
	i -= shards
	return p.sketches[i].copyCells(within(now), i, shards)
}

// HasReplicas reports whether there may be entries of replicated limits.
func (t *Table) HasReplicas() bool {
	for r := range t.rules.index.Load().all {
		if r.limit.Load().Consistency == Replicated {
			return true
		}
	}
	return false
}

// Replicas calls fn with what part i of Parts has of replicated limits, as Scan does of others.
func (t *Table) Replicas(now Instant, i int, fn func(e Entry)) {
	if i >= len(t.shards) {
		return
	}
	s := &t.shards[i]
	s.mu.Lock()
	entries := s.copyEntries(within(now), nil, func(l *Limit, _ uint64) bool {
		return l.Consistency == Replicated && !l.isShare()
	})
	s.mu.Unlock()
	for e := range scattered(entries) {
		fn(e)
	}
}

// Save is a copy of all that part i of Parts knows and that outlives the process: the entries of
// replicated limits as well, no shares, and nothing of what is not kept (see Guard).
func (t *Table) Save(now Instant, i int) []Entry {
	if i >= len(t.shards) {
		cells := t.place.cells(now, i, len(t.shards))
		for j := range cells {
			cells[j].Key = "cell"
		}
		return cells
	}
	s := &t.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(scattered(s.copyEntries(within(now), nil, func(l *Limit, h uint64) bool {
		return !l.isShare() && (l.isLocal() || t.kept == nil || t.kept(h))
	})))
}

// Parts is the number of parts that a Scan goes through one by one. It never changes.
func (t *Table) Parts() int { return 2 * len(t.shards) }

// copyEntries adds copies of the entries that are wanted to a list.
func (s *shard) copyEntries(
	now Instant, entries []Entry, wanted func(l *Limit, hash uint64) bool,
) []Entry {
	var bytes []byte // of all keys and states: one piece instead of two per entry
	index := s.rules.index.Load()
	for e := range s.entries.all {
		l := index.byID(e.rule()).limit.Load()
		if !wanted(l, Hash(s.entries.key(e))) {
			continue
		}
		var entry Entry
		if entry, bytes = s.entry(now, l, e, bytes); len(entry.State) > 0 {
			entries = append(entries, entry)
		}
	}
	return entries
}

// scattered has entries, which come sorted by hash, come so that neighbours lie far apart. The
// importing table grows as they come: if the first of them all lay in one corner, it would have no
// room there and plenty elsewhere.
func scattered(entries []Entry) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		n := len(entries)
		step := spread(n)
		for i := range n {
			if !yield(entries[i*step%n]) {
				return
			}
		}
	}
}

// anyKey finds a key with a wanted hash. If one in some thousand is wanted, it fails once in 10^13
// times.
func anyKey(wanted func(hash uint64) bool) (string, bool) {
	var b [24]byte
	for i := range uint64(1 << 17) {
		if k := strconv.AppendUint(append(b[:0], "cell-"...), i, 10); wanted(xxhash.Sum64(k)) {
			return string(k), true
		}
	}
	return "", false
}

// entry copies e into new bytes behind bytes.
func (s *shard) entry(now Instant, l *Limit, e *slot, bytes []byte) (Entry, []byte) {
	if needs := e.keyLen() + 16*l.words(); cap(bytes)-len(bytes) < needs {
		bytes = make([]byte, 0, max(4096, needs))
	}
	at := len(bytes)
	bytes = append(bytes, s.entries.key(e)...)
	keyEnd := len(bytes)
	w := s.words(0, l.words())
	l.refit(w, s.entries.state(e))
	bytes = l.appendState(bytes, w, now)
	key := bytes[at:keyEnd]
	return Entry{
		Limit: l, Key: unsafe.String(unsafe.SliceData(key), len(key)),
		State: slices.Clip(bytes[keyEnd:]),
	}, bytes
}

// Entry is a copy of the key's state under l, also if that is in the sketch.
func (t *Table) Entry(now Instant, l *Limit, key string, hash uint64) Entry {
	s, x := t.shard(l, key, hash)
	x.rule = t.rules.of(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	w, _, _ := s.read(within(now), &x)
	return Entry{Limit: l, Key: strings.Clone(key), State: l.appendState(nil, w, within(now))}
}

// Import takes e over. The table's state of the key is merged with it, and more consumed wins. If
// replace is set, the table's state is replaced, because e comes from the deciding node and is
// newer. It reports false if e is broken.
func (t *Table) Import(now Instant, e *Entry, replace bool) bool {
	now = within(now)
	if e.IsCell() {
		return t.importCell(now, e)
	}
	s, x := t.shard(e.Limit, e.Key, Hash(e.Key))
	if x.rule = t.lock(now, s, e.Limit); x.rule == nil {
		w := make([]int64, e.Limit.words())
		if _, err := e.Limit.readState(w, e.State, e.at(now)); err != nil {
			return false
		}
		t.lose(now, e.Limit, w)
		return true // no room for the limit: its requests are refused
	}
	defer s.mu.Unlock()
	other := s.words(1, e.Limit.words())
	if _, err := e.Limit.readState(other, e.State, e.at(now)); err != nil {
		return false
	}
	if replace {
		s.forget(&x)
	}
	s.merge(now, &x, other)
	return true
}

// Track makes the table remember which entries have changed, for Changed. It must be called before
// the table is used by several goroutines.
func (t *Table) Track() {
	for i := range t.shards {
		t.shards[i].changed = new(changes)
	}
}

// Changed calls fn once with every entry that was charged, refunded or reset since the last call,
// with its state now, and with the charged keys that have no entry. It copies some at a time, so no
// lock is held during fn, which may use the table. Merged or imported entries do not count as
// changed, nor do shares. Changed takes the lock of every key at least once: after a Guard has
// closed a key, no decision is missed.
func (t *Table) Changed(now Instant, fn func(hash uint64, e Entry)) {
	now = within(now)
	var entries []Entry
	for i := range t.shards {
		s := &t.shards[i]
		for list, more := (*changedList)(nil), true; more; more = list != nil {
			s.mu.Lock()
			entries, list = s.takeChanged(now, list, entries[:0])
			s.mu.Unlock()
			for _, e := range entries {
				fn(Hash(e.Key), e)
			}
		}
	}
}

// changedAtOnce is how many changed entries are copied while their shard is locked: no decision
// waits for more.
const changedAtOnce = 256

// takeChanged copies a few of the entries of a list, of the one that there is if of is nil, and
// returns that list as long as some are left.
func (s *shard) takeChanged(now Instant, of *changedList, dst []Entry) (
	copied []Entry, left *changedList,
) {
	c := s.changed
	if len(c.sketch) > 0 { // an idle node asks ten times a second, and writes nothing
		// before entries: a key that has got one since has the later state there. And each time:
		// an entry of the list may have lost its slot since the last time.
		dst = append(dst, c.sketch...)
		c.sketch, c.where, c.sketchBytes = nil, nil, 0
	}
	if of == nil {
		if len(c.list) == 0 {
			return dst, nil
		}
		of = &changedList{all: c.list}
		c.list, c.spare = c.spare, nil
	}
	list := of.all[of.copied:min(len(of.all), of.copied+changedAtOnce)]
	dst = slices.Grow(dst, len(list))
	// about what they need; if not, entry makes more
	bytes := make([]byte, 0, min(4096, 64*len(list)))
	index := s.rules.index.Load()
	for _, x := range list {
		r := index.byID(x.rule)
		if r == nil {
			continue
		}
		local := r.limit.Load().isLocal()
		for i := s.entries.home(x.mix); s.entries.slots[i].mix()-1 <= x.mix-1; i++ {
			if e := &s.entries.slots[i]; e.mix() == x.mix && e.rule() == x.rule &&
				e.head&listed != 0 {
				e.head &^= untold | listed
				if !local {
					var entry Entry
					entry, bytes = s.entry(now, r.limit.Load(), e, bytes)
					dst = append(dst, entry)
				}
			}
		}
	}
	if of.copied += len(list); of.copied < len(of.all) {
		return dst, of
	}
	if cap(of.all) <= mostSpare {
		c.spare = of.all[:0]
	}
	return dst, nil
}

// changedList is a list of changed entries, of which some are copied. Those that change again
// before they are copied stay in it, others are listed anew.
type changedList struct {
	all    []changedEntry
	copied int
}

// mostSpare is how many entries the room may have that is kept for the next list.
const mostSpare = 1 << 16

// changes lists changed entries. Each is marked as listed (slot.head), so it stands here once, or
// more often if it was removed and made anew. Keys without an entry are known only here, so it has
// copies of them.
type changes struct {
	list  []changedEntry
	spare []changedEntry // has room for the next list

	sketch      []Entry // the latest of each key
	where       map[sketchKey]int
	sketchBytes int
}

type sketchKey struct {
	limit *Limit
	key   string
}

// tell notes the state of a key that lives in the sketch from now on. It reports false if there is
// no room for that, because too many have come since Changed was last called: then what cannot be
// told must not happen, unless it has to.
func (s *shard) tell(now Instant, l *Limit, key string, w []int64, hasTo bool) bool {
	c := s.changed
	if c == nil || l.isLocal() {
		return true
	}
	i, again := c.where[sketchKey{l, key}]
	if !again && !hasTo && c.sketchBytes+len(key)+16*len(w) > s.place.sketches[0].size() {
		return false
	}
	settled := make([]int64, len(w))
	copy(settled, w)
	key = strings.Clone(key)
	e := Entry{Limit: l, Key: key, State: l.appendState(nil, settled, now)}
	if again {
		c.sketch[i] = e
		return true
	}
	if c.where == nil {
		c.where = map[sketchKey]int{}
	}
	c.where[sketchKey{l, key}] = len(c.sketch)
	c.sketch = append(c.sketch, e)
	c.sketchBytes += len(key) + 16*len(w)
	return true
}

type changedEntry struct{ mix, rule uint32 }

// add lists e, unless it is.
func (c *changes) add(e *slot) {
	if e.head&listed == 0 {
		e.head |= listed
		c.append(e.mix(), e.rule())
	}
}

func (c *changes) append(mix, rule uint32) {
	c.list = append(c.list, changedEntry{mix, rule})
	if len(c.list)&0xffff == 0 { // nobody has asked for long
		c.compact()
	}
}

// compact keeps each entry once, so the list stays as short as twice the entries there are, or
// 2^16.
func (c *changes) compact() {
	seen := make(map[changedEntry]struct{}, len(c.list))
	c.list = slices.DeleteFunc(c.list, func(x changedEntry) bool {
		_, again := seen[x]
		seen[x] = struct{}{}
		return again
	})
}
