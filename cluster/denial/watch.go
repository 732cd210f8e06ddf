package denial

import (
	"slices"
	"sync"
	"sync/atomic"

	"penstock/limiter"
)

const (
	// WatchLasts is longer than a denial is good for, so that a node that renews one knows that
	// there was no gap.
	WatchLasts = 2 * Lasts
	// WatchesMost bounds the promises of an owner. A node without a promise asks each time.
	WatchesMost = 1 << 16
	watchShards = 16
)

// Watches are the promises of an owner to tell other nodes when something is given back to a key of
// which they remember a denial. A key is known by its hash alone: a node that is told without need
// asks once more.
//
// A promise is noted before the key is looked at for the denial, and searched for after something
// was given back: so of a denial and a refund at the same moment either the denial knows of the
// refund, or the refund finds the promise. A node that is told while the denial is on its way goes
// by what it was told, in whatever order the two arrive (Cache.Forget).
//
// The zero Watches is empty and ready. Its methods are safe for concurrent use.
type Watches struct {
	shards [watchShards]watchShard
	n      atomic.Int32
}

type watchShard struct {
	mu sync.Mutex // guards below; no other lock is taken while it is held
	m  map[uint64][]watch
}

type watch struct {
	boot      uint64 // of the node that is to be told
	at, until limiter.Instant
}

func (w *Watches) shard(hash uint64) *watchShard { return &w.shards[hash%watchShards] }

// Len is the number of promises.
func (w *Watches) Len() int { return int(w.n.Load()) }

// Promise notes that boot is to be told about the key with this hash, and reports whether it will
// be. able is asked whether this node could do so; that happens under the lock, so that a node that
// loses its right to the key afterwards finds the promise.
func (w *Watches) Promise(now limiter.Instant, boot, hash uint64, able func() bool) bool {
	s := w.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !able() {
		return false
	}
	x := watch{boot, now, now.Add(WatchLasts)}
	list := s.m[hash]
	if i := slices.IndexFunc(list, func(o watch) bool { return o.boot == boot }); i >= 0 {
		list[i] = x
		return true
	}
	if w.n.Load() >= WatchesMost {
		return false
	}
	if s.m == nil {
		s.m = make(map[uint64][]watch)
	}
	s.m[hash] = append(list, x)
	w.n.Add(1)
	return true
}

// Each calls fn with the boots that are to be told about the keys with these hashes, except the
// boot but.
func (w *Watches) Each(
	now limiter.Instant, hashes []uint64, but uint64, fn func(boot, hash uint64),
) {
	for _, hash := range hashes {
		s := w.shard(hash)
		s.mu.Lock()
		for _, x := range s.m[hash] {
			if x.boot != but && now < x.until {
				fn(x.boot, hash)
			}
		}
		s.mu.Unlock()
	}
}

// Watched reports whether a boot other than but is to be told about the key with this hash.
func (w *Watches) Watched(hash, but uint64) bool {
	s := w.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.m[hash], func(x watch) bool { return x.boot != but })
}

// Hashes are those of the watched keys that fn chooses, in order.
func (w *Watches) Hashes(fn func(hash uint64) bool) (hashes []uint64) {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		for hash := range s.m {
			if fn(hash) {
				hashes = append(hashes, hash)
			}
		}
		s.mu.Unlock()
	}
	slices.Sort(hashes)
	return hashes
}

// Told ends the promises to boot about these keys, which were kept at the instant at: not those
// that were renewed since.
func (w *Watches) Told(at limiter.Instant, boot uint64, hashes []uint64) {
	for _, hash := range hashes {
		s := w.shard(hash)
		s.mu.Lock()
		w.dropLocked(s, hash, func(x watch) bool { return x.boot == boot && x.at < at })
		s.mu.Unlock()
	}
}

// Sweep ends the promises of one shard that were not renewed; turn counts the calls.
func (w *Watches) Sweep(now limiter.Instant, turn uint64) {
	if w.n.Load() == 0 {
		return
	}
	s := &w.shards[turn%watchShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash := range s.m {
		w.dropLocked(s, hash, func(x watch) bool { return now >= x.until })
	}
}

func (w *Watches) dropLocked(s *watchShard, hash uint64, drop func(watch) bool) {
	list, had := s.m[hash]
	if !had {
		return
	}
	kept := slices.DeleteFunc(list, drop)
	w.n.Add(int32(len(kept) - len(list)))
	if len(kept) == 0 {
		delete(s.m, hash)
	} else {
		s.m[hash] = kept
	}
}
