package cluster

import (
	"time"

	"penstock/limiter"
)

// OpenHold is one hold in a list.
type OpenHold struct {
	Limit, Key, Holder string
	Units              int64
	Left               time.Duration // until it runs out, 0 or more
}

// OpenHolds is Node.OpenHolds.
func (hd *holder) OpenHolds(
	f limiter.HoldFilter, most int,
) (list []OpenHold, there int, elsewhere string) {
	if hash := limiter.Hash(f.Key); f.Key != "" && !hd.Holds(hash) {
		elsewhere = "another node"
		if v := hd.view.Load(); v != nil && v.Owner(hash) >= 0 && v.Owner(hash) != v.Self {
			elsewhere = v.Members[v.Owner(hash)].ID
		}
		return nil, 0, elsewhere
	}
	now := hd.clock.Now()
	holds, there := hd.book.List(f, most)
	for i := range holds {
		h := &holds[i]
		list = append(list,
			OpenHold{h.Limit.Name, h.Key, h.Holder, h.Units, max(0, time.Duration(h.Deadline-now))})
	}
	return list, there, ""
}

// keepHoldsLocked keeps the partitions of the holds of m: a permit has no entry beside it.
func (ik *intake) keepHoldsLocked(m *Move) {
	for i := range m.Holds {
		if p := ik.partition(limiter.Hash(m.Holds[i].Key)); ik.parts.list[p].state < partHeld {
			ik.keepLocked(m, p)
		}
	}
}

// importHolds takes copies over, of keys that are held here or of others. Of what is held here the
// book charges what an earlier holder has charged at the end of a hold, so that comes before the
// state of the key, which has it as well. Holds of keys that are not kept here go with the next
// look (tendHoldsLocked).
func (ik *intake) importHolds(now limiter.Instant, m *Move, held bool) {
	for i := range m.Holds {
		if ik.parts.holds(limiter.Hash(m.Holds[i].Key)) == held {
			h := m.Holds[i].on(now.Add(-max(0, m.Age)))
			ik.holder.book.Import(now, &h)
		}
	}
}
