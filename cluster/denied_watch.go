package cluster

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// A watch is the promise of an owner to tell another node that something was given back to a key of which that one remembers a denial
// (denied.go). It is known by the key's hash alone: whoever is told without need asks once more.
//
// It is noted before the key is looked at for the denial, and looked for after something was given back: so of a denial and a
// refund at the same moment either the denial knows of the refund, or the refund finds the watch. And who is told while the
// denial is on its way, in whatever order they come, goes by what it was told (deniedShard.forgot).

const (
	// watchLasts is longer than a denial is good for, so that who renews one knows that there was no gap.
	watchLasts = 2 * deniedLasts
	// watchesMost bounds the promises. Who is not promised anything asks each time.
	watchesMost  = 1 << 16
	watchShards  = 16
	tellTimeout  = 250 * time.Millisecond // that long an answer waits for who does not hear
	forgetAtOnce = 1 << 12                // hashes in a message
)

// watches are who is to be told of what, at the node that decides.
type watches struct {
	shards [watchShards]watchShard
	n      atomic.Int32
}

type watchShard struct {
	mu sync.Mutex // guards below; no other lock is taken while it is held
	m  map[uint64][]watch
}

type watch struct {
	boot      uint64 // who is to be told
	at, until limiter.Instant
}

func (n *Node) watchShard(hash uint64) *watchShard { return &n.watches.shards[hash%watchShards] }

// promise notes that boot is to be told, if this node is who does: the owner by its own View, which knows that boot.
func (n *Node) promise(now limiter.Instant, boot uint64, it *Item) bool {
	if boot == 0 || !it.takes() || !it.limit.KeepsDenials() {
		return false
	}
	s := n.watchShard(it.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	view := n.view.Load() // in here: a change of the View looks for watches after it
	if view == nil || !view.Owns(it.hash) || !view.hasBoot(boot) {
		return false
	}
	x := watch{boot, now, now.Add(watchLasts)}
	list := s.m[it.hash]
	if i := slices.IndexFunc(list, func(o watch) bool { return o.boot == boot }); i >= 0 {
		list[i] = x
		return true
	}
	if n.watches.n.Load() >= watchesMost {
		return false
	}
	if s.m == nil {
		s.m = make(map[uint64][]watch)
	}
	s.m[it.hash] = append(list, x)
	n.watches.n.Add(1)
	return true
}

// promised reports whether what was decided is a denial that the promise is worth: not one that was remembered, and says when it ended by
// when it was first asked for. If it is not, the promise stays: there may be another denial of that key to keep it for.
func promised(it *Item, out *AnswerItem) bool {
	d := &out.Decision
	return out.Status == StatusDone && !it.again && !d.Allowed && d.RetryAfter > 0 && d.Hold == limiter.HoldNone && !out.Degraded
}

func (n *Node) dropWatchesLocked(s *watchShard, hash uint64, drop func(watch) bool) {
	list, had := s.m[hash]
	if !had {
		return
	}
	kept := slices.DeleteFunc(list, drop)
	n.watches.n.Add(int32(len(kept) - len(list)))
	if len(kept) == 0 {
		delete(s.m, hash)
	} else {
		s.m[hash] = kept
	}
}

// sweepWatches ends the promises of a shard that nobody has renewed.
func (n *Node) sweepWatches(now limiter.Instant, shard int) {
	if n.watches.n.Load() == 0 {
		return
	}
	s := &n.watches.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash := range s.m {
		n.dropWatchesLocked(s, hash, func(x watch) bool { return now >= x.until })
	}
}

// telling are the calls that tell others to forget.
type telling struct {
	calls []Call
	peers []*peer
	at    limiter.Instant
}

// tellingOf prepares to tell whoever watches keys with these hashes, except one boot. Who does not answer calls is not waited for.
func (n *Node) tellingOf(now, deadline limiter.Instant, hashes []uint64, but uint64) (t telling) {
	view := n.view.Load()
	if n.watches.n.Load() == 0 || view == nil {
		return t
	}
	t.at = now
	for _, hash := range hashes {
		s := n.watchShard(hash)
		s.mu.Lock()
		for _, x := range s.m[hash] {
			if x.boot != but && now < x.until {
				t.add(now, deadline, view, x.boot, hash)
			}
		}
		s.mu.Unlock()
	}
	return t
}

func (t *telling) add(now, deadline limiter.Instant, view *route, boot, hash uint64) {
	for i := len(t.calls) - 1; i >= 0; i-- {
		if f := t.calls[i].Ask.Forget; t.peers[i].boot == boot && len(f) < forgetAtOnce {
			t.calls[i].Ask.Forget = append(f, hash)
			return
		}
	}
	i := slices.IndexFunc(view.peers, func(p *peer) bool { return p.boot == boot })
	if i < 0 || view.peers[i].open(now) {
		return
	}
	t.peers = append(t.peers, view.peers[i])
	t.calls = append(t.calls, Call{
		To: *view.member(i), Deadline: deadline,
		Ask: &Ask{Hop: 1, RingHash: view.RingHash(), Deadline: deadline, Forget: []uint64{hash}},
	})
}

// told ends the promises that were kept: not those that were renewed meanwhile.
func (n *Node) told(now limiter.Instant, t *telling) {
	for i := range t.calls {
		c := &t.calls[i]
		n.note(t.at, now, t.peers[i], c)
		if c.Err != nil { // what it remembers ends by itself
			continue
		}
		for _, hash := range c.Ask.Forget {
			s := n.watchShard(hash)
			s.mu.Lock()
			n.dropWatchesLocked(s, hash, func(x watch) bool { return x.boot == c.To.Boot && x.at < t.at })
			s.mu.Unlock()
		}
	}
}

// givenBack are the hashes of the keys to which a has given back something here.
func givenBack(a *Ask, answer *Answer) (hashes []uint64) {
	for i := range a.Items {
		it, out := &a.Items[i], &answer.Items[i]
		if givesBack(it.Op, it.Cost) && out.Status == StatusDone && out.Owner == "" {
			hashes = append(hashes, limiter.Hash(it.Key))
		}
	}
	return hashes
}

// Tells reports whether somebody has to be told of what a has given back, before answer is sent: Confirm does that, and waits.
func (n *Node) Tells(a *Ask, answer *Answer) bool {
	if n.watches.n.Load() == 0 {
		return false
	}
	for _, hash := range givenBack(a, answer) {
		s := n.watchShard(hash)
		s.mu.Lock()
		watched := slices.ContainsFunc(s.m[hash], func(x watch) bool { return x.boot != a.From })
		s.mu.Unlock()
		if watched {
			return true
		}
	}
	return false
}

// GivesBack reports whether Deliver of a may wait to tell others of it (Node.Tells).
func (a *Ask) GivesBack() bool {
	return slices.ContainsFunc(a.Items, func(it AskItem) bool { return givesBack(it.Op, it.Cost) })
}

// tell has others hear of what was given back here by items, and returns when they have.
func (n *Node) tell(deadline limiter.Instant, items []Item, out []Decision) {
	if n.watches.n.Load() > 0 {
		n.tellOf(deadline, ownGivenBack(items, out), 0)
	}
}

// tellOf tells those who watch keys with these hashes, but not the boot that has given back itself: its answer tells it. Where nobody waits
// for an answer any more, they are told all the same.
func (n *Node) tellOf(deadline limiter.Instant, hashes []uint64, but uint64) {
	now := n.clock.Now()
	if len(hashes) > 0 && now >= deadline {
		n.clock.AfterFunc(0, func() { n.tellOf(n.clock.Now().Add(DefaultDeadline), hashes, but) })
		return
	}
	t := n.tellingOf(now, callDeadline(now, deadline, tellTimeout), hashes, but)
	if len(t.calls) > 0 {
		n.net.Call(t.calls)
		n.told(n.clock.Now(), &t)
	}
}

// ownGivenBack are the hashes of the keys to which this node has given back something as who decides.
func ownGivenBack(items []Item, out []Decision) (hashes []uint64) {
	for i := range items {
		if it := &items[i]; it.givesBack() && out[i].Source == SourceOwner {
			hashes = append(hashes, it.hash)
		}
	}
	return hashes
}

// partLocked tells whoever watches keys that this node does not own any more. Until they have heard, or for tellTimeout, the keys'
// partitions are not given away (mayGiveLocked): the next holder does not know whom to tell.
func (n *Node) partLocked(r *route) {
	if n.watches.n.Load() == 0 {
		return
	}
	var hashes []uint64
	for i := range n.watches.shards {
		s := &n.watches.shards[i]
		s.mu.Lock()
		for hash := range s.m {
			if !r.Owns(hash) || !n.holdings.held[ring.Partition(hash)].Load() {
				hashes = append(hashes, hash)
			}
		}
		s.mu.Unlock()
	}
	if len(hashes) == 0 {
		return
	}
	slices.Sort(hashes) // in one order, so that imagined worlds repeat themselves
	for _, hash := range hashes {
		n.parting[uint16(ring.Partition(hash))]++
	}
	n.clock.AfterFunc(0, func() {
		n.tellOf(n.clock.Now().Add(DefaultDeadline), hashes, 0)
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, hash := range hashes {
			p := uint16(ring.Partition(hash))
			if n.parting[p]--; n.parting[p] == 0 {
				delete(n.parting, p)
				n.dueLocked(&n.parts[p])
			}
		}
		n.startPushesLocked()
	})
}
