package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/ring"
	"penstock/rpc/client"
	"penstock/rpc/clock"
	"penstock/rpc/native"
	"penstock/rpc/peer"
)

// manyUnits are more than a test uses up before it has a lease, however slow that is.
const manyUnits = 100_000_000

// entry is a node of a cluster, and how to reach it.
type entry struct {
	node *cluster.Node
	addr string // for clients
}

// serveCluster runs nodes with a limit "lent", leased, and "exact", of as many units.
func serveCluster(t testing.TB, nodes int, units int64) []entry {
	t.Helper()
	limits := cluster.Limits{}
	for name, c := range map[string]limiter.Consistency{
		"lent":  limiter.Leased,
		"exact": limiter.Exact,
	} {
		l, err := limiter.New(limiter.Spec{
			Name: name, Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit, Limit: units,
			Per: time.Hour, Consistency: c,
		})
		if err != nil {
			t.Fatal(err)
		}
		limits[name] = l
	}
	serve := func(s interface {
		Serve(net.Listener) error
		Stop()
	},
	) string {
		l := listen(t)
		go s.Serve(l)
		t.Cleanup(s.Stop)
		return l.Addr().String()
	}
	all, members := make([]entry, nodes), make([]cluster.Member, nodes)
	for i := range all {
		id, boot, clock := fmt.Sprintf("n%d", i+1), uint64(i+1), clock.New()
		peers := peer.NewLines(peer.LinesConfig{
			ID: id, Boot: boot, Cluster: "test", Clock: clock,
			Logger: slog.New(slog.DiscardHandler),
		})
		node, err := cluster.New(cluster.Config{
			ID: id, Boot: boot, Clock: clock, Network: peers, CallTimeout: time.Minute,
			Table: limiter.NewTable(limiter.TableConfig{Bytes: 4 << 20}),
		})
		if err != nil {
			t.Fatal(err)
		}
		node.SetLimits(limits)
		t.Cleanup(peers.Close)
		all[i] = entry{
			node: node,
			addr: serve(native.NewServer(native.Config{Node: node, Clock: clock})),
		}
		members[i] = cluster.Member{
			ID: id, Boot: boot, State: cluster.StateActive, GRPCAddr: all[i].addr,
			Features: cluster.OwnFeatures,
			PeerAddr: serve(peer.NewServer(peer.ServerConfig{
				Node: node, Cluster: "test",
				Clock: clock,
			})),
		}
	}
	for i := range all {
		v, err := cluster.NewView(members[i].ID, members)
		if err != nil {
			t.Fatal(err)
		}
		all[i].node.SetView(v)
		all[i].node.Start()
		t.Cleanup(all[i].node.Stop)
	}
	for held := 0; held != ring.Partitions; time.Sleep(time.Millisecond) {
		held = 0
		for i := range all {
			held += all[i].node.Held()
		}
	}
	return all
}

// ranOut is how many holds were charged in full, because nobody had settled them.
func ranOut(all []entry) (n uint64) {
	for i := range all {
		n += all[i].node.Stats().RanOut.Load()
	}
	return n
}

func lender(t testing.TB, target string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Targets: []string{target}, Leases: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// untilLent takes units of "lent" for key, so many at once, until a lease decides, and returns how
// many that were.
func untilLent(t *testing.T, c *client.Client, key string, cost int64) (admitted int64) {
	t.Helper()
	for ctx := patience(t); ; {
		d, err := c.Take(ctx, "lent", key, cost)
		if err != nil || !d.Allowed {
			t.Fatalf("after %d: %+v, %v", admitted, d, err)
		}
		if admitted += cost; d.Source == "lease" {
			return admitted
		}
	}
}

func remaining(t *testing.T, c *client.Client, key string) int64 {
	t.Helper()
	d, err := c.Peek(patience(t), "lent", key, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// Promise: clients with leases are admitted the limit and not a unit more, through any nodes; and
// after they have closed, the charged units are the admitted ones.
func TestLeasesAddUp(t *testing.T) {
	const units = 12_000
	all := serveCluster(t, 3, units)
	plain, ctx := newClient(t, all[0].addr), patience(t)
	for round, demand := range []int64{units / 2, units * 3 / 2} {
		key := fmt.Sprint("k", round)
		var admitted, local, degraded, asked atomic.Int64
		clients := make([]*client.Client, 4)
		var callers sync.WaitGroup
		for i := range clients {
			clients[i] = lender(t, all[i%3].addr)
			for range 6 {
				callers.Go(func() {
					for asked.Add(1) <= demand {
						d, err := clients[i].Take(ctx, "lent", key, 1)
						if err != nil || d.LimitName != "lent" || d.Owner == "" ||
							d.Remaining < 0 || d.Remaining > units || d.Limit != units &&
							!d.Degraded {
							t.Errorf("%+v, %v", d, err)
							return
						}
						switch {
						case d.Degraded:
							degraded.Add(1)
						case d.Allowed:
							admitted.Add(1)
						}
						if d.Source == "lease" {
							local.Add(1)
						}
					}
				})
			}
		}
		callers.Wait()
		for _, c := range clients {
			c.Close()
		}
		got, left := admitted.Load(), remaining(t, plain, key)
		// else the machine stood still for a second
		exact := func() bool { return ranOut(all) == 0 && degraded.Load() == 0 }
		// until the nodes' own leases are back
		for left != units-got && exact() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			left = remaining(t, plain, key)
		}
		if got > units || left > units-got || local.Load() == 0 {
			t.Errorf("demand %d: admitted %d of %d, %d by leases, %d left", demand, got, units,
				local.Load(), left)
		}
		if exact() && (left != units-got || got < min(demand, units)*9/10) {
			t.Errorf("demand %d: admitted %d of %d, %d left", demand, got, units, left)
		}
	}
}

// Promise: Close gives back what was lent and not used.
func TestCloseGivesBack(t *testing.T) {
	all := serveCluster(t, 1, manyUnits)
	plain, c := newClient(t, all[0].addr), lender(t, all[0].addr)
	used := untilLent(t, c, "k", 1)
	c.Close()
	if left := remaining(t, plain, "k"); left != manyUnits-used && ranOut(all) == 0 {
		t.Errorf("%d left, %d were used", left, used)
	}
	if _, err := c.Take(patience(t), "lent", "k", 1); status.Code(err) != codes.Canceled {
		t.Errorf("a take after Close: %v, want Canceled", err)
	}
}

// Promise: a client that vanishes is charged all that it had. It decides from that until its
// deadline, never later, and then does what OnError says.
func TestLeaseOfTheVanishedRunsOut(t *testing.T) {
	all := serveCluster(t, 1, manyUnits)
	path := filepath.Join(t.TempDir(), "s") // nobody else can be there afterwards, as at a port
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	own := native.NewServer(native.Config{Node: all[0].node, Clock: clock.New()})
	go own.Serve(l)
	t.Cleanup(own.Stop)
	plain := newClient(t, all[0].addr)
	c, err := client.New(client.Config{
		Targets: []string{"unix://" + path}, Leases: true,
		OnError: client.FailClosed,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	used := untilLent(t, c, "k", 1000) // so the lease is large, and not spent before it ends
	own.Stop()
	ctx, last := patience(t), ""
	if d, err := c.Take(ctx, "lent", "k", 1); err != nil || d.Source != "lease" {
		t.Skipf("this machine was too busy to keep a lease: %+v, %v", d, err)
	}
	used++
	before := remaining(t, plain, "k")
	for ; last != "client"; time.Sleep(time.Millisecond) {
		charged := ranOut(all) > 0
		d, err := c.Take(ctx, "lent", "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			used++
		}
		if d.Allowed != (d.Source == "lease") || d.Allowed && charged {
			t.Errorf("charged in full: %v; %+v", charged, d)
		}
		last = d.Source
	}
	for ranOut(all) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if left := remaining(t, plain, "k"); left > before || left > manyUnits-used {
		t.Errorf("%d left when the lease has run out, %d before; %d were used", left, before, used)
	}
	if d, err := c.Take(ctx, "lent", "k", 1); err != nil || d.Source != "client" {
		t.Errorf("after the deadline: %+v, %v", d, err)
	}
}

// Promise: without the option no client has a lease; of a limit that is not leased none is given,
// and it says so.
func TestNoLeases(t *testing.T) {
	all := serveCluster(t, 1, 10_000)
	ctx := patience(t)
	for _, c := range []struct {
		client *client.Client
		limit  string
	}{{newClient(t, all[0].addr), "lent"}, {lender(t, all[0].addr), "exact"}} {
		for i := range int64(300) {
			d, err := c.client.Take(ctx, c.limit, "k", 1)
			if err != nil || d.Source != "owner" || d.Remaining != 10_000-1-i {
				t.Fatalf("%s, take %d: %+v, %v", c.limit, i+1, d, err)
			}
		}
	}
	conn := newRaw(t, all[0].addr)
	in := &penstockv1.ReserveRequest{Items: []*penstockv1.Item{
		item("lent", "a", 100),
		item("exact", "a", 100),
	}, TtlMs: 1000, Lease: true}
	if _, err := conn.Reserve(ctx, in); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a lease of an exact limit: %v", err)
	}
	in.Items = []*penstockv1.Item{
		item("lent", "a", 100), item("lent", "b", 1<<40),
		item("lent", "c", 1),
	}
	out, err := conn.Reserve(ctx, in)
	if err != nil || out.Allowed || out.Holds[0].Units != 100 || out.Holds[1].Units != 2500 ||
		out.Holds[2].Id != "" {
		t.Errorf("lent %v, %v; want 100, a quarter, and nothing for what is too little", out, err)
	}
	long := strings.Repeat("x", limiter.MaxHolder+1)
	for field, in := range map[string]*penstockv1.ReserveRequest{
		"ttl_ms": {Items: in.Items, Lease: true}, "holder": {
			Items: in.Items, Lease: true,
			TtlMs: 1000, Holder: long,
		},
	} {
		if _, err := conn.Reserve(ctx, in); status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	in.Items = []*penstockv1.Item{item("lent", "d", -5), item("lent", "d", 0)}
	if out, err := conn.Reserve(ctx, in); err != nil || out.Allowed || out.Holds[0].Id != "" ||
		out.Holds[1].Id != "" {
		t.Errorf("lent less than nothing: %v, %v", out, err)
	}
}

func newRaw(t *testing.T, addr string) penstockv1.RateLimiterClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return penstockv1.NewRateLimiterClient(conn)
}

// older is a node that does not know leases: it takes them for reservations, and counts what it is
// asked.
type older struct {
	penstockv1.UnimplementedRateLimiterServer
	reserved, settled atomic.Int64

	degraded bool // it does know them, and its heirs are silent
}

func (o *older) CheckStream(stream penstockv1.RateLimiter_CheckStreamServer) error {
	for {
		in, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := stream.Send(&penstockv1.CheckStreamResponse{
			Tag:   in.Tag,
			Check: allow(in.Check),
		}); err != nil {
			return err
		}
	}
}

func (o *older) Reserve(context.Context,
	*penstockv1.ReserveRequest,
) (*penstockv1.ReserveResponse, error) {
	o.reserved.Add(1)
	if o.degraded {
		return &penstockv1.ReserveResponse{Holds: []*penstockv1.Hold{{
			Id:       "x",
			Decision: &penstockv1.Decision{Degraded: true},
		}}}, nil
	}
	return &penstockv1.ReserveResponse{
		Allowed: true,
		Holds:   []*penstockv1.Hold{{Id: "x", Decision: &penstockv1.Decision{Allowed: true}}},
	}, nil
}

func (o *older) Settle(_ context.Context,
	in *penstockv1.SettleRequest,
) (*penstockv1.SettleResponse, error) {
	o.settled.Add(1 + in.Actual)
	return new(penstockv1.SettleResponse), nil
}

// Promise: what a node has lent and its heir does not know of is not spent: the client gives it
// back, and asks again.
func TestLeaseThatNoHeirKnows(t *testing.T) {
	all := serveCluster(t, 2, manyUnits)
	key := ""
	for i := 0; key == ""; i++ {
		if k := fmt.Sprint("k", i); all[0].node.Holds(limiter.Hash(k)) {
			key = k
		}
	}
	v, err := cluster.NewView("n1", []cluster.Member{
		{ID: "n1", Boot: 1, State: cluster.StateActive, Features: cluster.OwnFeatures},
		{
			ID: "n2", Boot: 9, State: cluster.StateActive, Features: cluster.OwnFeatures,
			PeerAddr: deadAddress(t),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	all[0].node.SetView(v) // its heir is started anew, and cannot be reached
	conn, ctx := newRaw(t, all[0].addr), patience(t)
	in := &penstockv1.ReserveRequest{
		Items: []*penstockv1.Item{item("lent", key, 100)},
		TtlMs: 60_000, Lease: true,
	}
	out, err := conn.Reserve(ctx, in)
	if err != nil || out.Allowed || out.Holds[0].Id == "" || out.Holds[0].Units != 0 ||
		!out.Holds[0].Decision.Degraded || out.Holds[0].Decision.Allowed {
		t.Fatalf("%v, %v; want a degraded no, and what to settle", out, err)
	}
	if _, err := conn.Settle(ctx, &penstockv1.SettleRequest{Id: out.Holds[0].Id}); err != nil {
		t.Error(err)
	}
	if n := len(all[0].node.Book().On(all[0].node.Limits()["lent"], key)); n != 0 {
		t.Errorf("%d leases are open that nobody has", n)
	}

	o := &older{degraded: true}
	server := grpc.NewServer()
	penstockv1.RegisterRateLimiterServer(server, o)
	l := listen(t)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	c := lender(t, l.Addr().String())
	for o.reserved.Load() < 3 {
		if d, err := c.Take(ctx, "lent", "k", 1); err != nil || d.Source == "lease" {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	c.Close()
	if o.reserved.Load() != o.settled.Load() {
		t.Errorf("of %d leases that no heir knows of %d were given back", o.reserved.Load(),
			o.settled.Load())
	}
}

// Promise: many requests in one message spend leases as one does, and all is counted once.
func TestDoAllSpendsLeases(t *testing.T) {
	all := serveCluster(t, 1, manyUnits)
	c, used, local := lender(t, all[0].addr), int64(0), 0
	requests, out := make([]client.Request, 50), make([]client.Decision, 50)
	for i := range requests {
		requests[i] = client.Request{Limit: []string{"lent", "exact"}[i%2], Key: "k", Cost: 1}
	}
	for used < 20_000 {
		var err error
		if out, err = c.AppendAll(patience(t), out[:0], requests); err != nil {
			t.Fatal(err)
		}
		for i, d := range out {
			if !d.Allowed || d.Source == "lease" && i%2 == 1 {
				t.Fatalf("%d: %+v", i, d)
			}
			if d.Source == "lease" {
				local++
			}
		}
		used += 25
	}
	c.Close()
	plain := newClient(t, all[0].addr)
	if left := remaining(t, plain, "k"); left != manyUnits-used || local == 0 {
		t.Errorf("%d left, want %d; %d were decided here", left, manyUnits-used, local)
	}
}

func TestLeasesOfAnOlderNode(t *testing.T) {
	o := new(older)
	server := grpc.NewServer()
	penstockv1.RegisterRateLimiterServer(server, o)
	l := listen(t)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	c := lender(t, l.Addr().String())
	ctx := patience(t)
	for i := 0; i < 100 || o.settled.Load() == 0; i++ {
		if d, err := c.Take(ctx, "lent", "k", 1); err != nil || d.Source == "lease" {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	for range 100 {
		c.Take(ctx, "lent", "k", 1)
	}
	c.Close()
	if o.reserved.Load() != 1 || o.settled.Load() != 1 {
		t.Errorf("%d reservations, settled with %d; want one, cancelled", o.reserved.Load(),
			o.settled.Load()-1)
	}
}
