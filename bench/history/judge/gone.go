package judge

import (
	"slices"
	"strings"
	"time"
)

// What a fault may forget for good is also seen later: in the settlement of a hold that is
// forgotten, and in the marks of counters that began anew.

// begunAnew is the fault at which both members failed that knew the counter of a key, if the
// promise about that explains why o is marked: with all of the limit, until a window has passed.
// The windows are longer than a run.
func (h *History) begunAnew(o *Op) *Fault {
	if o.Failed != "" || o.Mark != Marked || o.Source == "fallback" ||
		o.Bound != h.limit(o.Limit).Capacity {
		return nil
	}
	for _, f := range h.Faults {
		if f.forgetsAll() && f.Start <= o.End {
			if owner := h.ownerBefore(o, f); owner == "" || slices.Contains(f.Nodes, owner) {
				return f
			}
		}
	}
	return nil
}

// ownerBefore is the node that decided for the key of o before a fault, by the answers since the
// fault before it; empty: nobody has asked.
func (h *History) ownerBefore(o *Op, f *Fault) (owner string) {
	i := slices.Index(h.Faults, f)
	since := time.Duration(-1)
	if i > 0 {
		since = h.Faults[i-1].Settled
	}
	for _, x := range h.byKey[o.Limit+"/"+o.Key] {
		if x.Start > since && x.End < f.Start && x.Owner != "" && x.Failed == "" {
			owner = x.Owner
		}
	}
	return owner
}

// holdForgotten says that o settles a hold that a fault may have forgotten: it was answered by an
// owner so shortly before it failed that no other member may know the hold, or the owner and its
// heir failed at once.
func (h *History) holdForgotten(o *Op) bool {
	if o.Kind != Settle || o.Hold == 0 || !strings.Contains(o.Failed, "no hold of this id") ||
		h.limit(o.Limit).Sync {
		return false
	}
	i := slices.IndexFunc(
		h.byKey[o.Limit+"/"+o.Key],
		func(x *Op) bool { return x.Number == o.Hold },
	)
	if i < 0 {
		return false
	}
	hold := h.byKey[o.Limit+"/"+o.Key][i]
	return slices.ContainsFunc(h.Faults, func(f *Fault) bool {
		from := f.Start - f.Slack
		if f.forgetsAll() {
			from = 0
		}
		return f.Forgets && slices.Contains(f.Nodes, hold.Owner) &&
			hold.overlaps(from, f.Struck+f.After)
	})
}

// limit is the limit of a name; of one that is not known nothing is promised.
func (h *History) limit(name string) *Limit {
	for i := range h.Limits {
		if h.Limits[i].Name == name {
			return &h.Limits[i]
		}
	}
	return &Limit{}
}

// index sorts the ops by key.
func (h *History) index() {
	h.byKey = make(map[string][]*Op)
	for _, o := range h.Ops {
		name := o.Limit + "/" + o.Key
		h.byKey[name] = append(h.byKey[name], o)
	}
	for _, ops := range h.byKey {
		slices.SortStableFunc(ops, func(a, b *Op) int { return int(a.End - b.End) })
	}
}
