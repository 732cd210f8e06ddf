package cluster

import "penstock/limiter"

// When the ring changes, the owner of before decides for a partition until the new one has a whole
// copy: for seconds, if the table is large. Requests that asked the new owner first would all make
// a trip more meanwhile. So a request asks the owner of before first, until that one has said of
// some key that it does not hold it: copies of all that goes to one member end together. Any member
// may be asked, so what is remembered here changes no answer.

// former is the route of the last other ring, nil if there was none. Its peers begin as holders.
func (r *route) former(old *route) *formerRoute {
	switch {
	case old == nil || old.Ring == nil || old.Secret != r.Secret:
		return nil
	case old.RingHash() == r.RingHash():
		return old.before
	}
	for _, p := range old.peers {
		p.gave.Store(false)
	}
	return &formerRoute{old.View, old.peers}
}

// formerRoute is what is kept of a route.
type formerRoute struct {
	*View
	peers []*peer
}

// formerOwner is the member that owned a key before, if it answers and has not given it away as far
// as is known; else nobody.
func (r *route) formerOwner(now limiter.Instant, hash uint64) int {
	if r.before == nil {
		return nobody
	}
	p := r.before.peers[r.before.Owner(hash)]
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
