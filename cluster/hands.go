package cluster

import (
	"errors"
	"time"

	"penstock/limiter"
)

// Clock is the first of a node's two hands. In production it is the machine's clock, in the simulator an imagined
// one. It never steps.
type Clock interface {
	Now() limiter.Instant
	// AfterFunc runs f once, d later, unless stop is called first. f may wait in Network.Call.
	AfterFunc(d time.Duration, f func()) (stop func())
}

// Network is the other hand, and the only place where a node waits.
type Network interface {
	// Call carries every Ask to its peer, all at once, and returns when each Call has its Answer or its Err.
	// It never waits past a Call's Deadline.
	Call(calls []Call)
}

// Call is one message to a peer and what came back.
type Call struct {
	To       Member
	Ask      *Ask
	Deadline limiter.Instant // on the caller's clock; it travels as what is left of it

	Answer *Answer // set if Err is nil
	Err    error   // wraps ErrUnsent if the peer surely did not act on the Ask; otherwise nobody knows
}

// ErrUnsent marks a Call that never reached its peer: it may be repeated, anywhere.
var ErrUnsent = errors.New("not sent")

// ID names one take or reset, so that it happens once however often it is delivered: Origin is the boot of the node
// (or client) that drew it, Sequence counts there. The zero ID is no name: such a take cannot be recognised.
type ID struct {
	Origin, Sequence uint64
}

// Op is what is asked of a key.
type Op uint8

const (
	OpTake  Op = iota // charge the cost if the limit admits it
	OpPeek            // say what OpTake would answer, change nothing
	OpReset           // forget the key: it is as new; answers with its state after that
)

// Ask is what a node asks of the owner of some keys.
type Ask struct {
	RingHash uint64          // of the asker's View
	Hop      uint8           // 1: straight from the door; 2: sent on after NotOwner. More is refused
	Atomic   bool            // all items or none
	Deadline limiter.Instant // on the clock of whoever holds the Ask: an Ask is dropped uncharged after it
	Items    []AskItem
}

// AskItem is one check of an Ask. The limit comes along, so that the owner needs no configuration of its own and
// two nodes with different files still count on one state.
type AskItem struct {
	Limit *limiter.Limit
	Key   string
	Cost  int64
	Op    Op
	ID    ID
}

// Answer has an item for each item of its Ask, in order.
type Answer struct {
	RingHash uint64 // of the answerer's View
	Items    []AnswerItem
}

// Status says what became of one item.
type Status uint8

const (
	StatusDone     Status = iota // decided; Decision is set
	StatusNotOwner               // not charged: the answerer does not own the key; Owner says who does, if it knows
	StatusExpired                // not charged: the deadline had passed
	StatusRefused                // not charged: the Ask broke a rule (hops, atomic over several owners)
)

// AnswerItem is the answer to one AskItem.
type AnswerItem struct {
	Status   Status
	Owner    string // of StatusNotOwner
	Decision limiter.Decision
}
