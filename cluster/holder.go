package cluster

import (
	"slices"
	"time"

	"penstock/cluster/charges"
	"penstock/cluster/dedup"
	"penstock/limiter"
)

// holder decides from memory on the keys of the partitions that this node holds.
type holder struct {
	*self
	right *right
	parts *partitions

	table   *limiter.Table
	book    *limiter.Ledger
	recent  dedup.Window
	charges charges.Untold // to replicated limits, that other nodes have not heard of

	sweepEvery time.Duration
	swept      limiter.Instant // when the table was last looked at
}

// decides reports whether this node decides for the key with this hash at an instant of its clock.
func (hd *holder) decides(now limiter.Instant, hash uint64) bool {
	return hd.parts.holds(hash) && int64(now) < hd.right.until.Load()
}

// Holds is Node.Holds.
func (hd *holder) Holds(hash uint64) bool { return hd.parts.holds(hash) && hd.right.Deciding() }

// decide is the holder's decision on one item, from memory. What changes the key's state happens
// once per ID.
func (hd *holder) decide(now limiter.Instant, it *flight, out *limiter.Decision) {
	if it.Op == OpPeek {
		*out = hd.table.PeekRequest(now, it.Limit, it.Key, it.hash, it.of(it.Cost))
		it.soften(out)
		return
	}
	act := func() bool {
		switch {
		case it.Op == OpReset:
			*out = hd.table.Reset(now, it.Limit, it.Key, it.hash)
		case it.Op.holds():
			*out = hd.actHold(now, it)
		default:
			r := it.of(it.Cost)
			hd.table.DoInto(now, it.Limit, it.Key, it.hash, &r, out)
			it.soften(out)
		}
		return !out.Closed
	}
	if it.ID == (ID{}) {
		act()
		return
	}
	it.again = hd.hasTaken(now, it, out) || hd.recent.OnceAlone(now, hd.remembered(it), out, act)
	if it.again {
		hd.stats.Repeated.Add(1)
		hd.seesReleased(it, out)
	}
}

// remembered is the take that the answer to it is remembered for.
func (hd *holder) remembered(it *flight) dedup.Take {
	return dedup.Take{
		ID: it.ID, Partition: hd.partition(it.hash), GivesBack: it.givesBack(), Owed: it.owed,
	}
}

// hasTaken reports whether the take that it reports, or sets aside, was let in by this node, or by
// one that has handed its memory over, and puts the answer to that into out: then it is charged.
// The node that reports the take may have heard nothing of it, and so may a client that repeated it
// elsewhere. A take that is set aside was charged if all keys of its request had one owner before.
func (hd *holder) hasTaken(now limiter.Instant, it *flight, out *limiter.Decision) (taken bool) {
	var id ID
	switch {
	case it.Report:
		id = ofReport(it.ID)
	case it.Op == OpReserve && it.Hold != nil && it.Hold.Charge && it.Hold.ID != (ID{}):
		id = ofWhole(it.Hold.ID)
	default:
		return false
	}
	hd.recent.Recall(now, id, hd.partition(it.hash), func(m dedup.Memory) {
		d := &m.Decisions[0]
		taken = len(m.Decisions) == 1 && d.Hold == limiter.HoldNone &&
			m.GivesBack == it.givesBack() &&
			(d.Allowed || it.Limit.NeverDenies())
		if taken {
			*out = *d
		}
	})
	return taken
}

// seesReleased says to a repeat of what an atomic take sets aside if the first try was refused
// elsewhere, and has released it: the remembered yes would be charged to nobody. The asker tries
// again under another ID (reserveAll).
func (hd *holder) seesReleased(it *flight, out *limiter.Decision) {
	if it.Op != OpReserve || !it.Hold.Charge || out.Hold != limiter.HoldOpen {
		return
	}
	if h, known := hd.book.Get(it.holdID()); known && h.State == limiter.HoldSettled &&
		h.Used == 0 {
		out.Hold = limiter.HoldInTheWay
	}
}

// sign says that out is a decision of this node as the holder of the key.
func (hd *holder) sign(now limiter.Instant, it *flight, out *Decision) {
	out.Owner, out.Source, out.ID = hd.id, SourceOwner, it.ID
	// Another one may go on too, or counters are lost, or this is what the share of this node has
	// said.
	if hd.right.marked.Load() && !it.Limit.Unlimited || hd.parts.forgetful(now, it) ||
		it.again && hd.recent.Shared(now, hd.remembered(it)) {
		out.Degraded, out.Bound = true, it.Limit.Capacity()
	}
}

// actHold does in the book what the item asks.
func (hd *holder) actHold(now limiter.Instant, it *flight) limiter.Decision {
	if it.Hold == nil || it.checkHold() != nil { // a peer says what this release would not let in
		return limiter.Decision{RetryAfter: limiter.Never, Hold: limiter.HoldUnknown}
	}
	switch it.Op {
	case OpSettle:
		return hd.book.Settle(now, it.holdID(), it.hash, it.Hold.Holder, it.Cost)
	case OpLease:
		return hd.grantLease(now, it)
	case OpExtend:
		return hd.book.Extend(now, it.holdID(), it.hash, it.Hold.Holder, it.Hold.TTL)
	}
	var out [1]limiter.Decision
	hd.open(now, []limiter.HoldRequest{it.holdRequest()}, out[:])
	return out[0]
}

// open opens all holds, or none, and reports which.
func (hd *holder) open(
	now limiter.Instant, requests []limiter.HoldRequest, out []limiter.Decision,
) bool {
	opened := hd.book.Open(now, requests, out)
	for i := range out {
		if !opened && out[i].Hold.TooMany() {
			hd.stats.HoldsRefused.Add(uint64(len(out)))
			break
		}
	}
	return opened
}

// grantLease is what the holder of a key does when a node or a client asks for a lease.
// Decision.Drained says how much it gets.
func (hd *holder) grantLease(now limiter.Instant, it *flight) limiter.Decision {
	d := hd.table.Peek(now, it.Limit, it.Key, it.hash, 0)
	if d.Closed {
		return d
	}
	if it.Limit.Unlimited || it.Limit.NeverDenies() { // there is nothing to keep to
		d.Allowed = false
		return d
	}
	members := 1
	if view := hd.view.Load(); view != nil {
		members = max(1, view.Active())
	}
	r := it.holdRequest()
	r.Units = min(it.Cost, d.Remaining/int64(leasePart*members))
	if r.Units < limiter.LeaseMin {
		d.Allowed = false
		return d
	}
	var out [1]limiter.Decision
	if hd.open(now, []limiter.HoldRequest{r}, out[:]) {
		// a repeat gets what the first request got, whatever remains now
		if h, found := hd.book.Get(r.ID); found {
			out[0].Drained = h.Units
		}
	}
	return out[0]
}

// addCopy adds what is known of an item's key to m, its hold, and the answer to its id: an heir
// that takes over gives that answer when it is asked again, and charges nothing. It returns about
// how many bytes that is.
func (hd *holder) addCopy(now limiter.Instant, m *Move, it *flight) (size int) {
	e := hd.table.Entry(now, it.Limit, it.Key, it.hash)
	m.Entries = append(m.Entries, e)
	if it.ID != (ID{}) {
		hd.recent.Recall(now, it.ID, hd.partition(it.hash), func(x Memory) {
			// items of one request may have the same id, and the answer be as long as the request
			if told := func(y Memory) bool { return y.ID == x.ID }; len(x.Decisions) == 1 ||
				!slices.ContainsFunc(m.Taken, told) {
				m.Taken = append(m.Taken, x)
			}
		})
	}
	if it.Op.holds() {
		if h, found := hd.book.Get(it.holdID()); found {
			m.Holds = append(m.Holds, HoldCopy{h, time.Duration(h.Deadline - now)})
		}
	}
	return len(e.Key) + len(e.State)
}

// tendHoldsLocked ends the holds that have run out.
func (hd *holder) tendHoldsLocked(now limiter.Instant, ticks uint64) {
	kept := hd.parts.keeps
	if ticks%holdsKeptTicks != 0 || hd.parts.list == nil {
		kept = nil
	}
	hd.stats.RanOut.Add(uint64(hd.book.Expire(now, kept)))
}

// holdsKeptTicks is how often holds of partitions that have gone are looked for.
const holdsKeptTicks = 8

// leasePart × members is the part of what remains that one lease may have.
const leasePart = 4
