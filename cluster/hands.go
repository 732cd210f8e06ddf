package cluster

import (
	"errors"
	"time"

	"penstock/cluster/dedup"
	"penstock/cluster/ownership"
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
	// To is no member, as far as the caller knows: nothing is kept for further calls
	Once bool

	Answer *Answer // set if Err is nil
	// wraps ErrUnsent if the peer surely did not act on the Ask; otherwise nobody knows
	Err error
}

// ErrUnsent marks a Call that never reached its peer: it may be repeated, anywhere.
var ErrUnsent = errors.New("not sent")

// ErrGone marks a Call whose peer exists no more, as far as one can know: its machine says that
// nobody listens there, or another boot does. Silence is not that. It says nothing about whether an
// earlier message was acted on.
var ErrGone = errors.New("peer is gone")

// ErrBroken marks a Call whose connection ended before the answer came. Whether the peer lives the
// next Call finds out, and soon.
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
	// OpReserve, OpLease: who has it, 0 … limiter.MaxHolder bytes; else: who claims to have it, or
	// empty. May be borrowed
	Holder string
}

// Terms are what is asked of a limit besides a cost. See limiter.Request, field by field.
type Terms struct {
	Report, Drain, Strict, Timed bool
	At                           limiter.Millis // if Timed
}

// of is a request of cost on these terms.
func (t *Terms) of(cost int64) limiter.Request {
	return limiter.Request{
		Cost: cost, Report: t.Report, Drain: t.Drain, Strict: t.Strict,
		Timed: t.Timed, At: t.At,
	}
}

// Ask is what a node asks of the owner of some keys.
type Ask struct {
	RingHash uint64 // of the asker's View
	// how often its items have been sent, with this time. More than maxHop is refused
	Hop    uint8
	Atomic bool // all items or none
	// the asker cannot reach the owners of the items: who gets this is their heir, and may send it
	// on, once
	Relay bool
	// on the clock of whoever holds the Ask: an Ask is dropped uncharged after it
	Deadline limiter.Instant
	Items    []AskItem
	Move     *Move  // what is said about partitions; nil in a check
	Words    *Words // what is said about membership (agree.go); mostly nil
	From     uint64 // boot of the asker, if an item asks to be told or gives back; else 0
	// hashes of keys to which something was given back: what the receiver was denied of them is
	// over (denied.go)
	Forget []uint64
}

// Move is what members say to each other about partitions (see partition.go). An empty one is a
// sign of life.
type Move struct {
	From, To uint64 // boots of who says it and of whom it is meant for
	ID       string // of who says it
	// of a claim and a sign of life: its peer address, for a receiver that has not heard of it
	Addr string
	Term uint64 // of the claim or the gift, or the highest that the sender has heard of

	Epoch ownership.Epoch // of a claim and a gift: both ends are in it; zero: no member sends it

	Claim []uint16 // partitions that the sender would hold

	// Sequence is not 0 if what follows has to be taken in once and in order. It grows from message
	// to message of one boot.
	Sequence uint64
	// how long before it was sent Entries were as old as they say, and Holds had as much left
	Age time.Duration
	// partitions whose holder the sender is: from now on it keeps the receiver's copies of them
	Begin   []uint16
	Entries []limiter.Entry // copies; without a Sequence they are merged whenever they come
	End     []uint16        // partitions whose copies somebody else has from now on
	// partitions that the receiver claims and whose holder is gone: it has got all copies that the
	// sender has; without a Sequence: those of Entries and Holds, which are from a file
	Lent []uint16
	// partitions that the sender holds no longer, and the receiver does from now on if it accepts
	Gift []uint16
	// partitions begun or lent of which the receiver has got a whole copy with this message
	Whole []uint16
	Lack  Lack // of Begin and Lent
	Mark
	Taken   []Memory   // takes of the gift's keys that were answered within the last two seconds
	Charges []Charge   // what the sender has charged to replicated limits
	Holds   []HoldCopy // copies, as Entries are
}

// Lack says of which partitions counters were forgotten, and how long ago the last of them was
// (bereft.go).
type Lack struct {
	Of  []uint16
	Age time.Duration
}

// HoldCopy is a copy of a hold. Clocks differ, so its deadline travels as what is left;
// limiter.Hold.Deadline says nothing.
type HoldCopy struct {
	limiter.Hold
	Left time.Duration
}

// Memory is a remembered answer to a take; it travels with the take's partition.
type Memory = dedup.Memory

// MoveAnswer answers a Move.
type MoveAnswer struct {
	Epoch     ownership.Epoch
	Term      uint64     // the highest that the answerer has heard of
	Standings []Standing // one for each partition of Claim
	// partitions of Gift that the answerer does not take, or of Begin that it holds itself; of what
	// is from a file, those that it does not hold
	Refused []uint16
	Applied bool          // the copies and the gift were taken in, but for what is refused
	Up      time.Duration // since the answerer was started
}

// Standing is how a node stands to a partition that another one claims.
type Standing uint8

const (
	// it does not hold the partition, and will accept it from nobody under a term up to the claim's
	StandingFree Standing = iota
	StandingHeld          // it holds the partition, and will hand it over
	// it is handing the partition or a copy to somebody, or has promised it under a later term
	StandingBusy
	// as free, and members have gone: if nobody has a whole copy, counters may be forgotten
	StandingBereft
)

// AskItem is one check of an Ask. The limit comes along, so that the owner needs no configuration
// of its own and two nodes with different files still count on one state.
type AskItem struct {
	Limit *limiter.Limit
	Key   string
	Cost  int64
	Op    Op
	ID    ID
	Terms
	Hold *HoldTerms // of what is about a hold
	Tell bool       // the asker would like to be told when a denial of it ends before its time
}

// Answer has an item for each item of its Ask, in order.
type Answer struct {
	RingHash uint64 // of the answerer's View
	CutOff   bool   // the answerer is cut off from most members: it lives, and holds nothing
	// the answerer is leaving: who has not heard so from its View does not miss it later
	Leaving bool
	Items   []AnswerItem
	// that StatusNotOwner names, with ID, Boot, PeerAddr and Features: the asker may not know of
	// them yet
	Owners []Member
	Move   *MoveAnswer // to a Move, unless the answerer does not know its sender
	Words  *Words      // in answer to Words

	Epoch ownership.Epoch // of the answerer

	under tenure   // that the items were decided under
	asked []flight // memory of DeliverInto
}

// Status says what became of one item.
type Status uint8

const (
	StatusDone Status = iota // decided; Decision is set
	// not charged: the answerer does not hold the key; Owner says who might, if it knows
	StatusNotOwner
	StatusExpired // not charged: the deadline had passed
	// not charged: the Ask broke a rule (hops, atomic over several owners)
	StatusRefused
	StatusLost // sent on to Owner, who did not answer: nobody knows
)

// AnswerItem is the answer to one AskItem.
type AnswerItem struct {
	Status   Status
	Owner    string // of StatusNotOwner; of StatusDone: who decided, if it is not who answers
	Decision limiter.Decision
	Degraded bool  // taken under less than the full promise,
	Bound    int64 // with this bound in force
	// a denial: if something is given back, the answerer tells the asker (Ask.From), if it has been
	// told by AskItem.Tell
	Told bool
}
