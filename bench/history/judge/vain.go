package judge

import (
	"slices"
	"time"
)

// A request may be under way when the owner of its key fails. The owner has charged it, and its
// answer is lost; the node that decides next has heard neither of the charge nor of its id, and
// charges it as well. Others may have been told by the first owner what remained then. Its charge
// is forgotten with all that it had admitted so late, before the fault is over.

// lapse is a charge in vain that may be made, or its end.
type lapse struct {
	bit  uint64 // of the request, in count.vain and count.over
	cost int64
	ends bool
}

// mostLapses is how many requests of a key may be charged in vain: count has a bit for each.
const mostLapses = 64

// chargedInVain are the ops that f may have had charged in vain: they were asked for before it
// struck, and another node has decided on them since than the one that did before.
func (k *key) chargedInVain(f *Fault) (ops []*Op) {
	if _, any := f.lately(k.limit); !any || !slices.Contains(f.Nodes, k.ownerUntil(f.Start)) {
		return nil
	}
	for _, o := range k.ops {
		if o.Kind == Take && o.admitted() && o.Mark == Unmarked && o.Start <= f.Struck &&
			o.End > f.Start && o.Owner != "" && !slices.Contains(f.Nodes, o.Owner) {
			ops = append(ops, o)
		}
	}
	return ops
}

// ownerUntil is the node that has decided last for a key, by the answers until then.
func (k *key) ownerUntil(then time.Duration) (owner string) {
	last := time.Duration(-1)
	for _, o := range k.ops {
		if o.End < then && o.End > last && o.Failed == "" && o.Mark == Unmarked && o.Owner != "" {
			owner, last = o.Owner, o.End
		}
	}
	return owner
}

// lapses adds the charges in vain, and their ends.
func (e *explanation) lapses(add func(s *step, from, to time.Duration)) {
	n := 0
	for _, f := range e.key.faults {
		since, _ := f.lately(e.key.limit)
		for _, o := range e.key.chargedInVain(f) {
			if n == mostLapses || e.vague[o] {
				continue
			}
			l := lapse{bit: 1 << n, cost: o.Cost}
			n++
			add(&step{lapse: &l}, max(o.Start, since), f.Struck+f.After)
			end := l
			end.ends = true
			add(&step{lapse: &end}, f.Start, f.Settled+time.Second)
		}
	}
}

// with is what c may be after l: the owner has charged it or has not, and what it has charged it
// has forgotten in the end.
func (l *lapse) with(c count) (list []count) {
	if !l.ends {
		list = append(list, c)
		if c.over&l.bit == 0 {
			c.used, c.vain = c.used+l.cost, c.vain|l.bit
			list = append(list, c)
		}
		return list
	}
	c.over |= l.bit
	if c.vain&l.bit != 0 {
		c.used, c.vain = c.used-l.cost, c.vain&^l.bit
	}
	if c.used < 0 {
		return nil
	}
	return append(list, c)
}
