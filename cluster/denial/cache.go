// Package denial remembers what the owners of keys have denied, so that a key which is asked for
// again and again costs one message a second and not one a request.
//
// A denial says until when: the same cost is refused until the instant of the next token, whatever
// else is asked meanwhile (limiter.Limit.KeepsDenials). So a node that the owner has denied need
// not ask again before that, unless something is given back. (A larger cost is refused as well, but
// for how much longer the owner alone knows.) The owner announces that:
//
//   - Denied: the node notes until when, and by which owner ([Cache.Note]).
//   - Asked again: it asks the owner once more, and to be told. The owner denies, notes the node
//     ([Watches.Promise]), and says that it will tell. So a key that is denied once costs the owner
//     nothing.
//   - Asked a third time: the node denies by itself ([Cache.Find]).
//   - Given back: the owner tells the nodes that watch the key, and answers the refund when they
//     have heard. So a client that has seen a refund or a reset answered meets no earlier denial.
//   - Another owner: the owner tells before it gives the key's partition away. No node follows the
//     denial of a node that owns the key no more, or is gone.
//   - Another limit: a denial belongs to one limit. After a change of configuration the owner is
//     asked.
//
// A lost message cannot tell: so a denial is good for a second, and renewed before that by one
// request that asks the owner. That is how long a denial may outlive a refund or a reset where a
// message is lost or a node fails.
//
// [Cache] is the memory of the denied node, [Watches] that of the owner. Each owns its state and
// its locks.
package denial

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/limiter"
)

const (
	// Lasts is how long a denial is good for.
	Lasts = time.Second
	// Renew is how long before its end one request asks the owner.
	Renew = Lasts / 4

	again = 50 * time.Millisecond // after which another request asks, if the first was not answered
	worth = 5 * time.Millisecond  // a denial that ends sooner is not noted
	// ClockGain is the part of a span by which one machine's clock may run faster than another's:
	// one in so many, at most.
	ClockGain = 1000

	// CacheMost bounds the denials of a node, with keys of up to a kilobyte. The owner is asked
	// about the others each time.
	CacheMost   = 1 << 14
	cacheShards = 64
)

// Key is a key under a limit.
type Key struct {
	Limit *limiter.Limit
	Key   string
	Hash  uint64
}

// Verdict is what a Cache knows about a key.
type Verdict struct {
	Known  bool // a denial is remembered, in force or not
	Denied bool // the owner's denial is in force for what is asked
	// the owner should be asked to tell when its denial ends: the key is denied again and again
	Tell   bool
	By     uint64           // boot of the owner that has denied
	Answer limiter.Decision // if Denied
}

// Cache holds what a node was told by the owners of keys that it does not hold. The zero Cache is
// empty and ready. Its methods are safe for concurrent use.
type Cache struct {
	shards [cacheShards]cacheShard
	n      atomic.Int32 // of all shards
}

type cacheShard struct {
	mu sync.Mutex // guards all below
	m  map[uint64]*entry
	n  int
	// when a denial here last had to be forgotten: a promise asked for before that is void
	forgot limiter.Instant
	swept  limiter.Instant
}

// entry is one key under one limit. Guarded by its shard.
type entry struct {
	limit *limiter.Limit
	key   string
	next  *entry // of the same hash, under another limit or of another key
	boot  uint64 // of the owner

	cost, remaining int64 // of the request that was denied
	// counted from when the answer arrived: a client that waits that long is not early
	retryAt, resetAt limiter.Instant
	// may be over from here on: counted from when it was asked, less the clocks' difference
	over  limiter.Instant
	until limiter.Instant // good until here; 0: the owner has not promised to tell
	renew limiter.Instant // from here on one request asks the owner
	// when it was asked, or the first of those that were renewed without a gap
	since limiter.Instant
	told  limiter.Instant // the owner tells until here
}

func (c *Cache) shard(hash uint64) *cacheShard { return &c.shards[hash%cacheShards] }

func (s *cacheShard) findLocked(k Key) *entry {
	e := s.m[k.Hash]
	for e != nil && (e.limit != k.Limit || e.key != k.Key) {
		e = e.next
	}
	return e
}

// Len is the number of denials in memory.
func (c *Cache) Len() int { return int(c.n.Load()) }

// Find says whether a take of cost from k is denied. named says that the client drew an id for it:
// such a client may be repeating a take that it was granted, so it is denied only after remembered,
// the time for which the owner would recognise that take.
func (c *Cache) Find(
	now limiter.Instant, k Key, cost int64, named bool, remembered time.Duration,
) (v Verdict) {
	s := c.shard(k.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.findLocked(k)
	if e == nil {
		return Verdict{}
	}
	v.Known = true
	v.Tell = now < e.over.Add(Lasts) // also if a token has come in between
	v.Denied = now < e.until && cost == e.cost && (!named || now >= e.since.Add(remembered))
	if v.Denied && now >= e.renew {
		e.renew = now.Add(again)
		v.Denied = false
	}
	if v.Denied {
		v.By = e.boot
		v.Answer = limiter.Decision{
			Limit: k.Limit.Capacity(), Remaining: e.remaining,
			RetryAfter: time.Duration(e.retryAt - now), // later than until
			ResetAfter: max(0, time.Duration(e.resetAt-now)),
		}
	}
	return v
}

// Answer is an owner's denial.
type Answer struct {
	By     uint64          // boot of the owner
	Sent   limiter.Instant // when it was asked
	Cost   int64
	Denied limiter.Decision
	Told   bool // the owner has promised to tell when the denial ends before its time
}

// Note remembers a denial. Denials that end within a few milliseconds are not worth it.
func (c *Cache) Note(now limiter.Instant, k Key, a *Answer) {
	if a.Denied.RetryAfter < worth {
		return
	}
	s := c.shard(k.Hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := s.entryLocked(now, k, a)
	old := s.findLocked(k)
	switch {
	case old != nil && now < old.until && (fresh.until == 0 || old.cost < fresh.cost):
		return // it stays, or two costs would take turns, and each be asked for
	case old != nil:
		if a.Sent <= old.told && old.cost <= fresh.cost {
			fresh.since = old.since
		}
		fresh.key, fresh.next = old.key, old.next
		*old = fresh
		return
	case s.n >= CacheMost/cacheShards:
		if c.sweepLocked(now, s); s.n >= CacheMost/cacheShards {
			return
		}
	}
	if s.m == nil {
		s.m = make(map[uint64]*entry)
	}
	e := new(entry) // most answers only renew one, so the memory is made here
	*e = fresh
	e.key, e.next = strings.Clone(k.Key), s.m[k.Hash]
	s.m[k.Hash] = e
	s.n++
	c.n.Add(1)
}

// entryLocked is what a says, without a key of its own.
func (s *cacheShard) entryLocked(now limiter.Instant, k Key, a *Answer) entry {
	retry := a.Denied.RetryAfter
	e := entry{
		limit: k.Limit, boot: a.By, cost: a.Cost, remaining: a.Denied.Remaining,
		retryAt: now.Add(retry), resetAt: now.Add(a.Denied.ResetAfter),
		over: a.Sent.Add(retry - retry/ClockGain), since: a.Sent,
	}
	if a.Told && a.Sent > s.forgot {
		e.until = min(e.over, a.Sent.Add(Lasts))
		if e.renew = e.until; e.until < e.over {
			e.renew = e.until.Add(-Renew)
		}
		e.told = min(e.over, a.Sent.Add(WatchLasts-WatchLasts/ClockGain))
	}
	return e
}

// Forget ends the denials of the keys with these hashes, and those of answers on their way.
func (c *Cache) Forget(now limiter.Instant, hashes ...uint64) {
	for _, hash := range hashes {
		s := c.shard(hash)
		s.mu.Lock()
		s.forgot = max(s.forgot, now)
		for e := s.m[hash]; e != nil; e = e.next {
			s.n--
			c.n.Add(-1)
		}
		delete(s.m, hash)
		s.mu.Unlock()
	}
}

// Sweep drops the denials that are over.
func (c *Cache) Sweep(now limiter.Instant) {
	for i := 0; i < cacheShards && c.n.Load() > 0; i++ {
		s := &c.shards[i]
		s.mu.Lock()
		c.sweepLocked(now, s)
		s.mu.Unlock()
	}
}

// sweepLocked drops the denials that are over, at most twice a second: a full shard is not searched
// for each new key.
func (c *Cache) sweepLocked(now limiter.Instant, s *cacheShard) {
	if now < s.swept.Add(Lasts/2) {
		return
	}
	s.swept = now
	for hash, first := range s.m {
		var kept *entry
		for e := first; e != nil; {
			next := e.next
			if now < e.over.Add(Lasts) {
				e.next, kept = kept, e
			} else {
				s.n--
				c.n.Add(-1)
			}
			e = next
		}
		if kept == nil {
			delete(s.m, hash)
		} else {
			s.m[hash] = kept
		}
	}
}
