package peer

import (
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/ring"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// station is a real node with its door for peers on loopback.
type station struct {
	t      testing.TB
	member cluster.Member
	clock  *clock.Clock
	node   *cluster.Node
	peers  *Lines
	doors  []*door.Server
}

const testCluster = "test"

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
	for range 2 {
		// nobody ticks here, and a claim that came before its receiver knew its sender is not
		// repeated
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
	s.peers = NewLines(LinesConfig{
		ID: id, Boot: boot, Cluster: name, Clock: s.clock, Logger: quiet,
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
		ID: id, Boot: boot, State: cluster.StateActive, Features: cluster.OwnFeatures,
	}
	s.member.PeerAddr = s.open(NewServer(ServerConfig{Node: node, Cluster: name, Clock: s.clock}))
	t.Cleanup(func() {
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

var tenThousand = limiter.Spec{
	Name: "big", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: 10_000,
	Per: 10 * time.Minute,
}
