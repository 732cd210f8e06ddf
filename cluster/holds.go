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

// OpenHolds lists the open holds that f asks for, on keys that this node decides for, those that
// run out first in front; most of them at most, and how many there are. So of all nodes together
// each hold comes once, although others have copies. If f has a key that another node decides for,
// elsewhere is that node, as far as is known, and else "".
func (n *Node) OpenHolds(f limiter.HoldFilter, most int) (list []OpenHold, there int, elsewhere string) {
	if hash := limiter.Hash(f.Key); f.Key != "" && !n.Holds(hash) {
		elsewhere = "another node"
		if v := n.View(); v != nil && v.Owner(hash) >= 0 && v.Owner(hash) != v.Self {
			elsewhere = v.Members[v.Owner(hash)].ID
		}
		return nil, 0, elsewhere
	}
	now := n.clock.Now()
	holds, there := n.book.List(f, most)
	for i := range holds {
		h := &holds[i]
		list = append(list, OpenHold{h.Limit.Name, h.Key, h.Holder, h.Units, max(0, time.Duration(h.Deadline-now))})
	}
	return list, there, ""
}
