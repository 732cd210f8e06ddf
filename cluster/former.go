package cluster

import (
	"time"

	"penstock/limiter"
)

// When the ring changes, the owner of before decides for a partition until the new one has a whole
// copy: for seconds, if the table is large. Requests that asked the new owner first would all make
// a trip more meanwhile. So a request asks the owner of before first, until that one has said of
// some key that it does not hold it: copies of all that goes to one member end together. Any member
// may be asked, so what is remembered here changes no answer. One that does not answer is not asked
// again: the owner may decide.

// formerFirst is for how long after a change of the ring the owner of before is asked first, though
// it has not said no: a node that is asked little would wait for it long after, when it is silent.
const formerFirst = time.Minute

// former is the route of the last other ring, nil if there was none. Its peers begin as holders.
func (r *route) former(now limiter.Instant, old *route) *formerRoute {
	switch {
	case old == nil || old.Ring == nil || old.Secret != r.Secret:
		return nil
	case old.RingHash() == r.RingHash():
		return old.before
	}
	for _, p := range old.peers {
		p.gave.Store(false)
	}
	return &formerRoute{old.View, old.peers, now.Add(formerFirst)}
}

// formerRoute is what is kept of a route.
type formerRoute struct {
	*View
	peers []*peer
	until limiter.Instant
}

// formerOwner is the member to ask first for an item as the owner of before, if that one answers
// and has not given the key away as far as is known; else nobody. Of a debt that some node may have
// charged (debts.go) the owner of now is to hear.
func (r *route) formerOwner(now limiter.Instant, it *flight, hop int) int {
	if r.before == nil || hop > 1 || it.doubt != nil || now >= r.before.until {
		return nobody
	}
	p := r.before.peers[r.before.Owner(it.hash)]
	if p.gave.Load() || p.missed.Load() != 0 || p.gone() || p.Open(now) {
		return nobody
	}
	if i := r.Find(p.id); i >= 0 && i != r.Self && r.peers[i] == p {
		return i
	}
	return nobody
}

// tells notes that p holds a key of another owner, or does not.
func (p *peer) tells(holds bool) {
	if p.gave.Load() == holds {
		p.gave.Store(!holds)
	}
}
