package judge

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// shrink finds few ops with answers that contradict each other: the answers of all others may be
// forgotten, and there is still no explanation. The costs of those stay: they may have been
// charged.
func (e *explanation) shrink() []*Op {
	own := *e
	own.vague = maps.Clone(e.vague)
	byEnd := slices.SortedFunc(slices.Values(e.ops),
		func(a, b *Op) int { return cmp.Compare(a.End, b.End) })
	// The shortest beginning that contradicts itself. More answers never help, so this is monotone.
	until := func(n int) bool {
		own.vague = maps.Clone(e.vague)
		for _, o := range byEnd[n:] {
			own.vague[o] = true
		}
		return !own.holds()
	}
	n := int(least(int64(len(byEnd)), func(n int64) bool { return until(int(n)) }))
	if !until(n) {
		return nil
	}
	// Then one answer after the other is forgotten, as long as that takes not too long.
	stop := time.Now().Add(10 * time.Second)
	for _, o := range byEnd[:n] {
		if time.Now().After(stop) {
			break
		}
		if own.vague[o] = true; own.holds() {
			delete(own.vague, o)
		}
	}
	var ops []*Op
	for _, o := range e.ops {
		if !own.vague[o] && o.Failed == "" && o.Mark != Marked {
			ops = append(ops, o)
		}
	}
	return ops
}

// around are the faults from shortly before the ops until after them.
func around(ops []*Op, faults []*Fault) (near []*Fault) {
	if len(ops) == 0 {
		return faults
	}
	from, to := ops[0].Start, time.Duration(0)
	for _, o := range ops {
		from, to = min(from, o.Start), max(to, o.End)
	}
	for _, f := range faults {
		if f.Start <= to && f.Settled >= from-time.Second {
			near = append(near, f)
		}
	}
	return near
}
