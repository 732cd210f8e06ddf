package cluster

import (
	"strings"
	"time"

	"penstock/cluster/debts"
	"penstock/limiter"
)

// A settlement says what was used of a hold that this node has opened, or may have.
type settlement struct {
	item flight
	// to be charged by a report if the hold is unknown (multi_owner_take.go); 0: it is not
	take ID
	late limiter.Instant // no owner has said that it was opened: until then it may be yet
}

// lateBy is how long after the deadline of a request that was not answered it may be acted on, as
// far as that is waited for: it may lie in the queue of a node that is paused.
const lateBy = 2 * time.Second

// cancels are the settlements that release what was opened for some items of r, or may have been.
func cancels(r *batch, items []flight, out []Decision) (list []settlement) {
	for i := range items {
		it := &items[i]
		silent := out[i].Source == SourceFallback || out[i].Owner == ""
		// the last: without its heir's copy
		if it.Op == OpReserve && (out[i].Hold == limiter.HoldOpen || silent || out[i].Degraded) {
			list = append(list, it.settlement(r, 0, silent))
		}
	}
	return list
}

// settlement settles the hold that the item of r has opened, by what was used. silent says that
// no owner has answered for it.
func (it *flight) settlement(r *batch, used int64, silent bool) (s settlement) {
	s.item = it.same(AskItem{Op: OpSettle, Cost: used, Hold: &HoldTerms{ID: it.ID}})
	s.item.Key = strings.Clone(it.Key)
	if silent {
		s.late = r.deadline.Add(lateBy)
	}
	return s
}

// Pauses before a node that was not reached is asked to settle once more.
const (
	settleAgain   = 200 * time.Millisecond
	settleAtLeast = 3 * time.Second // once so often
)

// settleLater settles after the answer, again and again until all have heard it.
func (db *debtor) settleLater(list []settlement) {
	if len(list) > 0 {
		db.ledger.SettlementBegins()
		until := db.clock.Now().Add(debts.Lasts)
		db.clock.AfterFunc(0, func() { db.settleUntil(until, settleAgain, list) })
	}
}

func (db *debtor) settleUntil(until limiter.Instant, pause time.Duration, list []settlement) {
	if db.stopped.Load() {
		return
	}
	list = db.settleOnce(db.clock.Now().Add(DefaultDeadline), list)
	if len(list) > 0 && db.clock.Now() < until {
		db.clock.AfterFunc(pause,
			func() { db.settleUntil(until, min(2*pause, settleAtLeast), list) })
		return
	}
	db.ledger.SettlementEnds()
}

// settleOnce settles holds, and returns those of which that has to be said again.
func (db *debtor) settleOnce(deadline limiter.Instant, list []settlement) (again []settlement) {
	now, view := db.clock.Now(), db.view.Load()
	if len(list) == 0 || view == nil || now >= deadline {
		return list
	}
	r, out := batch{
		items: make([]flight, len(list)), deadline: deadline,
		owed: true,
	}, make([]Decision, len(list))
	for i := range list {
		r.items[i] = list[i].item
		r.items[i].ID = db.nextID()
	}
	db.forwarder.checkEach(now, view, &r, out)
	for i, s := range list {
		unheard, unknown := out[i].Owner == "", out[i].Hold == limiter.HoldUnknown
		// of an earlier try of the same request, which was refused
		released := out[i].Hold == limiter.HoldOther
		if (unknown || released) && s.item.Cost > 0 && s.take != (ID{}) {
			report := s.item
			report.ID, report.Op, report.Hold = ofReport(s.take), OpTake, nil
			db.oweReport(now, &report)
			s.item.Cost = 0
		}
		if unheard || unknown && now < s.late {
			again = append(again, s)
		}
	}
	return again
}

// PendingNotices is how much this node has still to say to others of what clients were told:
// settlements, what its shares have admitted, and leases to be given back. A leaving node waits, as
// long as that makes sense, until it is 0; what is not said by then is charged in full.
func (n *Node) PendingNotices() int {
	return n.debts.ledger.Pending() + n.local.leases.Open()
}
