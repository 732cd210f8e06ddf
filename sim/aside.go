package sim

import (
	"cmp"
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// Holds, as the judge follows them: every hold that a deciding node was seen to open is written
// down with its units and its deadline, until that node is seen to settle it, or until it has run
// out. So the judge knows for each key what is set aside, and beside the reference of what is
// charged (reference.go) it tells what is left:
//
//   - A take, a reservation or a lease is granted if and only if the reference grants it together
//     with all that is set aside, and what the owner says is left is what the reference has left
//     without that.
//   - The ledger of the node that decides has each of these holds, with these units, and no other.
//     None is gone before its deadline, and none is there long after it.
//   - What is settled is charged, once; what runs out is charged as its limit says; and never more
//     is released than was held.
//   - When nothing is asked any more, nothing is set aside anywhere.
//
// Where a node was lost that knew of holds, its heir may not know of the last of them, or have some
// that are settled. Then nothing is said of what is set aside until all of that has run out; and
// afterwards everything again.

// asideJudge follows holds.
type asideJudge struct {
	*common
	owner   *ownerJudge
	carrier *carrier
	bounded *boundedJudge
	books   books
}

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
	node    *process // that has it as a lease; nil: a client has it
	lasting
	release bool // nothing is charged if it runs out
	adopted bool // found in the ledger of a node that had given it to itself
	lost    bool // the node that decides may not know of it any more
	told    bool // its client knows that it has it
	asked   bool // its client has said that it wants it no more
	ended   bool
}

// lasting is how long a hold lasts: a time to live, on the clock of the process that has opened it,
// or has extended it last. What travels with a copy is the time that is left, and the clock of each
// process that keeps one counts that down.
type lasting struct {
	by    *process
	since time.Duration // when by began to count
	ttl   time.Duration // by its clock
	until time.Duration // when it runs out, at the earliest
	moved bool          // another process than by has decided since
}

// lasts has a hold run out when ttl has gone by on the clock of p since that showed from.
func (x *lasting) lasts(p *process, from limiter.Instant, ttl time.Duration) {
	*x = lasting{p, p.time.when(from), ttl, p.time.when(from.Add(ttl)), false}
}

// moves notes that p decides. A clock that is faster than the one of x.by counts down what is left
// in less time. Its process may have had a copy since the beginning, and need not be p: it may have
// handed its copy on. So the hold lasts as long as the fastest clock of all makes of it.
func (x *lasting) moves(p *process) {
	if x.moved || p == x.by {
		return
	}
	fastest := slices.MaxFunc(p.machine.world.machines, func(m, o *machine) int {
		return cmp.Compare(m.clock.drift, o.clock.drift)
	}).clock
	x.moved = true
	x.until = min(x.until, fastest.when(fastest.at(x.since).Add(x.ttl)))
}

// heldAnswer is what was answered under an ID.
type heldAnswer struct {
	got limiter.Decision
	at  time.Duration
}

// heldAsk is one item about a hold, as the node that decides it hears it.
type heldAsk struct {
	account *account
	op      cluster.Op
	cost    int64
	id      cluster.ID // of the item
	hold    cluster.HoldTerms
	from    *process // the node that asks for a lease
	fallen  bool     // it falls with others
}

// books are what is known of all holds of a world.
type books struct {
	report HoldReport
	open   []*holding
	over   map[cluster.ID]bool
	units  map[cluster.ID]int64 // of holds that clients know of and have not settled
	// of reservations of several owners: the node that was asked may cancel them
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

func newBooks() books {
	return books{
		HoldReport{},
		nil, make(map[cluster.ID]bool),
		make(map[cluster.ID]int64), make(map[cluster.ID]bool),
		make(map[promised]bool), nil,
	}
}

// tickSlack is how much later than its deadline a hold may still be there: nodes look ten times a
// second. And a clock may gain or lose a little until then.
const tickSlack = 250 * time.Millisecond

// doubtLasts is for how long nothing is said of what is set aside after the loss of a node that
// knew of it.
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

// doubt notes that the next node that decides may not know all holds on a, or know some that are
// over.
func (a *account) doubt(now time.Duration) {
	if a.held == nil {
		return
	}
	a.held.doubted = now + doubtLasts + 2*a.spec.Per
	for _, x := range a.held.open {
		x.lost = true
		a.held.doubted = max(a.held.doubted, x.until+doubtLasts)
	}
}

// holds checks what p, which decides for a key, has answered about a hold on it.
func (j *asideJudge) holds(p *process, it *heldAsk, got limiter.Decision) {
	a, w := it.account, j.world
	j.owner.mayDecide(p, a, true)
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
			if p.time.when(p.now().Add(it.hold.TTL)) > x.until {
				x.lasts(p, p.now(), it.hold.TTL)
			}
			j.books.report.Extended++
		} else if got.Hold != limiter.HoldOpen {
			j.missing(p, a, it.hold, got)
		}
	}
}

// takesHeld follows a take, a look or a reset of a key of which something may be set aside.
func (j *asideJudge) takesHeld(p *process, it *asked, got limiter.Decision, fallen bool) {
	a := it.account
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
	if it.op == cluster.OpTake {
		a.took(p, it.cost, got.Allowed)
	}
	j.leftBeside(p, ask, got)
}

// took charges the references for a take of a key of which something may be set aside.
func (a *account) took(p *process, cost int64, allowed bool) {
	r, now, s := &a.reference, p.now(), a.spec
	switch {
	case allowed && cost != 0:
		r.loose.charge(now, s, cost)
		if r.strict != nil {
			r.strict.charge(now, s, cost)
		}
		a.note(p, cost)
	case !allowed && (s.CountRejected || s.Drain):
		if r.strict == nil {
			r.loosen(now, s)
		}
		r.strict.take(now, s, cost)
	}
}
