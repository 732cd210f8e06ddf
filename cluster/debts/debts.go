// Package debts keeps what one node has admitted without the holder of a key, until a holder has
// charged it.
//
// While no holder of a key answers, a node decides from its own share, and what it admits is not
// counted. The node notes each such take here ([Ledger.Owe]). When a holder answers again, the node
// draws the oldest debts ([Ledger.Oldest]), reports them, and gives back those that were not heard
// ([Ledger.Return]).
//
// A reservation that was admitted in this way is a promise ([Ledger.Promise]): until a holder has
// opened a hold for it, this node alone can settle or extend it ([Ledger.Keep]).
//
// A Ledger owns its state and its lock. It knows no node and no network: it says what is owed, and
// the node sends it.
package debts

import (
	"sync"
	"time"

	"penstock/cluster/dedup"
	"penstock/limiter"
)

const (
	most = 1 << 16 // debts; of more, the latest are not charged
	// Lasts is how long a debt is kept. Afterwards it is forgiven.
	Lasts = time.Minute
)

// A Debt is a take that this node has admitted without the holder of its key.
type Debt struct {
	Limit  *limiter.Limit
	Key    string
	Hash   uint64
	Cost   int64
	Report dedup.ID        // of the report that charges it
	Take   dedup.ID        // of the take, if a holder may know that; else zero
	At     limiter.Instant // when it was admitted
	Doubt  *Doubt          // the boots that may have charged it
	Client uint64          // of a reservation; see limiter.Hold

	promise *promise // of a reservation; nil: of a take
}

// Promised reports whether the debt is a reservation.
func (d *Debt) Promised() bool { return d.promise != nil }

// AsTake is the debt of a take of some cost, in place of a reservation.
func (d *Debt) AsTake(cost int64) Debt {
	take := *d
	take.Cost, take.promise, take.Doubt = cost, nil, nil
	return take
}

// A promise is what a client holds, and no other node knows of. Its Ledger's lock guards it.
type promise struct {
	id       dedup.ID
	holder   string
	deadline limiter.Instant
	settled  bool
	used     int64 // if settled
}

// A Ledger keeps debts, those first that have waited longest. The zero Ledger is empty and ready.
// Its methods are safe for concurrent use.
type Ledger struct {
	mu   sync.Mutex // guards all fields
	owed []Debt
	// by the ID of the reservation, those that clients may settle here
	promises    map[dedup.ID]*promise
	charging    bool // debts are being charged
	settlements int  // lists of settlements that some node has not heard
}

// Owe notes a debt. It reports false if there is no room: then nobody will charge it.
func (l *Ledger) Owe(d *Debt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.owed) >= most {
		return false
	}
	l.owed = append(l.owed, *d)
	return true
}

// Promise notes the reservation id as a debt. A reservation that is opened once more stays one
// promise. open is false if there is no room.
func (l *Ledger) Promise(
	id dedup.ID, d *Debt, holder string, deadline limiter.Instant,
) (open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.promises[id] != nil:
		return true
	case len(l.owed) >= most:
		return false
	}
	if l.promises == nil {
		l.promises = make(map[dedup.ID]*promise)
	}
	p := &promise{id: id, holder: holder, deadline: deadline}
	l.promises[id] = p
	l.owed = append(l.owed, *d)
	l.owed[len(l.owed)-1].promise = p
	return true
}

// A Change is what a client asks of a reservation.
type Change struct {
	ID     dedup.ID // of the reservation
	Holder string   // empty: any
	Settle bool     // else it is extended by TTL
	Used   int64    // if Settle
	TTL    time.Duration
}

// Keep settles or extends a promise, and says what it is now. known is false if there is none.
func (l *Ledger) Keep(now limiter.Instant, c *Change) (state limiter.HoldState, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.promises[c.ID]
	switch {
	case p == nil:
		return limiter.HoldUnknown, false
	case c.Holder != "" && c.Holder != p.holder:
		return limiter.HoldForeign, true
	case p.settled && c.Settle && p.used != c.Used:
		return limiter.HoldOther, true
	case p.settled:
		return limiter.HoldSettled, true
	case now >= p.deadline:
		return limiter.HoldRanOut, true
	case c.Settle:
		p.settled, p.used = true, c.Used
		return limiter.HoldSettled, true
	}
	p.deadline = max(p.deadline, now.Add(c.TTL))
	return limiter.HoldOpen, true
}

// Begin reports whether there are debts, and nobody is charging them yet. Then the caller does, and
// calls End when it is done.
func (l *Ledger) Begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.owed) == 0 || l.charging {
		return false
	}
	l.charging = true
	return true
}

// End says that the caller of Begin is done.
func (l *Ledger) End() {
	l.mu.Lock()
	l.charging = false
	l.mu.Unlock()
}

// Oldest takes at most so many debts out: those that have waited longest.
func (l *Ledger) Oldest(most int) []Debt {
	l.mu.Lock()
	defer l.mu.Unlock()
	most = min(most, len(l.owed))
	batch := l.owed[:most:most]
	l.owed = l.owed[most:]
	return batch
}

// Return puts debts back that Oldest gave, behind all others: a holder that is silent keeps no debt
// waiting that another one would charge. It reports whether there are others.
func (l *Ledger) Return(later []Debt) (others bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	others = len(l.owed) > 0
	l.owed = append(l.owed, later...)
	return others
}

// Spent is what is owed for d in the end, and whether that is known already: a promise is open
// until it is settled or its deadline has passed.
func (l *Ledger) Spent(now limiter.Instant, d *Debt) (used int64, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := d.promise
	switch {
	case p == nil:
		return d.Cost, true
	case d.Limit.Algorithm == limiter.Concurrency: // permits are never charged
		return 0, p.settled || now >= p.deadline
	case p.settled:
		return p.used, true
	case now < p.deadline:
		return d.Cost, false
	case d.Limit.Unsettled == limiter.UnsettledRelease:
		return 0, true
	}
	return d.Cost, true
}

// Terms are the holder and the deadline of a promise.
func (l *Ledger) Terms(d *Debt) (holder string, deadline limiter.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return d.promise.holder, d.promise.deadline
}

// Forget ends the promise of a debt, if it has one.
func (l *Ledger) Forget(d *Debt) {
	if d.promise == nil {
		return
	}
	l.mu.Lock()
	delete(l.promises, d.promise.id)
	l.mu.Unlock()
}

// SettlementBegins and SettlementEnds count lists of settlements that some node has not heard.
func (l *Ledger) SettlementBegins() { l.settlement(1) }

// SettlementEnds says that all nodes have heard a list, or that it is too late.
func (l *Ledger) SettlementEnds() { l.settlement(-1) }

func (l *Ledger) settlement(n int) {
	l.mu.Lock()
	l.settlements += n
	l.mu.Unlock()
}

// Len is the number of debts.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.owed)
}

// Promises is the number of reservations that clients can settle here.
func (l *Ledger) Promises() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.promises)
}

// Pending is the number of debts, and of lists of settlements that some node has not heard.
func (l *Ledger) Pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settlements + len(l.owed)
}

// A Doubt lists the boots that were sent an item and have not answered: each may have charged it.
type Doubt struct {
	boot   uint64
	before *Doubt
}

// Of reports whether a boot is in d. A nil Doubt is empty.
func (d *Doubt) Of(boot uint64) bool {
	for ; d != nil; d = d.before {
		if d.boot == boot {
			return true
		}
	}
	return false
}

// With is d and a boot.
func (d *Doubt) With(boot uint64) *Doubt {
	if d.Of(boot) {
		return d
	}
	return &Doubt{boot, d}
}
