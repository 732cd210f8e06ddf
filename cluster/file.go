package cluster

import (
	"slices"
	"time"

	"penstock/limiter"
)

// FileHead is what a file says of itself, beside the counters and holds in it.
type FileHead struct {
	// Others are the members besides this node that there should be, for they may know something as
	// well. Of a node that is leaving they are those of before: all may be leaving, and be gone by
	// now.
	Others []string
	Secret Secret // of the cluster; 0: it is not known
	// Partial says that the node went on after the file was written, or that it is damaged. It has
	// to be true of all files but the last one of a node that was stopped in order, also if that is
	// started again and then killed: they lack what was charged later.
	Partial bool
	// Lack says of which partitions counters had been forgotten before.
	Lack []Lack
}

// Same reports whether h and o say the same, whatever the time.
func (h *FileHead) Same(o *FileHead) bool {
	return slices.Equal(h.Others, o.Others) && h.Secret == o.Secret &&
		slices.EqualFunc(h.Lack, o.Lack, func(x, y Lack) bool { return slices.Equal(x.Of, y.Of) })
}

// FileHead is the head of a file that is written now. Without a View its Secret is 0.
func (n *Node) FileHead() FileHead {
	h := FileHead{Others: n.awaits.Others(), Lack: n.parts.lacks(n.clock.Now())}
	if r := n.view.Load(); r != nil {
		h.Secret = r.Secret
	}
	return h
}

// Resume has the node go on from a file with this head, which was written so long ago: it waits for
// the others, and marks what it decides where counters are forgotten. It must be called before the
// first SetView.
func (n *Node) Resume(age time.Duration, h FileHead) {
	n.Membership().Keep(h.Secret)
	n.restorer.resume(n.clock.Now(), age, &h)
	n.awaits.Await(age, h.Others)
}

// lacks is of which partitions counters were forgotten, in the order in which that happened.
func (h *holdings) lacks(now limiter.Instant) (list []Lack) {
	if !h.bereft.Load() {
		return nil
	}
	of := make(map[limiter.Instant][]uint16)
	for p := range h.bereftAt {
		if began := limiter.Instant(h.bereftAt[p].Load()); began != 0 {
			of[began] = append(of[began], uint16(p))
		}
	}
	for began, parts := range of {
		list = append(list, Lack{parts, time.Duration(now - began)})
	}
	slices.SortFunc(list, func(x, y Lack) int { return int(y.Age - x.Age) })
	return list
}
