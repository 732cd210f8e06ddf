package cluster

import (
	"strings"
	"sync/atomic"

	"penstock/limiter"
)

// A candidate is a limit that is tried beside a live one (limiter.Limit.Candidate). Follow one
// check under a limit that has one:
//
//  1. The live limit has decided, and its answer is on its way (Node.Check).
//  2. offerCandidates makes a request of its own of what was asked, under the candidate's name. So
//     a candidate's counters live where the live ones do, and are handed over and copied as these
//     are.
//  3. If this node holds all its keys, it decides at once. Otherwise the request is sent beside the
//     caller's, which does not wait for it.
//  4. Both answers are compared in a CandidateTally. Nothing else comes of the candidate's.
//
// What a check charges and returns, a candidate is charged and given back too, and a reservation is
// charged with what it sets aside; a settlement is not seen.

// maxOffered bounds the items that wait for the answer of another node to a candidate's request.
const maxOffered = 10_000

// CandidateTally compares the answers of a candidate with those of the live limit, at one node's
// client doors, since the candidate has been in force.
type CandidateTally struct {
	Allowed      uint64 // the candidate would have admitted
	Denied       uint64 // it would have refused
	NewlyDenied  uint64 // of Denied: the live limit has admitted
	NewlyAllowed uint64 // of Allowed: the live limit has refused
	Unknown      uint64 // not offered for want of room, or not answered by the key's owner
}

// candidate is a candidate in force.
type candidate struct {
	limit *limiter.Limit

	allowed, denied, newlyDenied, newlyAllowed, unknown atomic.Uint64
}

// candidates are those in force, by the names of their live limits, and how many items wait.
type candidates struct {
	inForce atomic.Pointer[map[string]*candidate] // nil: there is none
	waiting atomic.Int64
}

// keepLocked puts the candidates of limits in force, beside the limits. A candidate that stays
// keeps what it has counted. A limit in force keeps its name, also from a candidate.
func (c *candidates) keepLocked(all Limits, inForce map[string]limitInForce) {
	var old map[string]*candidate
	if m := c.inForce.Load(); m != nil {
		old = *m
	}
	fresh := map[string]*candidate{}
	for name, l := range all {
		tried := l.Candidate()
		if tried == nil || all[tried.Name] != nil {
			continue
		}
		if k := old[name]; k != nil && k.limit.SameAs(tried) {
			fresh[name] = k
		} else {
			fresh[name] = &candidate{limit: tried}
		}
		inForce[tried.Name] = limitInForce{limit: tried, tally: &tally{apart: true}}
	}
	if len(fresh) == 0 {
		c.inForce.Store(nil)
		return
	}
	c.inForce.Store(&fresh)
}

// offer is an item for a candidate, and what the live limit has said.
type offer struct {
	to      *candidate
	limit   string // the name of the limit that it is tried beside
	allowed bool
}

// offerCandidates shows the candidates what b has asked and out has answered.
func offerCandidates(n *Node, now limiter.Instant, b *batch, out []Decision) {
	inForce := n.stats.candidates.inForce.Load()
	if inForce == nil {
		return
	}
	var items []Item
	var offers []offer
	here := true
	for i := range b.items {
		it := &b.items[i]
		c := (*inForce)[it.Limit.Name] // no limit that a request brings along has such a name
		if c == nil || !it.offered() {
			continue
		}
		items = append(items, c.item(it))
		offers = append(offers, offer{
			c, it.Limit.Name, out[i].Allowed && !out[i].overruled(),
		})
		here = here && n.holder.decides(now, it.hash)
	}
	switch {
	case len(items) == 0:
	case here:
		ask(n, items, offers)
	case n.stats.candidates.waiting.Add(int64(len(items))) > maxOffered:
		n.stats.candidates.waiting.Add(-int64(len(items)))
		for _, o := range offers {
			o.to.unknown.Add(1)
		}
	default:
		for i := range items {
			items[i].Key = strings.Clone(items[i].Key) // the caller may use its memory again
		}
		n.clock.AfterFunc(0, func() {
			defer n.stats.candidates.waiting.Add(-int64(len(items)))
			ask(n, items, offers)
		})
	}
}

// offered reports whether a candidate is shown the item: what only looks is not.
func (it *flight) offered() bool {
	return it.Op == OpReset || it.Op == OpReserve || it.Op == OpTake && !it.peeks()
}

// item is what the candidate is asked for it. Its ID follows from that of it, so that a repeated
// request is counted once.
func (c *candidate) item(it *flight) Item {
	own := Item{Limit: c.limit.Name, Key: it.Key, Cost: it.Cost, Op: it.Op, Terms: it.Terms}
	if _, err := c.limit.Under(it.Limit.Plan(), it.Key); err == nil {
		own.Plan = it.Limit.Plan()
	}
	if it.Op == OpReserve {
		own.Op, own.Terms = OpTake, Terms{}
	}
	if it.ID != (ID{}) && it.ID.Origin&nodeOrigin == 0 {
		own.ID = ID{Origin: it.ID.Origin ^ limiter.Hash(c.limit.Name), Sequence: it.ID.Sequence}
	}
	if own.Terms != (Terms{}) {
		if r := own.of(own.Cost); c.limit.Accepts(&r) != nil {
			own.Terms = Terms{} // of another algorithm
		}
	}
	return own
}

// ask has candidates answer their offers, and counts the answers.
func ask(n *Node, items []Item, offers []offer) {
	out := make([]Decision, len(items))
	err := n.Check(&Request{Items: items}, out)
	for i, o := range offers {
		switch d := &out[i]; {
		case items[i].Op != OpTake || items[i].Cost < 0:
		case err != nil || d.Source == SourceFallback:
			o.to.unknown.Add(1)
		case d.Allowed:
			o.to.allowed.Add(1)
			if !o.allowed {
				o.to.newlyAllowed.Add(1)
			}
		default:
			o.to.denied.Add(1)
			if o.allowed {
				o.to.newlyDenied.Add(1)
				n.showNewlyDenied(&o, items[i].Key)
			}
		}
	}
}

// Candidates are the tallies of the candidates in force, by the names of their live limits.
func (s *Stats) Candidates() map[string]CandidateTally {
	inForce := s.candidates.inForce.Load()
	if inForce == nil {
		return nil
	}
	sums := make(map[string]CandidateTally, len(*inForce))
	for name, c := range *inForce {
		sums[name] = CandidateTally{
			Allowed: c.allowed.Load(), Denied: c.denied.Load(), Unknown: c.unknown.Load(),
			NewlyDenied: c.newlyDenied.Load(), NewlyAllowed: c.newlyAllowed.Load(),
		}
	}
	return sums
}
