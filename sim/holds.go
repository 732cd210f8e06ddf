package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Holds, as the judge follows them: every hold that somebody who decides was seen to open is
// written down with its units and its deadline, until that one is seen to settle it, or until it
// has run out. So for each key it is known what is set aside, and beside the reference of what is
// charged (reference.go) it tells what is left:
//
//	a take, a reservation or a lease is granted if and only if the reference grants it together with all that is set aside,
//	and what the owner says is left is what the reference has left without that;
//	the book of who decides has each of these holds, with these units, and no other; none is gone before its deadline, and
//	none is there long after it;
//	what is settled is charged, once; what runs out is charged as its limit says; and never more is released than was held;
//	when nothing is asked any more, nothing is set aside anywhere.
//
// Where a node was lost that knew of holds, its heir may not know of the last of them, or have some
// that are settled. Then nothing is said of what is set aside until all of that has run out; and
// afterwards everything again.

// held is what is known of the holds on a key.
type held struct {
	open     []*holding // as they were opened
	doubted  time.Duration
	answers  map[cluster.ID]heldAnswer // what was said last
	borrowed map[*process]*borrowed    // by nodes
}

// holding is one hold.
type holding struct {
	id      cluster.ID
	account *account
	units   int64
	node    *process // who has it as a lease; nil: a client
	// when it runs out, by the clock of who opened it; later, if it was put off
	until   time.Duration
	release bool // nothing is charged if it runs out
	adopted bool // it was found in the book of who had given it to itself
	lost    bool // who decides may not know of it any more
	told    bool // its client knows that it has it
	asked   bool // its client has said that it wants it no more
	ended   bool
}

// heldAnswer is what was answered under an ID.
type heldAnswer struct {
	got limiter.Decision
	at  time.Duration
}

// heldAsk is one item about a hold, as who decides it hears it.
type heldAsk struct {
	account *account
	op      cluster.Op
	cost    int64
	id      cluster.ID // of the item
	hold    cluster.HoldTerms
	from    *process // who asks, for a lease
	fallen  bool     // it falls with others
}

// books are what is known of all holds of a world.
type books struct {
	limits  map[string]bool // of which units are set aside
	report  HoldReport
	open    []*holding
	over    map[cluster.ID]bool
	units   map[cluster.ID]int64      // of holds that clients know of and have not settled
	renamed map[cluster.ID]cluster.ID // of reservations that were tried again
	// of reservations of several owners: who is asked may cancel them
	shared map[cluster.ID]bool
	alone  map[promised]bool // what nodes have let clients reserve of their shares
	// of holds that have just been settled, and are looked at one by one
	batch []cluster.ID
}

// promised is a reservation that a node has let a client have by itself.
type promised struct {
	by *process
	id cluster.ID
}

func newBooks(w *world) books {
	return books{
		w.plan.holding(),
		HoldReport{},
		nil, make(map[cluster.ID]bool),
		make(map[cluster.ID]int64), make(map[cluster.ID]cluster.ID), make(map[cluster.ID]bool),
		make(map[promised]bool), nil,
	}
}

// tickSlack is how much later than its deadline a hold may still be there: nodes look ten times a
// second. And a clock may gain or lose a little until then.
const tickSlack = 250 * time.Millisecond

// doubtLasts is for how long nothing is said of what is set aside after somebody was lost who knew
// of it.
const doubtLasts = 2*longestTTL + 10*time.Second

// holding are the names of the limits of p that somebody may have units of set aside.
func (p *plan) holding() map[string]bool {
	names := make(map[string]bool)
	for i := range p.limits {
		s := &p.limits[i].Spec
		if s.Consistency == limiter.Replicated {
			continue
		}
		if p.traffic.holds || s.Consistency == limiter.Leased ||
			s.Algorithm == limiter.Concurrency {
			names[s.Name] = true
		}
	}
	for i := range p.script {
		for k := range p.script[i].items {
			if it := &p.script[i].items[k]; it.Op >= cluster.OpReserve {
				names[limitName(it)] = true
			}
		}
	}
	for i := range p.demands {
		if p.demands[i].hold.ttl > 0 {
			for _, name := range p.demands[i].limits {
				names[name] = true
			}
		}
	}
	return names
}

func newHeld() *held {
	return &held{
		doubted: -warmUp, answers: make(map[cluster.ID]heldAnswer),
		borrowed: make(map[*process]*borrowed),
	}
}

// sums are how much is set aside: at least, and at most.
func (h *held) sums() (low, high int64) {
	for _, x := range h.open {
		if !x.lost {
			low += x.units
		}
		high += x.units
	}
	return low, high
}

func (h *held) find(id cluster.ID) *holding {
	for _, x := range h.open {
		if x.id == id {
			return x
		}
	}
	return nil
}

// inDoubt reports whether it is open what is set aside.
func (j *judge) inDoubt(a *account) bool { return j.world.now < a.held.doubted }

// doubt notes that who decides from now on may not know all holds on a, or know some that are over.
func (j *judge) doubt(a *account) {
	if a.held == nil {
		return
	}
	a.held.doubted = j.world.now + doubtLasts + 2*a.spec.Per
	for _, x := range a.held.open {
		x.lost = true
		a.held.doubted = max(a.held.doubted, x.until+doubtLasts)
	}
}

// holds checks what p, who decides for a key, has answered about a hold on it.
func (j *judge) holds(p *process, it *heldAsk, got limiter.Decision) {
	a, w := it.account, j.world
	j.mayDecide(p, a, true)
	j.meetHolds(p, a)
	j.books.batch = slices.DeleteFunc(j.books.batch, func(id cluster.ID) bool {
		return id == it.hold.ID
	})
	before, again := a.held.answers[it.id]
	again = again && it.id != (cluster.ID{}) && before.got == got &&
		w.now < before.at+memory+longCarriage
	if it.id != (cluster.ID{}) && !again {
		a.held.answers[it.id] = heldAnswer{got, w.now}
	}
	if again { // it was asked once more
		return
	}
	j.checked[aside]++
	switch it.op {
	case cluster.OpReserve, cluster.OpLease:
		j.opens(p, it, got)
	case cluster.OpSettle:
		j.settles(p, it, got)
	case cluster.OpExtend:
		if x := a.held.find(it.hold.ID); x != nil && got.Hold == limiter.HoldOpen {
			x.until = max(x.until, p.time.when(p.now().Add(it.hold.TTL)))
			j.books.report.Extended++
		} else if got.Hold != limiter.HoldOpen {
			j.missing(p, a, it.hold, got)
		}
	}
}

// opens follows a reservation or a lease.
func (j *judge) opens(p *process, it *heldAsk, got limiter.Decision) {
	a, now := it.account, p.now()
	units := it.cost
	if it.op == cluster.OpLease {
		units = got.Drained
	}
	granted := got.Hold == limiter.HoldOpen && units > 0
	if h, found := p.stated.ledger.get(it.id); granted && found &&
		h.State != limiter.HoldOpen && a.held.find(it.id) == nil {
		// what it answered when it opened that for itself, which nobody saw, and which is over
		return
	}
	if j.opensNothing(p, it, units, granted, got) {
		return
	}
	// it may have opened what it had promised before, and says so again
	unseen := granted && j.books.alone[promised{p, it.id}]
	if !unseen {
		j.grants(p, it, units, granted, got)
	}
	if !granted {
		j.leftBeside(p, it, got)
		return
	}
	x := &holding{id: it.id, account: a, units: units, release: !it.hold.Charge &&
		a.spec.Unsettled == limiter.UnsettledRelease || a.spec.Algorithm == limiter.Concurrency}
	x.until = p.time.when(now.Add(it.hold.TTL))
	if h, found := p.stated.ledger.get(it.id); unseen && found {
		x.until = min(x.until, p.time.when(h.Deadline)) // its time runs since it was opened
	}
	if it.op == cluster.OpReserve {
		j.books.report.Opened++
	} else {
		j.books.report.Leases++
		x.node, x.release = it.from, false
		// who asks may only have sent it on
		if m := j.world.byID[it.hold.Holder]; m != nil && m.process != nil {
			x.node = m.process
		}
	}
	a.held.open = append(a.held.open, x)
	j.books.open = append(j.books.open, x)
	if !unseen {
		j.leftBeside(p, it, got)
	}
}

// opensNothing follows an answer that neither opens a hold nor tells how much room there is, and
// finds those that may not be.
func (j *judge) opensNothing(p *process, it *heldAsk, units int64, granted bool,
	got limiter.Decision,
) bool {
	a := it.account
	switch x := a.held.find(it.id); {
	case granted && x != nil && x.units == units: // it has it already
	case granted && x != nil:
		j.fail(aside, "%s sets %d of %s under %s aside for hold %s, which has %d already",
			p.machine.id, units, keyText(a.key), a.spec.Name, idText(it.id), x.units)
	case granted && j.books.over[it.id] && !j.inDoubt(a):
		j.fail(aside, "%s sets %d of %s under %s aside for hold %s, which is over", p.machine.id,
			units, keyText(a.key), a.spec.Name, idText(it.id))
	case granted && units > it.cost:
		j.fail(aside, "%s sets %d of %s under %s aside where %d were asked for", p.machine.id,
			units, keyText(a.key), a.spec.Name, it.cost)
	case got.Hold > limiter.HoldOpen && got.Hold != limiter.HoldInTheWay:
		// for reasons that no reference knows
	case it.op == cluster.OpLease && !granted: // what is not lent may be there all the same
		j.leftBeside(p, it, got)
	case it.fallen:
	default:
		return false
	}
	return true
}

// grants checks whether what p has granted, or refused, is what the reference says beside all that
// is set aside.
func (j *judge) grants(p *process, it *heldAsk, cost int64, granted bool, got limiter.Decision) {
	a, now := it.account, p.now()
	r, s := &a.reference, a.spec
	low, high := a.held.sums()
	j.checked[exact]++
	strict := r.strict
	if strict == nil {
		strict = &r.loose
	}
	switch {
	case cost <= 0:
	case granted && !r.isVague(s) && !fits(r.most(now, s), now, s, cost+low):
		j.fail(exact, "%s decides on %s of %s under %s:\n  %s\nwhere %d are set aside and a naive limiter, that forgives what may be lost, has:\n  %s", p.machine.id,
			opText(it.op, cost), keyText(a.key), s.Name, decisionText(got), low,
			decisionText(r.loose.peek(now, s, 0)))
	case granted || cost > a.limit.Capacity() || !j.saysAll(a):
	case fits(strict, now, s, cost+high) && !j.adopts(p, a):
		j.fail(useful, "%s decides on %s of %s under %s:\n  %s\nwhere %d are set aside and a naive limiter, that counts as late as may be, has:\n  %s", p.machine.id,
			opText(it.op, cost), keyText(a.key), s.Name, decisionText(got), high,
			decisionText(strict.peek(now, s, 0)))
	}
}

// leftBeside checks what p says is left of a key, after what it has decided.
func (j *judge) leftBeside(p *process, it *heldAsk, got limiter.Decision) {
	a, now := it.account, p.now()
	r, s := &a.reference, a.spec
	if s.MinGap > 0 {
		return
	}
	strict := r.strict
	if strict == nil {
		strict = &r.loose
	}
	low, high := a.held.sums()
	j.checked[exact]++
	if most := max(0, left(r.most(now, s), now, s)-low); got.Remaining > most && !r.isVague(s) {
		j.fail(exact, "%s says after %s of %s under %s:\n  %s\nwhere %d are set aside, and no more than %d can be left", p.machine.id,
			opText(it.op, it.cost), keyText(a.key), s.Name, decisionText(got), low, most)
	} else if least := max(0, left(strict, now, s)-high); got.Remaining < least && j.saysAll(a) &&
		!j.adopts(p, a) {
		j.fail(useful, "%s says after %s of %s under %s:\n  %s\nwhere %d are set aside, and no less than %d can be left", p.machine.id,
			opText(it.op, it.cost), keyText(a.key), s.Name, decisionText(got), high, least)
	}
}

// saysAll reports whether all is known that may be set aside of a, or charged to it.
func (j *judge) saysAll(a *account) bool {
	return j.world.plan.sky == calm && !a.reference.isBlind() && !a.reference.isHeld() &&
		!j.inDoubt(a)
}

// fits reports whether st grants cost.
func fits(st *naiveState, now limiter.Instant, s *limiter.Spec, cost int64) bool {
	return st.peek(now, s, cost).Allowed
}

func left(st *naiveState, now limiter.Instant, s *limiter.Spec) int64 {
	return st.peek(now, s, 0).Remaining
}

// settles follows a settlement.
func (j *judge) settles(p *process, it *heldAsk, got limiter.Decision) {
	a := it.account
	x := a.held.find(it.hold.ID)
	if x == nil || got.Hold != limiter.HoldSettled {
		// it has opened by itself what it had promised
		unseen := j.books.alone[promised{p, it.hold.ID}]
		if x == nil && got.Hold == limiter.HoldSettled && !unseen && !j.books.over[it.hold.ID] &&
			!j.inDoubt(a) && j.world.plan.sky == calm && it.hold.ID.Origin == clientOrigin {
			j.fail(aside, "%s settles hold %s of %s under %s, which nobody has opened",
				p.machine.id, idText(it.hold.ID), keyText(a.key), a.spec.Name)
		}
		j.missing(p, a, it.hold, got)
		return
	}
	if x.node != nil && it.cost > x.units {
		j.fail(aside, "%s charges %d for a lease of %d on %s under %s", p.machine.id, it.cost,
			x.units, keyText(a.key), a.spec.Name)
	}
	j.books.report.Settled++
	j.closes(p, x, it.cost)
	j.leftBeside(p, it, got)
}

// missing checks that p says with reason that there is no such hold.
func (j *judge) missing(p *process, a *account, terms cluster.HoldTerms, got limiter.Decision) {
	x := a.held.find(terms.ID)
	if x == nil || x.lost || j.inDoubt(a) || got.Hold == limiter.HoldOpen ||
		got.Hold == limiter.HoldForeign || j.world.now >= x.until-tickSlack {
		return
	}
	j.fail(aside, "%s says of hold %s, %d of %s under %s, until %v, that it is not open (state %d)",
		p.machine.id, idText(x.id), x.units, keyText(a.key), a.spec.Name, x.until, got.Hold)
}

// closes ends a hold: used is charged, as far as capacity and debt reach, and the rest is free.
func (j *judge) closes(p *process, x *holding, used int64) {
	a := x.account
	r, now := &a.reference, p.now()
	j.ends(x)
	if b := a.held.borrowed[x.node]; b != nil {
		b.charged += used
	}
	if used <= 0 || a.spec.Algorithm == limiter.Concurrency {
		return
	}
	// charged: what there was no room for is not, and how much room there was is known in between
	surely := used
	full := false
	if r.isBlind() || j.inDoubt(a) {
		h, _ := p.stated.ledger.get(x.id)
		full = h.exhausted
	}
	if full && r.strict == nil {
		r.strict = r.loose.copy()
	}
	switch {
	case r.strict == nil:
	case a.spec.Algorithm == limiter.TokenBucket:
		surely = r.strict.report(now, a.spec, used)
	default: // all of it: what does not fit now might have, had less been charged before
		surely = r.strict.copy().report(now, a.spec, used)
		r.strict.charge(now, a.spec, used)
	}
	if full {
		// what nobody has seen may have left no room for it, and then it is not charged, or not all
		// of it
		return
	}
	a.note(p, r.loose.report(now, a.spec, surely))
}

func (j *judge) ends(x *holding) {
	same := func(y *holding) bool { return x == y }
	x.ended = true
	x.account.held.open = slices.DeleteFunc(x.account.held.open, same)
	j.books.open = slices.DeleteFunc(j.books.open, same)
	j.books.over[x.id] = true
}

// report charges what has been spent, as far as capacity and debt reach, and returns how much that
// is.
func (st *naiveState) report(now limiter.Instant, s *limiter.Spec, cost int64) int64 {
	debtor := *s
	switch s.Algorithm {
	case limiter.GCRA, limiter.LeakyBucket:
		debtor.Burst += s.MaxDebt
	default:
		debtor.Limit += s.MaxDebt
	}
	debtor.MinGap, debtor.Strict, debtor.Drain, debtor.CountRejected = 0, false, false, false
	n := min(cost, st.peek(now, &debtor, 0).Remaining)
	if n > 0 {
		st.take(now, &debtor, n)
	}
	return n
}

// takesHeld follows a take, a look or a reset of a key of which something may be set aside.
func (j *judge) takesHeld(p *process, it *asked, got limiter.Decision, fallen bool) {
	a, now := it.account, p.now()
	j.meetHolds(p, a)
	r, s := &a.reference, a.spec
	ask := &heldAsk{account: a, op: it.op, cost: it.cost, id: it.id}
	switch {
	case it.op == cluster.OpReset:
		r.loose = naiveState{}
		if r.strict != nil {
			r.strict = &naiveState{}
		}
		return
	case s.Algorithm == limiter.Concurrency, fallen:
		return
	}
	j.grants(p, ask, it.cost, got.Allowed, got)
	if it.op == cluster.OpPeek && got.Allowed && it.cost > 0 {
		return // it says what would be left
	}
	if it.op == cluster.OpTake && got.Allowed && it.cost != 0 {
		r.loose.charge(now, s, it.cost)
		if r.strict != nil {
			r.strict.charge(now, s, it.cost)
		}
		a.note(p, it.cost)
	} else if it.op == cluster.OpTake && !got.Allowed && (s.CountRejected || s.Drain) {
		if r.strict == nil {
			r.loosen(now, s)
		}
		r.strict.take(now, s, it.cost)
	}
	j.leftBeside(p, ask, got)
}

// settling notes which holds items are about to settle: the books are ahead of the judge by then.
func (j *judge) settling(ask *cluster.Ask, q *cluster.Request) {
	j.books.batch = j.books.batch[:0]
	if len(j.books.limits) == 0 {
		return
	}
	if ask != nil {
		for i := range ask.Items {
			if it := &ask.Items[i]; it.Op == cluster.OpSettle {
				j.books.batch = append(j.books.batch, it.Hold.ID)
			}
		}
		return
	}
	for i := 0; q != nil && i < len(q.Items); i++ {
		if it := &q.Items[i]; it.Op == cluster.OpSettle {
			j.books.batch = append(j.books.batch, it.Hold.ID)
		}
	}
}
