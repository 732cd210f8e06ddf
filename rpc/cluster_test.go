package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/ring"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/fair"
	"penstock/rpc/native"
	"penstock/rpc/peer"
	"penstock/rpc/rpctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// station is a real node with its doors on loopback.
type station struct {
	t      testing.TB
	member cluster.Member
	clock  *clock.Clock
	node   *cluster.Node
	peers  *peer.Lines
	doors  []*door.Server // for peers, for clients
	conn   *grpc.ClientConn
	client penstockv1.RateLimiterClient
}

const testCluster = "test"

// emptyMethod is a unary call that does nothing, on the same server, with the same options: what
// gRPC costs here.
const emptyMethod = "/bench.Empty/Call"

var emptyService = grpc.ServiceDesc{
	ServiceName: "bench.Empty", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(_ any, _ context.Context,
		decode func(any) error, _ grpc.UnaryServerInterceptor,
	) (any, error) {
		in := new(emptypb.Empty)
		return in, decode(in)
	}}},
}

// newStations makes nodes n1 … nk that know each other and the limits of specs. There is no gossip:
// their Views are given.
func newStations(t testing.TB, k int, specs ...limiter.Spec) []*station {
	t.Helper()
	limits := cluster.Limits{}
	for _, s := range specs {
		l, err := limiter.New(s)
		if err != nil {
			t.Fatal(err)
		}
		limits[s.Name] = l
	}
	all := make([]*station, k)
	var members []cluster.Member
	for i := range all {
		all[i] = newStation(t, fmt.Sprintf("n%d", i+1), uint64(i+1), testCluster)
		all[i].node.SetLimits(limits)
		members = append(members, all[i].member)
	}
	// nobody ticks here, and a claim that came before its receiver knew its sender is not repeated
	for range 2 {
		for _, s := range all {
			s.see(members)
		}
	}
	rpctest.Eventually(t, "every partition has a holder", func() bool {
		held := 0
		for _, s := range all {
			held += s.node.Held()
		}
		return held == ring.Partitions
	})
	return all
}

func newStation(t testing.TB, id string, boot uint64, name string) *station {
	t.Helper()
	s := &station{t: t, clock: clock.New()}
	quiet := slog.New(slog.DiscardHandler)
	s.peers = peer.NewLines(peer.LinesConfig{
		ID: id, Boot: boot, Cluster: name, Clock: s.clock,
		Logger: quiet,
	})
	node, err := cluster.New(cluster.Config{
		ID: id, Boot: boot, Clock: s.clock, Network: s.peers,
		CallTimeout: time.Minute, // so that a busy machine does not look like a dead peer
		Table:       limiter.NewTable(limiter.TableConfig{Bytes: 16 << 20}),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.node = node
	s.member = cluster.Member{
		ID: id, Boot: boot, State: cluster.StateActive,
		Features: cluster.OwnFeatures,
	}
	s.member.PeerAddr = s.open(peer.NewServer(peer.ServerConfig{
		Node: node, Cluster: name,
		Clock: s.clock,
	}))
	door := native.NewServer(native.Config{Node: node, Clock: s.clock, Gate: fair.New()})
	door.RegisterService(&emptyService, nil) // for benchmarks
	s.member.GRPCAddr = s.open(door)
	s.conn, err = grpc.NewClient("passthrough:///"+s.member.GRPCAddr,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	s.client = penstockv1.NewRateLimiterClient(s.conn)
	t.Cleanup(func() {
		s.conn.Close()
		s.peers.Close()
		for _, d := range s.doors {
			d.Stop()
		}
	})
	return s
}

// open serves d on loopback and returns the address.
func (s *station) open(d *door.Server) string {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.doors = append(s.doors, d)
	go d.Serve(l)
	return l.Addr().String()
}

func (s *station) see(members []cluster.Member) {
	s.t.Helper()
	v, err := cluster.NewView(s.member.ID, members)
	if err != nil {
		s.t.Fatal(err)
	}
	s.peers.Keep(v.Members)
	s.node.SetView(v)
}

func remaining(t *testing.T, s *station, limit, key string) int64 {
	t.Helper()
	out, err := s.client.Peek(rpctest.Patience(t),
		&penstockv1.PeekRequest{Items: []*penstockv1.Item{{Limit: limit, Key: []byte(key)}}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Decisions[0].Remaining
}

var five = limiter.Spec{
	Name: "five", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
	Limit: 5, Per: 10 * time.Minute,
}

var tenThousand = limiter.Spec{
	Name: "big", Algorithm: limiter.FixedWindow,
	Anchor: limiter.FirstHit, Limit: 10_000, Per: 10 * time.Minute,
}

// Promise: healthy cluster, any entry node: 0 extra, every charge counted exactly once.
func TestExactlyTheLimit(t *testing.T) {
	const callers = 64
	for _, c := range []struct{ keys, limit, checks int }{
		{1, 10_000, 12_800},
		{200, 50, 12_800},
	} {
		t.Run(fmt.Sprintf("%d keys", c.keys), func(t *testing.T) {
			spec := tenThousand
			spec.Limit = int64(c.limit)
			stations := newStations(t, 3, spec)
			admitted := make([]atomic.Int64, c.keys)
			ctx := rpctest.Patience(t)
			var wg sync.WaitGroup
			for caller := range callers {
				wg.Go(func() {
					for i := range c.checks / callers {
						n := caller*(c.checks/callers) + i
						key := n % c.keys
						out, err := stations[(caller+i)%3].client.Check(ctx,
							&penstockv1.CheckRequest{
								Items: []*penstockv1.Item{rpctest.Item("big",
									fmt.Sprintf("k%d", key),
									1)},
							})
						switch {
						case err != nil:
							t.Error(err)
							return
						case out.Decisions[0].Degraded:
							t.Errorf("decision of a healthy cluster is degraded: %v",
								out.Decisions[0])
						case out.Decisions[0].Allowed:
							admitted[key].Add(1)
						}
					}
				})
			}
			wg.Wait()
			for key := range admitted {
				if got := admitted[key].Load(); got != int64(c.limit) {
					t.Errorf("key %d: admitted %d, limit is %d", key, got, c.limit)
				}
			}
		})
	}
}
