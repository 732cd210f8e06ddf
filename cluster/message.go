package cluster

import (
	"time"

	"penstock/cluster/dedup"
	"penstock/cluster/ownership"
	"penstock/limiter"
)

// Ask is what a node asks of the owner of some keys.
type Ask struct {
	RingHash uint64 // of the asker's View
	// how often its items have been sent, with this time. More than maxHop is refused
	Hop    uint8
	Atomic bool // all items or none
	// the asker cannot reach the owners of the items: the node that gets this is their heir, and
	// may send it on, once
	Relay bool
	// boot of the node that this is for, if the sender does not reach it: the receiver sends it on,
	// once, and answers what that node says. Only a Move and Words go that way (detour.go)
	For uint64
	// on the clock of the node that has the Ask: it is dropped uncharged after that
	Deadline limiter.Instant
	Items    []AskItem
	Move     *Move  // what is said about partitions; nil in a check
	Words    *Words // what is said about membership (agree.go); mostly nil
	From     uint64 // boot of the asker, if an item asks to be told or gives back; else 0
	// hashes of keys to which something was given back: what the receiver was denied of them is
	// over (local.go)
	Forget []uint64
	Trace  Trace // of the request that the items are of
}

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
	// the answerer is leaving: an asker that has not heard so from its View does not miss it later
	Leaving bool
	Items   []AnswerItem
	// that StatusNotOwner names, with ID, Boot, PeerAddr and Features: the asker may not know of
	// them yet
	Owners []Member
	Move   *MoveAnswer // to a Move, unless the answerer does not know its sender
	Words  *Words      // in answer to Words
	// that the answerer places keys under, if its RingHash is not the Ask's
	Secret Secret
	Passed bool // it is what the node says that the Ask is for (Ask.For)

	Epoch ownership.Epoch // of the answerer

	under tenure   // that the items were decided under
	asked []flight // memory of DeliverInto
}

// Status says what became of one item.
type Status uint8

const (
	StatusDone Status = iota // decided; Decision is set
	// not charged: the answerer does not hold the key; Owner is the node that might, if it knows
	StatusNotOwner
	StatusExpired // not charged: the deadline had passed
	// not charged: the Ask broke a rule (hops, atomic over several owners)
	StatusRefused
	StatusLost // sent on to Owner, which did not answer: its fate is unknown
)

// AnswerItem is the answer to one AskItem.
type AnswerItem struct {
	Status Status
	// of StatusNotOwner; of StatusDone: the node that decided, if another one answers
	Owner    string
	Decision limiter.Decision
	Degraded bool  // taken under less than the full promise,
	Bound    int64 // with this bound in force
	// a denial: if something is given back, the answerer tells the asker (Ask.From), if it has been
	// told by AskItem.Tell
	Told bool
}

// Move is what members say to each other about partitions (partition.go): a claim, copies, a gift,
// what was charged to replicated limits, or several of these. An empty one is a sign of life.
type Move struct {
	From, To uint64 // boots of the sender and of the receiver
	ID       string // of the sender
	Secret   Secret // that the sender, or the cluster of a file, places keys under (placedBy)
	Addr     string // of a claim and a sign of life: its peer address, if the receiver lacks that
	Term     uint64 // of the claim or the gift, or the highest that the sender has heard of

	Epoch ownership.Epoch // of a claim and a gift: both ends are in it; zero: no member sends it

	Claiming
	Copying
	Giving
	Charges []Charge // what the sender has charged to replicated limits
}

// Claiming asks whether a member holds some partitions. The MoveAnswer has a Standing for each.
type Claiming struct {
	Claim []uint16 // partitions that the sender would hold
	Known []Known  // whole copies that the sender has of them, or lends (Lent)
	// Sequence of the last Copying of the receiver that the sender has taken in
	Heard uint64
}

// Copying brings copies of entries and holds, and says which partitions they are of.
type Copying struct {
	// Sequence is not 0 if the Move has to be taken in once and in order. It grows from message to
	// message of one boot. Without it entries and holds are merged whenever they come.
	Sequence uint64
	// before it was sent Entries were as old as they say, and Holds had as much left
	Age     time.Duration
	Entries []limiter.Entry
	Holds   []HoldCopy

	// partitions that the sender holds: from now on it keeps the receiver's copies of them
	Begin []uint16
	Up    time.Duration // with Begin: MoveAnswer.Up of the sender
	Whole []uint16      // begun or lent: the receiver has got a whole copy with this message
	End   []uint16      // partitions that are copied to another node from now on
	// Lent are partitions that the receiver claims and that have lost their holder: it has got all
	// copies that the sender has. Without a Sequence: those of Entries and Holds, from a file.
	Lent []uint16
	// how long ago the file was written that Entries and Holds are from; 0: from none, or not known
	Stored time.Duration
	Lack   Lack // of Begin and Lent, or in a file

	Pass     uint64 // of the sender over its table: the copies were found in that one, or before
	Complete bool   // the receiver has all that is copied to it and was found until that pass
}

// Giving hands partitions over: the sender does not decide for them any more, and the receiver does
// from now on if it accepts.
type Giving struct {
	Gift  []uint16
	Taken []Memory // takes of the gift's keys that were answered within the last two seconds
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

// on is the hold of a copy that was made at then.
func (c *HoldCopy) on(then limiter.Instant) limiter.Hold {
	h := c.Hold
	h.Deadline = then.Add(max(0, min(c.Left, limiter.MaxTTL)))
	return h
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
	// partitions of Begin of which the answerer has all already: it has given them to the sender;
	// and of Gift, those that the sender is to keep as copies, until it is told that they end
	Whole   []uint16
	Applied bool // the copies and the gift were taken in, but for what is refused
	// for how long members have been there without a break, as far as the answerer knows: since it
	// was started at least
	Up    time.Duration
	Blank bool // it was started without a file
}

// Standing is how a node stands to a partition that another one claims.
type Standing uint8

const (
	// it does not hold the partition, and will accept it from nobody under a term up to the claim's
	StandingFree Standing = iota
	StandingHeld          // it holds the partition, and will hand it over
	// it is handing the partition or a copy over, or has promised it under a later term
	StandingBusy
	// as free, and members have gone: if no node has a whole copy, counters may be forgotten
	StandingBereft
)
