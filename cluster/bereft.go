package cluster

import (
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

// When a holder and the member that has its copy are gone at once, the next holder begins with
// nothing. It cannot know what was admitted, so until a whole window has passed it marks what it
// decides with the most that may have been forgotten (property 6 of the protocol). That a
// partition's holder was evicted every member sees from two configurations in a row; who has just
// joined hears it in the answers to its claim (StandingBereft).

// bereaveLocked notes of which partitions the owner was evicted when next followed last.
func (n *Node) bereaveLocked(old *route, last, next *ownership.Configuration) {
	if old == nil || old.Ring == nil || last == nil || n.parts == nil {
		return
	}
	evicted := make(map[string]bool)
	for _, m := range last.Members {
		if m.Role == ownership.RoleOwner && !next.Has(m.Boot) {
			evicted[m.ID] = true
		}
	}
	for p := 0; len(evicted) > 0 && p < ring.Partitions; p++ {
		if evicted[old.Members[old.owner(p)].ID] && !n.holdings.held[p].Load() {
			n.parts[p].bereft = true
		}
	}
}

// beginLocked notes with what a holder begins: nothing of what was admitted before is known if the
// holder before was evicted and nobody has a copy.
func (n *Node) beginLocked(now limiter.Instant, p int, bereft bool) {
	pt := &n.parts[p]
	if bereft && pt.copyOf == 0 {
		n.holdings.began[p].Store(int64(now))
		n.holdings.bereft.Store(true)
		n.stats.Bereft.Add(1)
	}
	pt.bereft = false
}

// forgetful reports whether what was admitted under a limit before this node began to hold the key
// may be forgotten and still count.
func (h *holdings) forgetful(now limiter.Instant, it *Item) bool {
	if !h.bereft.Load() || it.limit.Unlimited {
		return false
	}
	began := h.began[ring.Partition(it.hash)].Load()
	return began != 0 && now < limiter.Instant(began).Add(remembers(it.limit))
}

// remembers is how long what a limit has admitted counts: its period, or as long as its bucket
// takes to be full.
func remembers(l *limiter.Limit) time.Duration {
	refill := l.Limit
	if l.Refill > 0 {
		refill = l.Refill
	}
	if full := l.Capacity(); full > refill && refill > 0 {
		return time.Duration(float64(l.Per) * float64(full) / float64(refill))
	}
	return l.Per
}
