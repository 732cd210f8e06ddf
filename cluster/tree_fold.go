package cluster

import (
	"time"

	"penstock/limiter"
)

// fold makes one answer of those of the levels of the i-th item of the run. Its limit, its numbers
// and what is said to the caller are those of the level that speaks for all: the lowest that
// refuses; else the lowest that would and never denies; else the one that is nearest to its end.
// What remains is the least of all levels, and the wait of a denial the longest.
func (run *treeRun) fold(i int, all []Decision) Decision {
	levels := run.levels[i]
	own := &all[levels[0]]
	if len(levels) == 1 {
		return *own
	}
	if op := run.items[levels[0]].Op; op == OpSettle || op == OpExtend {
		return foldHold(levels, all)
	}
	d := all[speaker(levels, all)]
	for _, k := range levels {
		x := &all[k]
		d.Remaining = min(d.Remaining, x.Remaining)
		d.Restarted = d.Restarted || x.Restarted
		if !x.Allowed && !x.along {
			d.RetryAfter = longer(d.RetryAfter, x.RetryAfter)
		}
	}
	d.Owner, d.Source, d.ID = own.Owner, own.Source, own.ID
	if d.Allowed {
		d.Hold = heldBy(levels, all)
	}
	d.doubt(levels, all)
	return d
}

// longer is the longer one of two waits.
func longer(a, b time.Duration) time.Duration {
	if a == limiter.Never || b == limiter.Never {
		return limiter.Never
	}
	return max(a, b)
}

// speaker is the level that the answer names.
func speaker(levels []int, all []Decision) int {
	found, rank := levels[0], 0
	for _, k := range levels {
		r, x := 0, &all[k]
		switch {
		case !x.Allowed && !x.along:
			return k
		case !x.Allowed:
			r = 3
		case x.Over:
			r = 2
		case x.Shadow:
			r = 1
		}
		if r > rank || r == 0 && rank == 0 && x.Remaining < all[found].Remaining {
			found, rank = k, r
		}
	}
	return found
}

// foldHold is what the first level that knows the hold says of it. An answer that is missing counts
// more: the caller asks again, and levels that have answered say the same again. A level that does
// not know the hold has come to the tree since, or counts nothing.
func foldHold(levels []int, all []Decision) Decision {
	d, found := all[levels[0]], false
	for _, k := range levels {
		x := &all[k]
		if x.Source == SourceFallback && !x.Allowed {
			d, found = *x, true
			break
		}
		if !found && x.Hold != limiter.HoldUnknown && x.Hold != limiter.HoldNone {
			d, found = *x, true
		}
	}
	d.ID = all[levels[0]].ID
	d.doubt(levels, all)
	return d
}

// heldBy says what became of a reservation: it is open if one level has set something aside.
func heldBy(levels []int, all []Decision) limiter.HoldState {
	for _, k := range levels {
		if all[k].Hold == limiter.HoldOpen {
			return limiter.HoldOpen
		}
	}
	for _, k := range levels {
		if all[k].Hold != limiter.HoldNone {
			return all[k].Hold
		}
	}
	return limiter.HoldNone
}

// doubt says of d that it is as uncertain as the most uncertain of the levels.
func (d *Decision) doubt(levels []int, all []Decision) {
	d.Degraded, d.Bound = false, 0
	for _, k := range levels {
		x := &all[k]
		if x.Source == SourceFallback {
			d.Source = SourceFallback
		}
		if !x.Degraded {
			continue
		}
		d.Degraded = true
		if d.Bound != Unbounded && x.Bound != Unbounded {
			d.Bound = max(d.Bound, x.Bound)
		} else {
			d.Bound = Unbounded
		}
	}
}
