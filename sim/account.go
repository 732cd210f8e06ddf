package sim

import (
	"slices"
	"time"

	"penstock/cluster"
	"penstock/limiter"
)

// account is one key under one limit as clients see it: what they asked, when, and what they heard.
// It knows nothing of how the decision came about.
type account struct {
	spec  *limiter.Spec // of its limit
	key   string
	hash  uint64
	owner *machine
	tally *LimitReport // of its limit
	seen  *keyCourse   // kept by the course

	reference reference // of what is decided on it
	held      *held     // of limits of which units are set aside, else nil
	replica   *replica  // of replicated limits, else nil
	count     *keyCount // of what was charged and not forgotten; nil: nothing yet

	// its windows are those of a calendar, and clocks are so far apart that one that has been there
	// and back may be another
	adrift bool

	supply curve  // of the limit
	counts int64  // how many nodes count for themselves, and give back what one of them does
	heard  window // admitted by the owner
	spares curve  // of the shares of all nodes
	spare  window // admitted from the shares of others while the owner was away
	backs  []givenBack

	told map[*process][]toldDenial
	doubts
	refunding
}

// doubts are reasons for which decisions on a key may differ from those of one limiter.
type doubts struct {
	// when it was last decided on under less than the full promise; 0: never
	marked time.Duration
	// processes to which counters have come that had lain at the door of a machine while it stood
	// still, and when it read them
	aged map[*process]time.Duration
}

// refunding is what clients are about to give back to a key.
type refunding struct {
	giving int           // visits that may give something back and are not answered
	gaveBy time.Duration // until when what others have been answered for may still be given back
}

// term is one item of a request, from its first visit to the end of its last.
type term struct {
	account      *account
	heard, spare int           // the numbers of its questions
	counted      bool          // as admitted by the owner; a repeat is not a second admission
	spared       bool          // counted as admitted from a share
	settled      bool          // an owner has answered
	backBy       time.Duration // until when what it gives back may come; 0: before its answer
}

// givenBack is what is on its way back after all clients that asked for it have heard their
// answers.
type givenBack struct {
	by    time.Duration
	parts int64
}

// givesBack is the most that an item can give back of what was charged, in units.
func (a *account) givesBack(it *cluster.Item) int64 {
	switch {
	case it.Op == cluster.OpReset:
		return capacityOf(a.spec)
	case it.Op == cluster.OpTake && it.Cost < 0:
		return min(-max(it.Cost, -1<<40), capacityOf(a.spec))
	}
	return 0
}

// returns notes that an amount has been given back, or will be until by: with takes of several
// owners it is reported when the client has heard yes, so a question that comes in between may be
// decided before it.
func (a *account) returns(now, by time.Duration, parts int64) {
	switch {
	case parts == 0:
	case by <= now:
		a.heard.returned += parts
	default:
		a.backs = append(a.backs, givenBack{by, parts})
	}
}

// backsOver counts what must have been given back by now.
func (a *account) backsOver(now time.Duration) {
	if len(a.backs) == 0 {
		return
	}
	a.backs = slices.DeleteFunc(a.backs, func(x givenBack) bool {
		if x.by < now {
			a.heard.returned += x.parts
		}
		return x.by < now
	})
}
