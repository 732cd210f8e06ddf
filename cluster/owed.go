package cluster

import (
	"strings"
	"time"

	"penstock/limiter"
)

// What a node admits while nobody who holds the key answers (fallback.go), nobody has counted. So
// it is owed: as soon as somebody holds the key again and answers, that one is told to charge it,
// by a report, as far as the limit reaches (and its max_debt). What was too much is taken from what
// comes after, until the limit is used up; what goes beyond that stays extra.
//
// A report has an ID as every take has, so it is charged once. If the take itself was sent to
// somebody whose answer never came, that one may have charged it, and is not told again; another
// one, who has taken over since, is. Then it may be counted twice, if it was copied before: too
// little is admitted, never too much.
//
// A reservation that was admitted so is a promise: who decides is asked to set aside what was
// reserved, under the ID that the client knows, for as long as it was to last. If that one has done
// so before, and its answer was lost, it stays one hold. From then on it is a hold like all others.
// Until then this node alone can settle or extend it, and what its client has used, or all of it if
// its deadline has passed, is what is owed. What who decides has no room for is charged like a
// take, as far as the limit reaches.

const (
	owedWaiting = 1 << 16 // takes; of more, the latest are not charged
	owedLasts   = time.Minute
)

// reportOrigin makes the ID of a report of that of the take. Under its own ID this node remembers
// what its share said.
const reportOrigin = 1 << 62

// ofReport is the ID of the report of a take: that of all its repeats, here and elsewhere, and not
// the take's.
func ofReport(id ID) ID { return ID{Origin: id.Origin ^ reportOrigin, Sequence: id.Sequence} }

// An owed take was admitted by this node without the holder of its key.
type owed struct {
	limit   *limiter.Limit
	key     string
	hash    uint64
	cost    int64
	id      ID // of the report
	at      limiter.Instant
	doubt   *doubt   // who may have charged it
	promise *promise // of a reservation; nil: of a take
}

// A promise is what a client holds of which nobody knows but the node that has admitted it. Guarded
// by Node.owedMu.
type promise struct {
	holder   string
	deadline limiter.Instant
	settled  bool
	used     int64 // if settled
}

// owe notes what of a request has to be charged later, and tells who has reserved something that he
// has it.
func (n *Node) owe(now limiter.Instant, items []Item, out []Decision) {
	for i := range out {
		it := &items[i]
		reserved := it.Op == OpReserve
		if out[i].Source != SourceFallback || !out[i].Allowed || out[i].Shadow || it.Op != OpTake && !reserved || it.Cost <= 0 {
			continue
		}
		n.owedMu.Lock()
		switch {
		case reserved && n.promises[it.ID] != nil, it.again && !reserved: // a reservation that is opened once more stays one hold
		case len(n.owed) >= owedWaiting:
			n.stats.Forgiven.Add(1)
		default:
			x := owed{it.limit, strings.Clone(it.Key), it.hash, it.Cost, ofReport(it.ID), now, it.doubt, nil}
			if reserved {
				x.promise = &promise{holder: strings.Clone(it.Hold.Holder), deadline: now.Add(it.Hold.TTL)}
				n.promises[it.ID] = x.promise
			}
			n.owed = append(n.owed, x)
		}
		if reserved && n.promises[it.ID] != nil {
			out[i].Hold = limiter.HoldOpen
		}
		n.owedMu.Unlock()
	}
}

// atPromise settles or extends what this node has promised, as far as who decides does not know of
// it yet.
func (n *Node) atPromise(now limiter.Instant, it *Item, out *Decision) bool {
	if it.Hold == nil {
		return false
	}
	if _, known := n.book.Get(limiter.HoldID(it.Hold.ID)); known && n.decides(now, it.hash) {
		return false
	}
	state, known := n.keepPromise(now, it)
	if !known {
		return false
	}
	look := Item{Key: it.Key, Op: OpPeek, limit: it.limit, hash: it.hash}
	*out = n.fallback(now, n.view.Load(), &look)
	out.Allowed, out.RetryAfter, out.Hold = state == limiter.HoldSettled || state == limiter.HoldOpen, limiter.Never, state
	return true
}

// keepPromise says what becomes of the promise that the item is about, if there is one.
func (n *Node) keepPromise(now limiter.Instant, it *Item) (state limiter.HoldState, known bool) {
	n.owedMu.Lock()
	defer n.owedMu.Unlock()
	p := n.promises[it.Hold.ID]
	switch {
	case p == nil:
		return limiter.HoldUnknown, false
	case it.Hold.Holder != "" && it.Hold.Holder != p.holder:
		return limiter.HoldForeign, true
	case p.settled && it.Op == OpSettle && p.used != it.Cost:
		return limiter.HoldOther, true
	case p.settled:
		return limiter.HoldSettled, true
	case now >= p.deadline:
		return limiter.HoldRanOut, true
	case it.Op == OpSettle:
		p.settled, p.used = true, it.Cost
		return limiter.HoldSettled, true
	}
	p.deadline = max(p.deadline, now.Add(it.Hold.TTL))
	return limiter.HoldOpen, true
}

// settleOwedLocked begins to have charged what is owed, unless it is at it.
func (n *Node) settleOwedLocked() {
	n.owedMu.Lock()
	defer n.owedMu.Unlock()
	if len(n.owed) > 0 && !n.settling && !n.stopped && !n.minority.Load() {
		n.settling = true
		n.clock.AfterFunc(0, n.settleOwed)
	}
}

func (n *Node) settleOwed() {
	for n.settleSome() {
	}
	n.owedMu.Lock()
	n.settling = false
	n.owedMu.Unlock()
}

// settleSome has the oldest of what is owed charged. It reports whether there is more, and a point
// in going on at once.
func (n *Node) settleSome() (more bool) {
	now, view := n.clock.Now(), n.view.Load()
	n.owedMu.Lock()
	most := min(len(n.owed), MaxItems)
	batch := n.owed[:most:most]
	n.owed = n.owed[most:]
	n.owedMu.Unlock()

	r := &Request{owed: true}
	cautious := &Request{owed: true, cautious: true} // of what may have been charged
	var of, doubted, later []owed
	var ended []settlement
	for _, x := range batch {
		it := Item{Key: x.key, Cost: x.cost, ID: x.id, Terms: Terms{Report: true}, limit: x.limit, hash: x.hash, doubt: x.doubt}
		t := n.aim(now, view, r, &it, 1)
		away := !n.decides(now, x.hash)
		asked := x.promise == nil && away && t >= 0 && x.doubt.of(view.peers[t].boot)
		used, over := n.spentOf(now, &x)
		switch {
		case now > x.at.Add(owedLasts) && over, asked && view.peers[t].heard.Load() > int64(x.at):
			n.stats.Forgiven.Add(1)
			n.forgetPromise(&x)
		case asked, away && t == nobody: // perhaps somebody takes over
			later = append(later, x)
		case x.promise == nil && x.doubt != nil:
			cautious.Items, doubted = append(cautious.Items, it), append(doubted, x)
		case x.promise == nil:
			r.Items, of = append(r.Items, it), append(of, x)
		case over:
			n.stats.Settled.Add(1)
			n.forgetPromise(&x)
			ended = append(ended, x.settlement(used))
		default:
			r.Items, of = append(r.Items, n.opening(now, &x)), append(of, x)
		}
	}
	later, ended = n.haveCharged(r, of, later, ended)
	later, ended = n.haveCharged(cautious, doubted, later, ended)
	n.settleLater(ended)
	n.owedMu.Lock()
	defer n.owedMu.Unlock()
	n.owed = append(later, n.owed...)
	return len(n.owed) > len(later) && len(later) == 0
}

// haveCharged asks r of who decides. What nobody has answered it adds to later, and to ended what
// is to be settled as well.
func (n *Node) haveCharged(r *Request, of, later []owed, ended []settlement) ([]owed, []settlement) {
	if len(of) == 0 {
		return later, ended
	}
	now := n.clock.Now() // what was asked before this may have taken long
	r.Deadline = now.Add(DefaultDeadline)
	out := make([]Decision, len(of))
	n.checkEach(now, n.view.Load(), r, out)
	n.tell(r.Deadline, r.Items, out)
	for i := range out {
		x := &of[i]
		switch used, over := n.spentOf(now, x); {
		case out[i].Owner == "":
			x.doubt = r.Items[i].doubt
			later = append(later, *x)
		case x.promise != nil && out[i].Hold != limiter.HoldOpen && out[i].Hold != limiter.HoldOther:
			later = n.reportInstead(later, x, used)
		default:
			n.stats.Settled.Add(1)
			n.forgetPromise(x)
			if x.promise != nil && over { // meanwhile
				ended = append(ended, x.settlement(used))
			}
		}
	}
	return later, ended
}

// spentOf is what is owed for x at last, and whether it is known already: a promise is open until
// it is settled or runs out.
func (n *Node) spentOf(now limiter.Instant, x *owed) (used int64, over bool) {
	n.owedMu.Lock()
	defer n.owedMu.Unlock()
	p := x.promise
	switch {
	case p == nil:
		return x.cost, true
	case x.limit.Algorithm == limiter.Concurrency: // permits are never charged
		return 0, p.settled || now >= p.deadline
	case p.settled:
		return p.used, true
	case now < p.deadline:
		return x.cost, false
	case x.limit.Unsettled == limiter.UnsettledRelease:
		return 0, true
	}
	return x.cost, true
}

// opening asks who decides to set aside what was promised.
func (n *Node) opening(now limiter.Instant, x *owed) Item {
	n.owedMu.Lock()
	defer n.owedMu.Unlock()
	ttl := max(limiter.MinTTL, min(limiter.MaxTTL, time.Duration(x.promise.deadline-now)))
	return Item{
		Key: x.key, Cost: x.cost, Op: OpReserve, ID: ofReport(x.id), Hold: &HoldTerms{TTL: ttl, Holder: x.promise.holder},
		limit: x.limit, hash: x.hash,
	}
}

// settlement settles the hold that may have been opened for what was promised.
func (x *owed) settlement(used int64) settlement {
	return settlement{
		item: Item{Key: x.key, Op: OpSettle, Cost: used, Hold: &HoldTerms{ID: ofReport(x.id)}, limit: x.limit, hash: x.hash},
		take: ofReport(x.id), late: x.at.Add(DefaultDeadline + lateBy),
	}
}

// reportInstead has what was promised charged like a take, where it cannot be set aside.
func (n *Node) reportInstead(later []owed, x *owed, used int64) []owed {
	n.forgetPromise(x)
	if used == 0 {
		return later
	}
	report := *x
	report.cost, report.promise, report.doubt = used, nil, nil
	return append(later, report)
}

func (n *Node) forgetPromise(x *owed) {
	if x.promise != nil {
		n.owedMu.Lock()
		delete(n.promises, ofReport(x.id))
		n.owedMu.Unlock()
	}
}
