package cluster

import (
	"strings"
	"time"

	"penstock/cluster/debts"
	"penstock/cluster/dedup"
	"penstock/limiter"
)

// What a node admits while no holder of the key answers (shares.go) is not counted. So it is a
// debt (package debts): as soon as a holder of the key answers again, it is told to charge the
// debt, by a report, as far as the limit reaches (and its max_debt). So the excess is
// taken from the units that come after, until the limit is used up; beyond that it stays extra.
//
// A client that has heard nothing from this node may have repeated the take at another one. So the
// holder is asked for the take itself first, under its ID, as long as it would remember that: if it
// has let the take in it says so again, and if there is room it lets it in now. A take that it
// refuses is reported under an ID of its own, so it is charged once as well. If the take itself was
// sent to a node and not answered, that node may have charged it, and is not told again; another
// node, which has taken over since, is. One that was given the key knows what was let in, and
// charges nothing; one that goes on from a copy may count it twice: too little is admitted, never
// too much.
//
// A reservation that was admitted so is a promise: the holder of the key is asked to reserve the
// same amount, under the ID that the client knows, for as long as it was to last. If it has done so
// before, and its answer was lost, it stays one hold. From then on it is a hold like all others.
// Until then this node alone can settle or extend it. What its client has used is then owed, or all
// of it if its deadline has passed. If the limit has no room for the reservation, it is charged
// like a take, as far as the limit reaches.

// debtor has what this node has admitted be charged by the holders of the keys.
type debtor struct {
	*self
	right     *right
	parts     *partitions
	holder    *holder
	forwarder *forwarder
	shares    *shares
	notices   *notices

	ledger debts.Ledger // what this node has admitted and no holder of the key has charged
}

// reportOrigin makes the ID of a report of that of the take. Under its own ID this node remembers
// what its share said.
const reportOrigin = 1 << 62

// ofReport is the ID of the report of a take: that of all its repeats, here and elsewhere, and not
// the take's.
func ofReport(id ID) ID { return ID{Origin: id.Origin ^ reportOrigin, Sequence: id.Sequence} }

// owe notes what of a request has to be charged later, and tells clients of their reservations.
func (db *debtor) owe(now limiter.Instant, r *batch, out []Decision) {
	for i := range out {
		it := &r.items[i]
		reserved := it.Op == OpReserve
		if out[i].Source != SourceFallback || !out[i].Allowed || out[i].overruled() ||
			it.Op != OpTake && !reserved || it.Cost <= 0 {
			continue
		}
		// by now: the node may have been stopped since it was asked, and the client repeats a take
		// that is not answered
		x, room := it.debt(db.clock.Now()), true
		x.Report, x.Doubt = ofReport(it.ID), it.doubt
		if !reserved && it.takesAlone(r) {
			x.Take = it.ID
		}
		if reserved {
			x.Client = it.Hold.Client
			holder, deadline := strings.Clone(it.Hold.Holder), now.Add(it.Hold.TTL)
			if room = db.ledger.Promise(it.ID, &x, holder, deadline); room {
				out[i].Hold = limiter.HoldOpen
			}
		} else if !it.again {
			room = db.ledger.Owe(&x)
		}
		if !room {
			db.stats.Forgiven.Add(1)
		}
	}
}

// takesAlone reports whether a holder that is asked for the item again decides on the same take,
// and leaves the key alone if it refuses. An atomic request is remembered as a whole, under the ID
// of its first item.
func (it *flight) takesAlone(r *batch) bool {
	return (!r.atomic || len(r.items) == 1) && !it.child && !it.Report && !it.isFeltIfRefused()
}

// isFeltIfRefused reports whether a take may change its key although it is refused, or is never
// refused. It is not asked for again, but reported.
func (it *flight) isFeltIfRefused() bool {
	l := it.Limit
	return it.Strict || l.CountRejected || l.Strict || l.ClientTime || l.NeverDenies()
}

// debt is the item as a debt, since now, which is reported under the item's ID.
func (it *flight) debt(now limiter.Instant) debts.Debt {
	return debts.Debt{
		Limit: it.Limit, Key: strings.Clone(it.Key), Hash: it.hash,
		Cost: it.Cost, Report: it.ID, At: now,
	}
}

// oweReport has the cost of it charged by the holder of its key.
func (db *debtor) oweReport(now limiter.Instant, it *flight) {
	if x := it.debt(now); !db.ledger.Owe(&x) {
		db.stats.Forgiven.Add(1)
	}
	db.clock.AfterFunc(0, func() {
		db.parts.mu.Lock()
		db.chargeDebtsLocked()
		db.parts.mu.Unlock()
	})
}

// atPromise settles or extends what this node has promised, as far as the holder of the key does
// not know of it yet.
func (db *debtor) atPromise(now limiter.Instant, it *flight, out *Decision) bool {
	if it.Hold == nil {
		return false
	}
	if _, known := db.holder.book.Get(limiter.HoldID(it.Hold.ID)); known &&
		db.holder.decides(now, it.hash) {
		return false
	}
	state, known := db.ledger.Keep(now, &debts.Change{
		ID: it.Hold.ID, Holder: it.Hold.Holder,
		Settle: it.Op == OpSettle, Used: it.Cost, TTL: it.Hold.TTL,
	})
	if !known {
		return false
	}
	look := it.same(AskItem{Op: OpPeek})
	*out = db.shares.fallback(now, db.view.Load(), &look)
	out.Allowed = state == limiter.HoldSettled || state == limiter.HoldOpen
	out.RetryAfter, out.Hold = limiter.Never, state
	return true
}

// chargeDebtsLocked begins to have the debts charged, unless that is under way.
func (db *debtor) chargeDebtsLocked() {
	if !db.stopped.Load() && !db.right.minority.Load() && db.ledger.Begin() {
		db.clock.AfterFunc(0, db.chargeDebts)
	}
}

func (db *debtor) chargeDebts() {
	for db.chargeSome() {
	}
	db.ledger.End()
}

// chargeSome has the oldest debts charged. It reports whether there are others, and a point in
// going on at once.
func (db *debtor) chargeSome() (more bool) {
	now, view := db.clock.Now(), db.view.Load()
	r := &batch{owed: true}
	cautious := &batch{owed: true, cautious: true} // of what may have been charged
	var of, doubted, later []debts.Debt
	var ended []settlement
	for _, x := range db.ledger.Oldest(MaxItems) {
		it := charging(now, &x)
		t := db.forwarder.aim(now, view, r, &it, 1)
		away := !db.holder.decides(now, x.Hash)
		asked := !x.Promised() && away && t >= 0 && x.Doubt.Of(view.peers[t].boot)
		used, over := db.ledger.Spent(now, &x)
		switch {
		case now > x.At.Add(debts.Lasts) && over,
			asked && view.peers[t].heard.Load() > int64(x.At),
			it.mayHaveGivenBack(): // and then it would be given back twice
			db.stats.Forgiven.Add(1)
			db.ledger.Forget(&x)
		case asked, away && t == nobody: // another member may take over
			later = append(later, x)
		case !x.Promised() && x.Doubt != nil:
			cautious.items, doubted = append(cautious.items, it), append(doubted, x)
		case !x.Promised():
			r.items, of = append(r.items, it), append(of, x)
		case over:
			db.stats.Settled.Add(1)
			db.ledger.Forget(&x)
			ended = append(ended, settlementOf(&x, used))
		default:
			r.items, of = append(r.items, db.opening(now, &x)), append(of, x)
		}
	}
	later, ended = db.haveCharged(r, of, later, ended)
	later, ended = db.haveCharged(cautious, doubted, later, ended)
	db.settleLater(ended)
	return db.ledger.Return(later) && len(later) == 0
}

// haveCharged asks the holders of the keys for r. Debts that no holder has answered it adds to
// later, and to ended what is to be settled as well.
func (db *debtor) haveCharged(
	r *batch, of, later []debts.Debt, ended []settlement,
) ([]debts.Debt, []settlement) {
	if len(of) == 0 {
		return later, ended
	}
	now := db.clock.Now() // what was asked before this may have taken long
	r.deadline = now.Add(DefaultDeadline)
	out := make([]Decision, len(of))
	db.forwarder.checkEach(now, db.view.Load(), r, out)
	db.notices.tell(r.deadline, r.items, out)
	for i := range out {
		x := &of[i]
		switch used, over := db.ledger.Spent(now, x); {
		case out[i].Owner == "":
			x.Doubt = r.items[i].doubt
			later = append(later, *x)
		case x.Promised() && out[i].Hold != limiter.HoldOpen && out[i].Hold != limiter.HoldOther:
			// There is no room for it.
			if db.ledger.Forget(x); used != 0 {
				later = append(later, x.AsTake(used))
			}
		case r.items[i].ID == x.Take && !out[i].Allowed:
			x.Take = ID{} // a report charges it as far as the limit reaches
			later = append(later, *x)
		default:
			db.stats.Settled.Add(1)
			db.ledger.Forget(x)
			if x.Promised() && over { // meanwhile
				ended = append(ended, settlementOf(x, used))
			}
		}
	}
	return later, ended
}

// owing asks something of the key of a debt.
func owing(x *debts.Debt, asked AskItem) flight {
	asked.Limit, asked.Key = x.Limit, x.Key
	return flight{AskItem: asked, hash: x.Hash}
}

// charging asks for the take that was admitted, or reports it.
func charging(now limiter.Instant, x *debts.Debt) flight {
	it := owing(x, AskItem{Cost: x.Cost, ID: x.Report, Terms: Terms{Report: true}})
	if x.Take != (ID{}) && now <= x.At.Add(dedup.Lasts) {
		it = owing(x, AskItem{Cost: x.Cost, ID: x.Take})
	}
	it.doubt, it.owed = x.Doubt, true
	return it
}

// opening asks the holder of the key to reserve what was promised.
func (db *debtor) opening(now limiter.Instant, x *debts.Debt) flight {
	holder, deadline := db.ledger.Terms(x)
	ttl := max(limiter.MinTTL, min(limiter.MaxTTL, time.Duration(deadline-now)))
	return owing(x, AskItem{
		Cost: x.Cost, Op: OpReserve, ID: ofReport(x.Report), Hold: &HoldTerms{
			TTL:    ttl,
			Holder: holder,
			Client: x.Client,
		},
	})
}

// settlementOf settles the hold that may have been opened for a promise.
func settlementOf(x *debts.Debt, used int64) settlement {
	return settlement{
		item: owing(x, AskItem{Op: OpSettle, Cost: used, Hold: &HoldTerms{ID: ofReport(x.Report)}}),
		take: ofReport(x.Report), late: x.At.Add(DefaultDeadline + lateBy),
	}
}
