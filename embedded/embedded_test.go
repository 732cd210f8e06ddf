package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/cluster"
	"penstock/embedded"
	"penstock/limiter"
	"penstock/rpc/client"
)

// A probe that is under way when a node closes its gossip ends with its own time, half a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(
		"github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

var login = limiter.Spec{
	Name: "login", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
	Limit: 30, Per: time.Hour,
}

// patience is a context for calls that a busy machine must not fail.
func patience(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, c embedded.Config) *embedded.Node {
	t.Helper()
	n, err := embedded.Start(patience(t), c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func Example() {
	ctx := context.Background()
	node, err := embedded.Start(ctx, embedded.Config{
		Limits: []limiter.Spec{{Name: "login", Algorithm: limiter.GCRA, Limit: 2, Per: time.Hour}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close(ctx)
	for range 3 {
		fmt.Println(client.Allow(ctx, node, "login", "alice"))
	}
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
}

func TestAlone(t *testing.T) {
	n := start(t, embedded.Config{Name: "n1", Limits: []limiter.Spec{login}, Memory: 1 << 20})
	ctx := patience(t)
	if d, err := n.Take(ctx, "login", "alice", 29); err != nil || !d.Allowed || d.Remaining != 1 ||
		d.Owner != "n1" || d.Source != "owner" || d.LimitName != "login" {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := n.Peek(ctx, "login", "alice", 2); err != nil || d.Allowed || d.Remaining != 1 ||
		d.RetryAfter <= 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if err := client.Wait(ctx, n, "login", "alice", 2); !errors.Is(err, client.ErrTooLate) {
		t.Errorf("%v", err)
	}
	var unknown *cluster.UnknownLimitError
	if _, err := n.Take(ctx, "none", "alice", 1); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := n.Take(gone, "login", "bob", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	more := login
	more.Limit = 40
	below := limiter.Spec{
		Name: "below", Parent: "login", Algorithm: limiter.GCRA, Limit: 5, Per: time.Hour,
	}
	if err := n.SetLimits([]limiter.Spec{more}); err != nil {
		t.Error(err)
	}
	if d, _ := n.Peek(ctx, "login", "alice", 0); d.Remaining != 11 {
		t.Errorf("after a raise: %+v", d)
	}
	if err := n.SetLimits([]limiter.Spec{below}); err == nil ||
		!strings.Contains(err.Error(), `is "login", and no limit has that name`) {
		t.Errorf("a parent that is missing: %v", err)
	}
	if err := n.SetLimits([]limiter.Spec{more, below}); err != nil {
		t.Error(err)
	}
	if d, err := n.Take(ctx, "below", "alice/phone", 2); err != nil || !d.Allowed ||
		d.Remaining != 3 || d.LimitName != "below" {
		t.Errorf("%+v, %v", d, err)
	}
	if d, _ := n.Peek(ctx, "login", "alice", 0); d.Remaining != 9 {
		t.Errorf("after a check of the child: %+v", d)
	}
	if n.GossipAddr() != "" || !slices.Equal(n.Members(), []string{"n1"}) {
		t.Errorf("%q, %v", n.GossipAddr(), n.Members())
	}
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}

// Promise: what is reserved counts as spent, and then what was used; permits come back.
func TestReserve(t *testing.T) {
	permits := limiter.Spec{
		Name: "permits", Algorithm: limiter.Concurrency, Limit: 2,
		Per: time.Minute,
	}
	n := start(t, embedded.Config{
		Name: "n1", Limits: []limiter.Spec{login, permits},
		Memory: 1 << 20,
	})
	ctx := patience(t)
	left := func(want int64) {
		t.Helper()
		if d, err := n.Peek(ctx, "login", "alice", 0); err != nil || d.Remaining != want {
			t.Errorf("%d remain, %v; want %d", d.Remaining, err, want)
		}
	}
	r, err := n.Reserve(ctx, "login", "alice", 20, time.Minute)
	if err != nil || !r.Allowed {
		t.Fatalf("%+v, %v", r, err)
	}
	left(10)
	if no, err := n.Reserve(ctx, "login", "alice", 11, time.Minute); err != nil || no.Allowed ||
		no.Settle(ctx, 3) != nil {
		t.Errorf("more than there is: %+v, %v", no, err)
	}
	if err := errors.Join(
		r.Extend(ctx, time.Hour), r.Settle(ctx, 5), r.Settle(ctx, 5),
	); err != nil {
		t.Error(err)
	}
	left(25)
	if err := r.Settle(ctx, 6); err == nil || !strings.Contains(err.Error(), "another amount") {
		t.Errorf("settled with another amount: %v", err)
	}
	if err := r.Extend(ctx, time.Hour); err == nil ||
		!strings.Contains(err.Error(), "settled already") {
		t.Errorf("extended after it was settled: %v", err)
	}
	var input *cluster.InputError
	if _, err := n.Reserve(ctx, "login", "alice", 1, 0); !errors.As(err, &input) ||
		input.Field != "items[0].ttl_ms" {
		t.Errorf("no ttl: %v", err)
	}

	p, err := client.Acquire(ctx, n, "permits", "room", 2, time.Minute)
	if err != nil || !p.Allowed {
		t.Fatalf("%+v, %v", p, err)
	}
	if full, err := client.Acquire(ctx, n, "permits", "room", 1, time.Minute); err != nil ||
		full.Allowed || full.Release(ctx) != nil {
		t.Errorf("a third one: %+v, %v", full, err)
	}
	if err := p.Release(ctx); err != nil {
		t.Error(err)
	}
	if d, err := n.Peek(ctx, "permits", "room", 2); err != nil || !d.Allowed {
		t.Errorf("after their release: %+v, %v", d, err)
	}
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}

// Promise: programs that embed nodes of one cluster keep one limit together, and one that leaves
// loses no count.
func TestTogether(t *testing.T) {
	var nodes []*embedded.Node
	for i := range 3 {
		c := embedded.Config{
			Name: fmt.Sprint("n", i+1), Gossip: "127.0.0.1:0", Cluster: t.Name(),
			Limits: []limiter.Spec{login}, Memory: 1 << 20,
		}
		if i > 0 {
			c.Join = []string{nodes[0].GossipAddr()}
		}
		nodes = append(nodes, start(t, c))
	}
	see := func(members int, nodes ...*embedded.Node) {
		t.Helper()
		for ctx := patience(t); slices.ContainsFunc(nodes, func(n *embedded.Node) bool {
			return len(n.Members()) != members
		}); time.Sleep(10 * time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatalf("no cluster of %d: %v", members, nodes[0].Members())
			}
		}
	}
	see(3, nodes...)
	const keys = 20
	var admitted [keys]atomic.Int64
	var owners sync.Map
	spend := func(nodes []*embedded.Node) {
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				for k := range keys {
					d, err := nodes[i%len(nodes)].Take(patience(t), "login", fmt.Sprint("key-", k),
						2)
					if err != nil || d.Degraded {
						t.Errorf("%+v, %v", d, err)
					}
					if d.Allowed {
						admitted[k].Add(2)
					}
					owners.Store(d.Owner, true)
				}
			})
		}
		wg.Wait()
	}
	spend(nodes)
	for k := range admitted {
		if n := admitted[k].Load(); n != login.Limit {
			t.Errorf("key %d: %d of %d were admitted", k, n, login.Limit)
		}
	}
	if _, owns := owners.Load("n2"); !owns {
		t.Error("n2 has decided nothing")
	}
	late := func(i int) string { return fmt.Sprint("late-", i) }
	for i := range 300 {
		if d, err := nodes[1].Take(patience(t), "login", late(i), login.Limit); err != nil ||
			!d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if err := nodes[1].Close(patience(t)); err != nil {
		t.Error(err)
	}
	for i := range 300 { // the last of them had no time to be copied
		if d, err := nodes[0].Take(patience(t), "login", late(i), 1); err != nil || d.Allowed {
			t.Fatalf("%s was used up before n2 left: %+v, %v", late(i), d, err)
		}
	}
	see(2, nodes[0], nodes[2])
	spend([]*embedded.Node{nodes[0], nodes[2]})
	for k := range admitted {
		if n := admitted[k].Load(); n != login.Limit {
			t.Errorf("key %d: %d of %d were admitted after n2 has left", k, n, login.Limit)
		}
	}
	for _, n := range []*embedded.Node{nodes[2], nodes[0]} {
		if err := n.Close(patience(t)); err != nil {
			t.Error(err)
		}
	}
}

// named is a limit of that name.
func named(name string) limiter.Spec {
	s := login
	s.Name = name
	return s
}

func TestConfig(t *testing.T) {
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // a seed that says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct {
		config embedded.Config
		want   string
	}{
		{embedded.Config{Limits: []limiter.Spec{{Name: "bad"}}}, `limit "bad": algorithm`},
		{
			embedded.Config{Limits: []limiter.Spec{login, login}},
			`limit "login": Limits[1] has the name of an earlier one`,
		},
		{embedded.Config{Limits: []limiter.Spec{named("inline")}}, "bring along without a name"},
		{embedded.Config{Limits: []limiter.Spec{named("cl.throttle")}}, "limits of CL.THROTTLE"},
		{embedded.Config{Limits: []limiter.Spec{named("a (candidate)")}}, "candidate's counters"},
		{embedded.Config{Name: "a b"}, `Name "a b": give 1 to 128 bytes`},
		{embedded.Config{Name: "a/b"}, `Name "a/b": `},
		{embedded.Config{Name: "a\n"}, `Name "a\n": `},
		{embedded.Config{Name: strings.Repeat("n", 129)}, "give 1 to 128 bytes"},
		{embedded.Config{Join: []string{"127.0.0.1:1"}}, "Gossip is empty"},
		{embedded.Config{Agent: true}, "Gossip is empty"},
		{embedded.Config{Gossip: "127.0.0.1"}, "Gossip: "},
		{embedded.Config{Gossip: "127.0.0.1:0", Peer: "x"}, "Peer: "},
		{embedded.Config{Gossip: ":0", Insecure: true}, "Advertise is empty"},
		{
			embedded.Config{Gossip: "127.0.0.1:0", Advertise: "10.0.0.7:7946"},
			`Advertise "10.0.0.7:7946": give one host`,
		},
		{embedded.Config{Gossip: ":0", Advertise: "0.0.0.0", Insecure: true}, "Advertise"},
		{embedded.Config{Gossip: "192.0.2.1:0"}, "give GossipKeys and PeerTLS, or set Insecure"},
		{embedded.Config{
			Gossip:  "127.0.0.1:0",
			PeerTLS: embedded.PeerTLS{Cert: "none", Key: "none", CA: "none"},
		}, "PeerTLS: "},
		{
			embedded.Config{Gossip: "127.0.0.1:0", Join: []string{l.Addr().String()}},
			"Join: no seed has answered",
		},
	} {
		c.config.Memory = 1 << 20
		n, err := embedded.Start(soon, c.config)
		if err == nil {
			n.Close(soon)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
}

// Promise: the node inside answers a Request as a client does.
func TestDo(t *testing.T) {
	visit := limiter.Spec{
		Name: "visit", Algorithm: limiter.TokenBucket, Anchor: limiter.FirstHit,
		Limit: 5, Per: time.Minute, ClientTime: true, Sessions: true,
	}
	n := start(t, embedded.Config{Limits: []limiter.Spec{visit, login}})
	defer n.Close(patience(t))
	at := time.Unix(90, 0)
	d, err := n.Do(patience(t), client.Request{Limit: "visit", Key: "alice", Cost: 3, At: at})
	if err != nil || !d.Allowed || !d.Session.Equal(at) {
		t.Errorf("%+v, %v", d, err)
	}
	d, err = n.Do(patience(t), client.Request{
		Limit: "visit", Key: "alice", Cost: 3, At: at,
		Drain: true,
	})
	if err != nil || d.Allowed || d.Drained != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	for _, r := range []client.Request{
		{Limit: "login", At: at},
		{Limit: "visit", At: time.Unix(-1, 0)},
	} {
		r.Key = "alice"
		var input *cluster.InputError
		if _, err := n.Do(patience(t), r); !errors.As(err, &input) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// BenchmarkTake is a decision of a node that is alone, as the program that it is in calls it.
func BenchmarkTake(b *testing.B) {
	ctx := context.Background()
	n, err := embedded.Start(ctx, embedded.Config{Limits: []limiter.Spec{{
		Name:      "big",
		Algorithm: limiter.GCRA, Limit: 1 << 30, Per: time.Hour,
	}}})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close(ctx)
	b.ReportAllocs()
	for b.Loop() {
		if d, err := n.Take(ctx, "big", "alice", 1); err != nil || !d.Allowed {
			b.Fatal(d, err)
		}
	}
}
