package sim

import (
	"slices"
	"strings"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Limits in trees have a judge of their own, and worlds of their own (TreeSeeds). It goes by what
// clients see and by what is counted in the end, and by nothing else: a node does not say what each
// level of a check has answered. It holds each level, a limit with a key, to this:
//
//   - of no span of time is more granted than the limit supplies (window): by answers of owners,
//     and beyond what a death may have made the level forget;
//   - where nothing fails, nobody is refused while all levels have room for all that is asked;
//   - in the end each level has counted what was granted under it and below it: exactly that where
//     nothing fails, and else no less, but for what a death may have made it forget, or an
//     eviction where messages get lost. So the counts of a parent are the sum of those of its
//     children, and a refused check has charged none.
//
// What nodes admit without owners is not counted here: shares of a level are those of a limit
// without a parent, which other worlds look at.

// treeJudge judges a world of trees.
type treeJudge struct {
	*common
	levels map[naiveKey]*level
	order  []*level
	asked  map[*request][][]levelTerm // of requests that are under way, for each item
}

// level is a limit with a key.
type level struct {
	spec    *limiter.Spec
	key     string
	owner   *machine
	supply  curve
	heard   window
	granted int64 // to clients, by owners
	maybe   int64 // asked for, and not known to be over
	lost    int64 // that may have been forgotten
	lossy   int64 // the same, where no copy may have come through
	lately  []perishable
	full    time.Duration // when it last lacked room for all that is asked for
}

// levelTerm is an item at one level, from its first visit to the end of its last.
type levelTerm struct {
	level   *level
	heard   int
	cost    int64
	since   time.Duration
	counted bool
	refused bool // a visit was, or a share has answered it
	crossed bool // of two visits one was refused, and the other granted
}

// newTreeJudge is nil if no limit of w has a parent.
func newTreeJudge(c *common) *treeJudge {
	if !slices.ContainsFunc(c.world.rules, func(r limitRule) bool { return r.limit.Parent != "" }) {
		return nil
	}
	return &treeJudge{
		common: c, levels: make(map[naiveKey]*level), asked: make(map[*request][][]levelTerm),
	}
}

// seenFromInside is h if what the node decides for it can be seen before the answer. Levels of
// trees say nothing of themselves.
func (j *judge) seenFromInside(h *hearing) *hearing {
	if j.trees != nil {
		return nil
	}
	return h
}

// levelsOf are the levels that an item charges, its own first.
func (t *treeJudge) levelsOf(it *cluster.Item) (list []*level) {
	w, key := t.world, it.Key
	for l := &w.named[it.Limit].Spec; ; l = &w.named[l.Parent].Spec {
		at := t.levels[naiveKey{l.Name, key}]
		if at == nil {
			at = &level{
				spec: l, key: key, owner: w.owner(key), heard: newWindow(), full: -warmUp,
				supply: curveOf(l, t.clocks()),
			}
			t.levels[naiveKey{l.Name, key}] = at
			t.order = append(t.order, at)
		}
		if list = append(list, at); l.Parent == "" {
			return list
		}
		parts := strings.Split(key, "/") // the parent's key has one part less
		key = strings.Join(parts[:len(parts)-1], "/")
	}
}

// supplied is what the limit of a level has supplied so far.
func (t *treeJudge) supplied(l *level) int64 {
	w := t.world
	if w.plan.quiet() {
		return l.supply.supply(l.owner.clock.start, l.owner.clock.at(w.now))
	}
	return l.supply.supply(0, limiter.Instant(w.now+w.now/500))
}

// posed begins to follow a request, before its first visit.
func (t *treeJudge) posed(r *request) {
	for i := range r.items {
		it := &r.items[i]
		var terms []levelTerm
		for _, l := range t.levelsOf(it) {
			x := levelTerm{level: l, heard: l.heard.ask(t.supplied(l)), since: t.world.now}
			if it.Op == cluster.OpTake {
				x.cost = it.Cost
			}
			l.maybe += x.cost
			terms = append(terms, x)
		}
		t.asked[r] = append(t.asked[r], terms)
	}
}

// released is how long something may be set aside after its request was refused, where nothing
// fails: the way there, and the pause before it is said again.
const released = 500 * time.Millisecond

// left ends a request after its last visit. What it has set aside may be there a little longer.
func (t *treeJudge) left(r *request) {
	for _, terms := range t.asked[r] {
		for i := range terms {
			x := &terms[i]
			x.level.heard.answer(x.heard)
			l, cost := x.level, x.cost
			if x.counted {
				continue
			}
			t.world.at(t.world.now+released, func() {
				l.lacksRoom(t.world.now)
				l.maybe -= cost
			})
		}
	}
	delete(t.asked, r)
}

// closed checks what a client heard.
func (t *treeJudge) closed(h *hearing, out []cluster.Decision) {
	yes := !slices.ContainsFunc(out, func(d cluster.Decision) bool { return !d.Allowed })
	for i := range out {
		it, d, terms := &h.items[i], &out[i], t.asked[h.request][i]
		if !t.answered(h, i, d, terms) {
			return
		}
		if it.Op != cluster.OpTake || it.Cost <= 0 {
			continue
		}
		granted := d.Allowed && (yes || !h.request.atomic) && !d.Degraded
		for k := range terms {
			terms[k].refused = terms[k].refused || !granted
		}
		if t.cross(terms, granted); granted {
			t.grants(terms)
		} else if !d.Allowed && !d.Degraded && t.world.plan.quiet() {
			t.denies(h, it, terms)
		}
	}
}

// answered checks that an answer names a level, and says if it is one without owners.
func (t *treeJudge) answered(
	h *hearing, i int, d *cluster.Decision, terms []levelTerm,
) bool {
	j, it := t.common, &h.items[i]
	j.world.trace.add(happening{
		at: j.world.now, kind: hears, node: h.process.machine, seq: it.ID.Sequence,
		limit: it.Limit, key: it.Key, op: it.Op, cost: it.Cost, allowed: d.Allowed,
		remaining: d.Remaining,
	})
	j.tallies[it.Limit].count(it, d)
	j.checked[honest]++
	j.checked[marked]++
	names := d.Rule != nil && slices.ContainsFunc(terms, func(x levelTerm) bool {
		return x.level.spec.Name == d.Rule.Name
	})
	broken := honest
	switch {
	case !names:
	case d.Source == cluster.SourceFallback && !d.Degraded,
		d.Degraded && j.world.plan.quiet() && !t.outOfTime(h, i):
		broken = marked
	default:
		return true
	}
	j.fail(broken, "%s answers for %s under %s: %s", h.process.machine.id, keyText(it.Key),
		it.Limit, answerText(d))
	return false
}

// outOfTime reports whether the client of h had left less time than its takes need, up to the i-th:
// each begins when the one before is decided. One that two requests contend for takes a way there
// and back for the first attempt, for the end of that, and for each level.
func (t *treeJudge) outOfTime(h *hearing, i int) bool {
	ways := 0
	for _, terms := range t.asked[h.request][:i+1] {
		ways += 2 * (2 + len(terms))
	}
	if !t.tooShort(h, ways) {
		return false
	}
	t.allowed.used[hastyShare]++
	return true
}

// cross forgives, where messages get lost or nodes fail, what was granted to a visit of which
// another one was refused: they share what they set aside, and the one releases it when the other
// has been told yes. It is charged afterwards, as far as there is room.
func (t *treeJudge) cross(terms []levelTerm, granted bool) {
	if t.world.plan.sky == calm {
		return
	}
	for i := range terms {
		if x := &terms[i]; x.refused && (granted || x.counted) && !x.crossed {
			x.crossed = true
			x.level.lost += x.cost
			x.level.heard.forgive(x.cost * x.level.supply.unit)
		}
	}
}

// grants checks a yes of owners at each level, against all spans of time that end now.
func (t *treeJudge) grants(terms []levelTerm) {
	j := t.common
	for i := range terms {
		x := &terms[i]
		if x.counted {
			continue
		}
		x.counted = true
		l := x.level
		l.lacksRoom(j.world.now)
		l.granted, l.maybe = l.granted+x.cost, l.maybe-x.cost
		l.lately = append(l.lately, perishable{at: j.world.now, cost: x.cost})
		l.heard.admit(x.heard, x.cost*l.supply.unit)
		j.checked[bounded]++
		if over := l.heard.excess(l.supply.capacity, t.supplied(l)); over > 0 {
			s := l.spec
			j.fail(bounded, "%s under %s: clients of all nodes, and of all levels below, were "+
				"granted at least %d more than %s %d per %v (burst %d) supplies in some span that "+
				"ends now",
				keyText(l.key), s.Name, (over+l.supply.unit-1)/l.supply.unit, s.Algorithm, s.Limit,
				s.Per, s.Burst)
			return
		}
	}
}

// lacksRoom notes whether the level lacks room for all that is asked for now.
func (l *level) lacksRoom(now time.Duration) bool {
	if l.granted+l.maybe > capacityOf(l.spec) {
		l.full = now
	}
	return l.full == now
}

// denies checks a no in a world in which nothing fails: since the request was posed, a level must
// have lacked room for all that was asked for at a time. A repeat may hear what the first try was
// answered. The judge knows that where nothing comes back before the end.
func (t *treeJudge) denies(h *hearing, it *cluster.Item, terms []levelTerm) {
	j := t.common
	j.checked[useful]++
	for _, x := range terms {
		l := x.level
		if !l.whole() || l.lacksRoom(j.world.now) || l.full >= x.since {
			return
		}
	}
	j.fail(useful, "%s refuses %d of %s under %s, and all levels have room", h.process.machine.id,
		it.Cost, keyText(it.Key), it.Limit)
}

// whole reports whether nothing of the level comes back before the end of the world.
func (l *level) whole() bool {
	switch l.spec.Algorithm {
	case limiter.FixedWindow, limiter.SlidingLog, limiter.TokenBucket:
		return l.spec.Per >= time.Hour
	}
	return false
}

// struck notes a fault, and what each level may forget by it. A crash that nothing else has come
// close to, where no message gets lost, takes what was granted since the heir's copy can have been
// made, and what is being decided; all else may take a capacity.
func (t *treeJudge) struck(f fault) {
	j, w := t.common, t.world
	m := w.machines[f.node]
	lag := replicationInterval + 2*w.network.slowest(m) + 2*w.plan.weather.far
	for _, l := range t.order {
		lost := l.maybe
		for _, x := range l.lately {
			if x.at >= w.now-lag {
				lost += x.cost
			}
		}
		if !t.lone(f) {
			lost = capacityOf(l.spec)
		}
		lost = min(lost, capacityOf(l.spec))
		l.lost += lost
		l.heard.forgive(lost * l.supply.unit)
	}
	j.checked[lossless]++
}

// fenced notes that p has let go of all that it decided for, without a gift: it was evicted, or its
// right ran out. Where messages get lost nobody knows how late the copy is with which the next
// holder begins, so what was granted may be forgotten.
func (t *treeJudge) fenced(p *process) {
	if t.world.plan.weather.loss == 0 {
		return
	}
	for _, l := range t.order {
		if p.stated.decidesFor(t.world.plan.partition(limiter.Hash(l.key))) {
			lost := min(l.granted+l.maybe, capacityOf(l.spec))
			l.lossy += lost
			l.heard.forgive(lost * l.supply.unit)
		}
	}
}

// lone reports whether f is a crash around which nothing else happens.
func (t *treeJudge) lone(f fault) bool {
	p := t.world.plan
	if f.kind != crashes || p.weather.loss > 0 {
		return false
	}
	settles := t.world.plan.settlesIn()
	near := 0
	for _, other := range p.faults {
		if (other.at - f.at).Abs() <= settles {
			near++
		}
	}
	return near == 1
}

// audit compares in the end what the table of p has counted, of what p decides for, with what
// was granted.
func (t *treeJudge) audit(p *process) {
	j := t.common
	counted := make(map[naiveKey]limiter.Decision)
	for i := range p.counters {
		c := &p.counters[i]
		counted[naiveKey{c.limit, c.key}] = c.decision
	}
	for _, l := range t.order {
		if !l.whole() || !p.stated.decidesFor(j.world.plan.partition(limiter.Hash(l.key))) {
			continue
		}
		j.checked[kept]++
		used := int64(0)
		if d, found := counted[naiveKey{l.spec.Name, l.key}]; found {
			used = d.Limit - d.Remaining
		}
		missing := l.granted - used
		if missing > l.lost && missing <= l.lost+l.lossy {
			j.allowed.used[lossyCopy]++
			continue
		}
		if j.world.plan.quiet() && missing != 0 || missing > l.lost {
			j.fail(kept, "in the end %s has %d counted for %s under %s, where %d were granted at "+
				"this level and below, and at most %d may be forgotten", p.machine.id, used,
				keyText(l.key), l.spec.Name, l.granted, l.lost+l.lossy)
			return
		}
	}
}
