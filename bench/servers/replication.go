package servers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"penstock/bench/contest"
	"penstock/cluster"
	"penstock/cluster/gossip"
	"penstock/limiter"
	"penstock/rpc/clock"
	"penstock/rpc/native"
	"penstock/rpc/peer"
)

const (
	withoutName  = "without replication"
	handoverName = "while a node joins and leaves"
)

// replication is three nodes that copy changes to heirs, beside three that send empty copies. All
// are this program (Member), since penstock has no such switch.
var replication = Row{
	Name: "replication", Title: "What replication and handover cost: three nodes, any key, " +
		"Gubernator's API",
	contestants: []contestant{
		{name: Base, start: members(true)},
		{name: withoutName, start: members(false)},
		{name: handoverName, start: comeAndGo},
	},
	points: []Point{{Callers: 64, Items: 1, Any: true}, {Callers: 16, Items: 100, Any: true}},
	times:  2,
	Aims: []contest.Aim{
		faster("replication on, 64 callers", "64 × 1 any", 0.9, withoutName),
		faster("… 16 callers × 100", "16 × 100 any", 0.9, withoutName),
		slower("while nodes join and leave all the time, 64 callers", "64 × 1 any"),
		slower("… batches, 16 callers × 100", "16 × 100 any"),
	},
}

// slower is the aim that nodes which come and go cost 8 % at most.
func slower(work, point string) contest.Aim {
	return by(handoverName, faster(work, point, 0.92, Base))
}

// MemberVerb is how this program is told to be a Member.
const MemberVerb = "serve-member"

// Member runs a node, made as embedded.Start makes one, until a signal comes. args are name,
// gossip, peer and client address, the nodes to join or "none", and whether it sends "copies" or
// "empty" ones.
//
// Without copies a node still notes which keys have changed and looks through them; the messages go
// too, without entries. So the comparison is of packing, sending, unpacking and merging them.
func Member(args []string) error {
	if len(args) != 6 {
		return fmt.Errorf("%s wants a name, three addresses, seeds and copies or empty", MemberVerb)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	door, err := net.Listen("tcp", args[3])
	if err != nil {
		return err
	}
	between, err := net.Listen("tcp", args[2])
	if err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	me := cluster.Member{
		ID: args[0], Boot: uint64(time.Now().UnixNano()), PeerAddr: args[2],
		GRPCAddr: args[3], State: cluster.StateJoining,
	}
	var join []string
	if args[4] != "none" {
		join = []string{args[4]}
	}
	clock := clock.New()
	peers := peer.NewLines(peer.LinesConfig{
		ID: me.ID, Boot: me.Boot, Cluster: "penstock",
		Clock: clock, Logger: quiet,
	})
	var network cluster.Network = peers
	if args[5] == "empty" {
		network = emptyCopies{peers}
	}
	node, err := cluster.New(cluster.Config{
		ID: me.ID, Boot: me.Boot, Clock: clock,
		Network: network, Table: limiter.NewTable(limiter.TableConfig{}),
	})
	if err != nil {
		return err
	}
	node.SetLimits(cluster.Limits{})
	node.Membership().Agree(cluster.Trust{})
	node.Start()
	failed := make(chan error, 2)
	go func() {
		failed <- peer.NewServer(peer.ServerConfig{
			Node: node, Cluster: "penstock",
			Clock: clock,
		}).Serve(between)
	}()
	go func() { failed <- native.NewServer(native.Config{Node: node, Clock: clock}).Serve(door) }()
	g, err := gossip.Start(ctx, gossip.Config{
		Member: me, Bind: args[1], Cluster: "penstock", Join: join, Logger: quiet,
		OnView: func(v *cluster.View) {
			peers.Keep(v.Members)
			node.SetView(v)
		},
		OnConflict: func(err error) { failed <- err },
	})
	if err != nil {
		return err
	}
	if err := errors.Join(
		g.Wait(ctx), g.Enter(ctx, node, founders), g.SetState(cluster.StateActive),
	); err != nil {
		return err
	}
	select {
	case err = <-failed:
	case <-ctx.Done(): // this process ends, and with it all that it has started
	}
	return err
}

// founders are how many members found the cluster: both.
const founders = 2

// emptyCopies sends messages about copies without the copies.
type emptyCopies struct{ *peer.Lines }

// Call is that of the Network. The asks belong to the caller, so Call restores them after sending
// others.
func (e emptyCopies) Call(calls []cluster.Call) {
	own := slices.Clone(calls)
	for i, c := range calls {
		if c.Ask.Move != nil && len(c.Ask.Move.Entries) > 0 {
			ask, move := *c.Ask, *c.Ask.Move
			move.Entries, ask.Move = nil, &move
			calls[i].Ask = &ask
		}
	}
	e.Lines.Call(calls)
	for i := range calls {
		calls[i].Ask = own[i].Ask
	}
}

// members are three nodes of this program.
func members(copies bool) func(*Programs) (*running, error) {
	return func(p *Programs) (*running, error) {
		r, doors, _, err := startMembers(p, copies)
		if err != nil {
			return r, err
		}
		return r, r.askAsGubernator(doors, 0)
	}
}

func startMembers(p *Programs, copies bool) (r *running, doors []string, seed string, err error) {
	r = &running{}
	const n = 3
	addrs, err := freePorts("127.0.0.1", 3*n)
	if err != nil {
		return r, nil, "", err
	}
	sends, seed := map[bool]string{true: "copies", false: "empty"}[copies], "none"
	for i := range n {
		gossip, peer, door := addrs[3*i], addrs[3*i+1], addrs[3*i+2]
		s, err := p.start(p.Self, nil, MemberVerb, fmt.Sprintf("n%d", i+1), gossip, peer, door,
			seed, sends)
		if err != nil {
			return r, nil, "", err
		}
		seed = addrs[0]
		r.servers, doors = append(r.servers, s), append(doors, door)
		if err := s.awaitListener(gossip); err != nil {
			return r, nil, "", err
		}
	}
	return r, doors, seed, nil
}

// comeAndGo are three of them, and a node of penstock serve that joins and leaves while they are
// measured, again and again. Its processor time counts as that of others.
func comeAndGo(p *Programs) (*running, error) {
	r, doors, seed, err := startMembers(p, true)
	if err != nil {
		return r, err
	}
	r.beside = func() (stop func() error) {
		ending, result := make(chan struct{}), make(chan error, 1)
		var once sync.Once
		end := func() { once.Do(func() { close(ending) }) }
		r.stops = append(r.stops, func() error { end(); return nil })
		go func() { result <- visit(p, seed, ending) }()
		return func() error {
			end()
			return <-result
		}
	}
	return r, r.askAsGubernator(doors, 0)
}

// visit has a node join, stay for a moment and leave, until ending.
func visit(p *Programs, seed string, ending <-chan struct{}) error {
	for {
		addrs, err := freePorts("127.0.0.1", 3)
		if err != nil {
			return err
		}
		s, err := p.start("penstock", nil, "serve", "--name", "visitor", "--gossip", addrs[0],
			"--peer", addrs[1], "--grpc", addrs[2],
			"--http", "off", "--redis", "off", "--join", seed)
		if err != nil {
			return err
		}
		if err := s.awaitListener(addrs[2]); err != nil {
			s.stop()
			return err
		}
		over := false
		select {
		case <-ending:
			over = true
		case <-time.After(300 * time.Millisecond):
		}
		s.stop()
		if over {
			return nil
		}
	}
}
