package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Two nodes that cannot hear each other may both decide for a key for a while, and each then goes
// by what it has counted itself. What one of them keeps comes back when it decides again, or is
// merged with what the other has when they meet. So the strictest reference is the more consumed of
// all that anybody may still have.

// ownCount is what a process may have that has decided for a key, when another one goes on.
type ownCount struct {
	process       *process
	strict, loose naiveState // on its clock
	begun         uint64     // how often it had begun to hold something
	noted         uint64     // how many decisions had charged something
}

// ownOf is what p had when it last decided, if it has never stopped to hold the key since: it has
// that still, whatever others have decided meanwhile. Both of a pair that has parted go on so.
func (r *reference) ownOf(p *process) *ownCount {
	for i := range r.others {
		if x := &r.others[i]; x.process == p && x.begun == p.stated.begun {
			own := *x
			return &own
		}
	}
	return nil
}

// chargedAfter is what was charged after so many decisions that charged something.
func (r *reference) chargedAfter(noted uint64) (units int64) {
	for _, x := range r.past {
		if x.nth > noted {
			units += max(0, x.cost)
		}
	}
	return units
}

// chargedSince is what was charged since then.
func (r *reference) chargedSince(since time.Duration) (units int64) {
	for _, x := range r.past {
		if x.at > since {
			units += max(0, x.cost)
		}
	}
	return units
}

// keep notes what the last to decide has, when p goes on. If it has just given that away, the
// process that took it has it: mostly p, but the half of a pair from which the giver has parted
// goes on beside that one.
func (j *carrier) keep(a *account, before, p *process) {
	r, k := &a.reference, j.world.plan.partition(a.hash)
	if j.world.plan.sky == calm {
		return
	}
	r.others = slices.DeleteFunc(r.others, func(x ownCount) bool { return x.process == before })
	has, begun := before, r.begun
	if j.givers[k] == before && j.gifts[k] > r.last && !before.saysItDecides(a.hash) {
		if has, begun = j.takers[k], neverBegun; has == nil || has == p {
			return
		}
	}
	st := r.loose
	if r.strict != nil {
		st = *r.strict
	}
	if back := j.gaveBack(a); back > 0 {
		st = *st.copy()
		st.charge(before.now(), a.spec, back)
	}
	if has != before {
		there := has.now()
		st.travel(a.spec, time.Duration(there-before.now())+j.carriage(), there)
	}
	r.others = append(r.others, ownCount{has, st, r.loose, begun, r.noted})
}

// neverBegun marks what a process was given, and has not decided on: it may have more than that.
const neverBegun = 1<<64 - 1

// gaveBack is how much the last to decide has given back since trouble began. A message that nobody
// has confirmed is sent again as it was, so what it says may be from before that.
func (j *carrier) gaveBack(a *account) (back int64) {
	since := j.troubles.since(a.reference.last)
	for _, x := range a.reference.past {
		if x.at >= since && x.cost < 0 {
			back = min(capacityOf(a.spec), back-max(x.cost, -everything))
		}
	}
	return back
}

// merge has the strictest reference, which was carried to p, count what others may have brought
// there, and what p itself has counted before. They may have met as soon as the last decision was
// taken: what has run out since may have counted then, and lasts as long as the later of the two.
func (j *carrier) merge(a *account, p *process) {
	r, s, at := &a.reference, a.spec, p.now()
	ago := r.last - j.world.now
	r.others = slices.DeleteFunc(r.others, func(x ownCount) bool {
		st, there := x.strict, x.process.now()
		if asNew(&st, there.Add(ago), s) && !r.unphased {
			return true
		}
		if x.process != p {
			st.travel(s, time.Duration(at-there)+j.carriage(), at)
		}
		r.strict.merge(&st, at.Add(ago), s)
		return x.process == p
	})
}

// meets has the strictest reference count what p, which decides, is sent by another process that
// holds the key as well, because neither had heard of the other: what that one has counted for
// itself; or, if it has decided nothing, what it had a copy of, which has travelled there and back.
// A process that has decided before and holds it no more may also send what nobody had confirmed
// when it was cut off. The larger counts, so what p has given back since is taken away again: a cut
// may cost that, and nothing extra is admitted.
func (j *carrier) meets(from, p *process, m *cluster.Move) {
	if j.world.plan.sky == calm {
		return
	}
	for i := range m.Entries {
		a := j.accounts[m.Entries[i].Limit.Name][m.Entries[i].Key]
		if a == nil || a.reference.by != p || !p.saysItDecides(a.hash) {
			continue
		}
		r, at := &a.reference, p.now()
		k := slices.IndexFunc(r.others, func(x ownCount) bool { return x.process == from })
		if k < 0 && !from.saysItDecides(a.hash) &&
			!slices.Contains(m.Gift, uint16(j.world.plan.partition(a.hash))) {
			continue
		}
		if r.strict == nil {
			strict := r.loose
			r.strict = &strict
		}
		st, there := *r.strict, at
		if k >= 0 {
			st, there = r.others[k].strict, from.now()
		}
		st.travel(a.spec, time.Duration(at-there)+j.carriage(), at)
		r.strict.merge(&st, at, a.spec)
		r.came = j.world.now
	}
}

// merge makes of two states of a key the one in which more is consumed.
func (st *naiveState) merge(o *naiveState, now limiter.Instant, s *limiter.Spec) {
	o = o.copy()
	if s.Algorithm != limiter.TokenBucket {
		st.take(now, s, 0) // as they stand now
		o.take(now, s, 0)
	}
	switch s.Algorithm {
	case limiter.GCRA, limiter.LeakyBucket:
		st.used = max(st.used, o.used)
	case limiter.TokenBucket:
		if o.phased {
			missing, mark := st.tokensAt(now, s)
			more, later := o.tokensAt(now, s)
			st.missing, st.mark, st.phased = max(missing, more), max(mark, later), true
		}
	case limiter.SlidingLog:
		live := func(log []limiter.Instant) []limiter.Instant {
			return slices.DeleteFunc(slices.Clone(log), func(t limiter.Instant) bool {
				return t.Add(s.Per) <= now
			})
		}
		long, short := live(st.log), live(o.log)
		if len(long) < len(short) {
			long, short = short, long
		}
		for i, t := range short { // rank by rank, from the newest
			k := len(long) - len(short) + i
			long[k] = max(long[k], t)
		}
		st.log = long
	case limiter.SlidingCounter:
		st.counts = largerSums(st.counts, o.counts)
	default:
		if o.count+o.previous > 0 {
			st.start, st.end = max(st.start, o.start), max(st.end, o.end)
			both := max(st.count+st.previous, o.count+o.previous)
			st.count = max(st.count, o.count)
			st.previous = both - st.count
		}
	}
}

// largerSums is, of two lists of counts from the oldest on, the least one of which since each
// moment as much is counted as in either.
func largerSums(a, b []part) (both []part) {
	var inA, inB, counted int64
	for i, k := len(a), len(b); i+k > 0; {
		var x part
		if i > 0 {
			x = a[i-1]
		}
		if k > 0 && (i == 0 || b[k-1].begin > x.begin) {
			x = b[k-1]
		}
		if i > 0 && a[i-1].begin == x.begin {
			i--
			inA += a[i].count
		}
		if k > 0 && b[k-1].begin == x.begin {
			k--
			inB += b[k].count
		}
		if x.count = max(inA, inB) - counted; x.count > 0 {
			counted += x.count
			both = append(both, x)
		}
	}
	slices.Reverse(both)
	return both
}

// troubles are the times in which something keeps nodes from telling each other what they have
// counted, earliest first.
type troubles []trouble

type trouble struct{ from, to time.Duration }

// troublesOf finds them in what is going to happen. What comes within longCarriage of the end of
// one is the same.
func troublesOf(faults []fault) (all troubles) {
	open := make(map[fault]time.Duration) // since when
	add := func(from, to time.Duration) { all = append(all, trouble{from, to}) }
	end := func(f fault, at time.Duration) {
		if since, known := open[f]; known {
			add(since, at)
			delete(open, f)
		}
	}
	for _, f := range faults {
		x := fault{kind: f.kind, node: f.node}
		switch f.kind {
		case cuts:
			if x.peer = f.peer; open[x] == 0 {
				open[x] = f.at
			}
		case freezes:
			if open[x] == 0 {
				open[x] = f.at
			}
		case mends:
			end(fault{kind: cuts, node: f.node, peer: f.peer}, f.at)
		case thaws:
			end(fault{kind: freezes, node: f.node}, f.at)
		case crashes:
			add(f.at, f.at)
			end(fault{kind: freezes, node: f.node}, f.at)
		}
	}
	for _, since := range open {
		add(since, 1<<62)
	}
	slices.SortFunc(all, func(a, b trouble) int { return int(a.from - b.from) })
	merged := all[:0]
	for _, x := range all {
		if n := len(merged); n > 0 && x.from <= merged[n-1].to+longCarriage {
			merged[n-1].to = max(merged[n-1].to, x.to)
		} else {
			merged = append(merged, x)
		}
	}
	return merged
}

// since is the earliest time from which on somebody may not know at t what was counted.
func (all troubles) since(t time.Duration) time.Duration {
	for _, x := range all {
		if x.from <= t && t <= x.to+longCarriage {
			return x.from - longCarriage
		}
	}
	return t
}
