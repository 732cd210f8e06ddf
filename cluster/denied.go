package cluster

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/limiter"
)

// A denial says until when: the same cost, or a larger one, is refused until the instant of the next token, whatever else is asked
// meanwhile (limiter.Limit.KeepsDenials). So a node that was denied by the owner of a key need not ask again before that, unless
// something is given back. Of that the owner tells it:
//
//	denied           the node notes until when, and by whom.
//	asked again      it asks the owner, and to be told (AskItem.Tell). The owner denies, notes who wants to be told, and says that it
//	                 will (AnswerItem.Told). So a key that is denied once costs the owner nothing.
//	asked again      it denies by itself.
//	given back       the owner tells those who want to be (Ask.Forget), and answers who has given back when they have heard it
//	                 (denied_watch.go). So who has seen a refund or a reset answered meets no denial from before it.
//	another decides  the owner tells before it gives the key's partition away; and nobody goes by the denial of a node that owns the
//	                 key no more, or is gone.
//	another limit    a denial is one of a limit; whoever asks by another one, after a change of configuration, asks.
//
// What gets lost cannot tell: so a denial is good for deniedLasts, and renewed before that by one request that asks. That is how long
// one may outlive a refund or a reset where a message is lost or a node fails.
const (
	deniedLasts = time.Second
	deniedRenew = deniedLasts / 4       // before its end, one request asks
	deniedAgain = 50 * time.Millisecond // after which another one does, if that was not answered
	deniedWorth = 5 * time.Millisecond  // what ends sooner is not noted
	// deniedMost bounds what is noted, with keys of up to MaxKey bytes. What is denied beyond that is asked for each time.
	deniedMost   = 1 << 14
	deniedShards = 64
)

// denials are what a node was told by the owners of keys that it does not hold.
type denials struct {
	shards [deniedShards]deniedShard
	n      atomic.Int32 // of all shards
}

type deniedShard struct {
	mu     sync.Mutex // guards all below
	m      map[uint64]*denial
	n      int
	forgot limiter.Instant // when the last of some key was to be forgotten: what was asked before that is not promised any more
	swept  limiter.Instant
}

// denial is one key under one limit. Guarded by its shard.
type denial struct {
	limit *limiter.Limit
	key   string
	next  *denial // under another limit, or of another key of that hash
	boot  uint64  // of the owner

	cost, remaining  int64           // it was said to
	retryAt, resetAt limiter.Instant // as it was said, by when it was heard: nobody who waits that long comes too early
	over             limiter.Instant // it may be over from here on: by when it was asked, and if the owner's clock gains
	until            limiter.Instant // it is good until here; 0: nobody tells if it ends
	renew            limiter.Instant // from here on one request asks
	since            limiter.Instant // when it was asked, or the first of those without a gap in between
	told             limiter.Instant // the owner tells until here
}

func (n *Node) deniedShard(hash uint64) *deniedShard { return &n.denials.shards[hash%deniedShards] }

func (s *deniedShard) find(it *Item) *denial {
	d := s.m[it.hash]
	for d != nil && (d.limit != it.limit || d.key != it.Key) {
		d = d.next
	}
	return d
}

// givesBack reports whether an item may make its key freer than it was.
func (it *Item) givesBack() bool { return givesBack(it.Op, it.Cost) }

func givesBack(op Op, cost int64) bool { return op == OpReset || op == OpTake && cost < 0 }

// takes reports whether an item asks for nothing but units.
func (it *Item) takes() bool { return it.Op == OpTake && it.Cost > 0 && it.Terms == (Terms{}) }

// decideAway decides on an item whose key this node does not hold, by what the owner has lent or has said.
func (n *Node) decideAway(now limiter.Instant, it *Item, out *Decision) bool {
	switch {
	case it.delivered: // whoever asks goes on to who holds it
		return false
	case it.givesBack(): // what comes after it in the same request is asked for after it
		n.forget(now, it.hash)
	case n.denials.n.Load() > 0 && it.takes() && n.decideDenied(now, it, out):
		return true
	}
	return it.limit.Consistency == limiter.Leased && n.decideLeased(now, it, out)
}

// decideDenied denies what the owner has just denied. A client that draws IDs may be asking for the second time for what it was given:
// so it is denied here only after so long that an owner would have forgotten that.
func (n *Node) decideDenied(now limiter.Instant, it *Item, out *Decision) bool {
	s := n.deniedShard(it.hash)
	s.mu.Lock()
	d := s.find(it)
	if d == nil {
		s.mu.Unlock()
		return false
	}
	it.tell = now < d.over.Add(deniedLasts) // for what is denied again and again, also when a token has come in between
	denied := now < d.until && it.Cost >= d.cost && it.Cost <= it.limit.Capacity() && (it.ID == ID{} || now >= d.since.Add(recentWindow))
	if denied && now >= d.renew && it.Cost == d.cost {
		d.renew = now.Add(deniedAgain)
		denied = false
	}
	boot := d.boot
	*out = Decision{Source: SourceDenied, Decision: limiter.Decision{
		Limit: it.limit.Capacity(), Remaining: d.remaining,
		RetryAfter: max(1, time.Duration(d.retryAt-now)), ResetAfter: max(0, time.Duration(d.resetAt-now)),
	}}
	s.mu.Unlock()

	view := n.view.Load()
	if !denied || view == nil || n.minority.Load() || n.ownerBoot(now, view, it.hash) != boot {
		*out = Decision{}
		return false
	}
	n.stats.Cached.Add(1)
	out.Owner = view.Members[view.Owner(it.hash)].ID
	return true
}

// ownerBoot is the boot of the owner of the key with this hash, or 0 if that is nobody who is there.
func (n *Node) ownerBoot(now limiter.Instant, view *route, hash uint64) uint64 {
	o := view.Owner(hash)
	if o < 0 || o == view.Self || n.gone(now, view.peers[o]) {
		return 0
	}
	return view.Members[o].Boot
}

// heard notes what a node has answered to an item that was sent alone or with others, not to stand or fall with them.
func (n *Node) heard(sent, now limiter.Instant, view *route, it *Item, c *Call, a *AnswerItem) {
	switch d := &a.Decision; {
	case it.givesBack():
		n.forget(now, it.hash)
	case d.Allowed || c.Ask.Atomic || d.RetryAfter < deniedWorth || !it.takes() || !it.limit.KeepsDenials():
	case d.Hold != limiter.HoldNone || a.Degraded || a.Owner != "" || n.ownerBoot(now, view, it.hash) != c.To.Boot:
	default:
		n.noteDenial(sent, now, it, c.To.Boot, a)
	}
	if it.limit.Consistency == limiter.Leased {
		n.heardLease(sent, it, &a.Decision)
	}
}

func (n *Node) noteDenial(sent, now limiter.Instant, it *Item, boot uint64, a *AnswerItem) {
	retry := a.Decision.RetryAfter
	fresh := denial{
		limit: it.limit, boot: boot, cost: it.Cost, remaining: a.Decision.Remaining,
		retryAt: now.Add(retry), resetAt: now.Add(a.Decision.ResetAfter),
		over: sent.Add(retry - retry/clockGain), since: sent,
	}
	s := n.deniedShard(it.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Told && sent > s.forgot {
		fresh.until = min(fresh.over, sent.Add(deniedLasts))
		if fresh.renew = fresh.until; fresh.until < fresh.over {
			fresh.renew = fresh.until.Add(-deniedRenew)
		}
		fresh.told = min(fresh.over, sent.Add(watchLasts-watchLasts/clockGain))
	}
	old := s.find(it)
	switch {
	case old != nil && now < old.until && (fresh.until == 0 || old.cost < fresh.cost): // that one says more
		return
	case old != nil:
		if sent <= old.told && old.cost <= fresh.cost {
			fresh.since = old.since
		}
		fresh.key, fresh.next = old.key, old.next
		*old = fresh
		return
	case s.n >= deniedMost/deniedShards:
		if n.sweepDenialsLocked(now, s); s.n >= deniedMost/deniedShards {
			return
		}
	}
	if s.m == nil {
		s.m = make(map[uint64]*denial)
	}
	d := new(denial) // most answers only renew one
	*d = fresh
	d.key, d.next = strings.Clone(it.Key), s.m[it.hash]
	s.m[it.hash] = d
	s.n++
	n.denials.n.Add(1)
}

// clockGain is the part of a span by which the clock of one machine may be faster than that of another, at most.
const clockGain = 1000

// forget ends what was denied of the keys with these hashes, and what is on its way.
func (n *Node) forget(now limiter.Instant, hashes ...uint64) {
	for _, hash := range hashes {
		s := n.deniedShard(hash)
		s.mu.Lock()
		s.forgot = max(s.forgot, now)
		for d := s.m[hash]; d != nil; d = d.next {
			s.n--
			n.denials.n.Add(-1)
		}
		delete(s.m, hash)
		s.mu.Unlock()
	}
}

// tendDenialsLocked drops what is over, and promises to tell that are. It is called in each tick.
func (n *Node) tendDenialsLocked(now limiter.Instant) {
	for i := 0; i < deniedShards && n.denials.n.Load() > 0; i++ {
		s := &n.denials.shards[i]
		s.mu.Lock()
		n.sweepDenialsLocked(now, s)
		s.mu.Unlock()
	}
	n.sweepWatches(now, int(n.ticks%watchShards))
}

// sweepDenialsLocked drops what is over, once in a while: a shard that is full is not looked through for each newcomer.
func (n *Node) sweepDenialsLocked(now limiter.Instant, s *deniedShard) {
	if now < s.swept.Add(deniedLasts/2) {
		return
	}
	s.swept = now
	for hash, first := range s.m {
		var kept *denial
		for d := first; d != nil; {
			next := d.next
			if now < d.over.Add(deniedLasts) {
				d.next, kept = kept, d
			} else {
				s.n--
				n.denials.n.Add(-1)
			}
			d = next
		}
		if kept == nil {
			delete(s.m, hash)
		} else {
			s.m[hash] = kept
		}
	}
}
