// Package gossip turns what memberlist hears into cluster.Views. Follow one node from start to end:
//
//  1. Start opens the gossip address and is at once alone in its own View, JOINING. What others
//     must know about it (its boot, its addresses, role and state) travels as a small record, its
//     meta, with every message about it.
//  2. The reconnector knocks at the seeds, forever and looking their names up again each time,
//     until another member is known. Only then may the node become ACTIVE: a node that reaches no
//     other one must not found a cluster of its own.
//  3. memberlist calls back for every member that joins, changes or dies. The callbacks run under
//     the library's lock, so they only copy the record into the roster and ring a bell. One
//     goroutine answers the bell (views.go): it makes a View of the whole roster, never of the
//     event, so that no order or loss of events can make it wrong. A death, and a node that is
//     LEAVING, make one at once; joins and other changes wait a moment for more, which a restart
//     brings. News are told at once, and a few times more; while there are none, the library
//     gossips seldom (stir.go).
//  4. The library never heals a partition once both sides have declared each other dead. The
//     reconnector does: every few seconds it knocks at some of the members that have died without
//     saying goodbye, and at a seed that it misses.
//  5. SetState(LEAVING) takes the node out of every ring while it still answers; Leave says
//     goodbye; Close stops (state.go).
//
// A node is known to the library as "id/boot", so a restart is a new node to it and is never
// mistaken for the old one. In a View there is one member per id: a second process of a name is
// refused while the first one answers, wherever and whenever the two learn of each other
// (contest.go, Config.OnConflict).
//
// The library trusts every process that has the label and, if there are any, a key: it is no
// defence against a member that lies.
//
// Not built yet: remembering members over a restart of the whole cluster (the seeds must be there);
// comparing ring hashes with every probe.
package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"penstock/cluster"
)

var (
	// ErrNotJoined refuses to make a node ACTIVE that has not reached its cluster.
	ErrNotJoined = errors.New("gossip: this node has not reached its cluster yet")
	// ErrStopped refuses what can no longer be done after Leave or Close.
	ErrStopped = errors.New("gossip: this node has left its cluster or was closed")
	// errUnconfirmed says that the library has not confirmed that it sent a change out. It may have
	// done so: its confirmation is lost if the last message leaves before it begins to wait for it.
	errUnconfirmed = errors.New("no confirmation")
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
	if err = g.create(conf); err != nil {
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
	if config.Agreed != nil {
		g.roster.agreed = config.Agreed
	}
	conf, err := g.listConfig(ctx)
	if err != nil {
		return nil, nil, err
	}
	g.running, g.stop = context.WithCancel(context.Background())
	return g, conf, nil
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
