package cluster

import (
	"errors"
	"time"

	"penstock/cluster/dedup"
	"penstock/limiter"
)

// Clock is the first of a node's two hands. In production it is the machine's clock, in the
// simulator an imagined one. It never steps.
type Clock interface {
	Now() limiter.Instant
	// AfterFunc runs f once, d later, unless stop is called first. f may wait in Network.Call.
	AfterFunc(d time.Duration, f func()) (stop func())
}

// SuspendedClock is a Clock that notices when the machine was suspended.
type SuspendedClock interface {
	// Suspended reports whether the machine was suspended since the last call, in a way that Now
	// has not seen.
	Suspended() bool
}

// Network is the other hand, and the only place where a node waits: for answers, or for a moment.
type Network interface {
	// Call carries every Ask to its peer, all at once, and returns when each Call has its Answer or
	// its Err. It never waits past a Call's Deadline, and keeps nothing of calls and Asks: they are
	// used again.
	Call(calls []Call)
	// Wait returns at until.
	Wait(until limiter.Instant)
}

// Call is one message to a peer and what came back.
type Call struct {
	To       Member
	Ask      *Ask
	Deadline limiter.Instant // on the caller's clock; it travels as what is left of it
	// To is not a member, as far as the caller knows: nothing is kept for further calls
	Once bool

	// Another member has passed the Ask on, or was to: its fate says nothing about the way to To
	Passed bool
	Answer *Answer // set if Err is nil
	// wraps ErrUnsent if the peer surely did not act on the Ask; otherwise its fate is unknown
	Err error
}

// ErrUnsent marks a Call that never reached its peer: it may be repeated, anywhere.
var ErrUnsent = errors.New("not sent")

// ErrGone marks a Call to a peer that exists no more, as far as one can know: its machine says that
// no process listens there, or another boot does. Silence is not that. It says nothing about
// whether an earlier message was acted on.
var ErrGone = errors.New("peer is gone")

// ErrBroken marks a Call of which the connection ended before the answer came. The next Call finds
// out, and soon, whether the peer lives.
var ErrBroken = errors.New("connection lost")

// ID names one take or reset, so that it happens once however often it is delivered. The zero ID
// names nothing.
type ID = dedup.ID

// Op is what is asked of a key.
type Op uint8

const (
	OpTake  Op = iota // charge the cost if the limit admits it
	OpPeek            // say what OpTake would answer, change nothing
	OpReset           // forget the key: it is as new; answers with its state after that

	OpReserve // set the cost aside, as a hold (limiter.Ledger); its id is that of the item
	OpSettle  // charge the cost, which is what was used, and release the rest of the hold
	OpExtend  // put the hold's deadline off
	OpLease   // set up to the cost aside for a node or a client: Decision.Drained says how much
)

// holds reports whether o is about a hold.
func (o Op) holds() bool { return o >= OpReserve }

// HoldTerms are what is said about a hold besides an amount.
type HoldTerms struct {
	ID ID // OpSettle, OpExtend: which
	// OpReserve, OpExtend, OpLease: until its deadline, limiter.MinTTL … limiter.MaxTTL
	TTL time.Duration
	// Charge says that all is charged if the hold runs out, whatever its limit says. OpReserve; not
	// for clients.
	Charge bool
	// OpReserve, OpLease: the holder, 0 … limiter.MaxHolder bytes; else: the one that claims to be
	// the holder, or empty. May be borrowed
	Holder string
	// OpReserve, OpLease: a mark of the client, by which its door knows it; 0: a node asks. Holds
	// are counted by it (limiter.Ledger), and it is shown to nobody
	Client uint64
}

// Terms are what is asked of a limit besides a cost. See limiter.Request, field by field.
type Terms struct {
	Report, Drain, Strict, Timed, Bounded bool

	At       limiter.Millis // if Timed
	MaxDelay time.Duration  // if Bounded
}

// given is the name of a term that is asked for; empty: none is.
func (t *Terms) given() string {
	switch {
	case t.Report:
		return "report"
	case t.Drain:
		return "drain"
	case t.Strict:
		return "strict"
	case t.Timed:
		return "at_ms"
	case t.Bounded:
		return "max_delay_ms"
	}
	return ""
}

// of is a request of cost on these terms.
func (t *Terms) of(cost int64) limiter.Request {
	return limiter.Request{
		Cost: cost, Report: t.Report, Drain: t.Drain, Strict: t.Strict,
		Timed: t.Timed, At: t.At, Bounded: t.Bounded, MaxDelay: t.MaxDelay,
	}
}
