package cluster

import "penstock/limiter"

// HoldCounts is how many holds are open on the keys that a node decides on, by what they are for.
type HoldCounts struct {
	Permits      int // of a concurrency limit
	Takes        int // parts of takes from several owners, on their way
	Leases       int // of nodes
	Reservations int // of clients: reservations, and leases of client libraries
}

// HoldCounts is Node.HoldCounts.
func (hd *holder) HoldCounts() (c HoldCounts) {
	view := hd.view.Load()
	hd.book.EachOpen(func(h *limiter.Hold) {
		switch {
		case h.Limit.Algorithm == limiter.Concurrency:
			c.Permits++
		case h.Charge: // its ID differs from that of the take in bits that either may have
			c.Takes++
		case view != nil && view.Find(h.Holder) >= 0:
			c.Leases++
		default:
			c.Reservations++
		}
	})
	return c
}
