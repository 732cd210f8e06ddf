package fair

import (
	"math"
	"slices"
	"time"
)

const (
	// longWait is the mean wait of requests, for processors that work for the process, that begins
	// an overload if it stands for standing and one client uses much less than another. A client
	// that is alone makes itself wait: for that one, it is longAlone. A node that is merely at work
	// to its limit, for a thousand callers, has less.
	longWait  = 3 * time.Millisecond
	longAlone = 20 * time.Millisecond
	standing  = 100 * time.Millisecond
	// muchLess is how many times as much the client with the most uses then.
	muchLess = 4
	// fairWait is the wait that the level is led to during an overload.
	fairWait = 2 * time.Millisecond
	// workOff is how long it may take to work off what stands in line, and firstPart the least part
	// of what clients have used lately that they may use meanwhile.
	workOff   = 100 * time.Millisecond
	firstPart = 1. / 2
	// leastPart is the part of the processors that clients together may use in any case: if
	// requests wait then, something else is the reason.
	leastPart = 1. / 8
	// littleUse is the part of what the process uses of processors that requests take at least if
	// they are what goroutines wait for; else to refuse them would not help.
	littleUse = 1. / 8
	// leastLevel is a part of a processor that each client has in any case.
	leastLevel = 1. / 256
	// over is how long no client must have wanted more than the level until an overload is over.
	over = time.Second

	// burst is how far a client may be ahead of its level before its connections are read less.
	burst = time.Millisecond
	// patience is how much further it may be ahead before its requests are refused. At a low level
	// it is how long patientWork of a processor takes, up to mostPatience: while other programs
	// have the processors, requests gather, and they are no more than their client may have.
	patience     = 2 * time.Millisecond
	patientWork  = time.Millisecond
	mostPatience = 5 * time.Millisecond
	// mostDebt is how far a client may be ahead at all. What cannot be refused on thousands of
	// connections would have none of them read for an hour, and nobody would see them end.
	mostDebt = 10 * time.Second
	// enough is the part of its level that a client must have used lately for those of its requests
	// to be refused that were sent too early: what comes of them has waited long, but nothing else
	// may use what it leaves. A client that never waits as it was told uses little more than this
	// part, so the rest is idle beside it: the nearer to 1, the longer requests stand in line.
	enough = 0.85
	// mostAccounts bounds the memory of an overload. Clients beyond are let in.
	mostAccounts = 64 << 10
)

// phase is what a node knows about its load.
type phase int

const (
	calm       phase = iota // nothing is counted
	suspicious              // requests wait long: what clients use is counted
	overloaded              // no client gets more than the level
)

// shares divide the processors among clients while there is more to do than they can. All clients
// have the same level: the part of a processor that one of them may use. It is led to where
// requests wait for fairWait, so clients that want less than the level get all that they want,
// and the others get the same. shares have no clock and no lock of their own: what they decide
// follows from what they were told.
type shares struct {
	processors float64

	phase   phase
	since   time.Duration // since when clients are counted; in an overload: see over
	looked  time.Duration // when look was last called
	had     time.Duration // processor time of the process since since
	waited  time.Duration // the sum of waits since then
	looks   time.Duration // how many they are
	level   float64       // in processors, by what requests are said to cost
	worth   float64       // what is done in a second of processor time, by that
	shrunk  time.Duration // when the level was last made less
	clients map[string]*account
}

// account is what a client has used.
type account struct {
	paid time.Duration // until when its use takes, at the level
	used time.Duration // processor time since uses was last called
	// before is the part of a processor that it used before that
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
	a := s.account(now, client)
	if a == nil {
		return verdict{}
	}
	debt := max(0, a.paid-now)
	if s.phase == overloaded &&
		(debt > burst+s.patience() || late && (debt > burst || a.before > s.level*enough)) {
		a.used += cost / 2 // to read and to refuse it
		s.since = now
		return verdict{true, debt - burst}
	}
	return s.charge(now, a, cost)
}

// patience is how far beyond burst a client may be ahead.
func (s *shares) patience() time.Duration {
	atLevel := time.Duration(float64(patientWork) / s.level)
	return max(patience, min(mostPatience, atLevel))
}

// spend charges a client for what was done for it and cannot be refused.
func (s *shares) spend(now time.Duration, client string, cost time.Duration) verdict {
	a := s.account(now, client)
	if a == nil {
		return verdict{}
	}
	return s.charge(now, a, cost)
}

// account is that of a client; nil: nothing is counted for it.
func (s *shares) account(now time.Duration, client string) *account {
	if s.phase == calm {
		return nil
	}
	a := s.clients[client]
	if a == nil && len(s.clients) < mostAccounts {
		a = &account{paid: now}
		s.clients[client] = a
	}
	return a
}

func (s *shares) charge(now time.Duration, a *account, cost time.Duration) verdict {
	a.used += cost
	if s.phase != overloaded {
		return verdict{}
	}
	debt := min(mostDebt, max(0, a.paid-now)+time.Duration(float64(cost)/s.level))
	a.paid = now + debt
	if debt > burst {
		s.since = now
	}
	return verdict{false, max(0, debt-burst)}
}

// look adapts the level to how long requests have waited since the last look.
func (s *shares) look(now time.Duration, w wait) {
	passed := now - s.looked
	s.looked = now
	switch {
	case s.phase == overloaded && now-s.since >= over: // nobody wants more than the level
		s.end()
	case s.phase == overloaded:
		s.adapt(now, passed, w)
	case s.phase == suspicious:
		s.suspect(now, w)
	case w.own > longWait:
		s.phase = suspicious
		s.count(now)
	}
}

// end forgets all that was counted.
func (s *shares) end() { *s = shares{processors: s.processors, looked: s.looked} }

// count begins to count what clients use.
func (s *shares) count(now time.Duration) {
	s.since, s.had, s.waited, s.looks = now, 0, 0, 0
	s.clients = make(map[string]*account)
}

// suspect begins an overload when requests have waited long for standing, and refusals would help:
// somebody, since clients are uneven or the one that is alone has a thousand callers, and at all,
// since requests are what the process is busy with.
func (s *shares) suspect(now time.Duration, w wait) {
	s.had += w.had
	if !w.under || w.own*s.looks > s.waited { // else it may be longer than the others in the end
		s.looks++
		s.waited += w.own
	}
	mean, passed := s.waited/max(1, s.looks), now-s.since
	switch {
	case s.looks > 0 && mean <= longWait:
		s.end()
		return
	case passed < standing:
		return
	case mean <= longAlone && !s.uneven():
		if passed >= over {
			s.count(now)
		}
		return
	}
	_, all := s.uses(now, passed)
	if float64(all) < littleUse*float64(s.had) {
		s.count(now)
		return
	}
	if s.worth = 1; s.had > 0 {
		s.worth = float64(all) / float64(s.had)
	}
	s.phase, s.since, s.shrunk = overloaded, now, now
	s.level = max(leastLevel, s.divide(firstPart*float64(all)/float64(passed)))
}

// uneven reports whether a client uses much less than another.
func (s *shares) uneven() bool {
	least, most := time.Duration(math.MaxInt64), time.Duration(0)
	for _, a := range s.clients {
		least, most = min(least, a.used), max(most, a.used)
	}
	return least <= most/muchLess
}

// divide is the level at which clients together use so many processors, if each wants what it used
// last. Where that is less, it is what the one that used most may use beside the others.
func (s *shares) divide(processors float64) (level float64) {
	used := make([]float64, 0, len(s.clients))
	for _, a := range s.clients {
		used = append(used, a.before)
	}
	slices.Sort(used)
	level = processors
	for i, u := range used {
		if level = processors / float64(len(used)-i); u >= level {
			break
		}
		processors -= u
	}
	return level
}

// adapt leads the level to where requests wait for fairWait.
func (s *shares) adapt(now, passed time.Duration, w wait) {
	most, all := s.uses(now, passed)
	if w.had > passed/8 {
		s.worth += (float64(all)/float64(w.had) - s.worth) / 8
	}
	switch {
	case w.own <= fairWait || float64(all) < littleUse*float64(w.had):
		// or nobody wants more, and how much there is does not show
		if !w.under && most >= s.level*enough {
			s.level = min(s.processors*s.worth, s.level*17/16)
		}
	case now-s.shrunk >= w.wall: // what the last time did shows
		part := max(firstPart, 1-float64(w.wall)/float64(workOff))
		use := max(part*float64(all)/float64(passed), leastPart*s.processors*s.worth)
		level := min(s.level, s.divide(use))
		// they may have used little because the process was stopped, or collected garbage
		s.level, s.shrunk = max(leastLevel, firstPart*s.level, level), now
	}
}

// uses are the part of a processor that the client with the most has used, since so much time has
// passed, and the processor time of all clients. It forgets those that have used nothing and owe
// nothing.
func (s *shares) uses(now, passed time.Duration) (most float64, all time.Duration) {
	for name, a := range s.clients {
		if a.used == 0 && a.paid <= now {
			delete(s.clients, name)
			continue
		}
		all += a.used
		a.before, a.used = float64(a.used)/float64(max(1, passed)), 0
		most = max(most, a.before)
	}
	return most, all
}
