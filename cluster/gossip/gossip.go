// Package gossip turns what memberlist hears into cluster.Views. Follow one node from start to end:
//
//  1. Start opens the gossip address and is at once alone in its own View, JOINING. What others
//
// must know about it (its
//
//	boot, its addresses, role and state) travels as a small record, its meta, with every message
//
// about it.
//  2. The reconnector knocks at the seeds, forever and looking their names up again each time,
//
// until another member is
//
//	known. Only then may the node become ACTIVE: a node that reaches nobody must not found a
//
// cluster of its own.
//  3. memberlist calls back for every member that joins, changes or dies. The callbacks run under
//
// the library's lock, so
//
//	they only copy the record into the roster and ring a bell. One goroutine answers the bell: it
//
// makes a View of the
//
//	whole roster, never of the event, so that no order or loss of events can make it wrong. A
//
// death, and a
//
//	node that is LEAVING, make one at once; joins and other changes wait a moment for more, which
//
// a restart brings.
//
//	   News are told at once, and a few times more; while there are none, the library gossips
//	   seldom (stir.go).
//	4. The library never heals a partition once both sides have declared each other dead. The
//
// reconnector does: every
//
//	few seconds it knocks at some of the members that have died without saying goodbye, and at a
//
// seed it misses.
//  5. SetState(LEAVING) takes the node out of every ring while it still answers; Leave says
//
// goodbye; Close stops.
//
// A node is known to the library as "id/boot", so a restart is a new node to it and is never
// mistaken for the old one. In a View there is one member per id: a second process of a name is
// refused while the first one answers, wherever and whenever the two learn of each other
// (contest.go, Config.OnConflict).
//
// The library trusts whoever holds the label and, if there are any, a key: it is no defence against
// a member that lies.
//
// Not built yet: remembering members over a restart of the whole
// cluster (the seeds must be there); comparing ring hashes with every probe.
package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/memberlist"

	"penstock/cluster"
	"penstock/ring"
)

// Config says who a node is and where it finds the others.
type Config struct {
	// Member is this node as the others shall see it. ID, Boot and PeerAddr are required. State is
	// JOINING, or ACTIVE if Join is empty.
	Member cluster.Member
	// Started orders the boots of one ID: the earliest wins, of those that are in the ring.
	// Default: now.
	Started time.Time

	// Version is that of the program, for people: others show it. Default: they show none.
	Version string

	// Bind is the host:port to gossip on, TCP and UDP. Port 0 takes a free one; an empty host means
	// all IPv4 interfaces, and Advertise is then worth setting.
	Bind string
	// Advertise is the host or host:port by which others reach Bind. Default: Bind, or a private
	// address of this machine if Bind is all interfaces.
	Advertise string
	// Cluster is a name, 1 … 255 bytes. Nodes with another name are refused.
	Cluster string
	// Keys are AES-256 keys of 32 bytes. The first encrypts, all decrypt. Without any, gossip is
	// readable and open to whoever reaches Bind.
	Keys [][]byte
	// Allow are the networks from which gossip is heard, and in which members may be. Without any,
	// all are.
	Allow []netip.Prefix
	// Join lists the seeds: "host:port", "dns+name:port" (every A and AAAA record is one),
	// "dnssrv+name" (every SRV record is one). Empty: this is the first node.
	Join []string
	// Resolver looks up the hosts. Default: net.DefaultResolver.
	Resolver Resolver

	// OnView receives every View that differs from the one before, in order and one at a time: the
	// first before Start returns. It must return soon, and must not call methods of the Gossip
	// other than View.
	OnView func(*cluster.View)
	// OnContest is called, after OnView, when another node is alive under this node's ID that comes
	// before this one. This one must stop deciding at once; whether it must stop is asked then.
	// Same rules as OnView.
	OnContest func()
	// OnConflict is called at most once, if a node that comes before this one answers under this
	// node's ID. The caller should stop this one. The error names the other one. Same rules as
	// OnView.
	OnConflict func(error)
	// Answers asks an earlier boot of this node's ID at its peer address whether it is there: nil
	// if it answers, an error that wraps cluster.ErrGone if it is gone, another one if nobody
	// knows. nil: only gossip is asked.
	Answers func(ctx context.Context, earlier cluster.Member) error
	// Logger receives what happens here and what the library says. Default: nothing.
	Logger *slog.Logger

	Timing Timing

	transport memberlist.Transport // of tests; nil = TCP and UDP
}

// Timing is how often things happen. Zero fields take the value of Balanced.
type Timing struct {
	Probe        time.Duration // each node asks one other "are you there" this often
	ProbeTimeout time.Duration // and waits this long before it asks others to ask; well below Probe
	Gossip       time.Duration // news go to three others this often (stir.go)
	PushPull     time.Duration // all that is known is exchanged with one other this often
	// the reconnector's rounds, ±20 %; five times as often until the cluster is reached
	Reconnect time.Duration
	// a join waits this long for others before it becomes a View; a death does not
	Coalesce time.Duration
}

// Balanced finds a crashed node in about 3 s in a cluster of up to 10 and in 5 s in one of 100, and
// lets a node be unreachable for 1.5 s without declaring it dead.
func Balanced() Timing {
	return Timing{
		Probe:        500 * time.Millisecond,
		ProbeTimeout: 250 * time.Millisecond,
		Gossip:       100 * time.Millisecond,
		PushPull:     10 * time.Second,
		Reconnect:    5 * time.Second,
		Coalesce:     100 * time.Millisecond,
	}
}

var (
	// ErrNotJoined refuses to make a node ACTIVE that has not reached its cluster.
	ErrNotJoined = errors.New("gossip: this node has not reached its cluster yet")
	// ErrStopped refuses what can no longer be done after Leave or Close.
	ErrStopped = errors.New("gossip: this node has left its cluster or was closed")
)

const (
	// stateTimeout is how long SetState waits for a change to be sent out. It normally takes 0.1 to
	// 0.4 s; what is not sent by then still goes out with the next exchange.
	stateTimeout = time.Second
	// retransmits is how often each node passes a piece of news on, for each digit of the number of
	// nodes. Of seven nodes that pass it on four times, the library's default, one misses it every
	// two hundredth time, and hears of it by the next push/pull: when two nodes came at once,
	// somebody did so 10 s late in an eighth of the cases.
	retransmits = 8
	// leavingRounds is how many rounds of gossip Leave lets pass between LEAVING and the goodbye,
	// if it must say both: a node that hears the goodbye first takes it for a death.
	leavingRounds = 5
	// streamTimeout bounds a connection of the library, and with it how long Close may take.
	streamTimeout = 2 * time.Second
	// conflictGrace is how long an earlier boot of this node's ID that gossip holds alive may be
	// silent before this one gives up.
	conflictGrace = 15 * time.Second
	// protocol is the version of what Penstock nodes say to each other by their peer doors. The
	// library refuses to join clusters that do not speak it.
	protocol = 1
)

// knocks are what became of knocking at the seeds.
type knocks struct {
	refused  atomic.Pointer[error]   // why the last round reached nobody
	found    atomic.Pointer[[]place] // where the seeds lead to
	answered sync.Map                // addresses that answered
}

// ending says how far a node has gone.
type ending struct{ left, closed bool }

// Gossip is this node's membership in a cluster.
type Gossip struct {
	config Config
	timing Timing
	log    *slog.Logger
	seeds  []seed
	bound  netip.AddrPort // where it listens
	roster *roster
	list   *memberlist.Memberlist
	keys   *memberlist.Keyring // nil: the node was started without
	view   atomic.Pointer[cluster.View]
	joined chan struct{} // closed by markJoined
	knocks knocks

	markJoined func()
	flush      chan chan struct{} // asks announce for a View now; closed in answer
	wasActive  atomic.Bool        // this node was in the ring, as far as it knows
	joinedAt   atomic.Int64       // when joined was closed, in ns since the epoch

	// turn is held by SetState, SetKeys, Leave and Close. It is a channel because its holder waits
	// for the network.
	turn chan struct{}
	ending

	running context.Context // ends at Close
	stop    context.CancelFunc
	tasks   sync.WaitGroup
}

// Start opens the gossip address and begins to look for the others. ctx bounds only the start
// itself. The caller must Close what it gets.
func Start(ctx context.Context, config Config) (*Gossip, error) {
	g, conf, err := prepare(ctx, config)
	if err != nil {
		return nil, err
	}
	g.list, err = create(conf, config.Allow)
	if err != nil {
		g.stop()
		return nil, fmt.Errorf(
			"gossip: cannot listen on %s (TCP and UDP): %w; is another node running there?",
			config.Bind, err)
	}
	// the library writes the port it took there
	g.bound = netip.AddrPortFrom(g.bound.Addr(), uint16(conf.BindPort))
	if len(g.seeds) == 0 {
		g.markJoined()
		g.wasActive.Store(config.Member.State == cluster.StateActive)
	}
	g.knocks.found.Store(new([]place))
	g.publish()
	g.tasks.Go(g.announce)
	g.tasks.Go(g.reconnect)
	return g, nil
}

// prepare checks everything that can be wrong before anything is opened.
func prepare(ctx context.Context, config Config) (*Gossip, *memberlist.Config, error) {
	if config.Resolver == nil {
		config.Resolver = net.DefaultResolver
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Started.IsZero() {
		config.Started = time.Now()
	}
	if err := validate(config); err != nil {
		return nil, nil, err
	}
	g := &Gossip{
		config: config,
		timing: config.Timing.orBalanced(),
		log:    config.Logger,
		joined: make(chan struct{}),
		flush:  make(chan chan struct{}),
		turn:   make(chan struct{}, 1),
	}
	g.markJoined = sync.OnceFunc(func() {
		g.joinedAt.Store(time.Now().UnixNano())
		close(g.joined)
	})
	var err error
	if g.seeds, err = parseSeeds(config.Join); err != nil {
		return nil, nil, err
	}
	if g.roster, err = newRoster(config.Member, printable(config.Version), config.Started,
		g.markJoined); err != nil {
		return nil, nil, err
	}
	conf, err := g.listConfig(ctx)
	if err != nil {
		return nil, nil, err
	}
	g.running, g.stop = context.WithCancel(context.Background())
	return g, conf, nil
}

func validate(c Config) error {
	if err := validateID(c.Member.ID); err != nil {
		return fmt.Errorf("gossip: %w; give the node another --name", err)
	}
	if c.Member.Boot == 0 {
		return errors.New("gossip: the boot id of this node is 0; draw a random one at every start")
	}
	if _, _, err := net.SplitHostPort(c.Member.PeerAddr); err != nil {
		return fmt.Errorf("gossip: the peer address %q of this node is not host:port: %w",
			c.Member.PeerAddr, err)
	}
	if c.Member.State == cluster.StateActive && len(c.Join) > 0 {
		return errors.New(
			"gossip: a node with seeds cannot start as active: it must reach its cluster first")
	}
	if n := len(c.Cluster); n == 0 || n > memberlist.LabelMaxSize {
		return fmt.Errorf("gossip: the cluster's name has %d bytes; it needs 1 to %d (--cluster)",
			n, memberlist.LabelMaxSize)
	}
	return checkKeys(c.Keys)
}

// validateID is also applied to the ids of others: one that no ring accepts would stop every View.
func validateID(id string) error {
	switch {
	case id == "":
		return errors.New("the node id is empty")
	case len(id) > ring.MaxID:
		return fmt.Errorf("the node id %.32q… has %d bytes; at most %d are supported", id, len(id),
			ring.MaxID)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Errorf("the node id %.64q has control characters or is not UTF-8", id)
	}
	return nil
}

func (t Timing) orBalanced() Timing {
	b := Balanced()
	return Timing{
		Probe:        cmp.Or(t.Probe, b.Probe),
		ProbeTimeout: cmp.Or(t.ProbeTimeout, b.ProbeTimeout),
		Gossip:       cmp.Or(t.Gossip, b.Gossip),
		PushPull:     cmp.Or(t.PushPull, b.PushPull),
		Reconnect:    cmp.Or(t.Reconnect, b.Reconnect),
		Coalesce:     cmp.Or(t.Coalesce, b.Coalesce),
	}
}

// listConfig is the library's configuration. It also sets g.bound.
func (g *Gossip) listConfig(ctx context.Context) (*memberlist.Config, error) {
	c := memberlist.DefaultLANConfig()
	c.Name = g.roster.name
	c.Label = g.config.Cluster
	c.Transport = g.config.transport
	if err := g.setAddresses(ctx, c); err != nil {
		return nil, err
	}
	if err := g.keepTo(c); err != nil {
		return nil, err
	}

	c.ProbeInterval, c.ProbeTimeout = g.timing.Probe, g.timing.ProbeTimeout
	c.GossipInterval, c.PushPullInterval = quietFactor*g.timing.Gossip, g.timing.PushPull
	c.RetransmitMult = retransmits
	c.TCPTimeout = streamTimeout
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = 4, 3
	c.GossipToTheDeadTime = 30 * time.Second
	// names carry the boot, so this matters only for a copied process
	c.DeadNodeReclaimTime = time.Second
	c.AwarenessMaxMultiplier = 4
	c.EnableCompression = false // costs more than it saves on packets this small
	// RequireNodeNames stays false: with it the library cannot join by address, and its probes
	// carry names anyway.

	c.DelegateProtocolVersion, c.DelegateProtocolMin, c.DelegateProtocolMax = protocol, protocol,
		protocol
	c.Delegate, c.Events, c.Alive, c.Merge, c.Conflict = g.roster, g.roster, g.roster, g.roster,
		g.roster
	c.Logger = log.New(&libraryLog{to: g.log}, "", 0)

	if len(g.config.Keys) > 0 {
		keys, err := memberlist.NewKeyring(g.config.Keys, g.config.Keys[0])
		if err != nil {
			return nil, fmt.Errorf("gossip: keys: %w", err)
		}
		g.keys, c.Keyring = keys, keys
	}
	return c, nil
}

// setAddresses hands the library literal addresses only: it takes a host name to bind for "all
// interfaces".
func (g *Gossip) setAddresses(ctx context.Context, c *memberlist.Config) error {
	host, portText, err := net.SplitHostPort(g.config.Bind)
	if err != nil {
		return fmt.Errorf("gossip: the address %q to bind is not host:port: %w", g.config.Bind, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return fmt.Errorf(
			"gossip: the address %q to bind: the port is not a number from 0 to 65535",
			g.config.Bind)
	}
	ip, err := g.lookupOne(ctx, cmp.Or(host, "0.0.0.0"))
	if err != nil {
		return fmt.Errorf("gossip: the address %q to bind: %w", g.config.Bind, err)
	}
	g.bound = netip.AddrPortFrom(ip, uint16(port))
	c.BindAddr, c.BindPort, c.AdvertisePort = ip.String(), int(port), int(port)

	if g.config.Advertise == "" {
		if ip == netip.IPv6Unspecified() {
			return fmt.Errorf(
				"gossip: %q is no address that others can dial; say by which they can (--advertise)", g.config.Bind)
		}
		return nil
	}
	host = g.config.Advertise
	if h, p, err := net.SplitHostPort(host); err == nil {
		port, err := strconv.ParseUint(p, 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf(
				"gossip: the address %q to advertise: the port is not a number from 1 to 65535",
				g.config.Advertise)
		}
		host, c.AdvertisePort = h, int(port)
	}
	ip, err = g.lookupOne(ctx, host)
	if err != nil {
		return fmt.Errorf("gossip: the address %q to advertise: %w", g.config.Advertise, err)
	}
	c.AdvertiseAddr = ip.WithZone("").String()
	return nil
}

func (g *Gossip) lookupOne(ctx context.Context, host string) (netip.Addr, error) {
	ips, err := lookup(ctx, g.config.Resolver, host)
	if err != nil {
		return netip.Addr{}, err
	}
	if i := slices.IndexFunc(ips, netip.Addr.Is4); i >= 0 {
		return ips[i], nil
	}
	return ips[0], nil
}

// Addr is the host:port by which others reach this node's gossip.
func (g *Gossip) Addr() string { return g.roster.addr() }

// View is the present View. It is never nil.
func (g *Gossip) View() *cluster.View { return g.view.Load() }

// Version is that of the program of a boot of a node: one that is there, or the last one of a node
// that has died without a goodbye. It is empty if it is not known.
func (g *Gossip) Version(id string, boot uint64) string { return g.roster.version(id, boot) }

// Joined reports whether this node is part of its cluster: it has met another member, or it is the
// first node (it has no seeds, or all its seeds are itself). Once true it stays so, whatever
// becomes of the others.
func (g *Gossip) Joined() bool {
	select {
	case <-g.joined:
		return true
	default:
		return false
	}
}

// Wait returns nil as soon as this node has Joined and, if it has seeds, no other node has its
// name. If ctx ends before, the error says why the seeds could not be reached, or that the name is
// in use.
func (g *Gossip) Wait(ctx context.Context) error {
	select {
	case <-g.joined:
		return g.waitForName(ctx)
	case <-g.running.Done():
		return ErrStopped
	case <-ctx.Done():
	}
	if why := g.knocks.refused.Load(); why != nil {
		return fmt.Errorf("%w: %w", ErrNotJoined, *why)
	}
	return fmt.Errorf("%w: %w", ErrNotJoined, ctx.Err())
}

// waitForName gives the news of another node of this name time to come, and waits until the contest
// for it is over.
func (g *Gossip) waitForName(ctx context.Context) error {
	if len(g.seeds) == 0 {
		return nil
	}
	settled := time.Unix(0, g.joinedAt.Load()).Add(settleRounds * g.timing.Gossip)
	for pause := time.Until(settled); ; pause = contestEvery / 4 {
		select {
		case <-g.running.Done():
			return ErrStopped
		case <-ctx.Done():
			return fmt.Errorf("%w: %q; waiting until the other node is gone", ErrNameTaken,
				g.roster.id)
		case <-time.After(pause):
		}
		if len(g.roster.rivals()) == 0 {
			return nil
		}
	}
}

// SetState changes this node's state. When it returns nil, View shows the change and it has been
// sent out; a node must have Joined to become ACTIVE. On another error than ErrNotJoined and
// ErrStopped the state is changed and the others will learn it from a later exchange.
func (g *Gossip) SetState(state cluster.State) error {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.left || g.closed {
		return ErrStopped
	}
	return g.setState(state, stateTimeout)
}

func (g *Gossip) setState(state cluster.State, timeout time.Duration) error {
	if state > cluster.StateLeaving {
		return fmt.Errorf("gossip: %v is no state that a node can take", state)
	}
	if state == cluster.StateActive && !g.Joined() {
		return ErrNotJoined
	}
	if !g.roster.setState(state) {
		return nil
	}
	if state == cluster.StateActive {
		g.wasActive.Store(true)
	}
	if err := g.tell(timeout); err != nil {
		return fmt.Errorf("gossip: %v has not reached the others within %v: %w", state, timeout,
			err)
	}
	return nil
}

// SetLimits tells the others the hash of this node's limits (Member.Limits). If it has not reached
// them soon, they learn it from a later exchange.
func (g *Gossip) SetLimits(hash uint64) error {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.left || g.closed {
		return ErrStopped
	}
	if !g.roster.setLimits(hash) {
		return nil
	}
	if err := g.tell(stateTimeout); err != nil {
		return fmt.Errorf("gossip: the hash of limits has not reached the others within %v: %w",
			stateTimeout, err)
	}
	return nil
}

// tell makes a View of what this node says of itself, and sends it out.
func (g *Gossip) tell(timeout time.Duration) error {
	done := make(chan struct{})
	g.flush <- done
	<-done
	return g.list.UpdateNode(timeout)
}

// Leave says goodbye: the others drop this node at once and do not look for it. It takes the state
// LEAVING if it does not have it yet, goes on answering the others' probes until Close, and cannot
// join again. timeout, which must be positive, bounds each of its two messages; on an error the
// others will miss this node only by its silence.
func (g *Gossip) Leave(timeout time.Duration) error {
	if timeout <= 0 {
		return fmt.Errorf("gossip: cannot leave within %v; give it a second or two", timeout)
	}
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.closed {
		return ErrStopped
	}
	if g.left {
		return nil
	}
	g.left = true
	if g.View().Me().State != cluster.StateLeaving {
		if err := g.setState(cluster.StateLeaving, timeout); err != nil {
			g.log.Warn("leaving unannounced", "err", err)
		}
		time.Sleep(leavingRounds * g.timing.Gossip)
	}
	if err := g.list.Leave(timeout); err != nil {
		return fmt.Errorf("gossip: the goodbye has not reached the others within %v: %w", timeout,
			err)
	}
	return nil
}

// Close stops everything and waits for it, up to about 4 s if the reconnector is just waiting for a
// silent seed. Without Leave before, it looks like a crash to the others. The library's own
// goroutines end by themselves within a probe or two. View keeps its last value.
func (g *Gossip) Close() error {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	if g.closed {
		return nil
	}
	g.closed = true
	g.stop()
	err := g.list.Shutdown()
	g.tasks.Wait()
	if err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}

// announce makes the Views until Close. After Start it is the only goroutine that does.
func (g *Gossip) announce() {
	var later, stir <-chan time.Time // nil while nothing waits
	rounds := 0                      // of stir that are to come
	var verdict chan error           // nil while no contest is under way
	reported := false
	for {
		var done chan struct{}
		select {
		case <-g.running.Done():
			return
		case <-g.roster.came:
			if later == nil {
				later = time.After(g.timing.Coalesce)
			}
			stir, rounds = atOnce(), stirRounds
			continue
		case <-stir:
			stir, rounds = g.stir(rounds)
			continue
		case err := <-verdict:
			verdict = nil
			if err != nil {
				reported = true
				g.reportConflict(err)
				continue
			}
		case <-later:
		case <-g.roster.went:
			stir, rounds = atOnce(), stirRounds
		case done = <-g.flush:
		}
		later = nil // the View has everything that was waiting
		if contested := g.publish(); contested && verdict == nil && !reported {
			verdict = make(chan error, 1)
			g.tasks.Go(func() { verdict <- g.contest() })
		}
		if done != nil {
			close(done)
		}
	}
}

// publish makes a View of the roster if it differs from the present one. It reports whether another
// node comes before this one under its id.
func (g *Gossip) publish() (contested bool) {
	members, contested := g.roster.members()
	if contested && g.config.OnContest != nil {
		defer g.config.OnContest()
	}
	if old := g.view.Load(); old != nil && slices.Equal(old.Members, members) {
		return contested
	}
	view, err := cluster.NewViewOn(g.config.Member.ID, members, g.ring)
	if err != nil {
		g.log.Error("the view of the cluster stays as it was", "err", err)
		return contested
	}
	g.view.Store(view)
	g.log.Debug("view", "members", len(view.Members), "active", view.Active(), "state",
		view.Me().State.String(),
		"ring", fmt.Sprintf("%016x", view.RingHash()))
	if g.config.OnView != nil {
		g.config.OnView(view)
	}
	return contested
}

// ring is the ring of these nodes. To build one takes milliseconds, and most changes of the roster
// bring none: who joins or leaves shows in it once, and in the roster three times.
func (g *Gossip) ring(ids []string) (*ring.Ring, error) {
	if v := g.view.Load(); v != nil && v.Ring != nil && slices.Equal(v.Ring.Members(), ids) {
		return v.Ring, nil
	}
	return ring.New(ids)
}

func (g *Gossip) reportConflict(rival error) {
	g.log.Error("this node must stop", "err", rival)
	if g.config.OnConflict != nil {
		g.config.OnConflict(rival)
	}
}
