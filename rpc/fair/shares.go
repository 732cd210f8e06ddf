package fair

import "time"

const (
	// longWait is the wait of goroutines for a processor that begins an overload if it stands for
	// standing. A node that is merely at work to its limit, for some hundred callers, has less.
	longWait = 10 * time.Millisecond
	standing = 100 * time.Millisecond
	// fairWait is the wait that the level is led to during an overload.
	fairWait = 2 * time.Millisecond
	// littleUse is the part of the processors that requests take at least if they are what
	// goroutines wait for; else other programs have the processors, and to refuse would not help.
	littleUse = 1. / 8
	// leastLevel is a part of a processor that each client has in any case.
	leastLevel = 1. / 256
	// over is how long no client must have wanted more than the level until an overload is over.
	over = time.Second

	// burst is how far a client may be ahead of its level before its connections are read less.
	burst = time.Millisecond
	// patience is how much further it may be ahead before its requests are refused.
	patience = 2 * time.Millisecond
	// enough is the part of its level that a client must have used lately for those of its requests
	// to be refused that were sent too early: what comes of them has waited long, but nothing else
	// may use what it leaves.
	enough = 0.7
	// mostAccounts bounds the memory of an overload. Clients beyond are let in.
	mostAccounts = 64 << 10
)

// phase is what a node knows about its load.
type phase int

const (
	calm       phase = iota // nothing is counted
	suspicious              // goroutines wait long: what clients use is counted
	overloaded              // no client gets more than the level
)

// shares divide the processors among clients while there is more to do than they can. All clients
// have the same level: the part of a processor that one of them may use. It is led to where
// goroutines wait for fairWait, so clients that want less than the level get all that they want,
// and the others get the same. shares have no clock and no lock of their own: what they decide
// follows from what they were told.
type shares struct {
	processors float64

	phase   phase
	since   time.Duration // when goroutines began to wait long; in an overload: see over
	looked  time.Duration // when look was last called
	level   float64       // in processors
	shrunk  time.Duration // when the level was last made less
	clients map[string]*account
}

// account is what a client has used.
type account struct {
	paid time.Duration // until when its use takes, at the level
	used time.Duration // processor time since the last look
	// before is the part of a processor that it used between the two looks before
	before float64
}

// verdict is what becomes of a request, and of its connection.
type verdict struct {
	refused bool
	pause   time.Duration // the connection is not read for so long
}

// ask decides on a request of a client that takes so much processor time. late says that it was
// sent by a client that had been told to try again later, and before that time had come. What is
// refused is not charged: refusals must not keep a client from what it may have.
func (s *shares) ask(now time.Duration, client string, cost time.Duration, late bool) verdict {
	if s.phase == calm {
		return verdict{}
	}
	a := s.clients[client]
	if a == nil {
		if len(s.clients) >= mostAccounts {
			return verdict{}
		}
		a = &account{paid: now}
		s.clients[client] = a
	}
	if s.phase == suspicious {
		a.used += cost
		return verdict{}
	}
	debt := max(0, a.paid-now)
	if debt > burst+patience || late && (debt > burst || a.before > s.level*enough) {
		a.used += cost / 2 // to read and to refuse it
		s.since = now
		return verdict{true, debt - burst}
	}
	a.used += cost
	debt += time.Duration(float64(cost) / s.level)
	a.paid = now + debt
	if debt > burst {
		s.since = now
	}
	return verdict{false, max(0, debt-burst)}
}

// look adapts the level to how long nine of ten goroutines have waited since the last look.
func (s *shares) look(now, waited time.Duration) {
	passed := now - s.looked
	s.looked = now
	most, all := s.uses(now, passed)
	heavy := s.phase == calm || float64(all) >= littleUse*s.processors*float64(passed)
	switch {
	case s.phase == overloaded && now-s.since >= over, // nobody wants more than the level
		s.phase == suspicious && (waited <= longWait || !heavy):
		*s = shares{processors: s.processors, looked: now}
	case s.phase == overloaded && waited > fairWait && heavy:
		if now-s.shrunk >= waited { // what that did shows
			s.level, s.shrunk = max(leastLevel, s.level*7/8), now
		}
	case s.phase == overloaded:
		s.level = min(s.processors, s.level*17/16)
	case waited > longWait && s.phase == calm:
		s.phase, s.since, s.clients = suspicious, now, make(map[string]*account)
	case s.phase == suspicious && now-s.since >= standing:
		s.phase, s.since = overloaded, now
		s.level = max(leastLevel, float64(most)/float64(passed))
	}
}

// uses are the processor time of the client that has used most since the last look, and of all
// clients. It forgets those that have used nothing and owe nothing.
func (s *shares) uses(now, passed time.Duration) (most, all time.Duration) {
	for name, a := range s.clients {
		if a.used == 0 && a.paid <= now {
			delete(s.clients, name)
			continue
		}
		most, all = max(most, a.used), all+a.used
		a.before, a.used = float64(a.used)/float64(max(1, passed)), 0
	}
	return most, all
}
