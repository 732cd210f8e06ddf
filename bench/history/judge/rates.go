package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// bounds adds up the bounds that marked answers stated, the largest of each fault. stated is false
// if an answer had no bound, or could not say that it was marked.
func (k *key) bounds(h *History) (units int64, stated bool) {
	most := map[*Fault]int64{}
	for _, o := range k.ops {
		if o.Failed != "" || o.Mark == Unmarked {
			continue
		}
		if f := h.begunAnew(o); f != nil {
			most[f] = max(most[f], o.Bound)
		}
		for _, f := range k.faults {
			if f.Marks && o.overlaps(f.Start, f.Settled+time.Second) {
				if o.Mark == Unknown && o.admitted() || o.Mark == Marked && o.Bound < 0 {
					return 0, false
				}
				most[f] = max(most[f], o.Bound)
			}
		}
	}
	for _, n := range most {
		units += n
	}
	return units, true
}

// excess is a contradiction about units that are too many.
func (k *key) excess(rule, text string, ops []*Op) *Contradiction {
	return &Contradiction{
		Rule: rule, Fault: k.cause(), Key: k.name, Text: text, Ops: ops,
		At: around(ops, k.faults),
	}
}

// judgeSum: of a counter no more is admitted than its limit, what its faults forgive, and what
// marked answers said.
func judgeSum(h *History, k *key, figures figures, v *Verdict) {
	var plain, all, returned, forgiven int64
	var ops []*Op
	for _, o := range k.ops {
		switch {
		case o.Kind == Settle:
			returned += max(0, o.Held-o.Cost)
		case o.admitted():
			all += o.Cost
			ops = append(ops, o)
			if o.Mark == Unmarked || o.Mark == Unknown && !k.inDoubt(o) {
				plain += o.Cost
			}
		}
	}
	for _, f := range k.faults {
		forgiven += f.forgivable(k.limit, k.ops)
	}
	most := k.limit.Capacity + returned
	f := figures.of(k.cause())
	f.Extra += max(0, all-most)
	f.Worst = max(f.Worst, all-most)
	if plain > most+forgiven {
		v.add(k.excess("0 extra",
			fmt.Sprintf("%d units were admitted by unmarked answers; the limit is %d, and its "+
				"faults excuse %d", plain, most, forgiven), tail(ops)))
	}
	if bound, stated := k.bounds(h); stated && all > most+forgiven+bound {
		v.add(k.excess("covered by bounds",
			fmt.Sprintf("%d units were admitted; the limit is %d, its faults excuse "+
				"%d, and the marked answers said %d at most", all, most, forgiven,
				bound), tail(ops)))
	}
}

// tail is the last of many ops.
func tail(ops []*Op) []*Op {
	return ops[max(0, len(ops)-10):]
}

// judgeRate: in every window no more is admitted than the burst and the refill. The requests of a
// window are those that were asked and answered in it, so each was decided in it.
func judgeRate(k *key, v *Verdict) {
	var ops []*Op
	for _, o := range k.ops {
		if o.charged() > 0 && o.Mark != Marked && !(o.Mark == Unknown && k.inDoubt(o)) {
			ops = append(ops, o)
		}
	}
	slices.SortFunc(ops, func(a, b *Op) int { return cmp.Compare(a.End, b.End) })
	starts := slices.Clone(ops)
	slices.SortFunc(starts, func(a, b *Op) int { return cmp.Compare(a.Start, b.Start) })
	for _, first := range starts {
		var units int64
		for i, o := range ops {
			if o.Start < first.Start {
				continue
			}
			units += o.Cost
			window := o.End - first.Start
			most := k.limit.Capacity + int64(window)*k.limit.PerSecond/int64(time.Second)
			if units <= most {
				continue
			}
			if forgiven := k.forgivenIn(first.Start, o.End); units > most+forgiven {
				v.add(k.excess("0 extra",
					fmt.Sprintf("%d units were admitted within %v by unmarked answers; burst and "+
						"refill are %d, and its faults excuse %d", units, window, most, forgiven),
					between(ops[:i+1], first.Start)))
				return
			}
		}
	}
}

func between(ops []*Op, from time.Duration) (in []*Op) {
	for _, o := range ops {
		if o.Start >= from {
			in = append(in, o)
		}
	}
	return in
}

func (k *key) forgivenIn(from, to time.Duration) (units int64) {
	for _, f := range k.faults {
		if f.Start <= to && f.Settled+time.Second >= from {
			units += f.forgivable(k.limit, k.ops)
		}
	}
	return units
}

// judgePermits: a permit is surely held from when the client heard of it until it returns it. Of
// unmarked ones there are never more than the limit.
func judgePermits(k *key, v *Verdict) {
	type change struct {
		at    time.Duration
		units int64
	}
	var changes []change
	for _, o := range k.ops {
		switch {
		case o.Kind == Settle && !o.Vague:
			changes = append(changes, change{o.Start, -o.Held})
		case o.charged() > 0 && o.Mark == Unmarked:
			changes = append(changes, change{o.End, o.Cost})
		}
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.units, b.units))
	})
	var held int64
	for _, c := range changes {
		held += c.units
		if most := k.limit.Capacity; held > most && held > most+k.forgivenIn(0, c.at) {
			v.add(k.excess("permits at once",
				fmt.Sprintf("%d permits are held at %v; the limit is %d, and its faults "+
					"excuse %d", held, c.at, most, k.forgivenIn(0, c.at)), k.holdersAt(c.at)))
			return
		}
	}
}

// holdersAt are the ops that took the permits that are held at an instant, roughly: the last ones.
func (k *key) holdersAt(at time.Duration) []*Op {
	var ops []*Op
	for _, o := range k.ops {
		if o.End <= at && (o.charged() > 0 || o.Kind == Settle) {
			ops = append(ops, o)
		}
	}
	return tail(ops)
}
