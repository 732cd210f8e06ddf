package cluster

import (
	"fmt"
	"time"

	"penstock/limiter"
	"penstock/ring"
)

// Config makes a Node. ID, Boot, Clock, Network and Table are required.
type Config struct {
	ID          string // stable over restarts
	Boot        uint64 // never used before: drawn at random when the node is started
	Clock       Clock
	Network     Network
	Table       *limiter.Table
	CallTimeout time.Duration // of one call to a peer; default DefaultCallTimeout
	// pause between two looks at a part of the table, in whole ticks of 100 ms; default 250 ms
	SweepEvery time.Duration
	// Rings makes rings; default ring.New. A program with many nodes makes each once.
	Rings func(ids []string) (*ring.Ring, error)
	// drawn at random, so that clients that draw ids cannot slow the memory of ids down; decides
	// nothing
	Secret uint64
	// OnIdle is told that nothing is asked of the node, and when that is over, so that its program
	// can do with less; nil: nobody is told
	OnIdle func(idle bool)
}

// Node is one limiter of a cluster. Its methods are safe for concurrent use. See the package's doc
// for the path of a check.
//
// A Node wires its parts. Each part owns its state, knows the few others that it needs, and does
// not know Node. State of partitions, and all that is decided about them, lies under partitions.mu.
type Node struct {
	self
	right
	catalog    // limits and rules
	agreed     agreement
	views      views
	pulse      pulse
	contacts   contacts
	parts      partitions
	copier     copier
	claims     claimer
	intake     intake
	awaits     awaits
	restorer   restorer
	holder     holder
	local      local
	notices    notices
	shares     shares
	forwarder  forwarder
	debts      debtor
	confirms   confirmer
	multiOwner multiOwner
}

// Limits are the named limits of a node. A set is immutable: a new one replaces the whole.
type Limits map[string]*limiter.Limit

// New makes a node that knows no other node and no limits. It answers after the first SetView;
// Start begins its timers.
func New(c Config) (*Node, error) {
	if c.ID == "" || c.Boot == 0 || c.Clock == nil || c.Network == nil || c.Table == nil {
		return nil, fmt.Errorf("cluster: a node needs an ID, a Boot other than 0, a Clock, "+
			"a Network and a Table; got %+v", c)
	}
	n := &Node{self: self{
		id: c.ID, boot: c.Boot, began: c.Clock.Now(),
		clock: c.Clock, net: c.Network, callTimeout: c.CallTimeout,
	}}
	n.wire()
	n.pulse.onIdle = c.OnIdle
	n.holder.table, n.holder.sweepEvery = c.Table, c.SweepEvery
	if n.callTimeout == 0 {
		n.callTimeout = DefaultCallTimeout
	}
	if n.holder.sweepEvery == 0 {
		n.holder.sweepEvery = 250 * time.Millisecond
	}
	if n.views.rings = c.Rings; n.views.rings == nil {
		n.views.rings = ring.New
	}
	n.right.until.Store(neverEnds)
	n.holder.recent.Seed(c.Secret)
	n.catalog.begin(&n.stats)
	n.holder.table.Guard(n.holder.decides, n.parts.keeps)
	n.holder.table.Track()
	n.holder.book = limiter.NewLedger(n.holder.table, n.holder.Holds)
	n.holder.book.Track()
	return n, nil
}

// wire has the parts know each other.
func (n *Node) wire() {
	me, right := &n.self, &n.right
	right.self = me
	n.agreed = agreement{
		self: me, right: right, views: &n.views, parts: &n.parts,
		claims: &n.claims, contacts: &n.contacts, pulse: &n.pulse, followers: n,
	}
	n.agreed.suspends.clock, _ = me.clock.(SuspendedClock)
	n.agreed.suspends.then = func() {
		n.local.leases.End() // what was borrowed has gone on running out at the holders
		n.still.stood(n.clock.Now())
	}
	n.views.agreed = &n.agreed
	n.pulse = pulse{self: me, agreed: &n.agreed, parts: &n.parts, beat: n.tick}
	n.contacts = contacts{
		self: me, right: right, agreed: &n.agreed, claims: &n.claims,
		copier: &n.copier, parts: &n.parts, pulse: &n.pulse, restorer: &n.restorer,
	}
	n.parts.self, n.parts.right = me, right
	n.parts.since.Store(int64(me.began))
	n.copier = copier{
		self: me, right: right, parts: &n.parts, claims: &n.claims,
		contacts: &n.contacts, holder: &n.holder, parting: make(map[uint16]int),
		keepers: keepers{self: me, right: right, parts: &n.parts},
	}
	n.claims = claimer{
		self: me, right: right, parts: &n.parts, awaits: &n.awaits,
		contacts: &n.contacts, copier: &n.copier, intake: &n.intake, restorer: &n.restorer,
	}
	n.intake = intake{
		self: me, right: right, parts: &n.parts, claims: &n.claims, copier: &n.copier,
		holder: &n.holder, inbox: make(map[uint64]*inbox), former: make(map[uint64]formerPeer),
	}
	n.awaits = awaits{self: me, right: right, parts: &n.parts, claims: &n.claims}
	n.restorer = restorer{self: me, parts: &n.parts, contacts: &n.contacts, holder: &n.holder}
	n.holder.self, n.holder.right, n.holder.parts = me, right, &n.parts
	n.local.self, n.local.right, n.local.catalog, n.local.parts = me, right, &n.catalog, &n.parts
	n.local.holder, n.local.forwarder, n.local.confirms = &n.holder, &n.forwarder, &n.confirms
	n.notices.self, n.notices.parts = me, &n.parts
	n.notices.contacts, n.notices.copier = &n.contacts, &n.copier
	n.shares = shares{self: me, right: right, holder: &n.holder}
	n.forwarder = forwarder{
		self: me, right: right, awaits: &n.awaits, contacts: &n.contacts,
		parts: &n.parts, holder: &n.holder, local: &n.local, debts: &n.debts, shares: &n.shares,
	}
	n.debts.self, n.debts.right, n.debts.parts = me, right, &n.parts
	n.debts.forwarder, n.debts.holder = &n.forwarder, &n.holder
	n.debts.notices, n.debts.shares = &n.notices, &n.shares
	n.confirms = confirmer{self: me, parts: &n.parts, copier: &n.copier, holder: &n.holder}
	n.multiOwner = multiOwner{
		self: me, confirms: &n.confirms, debts: &n.debts, forwarder: &n.forwarder,
		holder: &n.holder, shares: &n.shares,
	}
}

// View has the nodes that are there and the owners of all keys; nil before the first SetView.
func (n *Node) View() *View {
	if r := n.view.Load(); r != nil {
		return r.View
	}
	return nil
}

// Ready reports whether checks can be answered: the node has a View in which keys have owners,
// and if it is a member itself, it is in the ring. It does not depend on the health of others.
func (n *Node) Ready() bool {
	v := n.View()
	return v != nil && v.Ring != nil && (v.Me().Role == RoleAgent || v.Me().State == StateActive)
}

// Stats are the node's counters; they are read while they change.
func (n *Node) Stats() *Stats { return &n.stats }

// Table holds the state of the keys this node owns.
func (n *Node) Table() *limiter.Table { return n.holder.table }

// Book has the holds on the keys that this node decides on, and copies of others.
func (n *Node) Book() *limiter.Ledger { return n.holder.book }

// Unreachable lists the members that this node keeps calls away from at the moment.
func (n *Node) Unreachable() (ids []string) {
	now := n.clock.Now()
	if r := n.view.Load(); r != nil {
		for i, m := range r.Members {
			if r.peers[i].Open(now) {
				ids = append(ids, m.ID)
			}
		}
	}
	return ids
}

// Start begins the node's ticks.
func (n *Node) Start() {
	n.tick()
	if n.right.on {
		n.agreed.pollAgreement()
	}
}

// Stop ends the node's ticks. Its doors go on answering.
func (n *Node) Stop() {
	n.parts.mu.Lock()
	defer n.parts.mu.Unlock()
	n.stopped.Store(true)
	n.still.ends()
	n.right.halted.Store(true)
	if n.pulse.stopTick != nil {
		n.pulse.stopTick()
	}
	if n.agreed.stopPoll != nil {
		n.agreed.stopPoll()
	}
}

func itemsReason(got int) string {
	return fmt.Sprintf("has %d items; 1 to %d are accepted", got, MaxItems)
}
