package sim

import (
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// What may have been charged that the strict reference does not know of: what nodes have admitted
// without the node that decides, and what goes over no line.

// owing is a take that one process has admitted without the node that decides.
type owing struct {
	by *process
	id cluster.ID
}

// promissory is how much is owed, and until when it may be charged.
type promissory struct {
	until time.Duration
	cost  int64
	// how often the process that owes it had begun or ceased to hold a partition by then
	shifted uint64
}

// ownDebts is what p may have charged to itself since then of what it owes: such a report goes over
// no line, so nobody sees it.
func (r *reference) ownDebts(p *process, since time.Duration) (cost int64) {
	for x, d := range r.owed {
		if x.by == p && d.until >= since {
			cost += d.cost
		}
	}
	return cost
}

// payment is a debt that a process which decides has charged by a report, and the process that owes
// it has not heard so.
type payment struct {
	promissory
	to *process
	at time.Duration
}

// owings are what nodes have admitted without the node that decides.
type owings struct {
	owed     map[owing]promissory
	unheard  map[owing]payment
	owedBy   time.Duration // when the last of them is over
	unpaid   int           // how many of them no node that decides has heard of
	debt     int64         // what these come to, where their time does not matter (timed)
	debtEnds time.Duration // when the last of these counts no more
}

// owes notes that p has admitted a take without the node that decides. The node that decides may
// charge it later, within the next minute, and as far as there is room. Until that is over, or it
// is forgotten, it may be missing from what the strict reference has left. Where the time of a
// charge matters, nobody knows how little is left, only how much at most.
func (r *reference) owes(a *account, p *process, id cluster.ID, cost int64) {
	if _, known := r.owed[owing{p, id}]; known {
		return // it says once more what it has said
	}
	if r.owed == nil {
		r.owed = make(map[owing]promissory)
	}
	now := p.machine.world.now
	r.owed[owing{p, id}] = promissory{
		until: now + owedLasts, cost: min(max(0, cost), capacityOf(a.spec)),
		shifted: p.stated.shifted,
	}
	r.unpaid++
	r.owedBy = now + owedLasts
	if timed(a.spec) {
		r.goBlind(p, now, owedLasts+forgets(a.spec))
		return
	}
	r.goBlind(p, now, 0)
	if now > r.debtEnds {
		r.debt = 0
	}
	r.debt = min(everything, r.debt+min(cost, capacityOf(a.spec)))
	r.debtEnds = r.owedBy + forgets(a.spec)
}

// timed reports whether it matters to what is decided under s when something was charged, and not
// only how much.
func timed(s *limiter.Spec) bool { return phased(s) || s.MinGap > 0 }

// owing is what may have been charged beside what the strict reference knows of.
func (r *reference) owing() int64 {
	if r.last > r.debtEnds {
		return 0
	}
	return r.debt
}

// paid notes that p, which decides, has heard of what a process owes, and charged it as far as
// there was room. A second report of it is not charged.
func (r *reference) paid(a *account, p, by *process, id cluster.ID, cost int64) {
	x, now := owing{by, id}, p.machine.world.now
	cost = min(max(0, cost), capacityOf(a.spec)) // on_error: allow admits any cost
	if _, known := r.owed[x]; known {
		r.debts = append(r.debts[max(0, len(r.debts)-mostDebts):],
			charged{at: now, own: p.now(), cost: cost})
	}
	d := r.owed[x]
	if d.until <= now || p != r.by {
		return
	}
	if r.strict == nil {
		strict := r.loose
		r.strict = &strict
	}
	r.strict.charge(p.now(), a.spec, cost)
	r.owed[x] = promissory{until: now}
	r.unpaid--
	if cost > 0 { // what is asked for as the take that it was is still owed here
		if r.unheard == nil {
			r.unheard = make(map[owing]payment)
		}
		r.unheard[x] = payment{promissory{d.until, cost, d.shifted}, p, now}
	}
	if !timed(a.spec) {
		r.debt = max(0, r.debt-cost)
	} else if r.unseen <= now && r.isOwed(now) == 0 {
		r.blind = now + forgets(a.spec)
	}
}

// owesAgain has the key owe once more what was paid to another process than p, which goes on, while
// the process that owes it does not know: it reports the debt to p then, or charges it to itself if
// it is p. One that was given the key while the answer was remembered was told of it.
func (j *carrier) owesAgain(a *account, p *process) {
	r, k, now := &a.reference, j.world.plan.partition(a.hash), j.world.now
	for x, y := range r.unheard {
		given := j.gifts[k] > y.at && j.gifts[k] < y.at+memory && j.claims[k] < y.at
		switch {
		case y.to == p, given:
			continue
		case y.until > now && !x.by.dead:
			r.owed[x] = y.promissory
			r.unpaid++
			if timed(a.spec) {
				r.goBlind(p, now, y.until-now+forgets(a.spec))
			} else {
				r.debt = min(everything, r.debt+y.cost)
			}
		}
		delete(r.unheard, x)
	}
}

// hearsPaid notes which debts a process has heard to be charged by the answer to l.
func (j *carrier) hearsPaid(l *letter) {
	for i := range l.call.Answer.Items {
		it := &l.ask.Items[i]
		if !it.Report || l.call.Answer.Items[i].Status != cluster.StatusDone {
			continue
		}
		if a := j.accounts[it.Limit.Name][it.Key]; a != nil {
			delete(a.reference.unheard, owing{l.from, takeOf(it.ID)})
		}
	}
}

// isOwedBySome reports whether a node has admitted the take without the node that decides.
func (r *reference) isOwedBySome(id cluster.ID) bool {
	for x := range r.owed {
		if x.id == id {
			return true
		}
	}
	return false
}

// mostDebts is how many of the latest debts are remembered.
const mostDebts = 1000

// isOwed is until when something may be charged at most that is owed now.
func (r *reference) isOwed(now time.Duration) (until time.Duration) {
	if r.unpaid == 0 || now >= r.owedBy {
		return 0
	}
	return r.owedBy
}

// goBlind notes that until then charges may come that nobody sees, and how much longer they count.
func (r *reference) goBlind(p *process, until, counts time.Duration) {
	now := p.machine.world.now
	if r.by == nil {
		r.by, r.last = p, now
	}
	if r.came == 0 {
		r.came = max(now, 1) // the first request comes at 0
	}
	r.unseen = max(r.unseen, until)
	r.blind = max(r.blind, until+counts)
}

// reportOrigin is by what the ID of a report differs from its take's.
const reportOrigin = 1 << 62

// takeOf is the ID of the take that a report speaks of.
func takeOf(report cluster.ID) cluster.ID {
	return cluster.ID{Origin: report.Origin ^ reportOrigin, Sequence: report.Sequence}
}

// owedLasts is for how long a node tries to have charged what it has admitted by itself, and a
// little more.
const owedLasts = 62 * time.Second

// isBlind reports whether something may have been charged that the strict reference has not.
func (r *reference) isBlind() bool { return r.isDark() || r.owing() > 0 }

// isDark reports whether nobody knows how much that is.
func (r *reference) isDark() bool { return r.unphased || r.blind != 0 && r.last <= r.blind }

// denies reports whether the most generous reference denies cost as well: then a denial is right,
// whatever else was charged.
func (r *reference) denies(now limiter.Instant, cost int64, s *limiter.Spec) bool {
	return !r.isVague(s) && !r.most(now, s).peek(now, s, cost).Allowed
}

// tells reports whether a denial of cost can be found to be too early.
func (r *reference) tells(cost int64, s *limiter.Spec) bool {
	return !r.isDark() && min(everything, cost)+r.owing() <= capacityOf(s)
}
