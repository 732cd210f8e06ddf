package cluster

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"penstock/limiter"
	"penstock/ring"
)

// A lease is a hold (limiter.Book) by a node: of a key of a leased limit that it is asked for often, it has some units set
// aside at the holder of the key, and decides on them itself, as limiter.Lease says. What is set aside counts as spent there,
// so all leases and the holder together never admit more than the limit.
//
//	often asked    it asks for a lease beside the forwards.
//	granted        at most a (4·N)th of what remains, N being the members, and what the node spends in two ticks.
//	renewed        what was spent of the first is charged by the message after that; the rest is free again.
//	not needed     after a tick without a request it is settled.
//	node gone      it runs out at the key's holder, and is charged in full.
//
// A request that is denied because of what others have set aside is denied here for a moment as well, unless it asks for less; a
// refund or reset that comes this way ends that. Of what the key itself refuses, the node remembers more (denied.go).
const (
	leasePart = 4 // × members: the part of what remains
	// leaseKeys bounds the keys that are counted. Of more, the holders are asked.
	leaseKeys   = 1 << 16
	leaseShards = 16
)

// leases are what a node knows of the keys of leased limits that it does not hold.
type leases struct {
	shards [leaseShards]leaseShard
	keys   atomic.Int32
}

type leaseShard struct {
	mu sync.Mutex // guards all below, and each lease
	m  map[leaseKey]*lease
}

type leaseKey struct {
	limit *limiter.Limit
	key   string
}

func (k leaseKey) compare(o leaseKey) int {
	return cmp.Or(strings.Compare(k.key, o.key), strings.Compare(k.limit.Name, o.limit.Name))
}

// lease is one key under one limit. Guarded by its shard.
type lease struct {
	leaseKey
	hash uint64

	limiter.Lease
	id     ID     // of what is lent; 0 if nothing is
	old    []held // to be settled
	asking bool   // a message is under way
}

// held is a hold of this node.
type held struct {
	id ID
	limiter.Lent
}

// decide decides on cost units, which are at least 1, and reports whether it can, and whether it is time to ask for a lease.
func (l *lease) decide(now limiter.Instant, cost int64, d *Decision) (decided, ask bool) {
	*d = Decision{Source: SourceLease}
	decided, ask = l.Decide(now, cost, l.limit.Capacity(), &d.Decision)
	if decided && !d.Allowed {
		d.Source = SourceDenied
	}
	return decided, ask && !l.asking
}

// retire has what is left of the lease in use settled with the next message.
func (l *lease) retire() {
	if l.id != (ID{}) {
		l.old = append(l.old, held{l.id, l.Lent})
	}
	l.id, l.Lent = ID{}, limiter.Lent{}
}

func (n *Node) leaseShard(hash uint64) *leaseShard { return &n.leases.shards[hash%leaseShards] }

// decideLeased decides on an item of a leased limit, whose key this node does not hold, if it has a lease for that, or has
// just been told no.
func (n *Node) decideLeased(now limiter.Instant, it *Item, out *Decision) bool {
	if !it.takes() || it.limit.NeverDenies() {
		if it.Op == OpReset || it.Op == OpTake && it.Cost < 0 || it.Op == OpSettle && it.Hold.ID.Origin&nodeOrigin == 0 {
			n.freeAgain(it)
		}
		return false
	}
	view := n.view.Load()
	if view == nil || !view.keepsHolds(it.hash) {
		return false
	}
	var answer [1]limiter.Decision
	decided, source, owner := false, SourceLease, view.Members[view.Owner(it.hash)].ID
	take := func() bool {
		decided = n.spendLease(now, it, out)
		answer[0], source = out.Decision, out.Source
		return decided
	}
	if it.ID == (ID{}) {
		take()
	} else if n.recent.Once(now, it.ID, ring.Partition(it.hash), answer[:], take) {
		n.stats.Repeated.Add(1)
		switch decided = true; {
		case n.recent.Learned(now, it.ID): // it came with a gift: who held the key has decided that
			source, owner = SourceForwarded, cmp.Or(n.whereabouts(now, view, it.hash), owner)
		case !answer[0].Allowed:
			source = SourceDenied
		}
	}
	if !decided {
		return false
	}
	switch source {
	case SourceDenied:
		n.stats.Cached.Add(1)
	case SourceLease:
		n.stats.Leased.Add(1)
	}
	*out = Decision{Decision: answer[0], Source: source, Owner: owner}
	return true
}

func (n *Node) spendLease(now limiter.Instant, it *Item, out *Decision) bool {
	s := n.leaseShard(it.hash)
	s.mu.Lock()
	l := s.m[leaseKey{it.limit, it.Key}]
	if l == nil {
		if n.leases.keys.Load() >= leaseKeys {
			s.mu.Unlock()
			return false
		}
		if s.m == nil {
			s.m = make(map[leaseKey]*lease)
		}
		l = &lease{leaseKey: leaseKey{it.limit, strings.Clone(it.Key)}, hash: it.hash}
		s.m[l.leaseKey] = l
		n.leases.keys.Add(1)
	}
	decided, ask := l.decide(now, it.Cost, out)
	if ask {
		n.askLeaseLocked(l, true)
	}
	s.mu.Unlock()
	return decided
}

// freeAgain ends a denial: something is given back.
func (n *Node) freeAgain(it *Item) {
	s := n.leaseShard(it.hash)
	s.mu.Lock()
	if l := s.m[leaseKey{it.limit, it.Key}]; l != nil {
		l.FreeAgain()
	}
	s.mu.Unlock()
}

// heardLease notes what became of a forwarded item of a leased limit.
func (n *Node) heardLease(sent limiter.Instant, it *Item, d *limiter.Decision) {
	if !it.takes() {
		return
	}
	s := n.leaseShard(it.hash)
	s.mu.Lock()
	if l := s.m[leaseKey{it.limit, it.Key}]; l != nil {
		l.Heard(sent, it.Cost, d)
	}
	s.mu.Unlock()
}

// askLeaseLocked sends what is to be said about l to the holder of its key: what is to be settled, and if more is set, that
// a lease is wanted.
func (n *Node) askLeaseLocked(l *lease, more bool) {
	l.asking = true
	n.clock.AfterFunc(0, func() { n.askLease(l, more) })
}

func (n *Node) askLease(l *lease, more bool) {
	now := n.clock.Now()
	s := n.leaseShard(l.hash)
	s.mu.Lock()
	old := l.old
	l.old = nil
	want := l.Want()
	s.mu.Unlock()

	r := Request{Deadline: now.Add(limiter.LeaseTTL / 2)}
	for _, h := range old {
		r.Items = append(r.Items, Item{
			Key: l.key, Cost: h.Size - h.Units, Op: OpSettle, Hold: &HoldTerms{ID: h.id}, limit: l.limit, hash: l.hash,
		})
	}
	if more {
		r.Items = append(r.Items, Item{
			Key: l.key, Cost: want, Op: OpLease, ID: n.nextID(), Hold: &HoldTerms{TTL: limiter.LeaseTTL, Holder: n.id},
			limit: l.limit, hash: l.hash,
		})
	}
	out := make([]Decision, len(r.Items))
	if view := n.view.Load(); view != nil && len(r.Items) > 0 {
		n.checkEach(now, view, &r, out)
		n.confirmOwn(r.Items, out)
	}

	n.reportLost(&r, out)
	s.mu.Lock()
	defer s.mu.Unlock()
	l.asking = false
	for i, h := range old {
		l.settled(n.clock.Now(), h, &out[i])
	}
	if more {
		l.granted(now, r.Items[len(old)].ID, &out[len(old)])
	}
}

// reportLost charges what was spent of leases that nobody knows any more, because who did died before its heir had heard
// of them.
func (n *Node) reportLost(settled *Request, out []Decision) {
	r := Request{Deadline: settled.Deadline}
	for i := range settled.Items {
		if it := &settled.Items[i]; it.Op == OpSettle && it.Cost > 0 && out[i].Hold == limiter.HoldUnknown {
			r.Items = append(r.Items, Item{Key: it.Key, Cost: it.Cost, Terms: Terms{Report: true}, limit: it.limit, hash: it.hash})
		}
	}
	if view := n.view.Load(); view != nil && len(r.Items) > 0 {
		n.checkEach(n.clock.Now(), view, &r, make([]Decision, len(r.Items)))
	}
}

// settled notes what became of the settlement of h: one that nobody has heard is said again, as long as that helps.
func (l *lease) settled(now limiter.Instant, h held, d *Decision) {
	if d.Source == SourceFallback && now < h.Until.Add(limiter.LeaseTTL) {
		l.old = append(l.old, h)
	}
}

// granted takes the lease that was asked for at sent into use, if there is one.
func (l *lease) granted(sent limiter.Instant, id ID, d *Decision) {
	switch {
	case d.Source == SourceFallback, d.Degraded: // perhaps it was granted, and its answer got lost; or no heir knows of it
		l.old = append(l.old, held{id, limiter.Lent{Until: sent.Add(limiter.LeaseTTL)}})
		l.NotGranted(sent)
	case d.Hold == limiter.HoldOpen && d.Drained > 0:
		l.retire()
		l.id = id
		l.Granted(sent, d.Drained, &d.Decision)
	default:
		l.NotGranted(sent)
		if l.Units == 0 { // what was spent is better charged than set aside
			l.retire()
		}
	}
}

// tendLeases renews and gives back.
func (n *Node) tendLeases(now limiter.Instant) {
	if n.leases.keys.Load() == 0 {
		return
	}
	limits := *n.limits.Load()
	for i := range n.leases.shards {
		s := &n.leases.shards[i]
		s.mu.Lock()
		for _, k := range slices.SortedFunc(maps.Keys(s.m), leaseKey.compare) { // in one order, so that imagined worlds repeat themselves
			l := s.m[k]
			named := limits[k.limit.Name]
			if l.Ended(now) || named != nil && named.For(k.key) != k.limit {
				l.retire()
			}
			more := l.id != (ID{}) && l.Ends(now)
			if !l.asking && (more || len(l.old) > 0) {
				n.askLeaseLocked(l, more)
			}
			if !l.asking && l.Forgotten() {
				delete(s.m, k)
				n.leases.keys.Add(-1)
			}
			l.Tick()
		}
		s.mu.Unlock()
	}
}

// lent is how many leases this node has to give back.
func (n *Node) lent() (sum int) {
	if n.leases.keys.Load() == 0 {
		return 0
	}
	for i := range n.leases.shards {
		s := &n.leases.shards[i]
		s.mu.Lock()
		for _, l := range s.m {
			if l.id != (ID{}) || len(l.old) > 0 || l.asking {
				sum++
			}
		}
		s.mu.Unlock()
	}
	return sum
}

// grantLease is what the holder of a key does when a node, or a client, asks for a lease of it. Decision.Drained says how much it gets.
func (n *Node) grantLease(now limiter.Instant, it *Item) limiter.Decision {
	d := n.table.Peek(now, it.limit, it.Key, it.hash, 0)
	if d.Closed {
		return d
	}
	if it.limit.Unlimited || it.limit.NeverDenies() { // nothing to keep to
		d.Allowed = false
		return d
	}
	members := 1
	if view := n.view.Load(); view != nil {
		members = max(1, view.Active())
	}
	r := it.holdRequest()
	r.Units = min(it.Cost, d.Remaining/int64(leasePart*members))
	if r.Units < limiter.LeaseMin {
		d.Allowed = false
		return d
	}
	var out [1]limiter.Decision
	if n.book.Open(now, []limiter.HoldRequest{r}, out[:]) {
		if h, found := n.book.Get(r.ID); found { // who asks again gets what it got, whatever remains now
			out[0].Drained = h.Units
		}
	}
	return out[0]
}
