package cluster

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"penstock/cluster/debts"
	"penstock/cluster/dedup"
	"penstock/cluster/denial"
	"penstock/cluster/lease"
	"penstock/cluster/ownership"
	"penstock/limiter"
	"penstock/ring"
)

// Config makes a Node. ID, Boot, Clock, Network and Table are required.
type Config struct {
	ID          string // stable over restarts
	Boot        uint64 // never used before: drawn at random by whoever starts the node
	Clock       Clock
	Network     Network
	Table       *limiter.Table
	CallTimeout time.Duration // of one call to a peer; default DefaultCallTimeout
	SweepEvery  time.Duration // pause between two looks at a part of the table, in whole ticks of 100 ms; default 250 ms
	// Rings makes rings; default ring.New. A program with many nodes makes each once.
	Rings  func(ids []string) (*ring.Ring, error)
	Secret uint64 // drawn at random, so that clients that draw ids cannot slow the memory of ids down; decides nothing
}

// Node is one limiter of a cluster. Its methods are safe for concurrent use. See the package's doc
// for the path of a check.
type Node struct {
	identity
	ports
	table      *limiter.Table
	book       *limiter.Ledger
	sweepEvery time.Duration
	storedAt   limiter.Instant // when the holds were written that this node has from a file, if that is long ago; 0: it has none such
	writtenAt  limiter.Instant // when the file was that names who is awaited

	view    atomic.Pointer[route]
	catalog // limits and rules
	recent  dedup.Window
	local
	holdings holdings
	agreed   agreement
	rings    func(ids []string) (*ring.Ring, error)
	dozing   atomic.Bool // see doze.go
	minority atomic.Bool // cut off from most of the others: this node decides nothing but by on_partition
	entered  atomic.Bool // it has claimed what it should hold since it became a member
	lacking  atomic.Bool // somebody is awaited who is not there

	_        [64]byte      // what every check reads is no neighbour of what every check writes
	sequence atomic.Uint64 // of the last ID drawn
	stats    Stats
	_        [64]byte

	charges charges // to replicated limits, that other nodes have not heard of

	debts debts.Ledger // what this node has admitted and no holder of the key has charged

	mu        sync.Mutex               // guards below, and makes SetView one at a time; taken before a lock of the table, never after
	hinted    *View                    // the members that gossip names
	reviewed  *ownership.Configuration // that the View was made of last
	parts     []part                   // by partition; nil if this node is no member
	term      uint64                   // the highest that was heard of
	moves     uint64                   // sequence of the last message about copies
	inbox     map[uint64]*inbox
	former    map[uint64]formerPeer // by boot: those that were in a View and are no more
	awaited   []string              // members whose files may know what this node does not
	beside    []string              // if this node is leaving: those that there should have been before
	healed    limiter.Instant       // when this node was last cut off no more
	fences    uint64                // how often this node has had to let go of all that it held, or would have held
	ticks     uint64
	changes   uint64          // Stats.Changes at the last tick
	calm      int             // ticks in a row in which nothing has changed
	swept     limiter.Instant // when the table was last looked at
	probing   int             // index in route.members of who was probed last
	tending   bool            // a claim is under way
	parting   map[uint16]int  // partitions of which others are being told that denials end: they are not given away before that
	unsettled bool            // something has changed since tend last found nothing to claim
	outboxes  []*peer         // of the View: those that something was ever to be said to, by id
	restored  bool            // some parts are
	returning bool            // what was restored is being sent to who should hold it
	returnAt  limiter.Instant // … and not before then, for some was refused
	stopTick  func()
	stopped   bool
}

// identity says which start of which node this is.
type identity struct {
	id    string
	boot  uint64
	began limiter.Instant
}

// ID is the node's stable id.
func (i *identity) ID() string { return i.id }

// Boot is what tells this start of the node from all others.
func (i *identity) Boot() uint64 { return i.boot }

// ports are how a node reaches the world.
type ports struct {
	clock       Clock
	net         Network
	callTimeout time.Duration
}

// local is what lets a node decide on keys that other nodes hold. Each part owns its lock.
type local struct {
	leases  lease.Leases
	denials denial.Cache
	watches denial.Watches // the nodes that this one tells when a denial ends
}

// Limits are the named limits of a node. A set is immutable: a new one replaces the whole.
type Limits map[string]*limiter.Limit

// route is a View with what this node remembers of each peer.
type route struct {
	*View
	peers   []*peer // by index in Members; kept from View to View while the peer's boot lives
	members []*peer // of them those whose role that is, without this node; nodes begin with different ones

	strangers []Member // not in the View, and met by one request on its way: their peers follow those of Members
}

// New makes a node that knows nobody and no limits. It answers after the first SetView; Start
// begins its timers.
func New(c Config) (*Node, error) {
	if c.ID == "" || c.Boot == 0 || c.Clock == nil || c.Network == nil || c.Table == nil {
		return nil, fmt.Errorf("cluster: a node needs an ID, a Boot other than 0, a Clock, a Network and a Table; got %+v", c)
	}
	n := &Node{
		identity: identity{id: c.ID, boot: c.Boot, began: c.Clock.Now()},
		ports:    ports{clock: c.Clock, net: c.Network, callTimeout: c.CallTimeout},
		table:    c.Table, sweepEvery: c.SweepEvery,
	}
	if n.callTimeout == 0 {
		n.callTimeout = DefaultCallTimeout
	}
	if n.sweepEvery == 0 {
		n.sweepEvery = 250 * time.Millisecond
	}
	if n.rings = c.Rings; n.rings == nil {
		n.rings = ring.New
	}
	n.agreed.until.Store(neverEnds)
	n.recent.Seed(c.Secret)
	n.catalog.begin(&n.stats)
	n.parting = make(map[uint16]int)
	n.inbox, n.former = make(map[uint64]*inbox), make(map[uint64]formerPeer)
	n.table.GuardAt(n.decides, n.keeps)
	n.table.Track()
	n.book = limiter.NewLedger(n.table, n.Holds)
	n.book.Track()
	return n, nil
}

// View is who is there and who owns what, or nil before the first SetView.
func (n *Node) View() *View {
	if r := n.view.Load(); r != nil {
		return r.View
	}
	return nil
}

// Ready reports whether checks can be answered: the node has a View in which somebody owns keys,
// and if it is a member itself, it is in the ring. It does not depend on the health of others.
func (n *Node) Ready() bool {
	v := n.View()
	return v != nil && v.Ring != nil && (v.Me().Role == RoleAgent || v.Me().State == StateActive)
}

// Stats are the node's counters; they are read while they change.
func (n *Node) Stats() *Stats { return &n.stats }

// Table holds the state of the keys this node owns.
func (n *Node) Table() *limiter.Table { return n.table }

// Book has the holds on the keys that this node decides on, and copies of others.
func (n *Node) Book() *limiter.Ledger { return n.book }

// Unreachable lists the members that this node keeps calls away from at the moment.
func (n *Node) Unreachable() (ids []string) {
	now := n.clock.Now()
	if r := n.view.Load(); r != nil {
		for i, m := range r.Members {
			if r.peers[i].open(now) {
				ids = append(ids, m.ID)
			}
		}
	}
	return ids
}

// Start begins the node's ticks.
func (n *Node) Start() {
	n.tick()
	if n.agreed.on {
		n.pollAgreement()
	}
}

// Stop ends the node's ticks. Its doors go on answering.
func (n *Node) Stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopped = true
	n.agreed.halted.Store(true)
	if n.stopTick != nil {
		n.stopTick()
	}
}

// nodeOrigin marks the IDs that nodes draw. Clients cannot draw such an ID (Check clears the bit),
// so nobody can take the place of another node's take in an owner's memory.
const nodeOrigin = 1 << 63

func (n *Node) nextID() ID { return ID{Origin: n.boot | nodeOrigin, Sequence: n.sequence.Add(1)} }

func itemsReason(got int) string {
	return fmt.Sprintf("has %d items; 1 to %d are accepted", got, MaxItems)
}
