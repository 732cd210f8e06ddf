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
// partition's holder was evicted every member sees from two configurations in a row; a newcomer
// hears it in the answers to its claim (StandingBereft). The mark belongs to the counters: it goes
// with their copies, and so with a gift (Move.Lack).

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
		n.holdings.lack(p, now)
		n.stats.Bereft.Add(1)
	}
	pt.bereft = false
}

// lack notes that the counters of a partition begin at some instant, and others were forgotten.
func (h *holdings) lack(p int, began limiter.Instant) {
	h.began[p].Store(int64(began))
	h.bereft.Store(true)
}

// tellLacking says in m, which begins or lends copies, of which of them counters were forgotten,
// and when that was last: to mark a little longer is no harm.
func (h *holdings) tellLacking(now limiter.Instant, m *Move) {
	if !h.bereft.Load() {
		return
	}
	for _, list := range [][]uint16{m.Begin, m.Lent} {
		for _, p := range list {
			began := h.began[p].Load()
			if began == 0 {
				continue
			}
			age := time.Duration(int64(now) - began)
			if len(m.Lack.Of) == 0 || age < m.Lack.Age {
				m.Lack.Age = age
			}
			m.Lack.Of = append(m.Lack.Of, p)
		}
	}
}

// hearLacking notes what m says of copies that this node keeps from now on.
func (h *holdings) hearLacking(now limiter.Instant, m *Move) {
	for _, p := range m.Begin {
		if int(p) < len(h.held) && !h.held[p].Load() {
			h.began[p].Store(0)
		}
	}
	for _, p := range m.Lack.Of {
		if int(p) < len(h.held) && !h.held[p].Load() {
			h.lack(int(p), now.Add(-max(0, m.Lack.Age)))
		}
	}
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
