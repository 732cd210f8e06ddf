package limiter

import "time"

// A Lease is the holder's side of a hold on a key of a Leased limit. The holder is a node (package
// cluster) or a client (package rpc/client) that is often asked for the key. A Lease is arithmetic
// alone: the holder guards it, sends the messages, and settles. Follow one:
//
//	often asked    requests for the key are counted; after a few within two ticks
//	               Decide says that a lease is wanted.
//	granted        the use of two ticks (Want), or less: where little remains there
//	               is none, and every request goes to the deciding node.
//	spent          at 80 % the next one is wanted, and Decide spends the first
//	               until that comes.
//
// It ends LeaseTTL after it was requested, on the holder's clock, and no earlier than LeaseTTL
// after it was granted, on the granting node's. So it is never spent after it has expired.
type Lease struct {
	Lent          // the one in use; zero: there is none
	quiet Instant // until then none is asked for

	asked, rate int64 // units since the last tick, and lately in a tick
	hits, past  int   // requests since the last tick, and in the one before

	remaining   int64 // as was said last, without what is lent
	resetAt     Instant
	deniedUntil Instant
	deniedCost  int64
	retryAt     Instant // what its RetryAfter said
}

// Lent is a hold in the hand of its holder.
type Lent struct {
	Size  int64
	Units int64   // of them not spent
	Until Instant // from then on they are not spent any more
}

const (
	LeaseTTL = time.Second
	LeaseMin = 8 // units; what is less is not worth a message

	// before its end a lease in use is renewed, and another one returned
	leaseEarly = 300 * time.Millisecond
	leaseAfter = 4                     // requests within two ticks
	leaseQuiet = 20 * time.Millisecond // before one is asked for again that was not granted
	// deniedHeld is how long a denial counts without asking again that is because of what others
	// have reserved: that may come back any moment.
	deniedHeld = 5 * time.Millisecond
)

// Decide decides on cost units, which are at least 1, of a limit with that capacity, and reports
// whether it can. Allowed: they are spent; else they are denied, as they were a moment ago because
// of what others have reserved. It reports too whether it is time to ask for a lease.
func (l *Lease) Decide(now Instant, cost, capacity int64, d *Decision) (decided, ask bool) {
	l.asked += cost
	l.hits++
	*d = Decision{
		Limit: capacity, RetryAfter: Never,
		ResetAfter: max(0, time.Duration(l.resetAt-now)),
	}
	switch {
	case l.Units >= cost && now < l.Until:
		l.Units -= cost
		d.Allowed, d.Remaining = true, min(l.remaining+l.Units, d.Limit)
		return true, now >= l.quiet && 5*l.Units <= l.Size
	case l.denies(now, cost):
		d.Remaining, d.RetryAfter = min(l.remaining, cost-1), max(1, time.Duration(l.retryAt-now))
		return true, false
	}
	return false, now >= l.quiet && l.hits+l.past >= leaseAfter
}

// denies reports whether cost units are denied without asking. Until the time that was said, one
// request now and then is asked for, in case something was given back; the others need not all
// follow it.
func (l *Lease) denies(now Instant, cost int64) bool {
	if now >= l.retryAt || cost != l.deniedCost { // another cost has another RetryAfter
		return false
	}
	if now < l.deniedUntil {
		return true
	}
	l.deniedUntil = now.Add(deniedHeld)
	return false
}

// Want is how many units to ask for: what is spent in two ticks.
func (l *Lease) Want() int64 { return max(LeaseMin, 2*max(l.rate, l.asked)) }

// Heard notes what was answered to a request of cost units that was sent at sent.
func (l *Lease) Heard(sent Instant, cost int64, d *Decision) {
	l.remaining, l.resetAt = d.Remaining, sent.Add(d.ResetAfter)
	if d.Allowed {
		l.FreeAgain()
	}
	if d.Allowed || d.RetryAfter < 0 || d.Hold != HoldInTheWay {
		return
	}
	l.retryAt, l.deniedCost = sent.Add(d.RetryAfter), cost
	l.deniedUntil = sent.Add(min(d.RetryAfter, deniedHeld))
}

// FreeAgain ends a denial: something is given back.
func (l *Lease) FreeAgain() { l.deniedUntil, l.retryAt = 0, 0 }

// Granted takes units into use that were asked for at sent; d is what was said of the rest. What
// was lent before must have been reserved.
func (l *Lease) Granted(sent Instant, units int64, d *Decision) {
	l.Lent = Lent{Size: units, Units: units, Until: sent.Add(LeaseTTL)}
	l.remaining, l.resetAt = d.Remaining, sent.Add(d.ResetAfter)
}

// NotGranted notes that what was asked for at sent was not lent.
func (l *Lease) NotGranted(sent Instant) { l.quiet = sent.Add(leaseQuiet) }

// Ended reports whether what is lent is not needed any more, or not to be spent any more: it should
// be settled.
func (l *Lease) Ended(now Instant) bool { return l.asked == 0 || now >= l.Until }

// Ends reports whether what is lent ends soon: if it is in use it should be renewed.
func (l *Lease) Ends(now Instant) bool { return now >= l.Until.Add(-leaseEarly) }

// Forgotten reports whether nobody has asked for the key lately.
func (l *Lease) Forgotten() bool { return l.asked == 0 && l.rate == 0 }

// Tick has what was asked since the last one count as lately.
func (l *Lease) Tick() {
	l.rate, l.asked = max(l.asked, l.rate/2), 0
	l.hits, l.past = 0, l.hits
}
