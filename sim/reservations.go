package sim

import (
	"penstock/cluster"
	"penstock/limiter"
)

// reservations are what clients have heard of their reservations, and so what they ask next.
type reservations struct {
	renamed map[cluster.ID]cluster.ID // by a node that has tried again under another ID
	open    map[cluster.ID]bool       // that clients know of and have not settled
	made    uint64                    // by demands
}

func newReservations() reservations {
	return reservations{make(map[cluster.ID]cluster.ID), make(map[cluster.ID]bool), 0}
}

// follows reports whether the client that a follows from has got what it wanted, so that there is
// something to say.
func (c *reservations) follows(a *arrival) bool { return a.of == cluster.ID{} || c.open[a.of] }

// rename has clients speak of the holds that they got.
func (c *reservations) rename(items []cluster.Item) {
	for i := range items {
		it := &items[i]
		if it.Op <= cluster.OpReserve || it.Hold == nil {
			continue
		}
		if id, renamed := c.renamed[it.Hold.ID]; renamed {
			terms := *it.Hold
			terms.ID = id
			it.Hold = &terms
		}
	}
}

// hear notes what a client is answered to its items.
func (c *reservations) hear(r *request, items []cluster.Item, out []cluster.Decision) {
	yes := true
	for i := range out {
		yes = yes && out[i].Allowed
	}
	for i := range min(len(r.items), len(items), len(out)) {
		d, id := &out[i], r.items[i].ID
		granted := d.Allowed && (yes || !r.atomic)
		switch r.items[i].Op {
		case cluster.OpReserve:
			alone := d.Source == cluster.SourceFallback
			if d.ID != id && (granted || !alone) {
				c.renamed[id] = d.ID
			}
			if granted && !alone {
				c.open[d.ID] = true
			}
		case cluster.OpSettle:
			if d.Hold == limiter.HoldSettled && d.Source != cluster.SourceFallback {
				delete(c.open, items[i].Hold.ID)
			}
		}
	}
}
