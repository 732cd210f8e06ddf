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
