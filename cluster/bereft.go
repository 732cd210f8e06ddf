package cluster

import (
	"slices"
	"time"

	"penstock/cluster/ownership"
	"penstock/limiter"
)

// When a holder and the member that has its copy are gone at once, the next holder begins with
// nothing, or with a part of a copy. It cannot know what was admitted, so until a whole window has
// passed it marks what it decides with the most that may have been forgotten (property 6 of the
// protocol). A whole copy (part.whole) is what the holder, or a member that lends one, says to be
// whole. Without one nothing is forgotten only where no node has decided before: as long as no
// member has gone. That one has, members see from two configurations in a row; a newcomer hears it
// in the answers to its claim (StandingBereft), or knows it by itself if gossip called a process
// ACTIVE that is not a member of its first configuration. So it does if it comes back with a file
// that is not the last of a node that was stopped in order, or awaits the file of a member in vain:
// that one may have known more. The mark belongs to the counters: it goes with their copies, and so
// with a gift (Move.Lack), and into a file (FileHead).

// bereave notes whether a member has gone when next followed last.
func (h *holdings) bereave(last, next *ownership.Configuration) {
	if last != nil &&
		slices.ContainsFunc(
			last.Members,
			func(m ownership.Member) bool { return !next.Has(m.Boot) },
		) {
		h.gone = true
	}
}

// succeed notes whether one of the processes that decided before this node was a member is none: it
// may have ended together with all that it knew, and this cluster may have been founded anew.
func (h *holdings) succeed(before []uint64, roll *roll) {
	if slices.ContainsFunc(before, func(process uint64) bool { return !roll.hasProcess(process) }) {
		h.gone = true
	}
}

// beginLocked notes with what counters a holder begins. bereft: another node may have decided
// before.
func (ps *partitions) beginLocked(now limiter.Instant, p int, bereft bool) {
	if bereft && !ps.list[p].whole {
		ps.lack(p, now)
		ps.stats.Bereft.Add(1)
	}
}

// free is how a node stands to a partition that it neither holds nor has a copy of.
func (h *holdings) free() Standing {
	if h.gone {
		return StandingBereft
	}
	return StandingFree
}

// complete notes of which partitions m completes the copies: those that its sender holds, and those
// that it lends. A lent copy counts at the member that should hold the partition, for that one has
// kept all of it: another one may have been told meanwhile to forget the part that had come before.
// Nor does another one note which holder's copy was lent: it would tell a claimer so.
func (h *holdings) complete(r *route, parts []part, m *Move) {
	of := m.lentOf()
	for _, p := range m.Whole {
		if int(p) >= len(parts) || h.held[p].Load() {
			continue
		}
		lent := slices.Contains(m.Lent, p) && r.Ring != nil && r.should(int(p))
		switch {
		case lent:
			parts[p].whole, parts[p].lentOf = true, of[p]
		case parts[p].copyOf == m.From:
			parts[p].whole, parts[p].lentOf = true, 0
		}
	}
}

// lack notes that the counters of a partition begin at some instant, and others were forgotten.
func (h *holdings) lack(p int, began limiter.Instant) {
	h.bereftAt[p].Store(int64(began))
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
			began := h.bereftAt[p].Load()
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
			h.bereftAt[p].Store(0)
		}
	}
	began := now.Add(-max(0, m.Lack.Age))
	for _, p := range m.Lack.Of {
		// of several that lend, each knows what it has forgotten itself
		if int(p) < len(h.held) && !h.held[p].Load() && h.bereftAt[p].Load() < int64(began) {
			h.lack(int(p), began)
		}
	}
}

// forgetful reports whether what was admitted under a limit before this node began to hold the key
// may be forgotten and still count.
func (ps *partitions) forgetful(now limiter.Instant, it *flight) bool {
	if !ps.bereft.Load() || it.Limit.Unlimited {
		return false
	}
	began := ps.bereftAt[ps.partition(it.hash)].Load()
	return began != 0 && now < limiter.Instant(began).Add(it.Limit.CountsFor())
}
