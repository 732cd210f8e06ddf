package cluster

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// A lease is a hold (limiter.Book) by a node: of a key of a leased limit that it is asked for often, it has some units set
// aside at the holder of the key, and decides on them itself. What is set aside counts as spent there, so all leases and the
// holder together never admit more than the limit. Follow one:
//
//	often asked    forwards of the key are counted; after a few within two ticks it asks for a lease, beside the forwards.
//	granted        at most a (4·N)th of what remains, N being the members, and what the node spends in two ticks. Where little
//	               remains there is none: near the limit every request goes to the holder of the key.
//	spent          by 80 % it asks for the next one, and decides from the first until that comes.
//	settled        what was spent of the first is charged by the message after that; the rest is free again.
//	not needed     after a tick without a request it is settled.
//	node gone      it runs out at the key's holder, and is charged in full.
//
// A lease ends leaseTTL after it was asked for, on this node's clock, and leaseTTL after it was granted on the other's: so it
// is never spent after it has run out. A request that is denied is denied here for a moment as well (deniedFor), unless it
// asks for less; a refund or reset that comes this way ends that.
const (
	leaseTTL   = time.Second
	leaseEarly = 300 * time.Millisecond // before its end a lease in use is renewed, and another one given back
	leaseAfter = 4                      // requests within two ticks
	leaseMin   = 8                      // units; what is less is not worth a message
	leasePart  = 4                      // × members: the part of what remains
	leaseQuiet = 20 * time.Millisecond  // before one is asked for again that was not granted
	deniedMost = 100 * time.Millisecond
	// deniedHeld is deniedFor of a request that failed because of what others have set aside: that may come back any moment.
	deniedHeld = 5 * time.Millisecond
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

	held          // the lease in use; its id is 0 if there is none
	old    []held // to be settled
	asking bool   // a message is under way
	quiet  limiter.Instant

	asked, rate int64 // units since the last tick, and lately in a tick
	hits, past  int   // requests since the last tick, and in the one before

	remaining   int64 // as the holder of the key said last, without what is held here
	resetAt     limiter.Instant
	deniedUntil limiter.Instant
	deniedCost  int64           // that much or more
	retryAt     limiter.Instant // what its RetryAfter said
}

// held is a hold of this node.
type held struct {
	id    ID
	size  int64
	units int64 // of them not spent
	until limiter.Instant
}

// decide decides on cost units, which are at least 1, and reports whether it can, and whether it is time to ask for a lease.
func (l *lease) decide(now limiter.Instant, cost int64, d *Decision) (decided, ask bool) {
	l.asked += cost
	l.hits++
	*d = Decision{Source: SourceLease}
	d.Decision = limiter.Decision{Limit: l.limit.Capacity(), RetryAfter: limiter.Never, ResetAfter: max(0, time.Duration(l.resetAt-now))}
	switch {
	case l.units >= cost && now < l.until:
		l.units -= cost
		d.Allowed, d.Remaining = true, min(l.remaining+l.units, d.Limit)
		return true, !l.asking && now >= l.quiet && 5*l.units <= l.size
	case l.denies(now, cost):
		d.Source = SourceDenied
		d.Remaining, d.RetryAfter = min(l.remaining, cost-1), max(1, time.Duration(l.retryAt-now))
		return true, false
	}
	return false, !l.asking && now >= l.quiet && l.hits+l.past >= leaseAfter
}

// denies reports whether cost units are denied without asking. Until the time that the holder of the key has said, one request
// now and then goes there, in case something was given back; the others need not all follow it.
func (l *lease) denies(now limiter.Instant, cost int64) bool {
	if now >= l.retryAt || cost < l.deniedCost {
		return false
	}
	if now < l.deniedUntil {
		return true
	}
	l.deniedUntil = now.Add(deniedHeld)
	return false
}

// want is how many units to ask for: what is spent in two ticks.
func (l *lease) want() int64 { return max(leaseMin, 2*max(l.rate, l.asked)) }

// retire has what is left of the lease in use settled with the next message.
func (l *lease) retire() {
	if l.id != (ID{}) {
		l.old = append(l.old, l.held)
	}
	l.held = held{}
}

// heard notes what the holder of the key has answered to a request of cost units that was sent at sent.
func (l *lease) heard(sent limiter.Instant, cost int64, d *limiter.Decision) {
	l.remaining, l.resetAt = d.Remaining, sent.Add(d.ResetAfter)
	if d.Allowed {
		l.deniedUntil, l.retryAt = 0, 0
	}
	if d.Allowed || d.RetryAfter < 0 {
		return
	}
	l.retryAt, l.deniedCost = sent.Add(d.RetryAfter), cost
	l.deniedUntil = sent.Add(deniedFor(d))
}

// deniedFor is how long a denial counts here without asking again.
func deniedFor(d *limiter.Decision) time.Duration {
	if d.Hold == limiter.HoldInTheWay {
		return min(d.RetryAfter, deniedHeld)
	}
	return min(d.RetryAfter, deniedMost)
}

func (n *Node) leaseShard(hash uint64) *leaseShard { return &n.leases.shards[hash%leaseShards] }

// decideLeased decides on an item of a leased limit, whose key this node does not hold, if it has a lease for that, or has
// just been told no.
func (n *Node) decideLeased(now limiter.Instant, it *Item, out *Decision) bool {
	if it.Op != OpTake || it.Cost <= 0 || it.Terms != (Terms{}) || it.limit.NeverDenies() {
		if it.Op == OpReset || it.Op == OpTake && it.Cost < 0 || it.Op == OpSettle && it.Hold.ID.Origin&nodeOrigin == 0 {
			n.freeAgain(it)
		}
		return false
	}
	var answer [1]limiter.Decision
	decided, source := false, SourceLease
	take := func() bool {
		decided = n.spendLease(now, it, out)
		answer[0], source = out.Decision, out.Source
		return decided
	}
	if it.ID == (ID{}) {
		take()
	} else if n.recent.once(now, it.ID, ring.Partition(it.hash), answer[:], take) {
		n.stats.Repeated.Add(1)
		decided = true
	}
	if !decided {
		return false
	}
	n.stats.Leased.Add(1)
	*out = Decision{Decision: answer[0], Source: source}
	if view := n.view.Load(); view != nil {
		if o := view.Owner(it.hash); o >= 0 {
			out.Owner = view.Members[o].ID
		}
	}
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
		l.deniedUntil, l.retryAt = 0, 0
	}
	s.mu.Unlock()
}

// heardLease notes what became of a forwarded item of a leased limit.
func (n *Node) heardLease(sent limiter.Instant, it *Item, d *limiter.Decision) {
	if it.Op != OpTake || it.Cost <= 0 || it.Terms != (Terms{}) {
		return
	}
	s := n.leaseShard(it.hash)
	s.mu.Lock()
	if l := s.m[leaseKey{it.limit, it.Key}]; l != nil {
		l.heard(sent, it.Cost, d)
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
	want := l.want()
	s.mu.Unlock()

	r := Request{Deadline: now.Add(leaseTTL / 2)}
	for _, h := range old {
		r.Items = append(r.Items, Item{Key: l.key, Cost: h.size - h.units, Op: OpSettle, Hold: &HoldTerms{ID: h.id}, limit: l.limit, hash: l.hash})
	}
	if more {
		r.Items = append(r.Items, Item{Key: l.key, Cost: want, Op: OpLease, ID: n.nextID(), Hold: &HoldTerms{TTL: leaseTTL, Holder: n.id}, limit: l.limit, hash: l.hash})
	}
	out := make([]Decision, len(r.Items))
	if view := n.view.Load(); view != nil && len(r.Items) > 0 {
		n.checkEach(now, view, &r, out)
		n.confirmOwn(n.clock.Now(), r.Items, out)
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
	if d.Source == SourceFallback && now < h.until.Add(leaseTTL) {
		l.old = append(l.old, h)
	}
}

// granted takes the lease that was asked for at sent into use, if there is one.
func (l *lease) granted(sent limiter.Instant, id ID, d *Decision) {
	switch {
	case d.Source == SourceFallback: // perhaps it was granted, and its answer got lost
		l.old = append(l.old, held{id: id, until: sent.Add(leaseTTL)})
		l.quiet = sent.Add(leaseQuiet)
	case d.Hold == limiter.HoldOpen && d.Drained > 0:
		l.retire()
		l.held = held{id: id, size: d.Drained, units: d.Drained, until: sent.Add(leaseTTL)}
		l.remaining, l.resetAt = d.Remaining, sent.Add(d.ResetAfter)
	default:
		l.quiet = sent.Add(leaseQuiet)
		if l.units == 0 { // what was spent is better charged than set aside
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
			if l.asked == 0 || now >= l.until || named != nil && named.For(k.key) != k.limit {
				l.retire()
			}
			more := l.id != (ID{}) && now >= l.until.Add(-leaseEarly)
			if !l.asking && (more || len(l.old) > 0) {
				n.askLeaseLocked(l, more)
			}
			if !l.asking && l.asked == 0 && l.rate == 0 {
				delete(s.m, k)
				n.leases.keys.Add(-1)
			}
			l.rate, l.asked = max(l.asked, l.rate/2), 0
			l.hits, l.past = 0, l.hits
		}
		s.mu.Unlock()
	}
}

// grantLease is what the holder of a key does when a node asks for a lease of it. Decision.Drained says how much it gets.
func (n *Node) grantLease(now limiter.Instant, it *Item) limiter.Decision {
	d := n.table.Peek(now, it.limit, it.Key, it.hash, 0)
	if d.Closed {
		return d
	}
	members := 1
	if view := n.view.Load(); view != nil {
		members = max(1, view.Active())
	}
	r := it.holdRequest()
	r.Units = min(it.Cost, d.Remaining/int64(leasePart*members))
	if r.Units < leaseMin {
		d.Allowed = false
		return d
	}
	var out [1]limiter.Decision
	if n.book.Open(now, []limiter.HoldRequest{r}, out[:]) {
		out[0].Drained = r.Units
	}
	return out[0]
}
