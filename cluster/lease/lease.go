// Package lease keeps what a node has borrowed: units of hot keys that other nodes hold.
//
// A lease is a hold (limiter.Ledger) by a node: of a key of a leased limit that it is asked for
// often, it has some units reserved at the holder of the key, and decides on them itself, as
// limiter.Lease says. Reserved units count as spent at the holder, so all leases and the holder
// together never admit more than the limit.
//
//   - Often asked: the node asks for a lease beside the forwarded takes ([Leases.Spend] returns an
//     [Ask]).
//   - Granted: at most a (4·N)th of what remains, N being the members, and what the node spends in
//     two ticks.
//   - Renewed: what was spent of the first is charged by the message after that; the rest is free
//     again.
//   - Not needed: after a tick without a request it is settled ([Leases.Tick] returns an [Ask]).
//   - Node gone: it runs out at the key's holder, and is charged in full.
//
// A request that is denied because of what others have reserved is denied here for a moment as
// well, if it costs the same; a refund or reset that passes this node ends that. Package denial
// remembers what the key itself refuses.
//
// [Leases] owns its state and its locks, and sends nothing: it returns what is to be said to the
// holder of a key.
package lease

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"penstock/cluster/dedup"
	"penstock/limiter"
)

const (
	// most bounds the keys that are counted. The holders of further ones are asked each time.
	most   = 1 << 16
	shards = 16
)

// Key is a key under a leased limit.
type Key struct {
	Limit *limiter.Limit
	Key   string
	Hash  uint64
}

// Held is a hold of this node at the holder of a key.
type Held struct {
	ID dedup.ID
	limiter.Lent
}

// Leases are what a node knows of the keys of leased limits that it does not hold. The zero Leases
// is empty and ready. Its methods are safe for concurrent use.
type Leases struct {
	shards [shards]shard
	keys   atomic.Int32
}

type shard struct {
	mu sync.Mutex // guards all below, and each lease
	m  map[place]*lease
}

type place struct {
	limit *limiter.Limit
	key   string
}

func (p place) compare(o place) int {
	return cmp.Or(strings.Compare(p.key, o.key), strings.Compare(p.limit.Name, o.limit.Name))
}

// lease is one key under one limit. Guarded by its shard.
type lease struct {
	place
	hash uint64

	limiter.Lease
	id     dedup.ID // of the hold in use; zero: there is none
	old    []Held   // to be settled
	asking bool     // a message is under way
}

// retire has what is left of the lease in use settled by the next message.
func (l *lease) retire() {
	if l.id != (dedup.ID{}) {
		l.old = append(l.old, Held{l.id, l.Lent})
	}
	l.id, l.Lent = dedup.ID{}, limiter.Lent{}
}

// ask begins a message about l.
func (l *lease) ask(more bool) *Ask {
	l.asking = true
	return &Ask{Key: Key{l.limit, l.key, l.hash}, More: more, lease: l}
}

func (ls *Leases) shard(hash uint64) *shard { return &ls.shards[hash%shards] }

func (ls *Leases) find(k Key) (s *shard, l *lease) {
	s = ls.shard(k.Hash)
	s.mu.Lock()
	return s, s.m[place{k.Limit, k.Key}]
}

// Len is the number of keys that are counted.
func (ls *Leases) Len() int { return int(ls.keys.Load()) }

// Spend decides on a take of cost units, at least 1, into d, and reports whether it can: from what
// is lent, or because the holder has just denied that. ask, if there is one, is to be sent to
// the holder of the key.
func (ls *Leases) Spend(
	now limiter.Instant, k Key, cost int64, d *limiter.Decision,
) (decided bool, ask *Ask) {
	s, l := ls.find(k)
	defer s.mu.Unlock()
	if l == nil {
		if ls.keys.Load() >= most {
			return false, nil
		}
		if s.m == nil {
			s.m = make(map[place]*lease)
		}
		l = &lease{place: place{k.Limit, strings.Clone(k.Key)}, hash: k.Hash}
		s.m[l.place] = l
		ls.keys.Add(1)
	}
	decided, wanted := l.Decide(now, cost, l.limit.Capacity(), d)
	if wanted && !l.asking {
		ask = l.ask(true)
	}
	return decided, ask
}

// FreeAgain ends a denial: something is given back to the key.
func (ls *Leases) FreeAgain(k Key) {
	s, l := ls.find(k)
	defer s.mu.Unlock()
	if l != nil {
		l.FreeAgain()
	}
}

// Heard notes what the holder answered to a take of cost that was sent at sent.
func (ls *Leases) Heard(sent limiter.Instant, k Key, cost int64, d *limiter.Decision) {
	s, l := ls.find(k)
	defer s.mu.Unlock()
	if l != nil {
		l.Heard(sent, cost, d)
	}
}

// Lent is the lease of k in use, or the zero Lent.
func (ls *Leases) Lent(k Key) limiter.Lent {
	s, l := ls.find(k)
	defer s.mu.Unlock()
	if l == nil {
		return limiter.Lent{}
	}
	return l.Lent
}

// Tick renews and gives back: it returns what is to be said, in one order for one state. It is
// called in each tick of the node. changed reports whether the configuration has another limit for
// the key by now.
func (ls *Leases) Tick(now limiter.Instant, changed func(Key) bool) (asks []*Ask) {
	if ls.keys.Load() == 0 {
		return nil
	}
	for i := range ls.shards {
		s := &ls.shards[i]
		s.mu.Lock()
		for _, p := range slices.SortedFunc(maps.Keys(s.m), place.compare) {
			l := s.m[p]
			if l.Ended(now) || changed(Key{p.limit, p.key, l.hash}) {
				l.retire()
			}
			more := l.id != (dedup.ID{}) && l.Ends(now)
			if !l.asking && (more || len(l.old) > 0) {
				asks = append(asks, l.ask(more))
			}
			if !l.asking && l.Forgotten() {
				delete(s.m, p)
				ls.keys.Add(-1)
			}
			l.Lease.Tick()
		}
		s.mu.Unlock()
	}
	return asks
}

// End has all leases settled, and none spent any more: the machine was suspended, so they may have
// run out at the holders of their keys, which have charged them in full then.
func (ls *Leases) End() {
	for i := range ls.shards {
		s := &ls.shards[i]
		s.mu.Lock()
		for _, l := range s.m {
			l.retire()
		}
		s.mu.Unlock()
	}
}

// Open is the number of leases that this node has to give back.
func (ls *Leases) Open() (sum int) {
	if ls.keys.Load() == 0 {
		return 0
	}
	for i := range ls.shards {
		s := &ls.shards[i]
		s.mu.Lock()
		for _, l := range s.m {
			if l.id != (dedup.ID{}) || len(l.old) > 0 || l.asking {
				sum++
			}
		}
		s.mu.Unlock()
	}
	return sum
}
