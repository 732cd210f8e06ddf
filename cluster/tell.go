package cluster

import (
	"slices"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// How an owner tells the nodes that remember its denials when one ends before its time (package
// denial).

const (
	tellTimeout  = 250 * time.Millisecond // how long an answer waits for nodes that do not hear
	forgetAtOnce = 1 << 12                // hashes in a message
)

// telling are the calls that tell others to forget.
type telling struct {
	calls []Call
	peers []*peer
	at    limiter.Instant
}

// tellingOf prepares to tell the nodes that watch keys with these hashes, except one boot. A peer
// that does not answer calls is not waited for.
func (n *Node) tellingOf(now, deadline limiter.Instant, hashes []uint64, but uint64) (t telling) {
	view := n.view.Load()
	if n.watches.Len() == 0 || view == nil {
		return t
	}
	t.at = now
	n.watches.Each(now, hashes, but, func(boot, hash uint64) { t.add(now, deadline, view, boot, hash) })
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

// told ends the promises that were kept. What a node remembers that did not hear ends by itself.
func (n *Node) told(now limiter.Instant, t *telling) {
	for i := range t.calls {
		c := &t.calls[i]
		n.note(t.at, now, t.peers[i], c)
		if c.Err == nil {
			n.watches.Told(t.at, c.To.Boot, c.Ask.Forget)
		}
	}
}

// tell has others hear of what items have given back here, and returns when they have.
func (n *Node) tell(deadline limiter.Instant, items []flight, out []Decision) {
	if n.watches.Len() > 0 {
		n.tellOf(deadline, ownGivenBack(items, out), 0)
	}
}

// tellOf tells the nodes that watch keys with these hashes, but not the boot that has given back
// itself: its answer tells it. If the client's deadline has passed, they are told all the same.
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

// partLocked tells the nodes that watch keys which this node does not own any more. Until they have
// heard, or for tellTimeout, the keys' partitions are not given away (mayGiveLocked): the next
// holder does not know whom to tell.
func (n *Node) partLocked(r *route) {
	if n.watches.Len() == 0 {
		return
	}
	hashes := n.watches.Hashes(func(hash uint64) bool {
		return !r.Owns(hash) || !n.holdings.held[ring.Partition(hash)].Load()
	})
	if len(hashes) == 0 {
		return
	}
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
