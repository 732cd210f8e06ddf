package limiter

import (
	"cmp"
	"slices"
)

// HoldFilter says which holds are asked for. What is empty is not asked for.
type HoldFilter struct {
	Limit, Key, Holder string
}

func (f *HoldFilter) wants(h *Hold) bool {
	return h.State == HoldOpen && (f.Limit == "" || h.Limit.Name == f.Limit) &&
		(f.Key == "" || h.Key == f.Key) && (f.Holder == "" || h.Holder == f.Holder)
}

// firstToRunOut orders holds by their deadlines, and those of one deadline by their ids.
func firstToRunOut(x, y Hold) int {
	return cmp.Or(cmp.Compare(x.Deadline, y.Deadline), x.ID.compare(y.ID))
}

func (id HoldID) compare(other HoldID) int {
	return cmp.Or(cmp.Compare(id.Origin, other.Origin), cmp.Compare(id.Sequence, other.Sequence))
}

// List returns the open holds that f asks for and that this book decides on, those that run out
// first in front, most of them at most; and how many there are. It looks at all holds, and nobody
// opens or settles one meanwhile.
func (b *Ledger) List(f HoldFilter, most int) (list []Hold, there int) {
	first := func() {
		slices.SortFunc(list, firstToRunOut)
		list = list[:min(most, len(list))]
	}
	b.mu.Lock()
	for _, h := range b.holds {
		if !f.wants(h) || !b.open(h.hash) {
			continue
		}
		there++
		if list = append(list, *h); len(list) > 2*most {
			first()
		}
	}
	b.mu.Unlock()
	first()
	return list, there
}
