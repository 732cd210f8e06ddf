package cluster

import (
	"slices"
	"time"

	"penstock/cluster/denial"
	"penstock/limiter"
)

// How an owner tells the nodes that remember its denials when one ends before its time (package
// denial).

// notices are what this node has promised to tell others: that a denial has ended.
type notices struct {
	*self
	parts    *partitions
	copier   *copier
	contacts *contacts

	watches denial.Watches
}

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
func (nt *notices) tellingOf(
	now, deadline limiter.Instant, hashes []uint64, but uint64,
) (t telling) {
	view := nt.view.Load()
	if nt.watches.Len() == 0 || view == nil {
		return t
	}
	t.at = now
	nt.watches.Each(now, hashes, but,
		func(boot, hash uint64) { t.add(now, deadline, view, boot, hash) })
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
	if i < 0 || view.peers[i].Open(now) {
		return
	}
	t.peers = append(t.peers, view.peers[i])
	t.calls = append(t.calls, Call{
		To: *view.member(i), Deadline: deadline,
		Ask: &Ask{Hop: 1, RingHash: view.RingHash(), Deadline: deadline, Forget: []uint64{hash}},
	})
}

// told ends the promises that were kept. What a node remembers that did not hear ends by itself.
func (nt *notices) told(now limiter.Instant, t *telling) {
	for i := range t.calls {
		c := &t.calls[i]
		nt.contacts.note(t.at, now, t.peers[i], c)
		if c.Err == nil {
			nt.watches.Told(t.at, c.To.Boot, c.Ask.Forget)
		}
	}
}

// tell has others hear of what items have given back here, and returns when they have.
func (nt *notices) tell(deadline limiter.Instant, items []flight, out []Decision) {
	if nt.watches.Len() > 0 {
		nt.tellOf(deadline, ownGivenBack(items, out), 0)
	}
}

// tellOf tells the nodes that watch keys with these hashes, but not the boot that has given back
// itself: its answer tells it. If the client's deadline has passed, they are told all the same.
func (nt *notices) tellOf(deadline limiter.Instant, hashes []uint64, but uint64) {
	now := nt.clock.Now()
	if len(hashes) > 0 && now >= deadline {
		nt.clock.AfterFunc(0,
			func() { nt.tellOf(nt.clock.Now().Add(DefaultDeadline), hashes, but) })
		return
	}
	t := nt.tellingOf(now, callDeadline(now, deadline, tellTimeout), hashes, but)
	if len(t.calls) > 0 {
		nt.net.Call(t.calls)
		nt.told(nt.clock.Now(), &t)
	}
}

// partLocked tells the nodes that watch keys which this node does not own any more. Until they have
// heard, or for tellTimeout, the keys' partitions are not given away (mayGiveLocked): the next
// holder does not know which nodes to tell.
func (nt *notices) partLocked(r *route) {
	if nt.watches.Len() == 0 {
		return
	}
	hashes := nt.watches.Hashes(func(hash uint64) bool {
		return !r.Owns(hash) || !nt.parts.held[r.Partition(hash)].Load()
	})
	if len(hashes) == 0 {
		return
	}
	parting := make([]uint16, len(hashes))
	for i, hash := range hashes {
		parting[i] = uint16(r.Partition(hash))
		nt.copier.parting[parting[i]]++
	}
	nt.clock.AfterFunc(0, func() {
		nt.tellOf(nt.clock.Now().Add(DefaultDeadline), hashes, 0)
		nt.parts.mu.Lock()
		defer nt.parts.mu.Unlock()
		for _, p := range parting {
			if nt.copier.parting[p]--; nt.copier.parting[p] == 0 {
				delete(nt.copier.parting, p)
				nt.copier.keepers.dueLocked(&nt.parts.list[p])
			}
		}
		nt.copier.startPushesLocked()
	})
}
