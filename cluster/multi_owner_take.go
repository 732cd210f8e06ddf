package cluster

import (
	"slices"
	"time"

	"penstock/limiter"
)

// A take from several owners that stands or falls as a whole is a set of reservations that the
// client does not see (multi_owner.go). All owners are asked at once to reserve the cost. If none
// refuses, the client hears yes, and the reservations are charged after the answer; else they are
// released. Some items cannot be reserved. They are peeked at instead, and charged by a report with
// the settlements, if all say yes:
//
//   - an item that gives back (a negative cost), a report, and items of replicated limits or of
//     keys that are not counted;
//   - an item of a limit that never denies: it has no say, and is charged if it would be admitted;
//   - a cost above the limit: it is refused.
//
// What becomes of the hold at an owner:
//
//   - The client was told yes: it is charged. If this node dies before it has said so, the hold is
//     charged at its deadline, whatever the limit says.
//   - Another owner has refused: it is released. This node says so until the owner hears it.
//   - This node dies first: it is charged at its deadline, since the answer may have been a yes.
//   - The owner did not answer: the hold may be open, or be opened later, so it is settled as
//     others.
//   - The owner died before its heir had heard of the hold: after a yes it is charged by a report
//     (debts.go).
//
// The part of an owner that does not answer is decided last, by on_error: if any owner has refused,
// it is refused and charged nowhere; if none has, it says yes or no for its limit, and a no
// releases the others.

// A hold of an atomic take lasts as long as its request may, but not for hours if its node crashes;
// and beyond that for the settlement's way.
const (
	holdsAtMost = 10 * time.Second
	holdsBeyond = 2 * time.Second
)

// holdOrigin makes the ID of a hold of that of the take. Under its own ID this node remembers what
// its share said, and an owner what it has decided at once.
const holdOrigin = 1 << 61

// ofHold is the ID of the hold of a take. No client can settle it.
func ofHold(id ID) ID {
	return ID{Origin: (id.Origin ^ holdOrigin) | nodeOrigin, Sequence: id.Sequence}
}

// wholeOrigin makes the ID under which an owner remembers an item of a take that it has decided as
// a whole. Under that of its report it is remembered as well, and so is what a share has let in.
const wholeOrigin = 1 << 59

func ofWhole(id ID) ID { return ID{Origin: id.Origin ^ wholeOrigin, Sequence: id.Sequence} }

// anew is the ID under which a take opens its hold once more, after it has released the first one.
func anew(id ID) ID { return ID{Origin: id.Origin, Sequence: ^id.Sequence} }

// takeAll takes from keys of several owners, all or none.
func (mo *multiOwner) takeAll(now limiter.Instant, view *route, r *batch, out []Decision) error {
	ttl := min(time.Duration(r.deadline-now), holdsAtMost) + holdsBeyond
	asks := &batch{
		items: make([]flight, len(r.items)), deadline: r.deadline, owed: true,
		followed: r.followed, trace: r.trace,
	}
	ids := make([]ID, len(r.items)) // of the items as they were asked; their holds have others
	if r.items[0].ID == (ID{}) {
		r.items[0].ID = mo.nextID()
	}
	nameMates(r.items)
	for i := range r.items {
		it := &r.items[i]
		if err := it.standsWithOthers(i); err != nil {
			return err
		}
		ids[i] = it.ID
		asks.items[i] = *it
		asks.items[i].Op, asks.items[i].Hold = OpReserve, &HoldTerms{TTL: ttl, Charge: true}
		asks.items[i].ID = ofHold(it.ID)
		if it.mayBeReported() { // the owner may have charged it before, with the others
			asks.items[i].Hold.ID = it.ID
		}
		if !it.canHold() || view.Owner(it.hash) < 0 {
			asks.items[i].Op, asks.items[i].Hold = OpPeek, nil
			asks.items[i].Cost = withTwins(r.items[:i], asks.items, it)
		}
	}
	mo.reserveAll(now, view, asks, out)
	granted := mo.granted(asks, out)
	// an heir is silent
	if mo.confirms.confirmOwn(r.deadline, asks.items, out); granted && !mo.granted(asks, out) {
		granted = false
		mo.release(asks, cancels(asks, asks.items, out))
	}
	refuseReleased(asks.items, out)
	now, silent := mo.withoutOwners(r, asks, granted, out)
	if granted {
		mo.conclude(now, r, asks, ids, silent, out)
	}
	unite(r.items, out)
	hideHolds(asks.items, out, !mo.granted(r, out))
	return nil
}

// withoutOwners answers the items of which no node has decided, and says which these are.
func (mo *multiOwner) withoutOwners(
	r, asks *batch, granted bool, out []Decision,
) (now limiter.Instant, silent []bool) {
	silent = make([]bool, len(out))
	for i := range out {
		silent[i] = out[i].Owner == ""
	}
	over := slices.Contains(silent, true) && mo.isOver(r.deadline, r.hungUp)
	now = mo.clock.Now()
	view := mo.view.Load()
	for i := range out {
		switch {
		case !silent[i]:
			r.items[i].ID = asks.items[i].ID
		case over:
			out[i] = mo.shares.undecided(view, &r.items[i])
		default:
			last := r.items[i]
			if !granted {
				last.Op = OpPeek
			}
			out[i] = mo.shares.fallback(now, view, &last)
			r.items[i].again = last.again
		}
	}
	return now, silent
}

// hideHolds has answers say nothing of the holds of asks, which are not the client's.
func hideHolds(asks []flight, out []Decision, released bool) {
	if released {
		showReleased(asks, out)
	}
	for i := range out {
		if out[i].Hold == limiter.HoldOpen {
			out[i].Hold = limiter.HoldNone
		}
	}
}

// showReleased has the answers to a refused request show what remains when nothing is charged and
// all that was set aside is released. An owner has counted what the items before set aside of the
// same key.
func showReleased(asks []flight, out []Decision) {
	for i := range out {
		if out[i].Source != SourceOwner && out[i].Source != SourceForwarded {
			continue
		}
		released := int64(0)
		if a := &asks[i]; a.Op == OpPeek && out[i].Allowed && !out[i].Shadow {
			released = max(0, a.Cost) // only looked at, and never charged
		}
		released, out[i].Drained = released+out[i].Drained, 0
		for k := range asks[:i+1] {
			if out[k].Hold == limiter.HoldOpen && asks[k].sharesCount(&asks[i]) {
				released += asks[k].Cost
			}
		}
		out[i].Remaining += released
		if released > 0 && out[i].Remaining >= out[i].Limit {
			out[i].ResetAfter = 0
		}
	}
}

// ofMate is the ID of the i-th item of a request of which only the first has one: a repeat has the
// same.
func ofMate(id ID, i int) ID {
	return ID{Origin: id.Origin ^ mateOrigin, Sequence: id.Sequence*0x9e3779b97f4a7c15 + uint64(i)}
}

const mateOrigin = 1 << 60

// nameMates gives IDs to items that stand or fall with the first one, if that has one.
func nameMates(items []flight) {
	for i := range items {
		if it := &items[i]; it.ID == (ID{}) && items[0].ID != (ID{}) {
			it.ID = ofMate(items[0].ID, i)
		}
	}
}

// standsWithOthers says why the item, which is the i-th, cannot stand or fall with others of other
// owners.
func (it *flight) standsWithOthers(i int) error {
	const instead = "; it cannot be taken together with keys of other owners: " +
		"take it alone, or together with limits of its own key"
	switch l := it.Limit; {
	case l.ClientTime:
		return inputErrorf(i, "limit",
			"%q goes by its clients' clocks, and nothing of it can be set aside%s", l.Name, instead)
	case l.Algorithm == limiter.Concurrency && it.Cost > 0:
		return inputErrorf(i, "limit",
			"%q counts permits; reserve them: a reservation may have keys of several owners",
			l.Name)
	case it.Drain:
		return inputErrorf(i, "drain", "takes what is left when all is refused%s", instead)
	case it.Strict:
		return inputErrorf(i, "strict",
			"is decided when a cost is charged, and not when it is set aside%s", instead)
	}
	return nil
}

// canHold reports whether the cost of the item can be set aside.
func (it *flight) canHold() bool {
	l := it.Limit
	return it.Cost > 0 && it.Cost <= l.Capacity() && !it.Report &&
		l.Consistency != limiter.Replicated && !l.Unlimited && !l.NeverDenies()
}

// withTwins is the cost of an item that is only looked at, with those of the items before it on the
// same count. asks says of which that is so.
func withTwins(before, asks []flight, it *flight) int64 {
	cost := it.Cost
	for i := range before {
		if o := &before[i]; cost > 0 && o.Cost > 0 && o.sharesCount(it) && asks[i].Op == OpPeek {
			cost = min(cost, limiter.MaxLimit) + min(o.Cost, limiter.MaxLimit)
		}
	}
	return cost
}

// sharesCount reports whether it and other are charged to the same count.
func (it *flight) sharesCount(other *flight) bool {
	return it.Key == other.Key && it.Limit.Identity() == other.Limit.Identity()
}

// conclude has charged what all have granted, after the answer; or released, if the limit of
// a silent owner refuses. ids are those of the takes.
func (mo *multiOwner) conclude(
	now limiter.Instant, r *batch, asks *batch, ids []ID, silent []bool, out []Decision,
) {
	yes := mo.granted(r, out)
	var list []settlement
	for i := range asks.items {
		it, d := &asks.items[i], &out[i]
		switch {
		case it.Op == OpReserve && !yes:
			list = append(list, it.settlement(asks, 0, silent[i]))
		case it.Op == OpReserve:
			s := it.settlement(asks, it.Cost, silent[i])
			s.take = ids[i]
			list = append(list, s)
			r.items[i].again = r.items[i].again || silent[i] // so that it is not owed as well
		case yes && !silent[i] && d.Allowed && r.items[i].Cost != 0:
			report := r.items[i]
			report.Report, report.Op = true, OpTake
			if report.ID = ofReport(ids[i]); it.Limit.Consistency == limiter.Replicated {
				mo.holder.decideReplica(now, &report, new(Decision))
			} else {
				mo.debts.oweReport(now, &report)
			}
		}
	}
	mo.debts.settleLater(list)
}
