package client_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/rules"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/native"
	"penstock/rpc/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serveNode runs a node that owns everything, with a limit "five" and a limit "big", and returns
// its server and address.
func serveNode(t testing.TB, id string) (*door.Server, string) {
	t.Helper()
	clock := clock.New()
	peers := peer.NewLines(peer.LinesConfig{ID: id, Boot: 1, Cluster: "test", Clock: clock})
	node, err := cluster.New(cluster.Config{
		ID: id, Boot: 1, Clock: clock, Network: peers,
		Table: limiter.NewTable(limiter.TableConfig{Bytes: 4 << 20}),
	})
	if err != nil {
		t.Fatal(err)
	}
	named := cluster.Limits{}
	for name, units := range map[string]int64{"five": 5, "big": 10_000} {
		l, err := limiter.New(limiter.Spec{
			Name: name, Algorithm: limiter.FixedWindow,
			Anchor: limiter.FirstHit, Limit: units, Per: 10 * time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		named[name] = l
	}
	permits, err := limiter.New(limiter.Spec{
		Name: "permits", Algorithm: limiter.Concurrency,
		Limit: 2, Per: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	named["permits"] = permits
	node.SetLimits(named)
	set, err := rules.New([]rules.Rule{{
		Name:  "both",
		Apply: []rules.Apply{{Limit: "five", Key: "{user}"}, {Limit: "big", Key: "{user}"}},
	}}, named)
	if err != nil {
		t.Fatal(err)
	}
	node.SetRules(set)
	v, err := cluster.NewView(id, []cluster.Member{{ID: id, Boot: 1, State: cluster.StateActive}})
	if err != nil {
		t.Fatal(err)
	}
	node.SetView(v)
	node.Start()
	t.Cleanup(node.Stop)
	l := listen(t)
	s := native.NewServer(native.Config{Node: node, Clock: clock})
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return s, l.Addr().String()
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// deadAddress is one where nobody listens.
func deadAddress(t testing.TB) string {
	t.Helper()
	l := listen(t)
	l.Close()
	return l.Addr().String()
}

func newClient(t testing.TB, targets ...string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Targets: targets})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// patience is a context for calls that a busy machine must not fail.
func patience(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// check charges items by the generated stubs.
func check(ctx context.Context, c *client.Client, items []*penstockv1.Item,
	atomic bool,
) ([]*penstockv1.Decision, error) {
	out, err := penstockv1.NewRateLimiterClient(c.Conn()).Check(ctx,
		&penstockv1.CheckRequest{Items: items, Atomic: atomic})
	return out.GetDecisions(), err
}

func item(limit, key string, cost int64) *penstockv1.Item {
	return &penstockv1.Item{Limit: limit, Key: []byte(key), Cost: &cost}
}

// A transcript of one key.
func TestTranscript(t *testing.T) {
	_, addr := serveNode(t, "n1")
	c := newClient(t, addr)
	ctx := patience(t)
	for i, want := range []bool{true, true, false} {
		d, err := c.Take(ctx, "five", "alice", 2)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed != want || d.Limit != 5 || d.Remaining != []int64{3, 1, 1}[i] ||
			d.LimitName != "five" || d.Owner != "n1" || d.Source != "owner" {
			t.Errorf("take %d: %+v", i+1, d)
		}
		if want && d.RetryAfter != -1 || !want &&
			(d.RetryAfter <= 0 || d.RetryAfter > 10*time.Minute) || d.ResetAfter <= 0 {
			t.Errorf("take %d: retry after %v, reset after %v", i+1, d.RetryAfter, d.ResetAfter)
		}
	}
	items := []*penstockv1.Item{item("five", "alice", 1), item("five", "bob", 5)}
	for range 2 { // a Check draws new ids each time, also for the same items
		out, err := check(ctx, c, items, true)
		if err != nil || len(out) != 2 {
			t.Fatalf("%v, %v", out, err)
		}
	}
	asked := []client.Request{
		{Limit: "five", Key: "alice", Cost: 1},
		{Limit: "five", Key: "bob", Cost: 5},
	}
	for range 2 { // so does DoTogether
		if out, err := c.DoTogether(ctx, asked); err != nil || len(out) != 2 || out[0].Allowed ||
			out[1].Allowed {
			t.Fatalf("%+v, %v; bob has nothing left, so alice pays nothing", out, err)
		}
	}
	stubs := penstockv1.NewRateLimiterClient(c.Conn())
	peeked, err := stubs.Peek(ctx, &penstockv1.PeekRequest{Items: items})
	if out := peeked.GetDecisions(); err != nil || out[0].Allowed || out[0].Remaining != 0 ||
		out[1].Allowed {
		t.Errorf("peek: %v, %v", out, err)
	}
	for _, key := range []string{"alice", "bob"} {
		if d, err := c.Reset(ctx, "five", key); err != nil || d.Remaining != 5 {
			t.Errorf("reset %s: %+v, %v", key, d, err)
		}
	}
	admin := penstockv1.NewAdminClient(c.Conn())
	if m, err := admin.Members(ctx, &penstockv1.MembersRequest{}); err != nil ||
		m.Members[0].Name != "n1" {
		t.Errorf("members: %v, %v", m, err)
	}
	if r, err := admin.Ring(ctx, &penstockv1.RingRequest{Key: []byte("alice")}); err != nil ||
		r.Owner != "n1" {
		t.Errorf("ring: %v, %v", r, err)
	}
}

// Promise: concurrent takes share requests, and each is charged exactly once.
func TestConcurrentTakes(t *testing.T) {
	_, addr := serveNode(t, "n1")
	c := newClient(t, addr)
	var allowed atomic.Int64
	var wg sync.WaitGroup
	ctx := patience(t)
	for range 64 {
		wg.Go(func() {
			for range 200 {
				d, err := c.Take(ctx, "big", "k", 1)
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if allowed.Load() != 10_000 {
		t.Errorf("admitted %d of 12,800, limit is 10,000", allowed.Load())
	}
}

// Promise: a take that is in error does not spoil those that travel with it.
func TestBadTakeAmongGoodOnes(t *testing.T) {
	_, addr := serveNode(t, "n1")
	c := newClient(t, addr)
	ctx := patience(t)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for k := range 20 {
				limit, want := "big", codes.OK
				if (i+k)%8 == 0 {
					limit, want = "unknown", codes.NotFound
				}
				if d, err := c.Take(ctx, limit, fmt.Sprint(i), 1); status.Code(err) != want ||
					want == codes.OK && d.Remaining != 10_000-int64(remainingAfter(i, k)) {
					t.Errorf("caller %d, take %d of %s: %+v, %v", i, k, limit, d, err)
				}
			}
		})
	}
	wg.Wait()
}

// remainingAfter counts the good takes of caller i up to the k-th.
func remainingAfter(i, k int) (n int) {
	for j := range k + 1 {
		if (i+j)%8 != 0 {
			n++
		}
	}
	return n
}

// Promise: the next target is used when the first cannot be reached, now or later.
func TestFailover(t *testing.T) {
	first, firstAddr := serveNode(t, "n1")
	_, secondAddr := serveNode(t, "n2")
	c := newClient(t, deadAddress(t), firstAddr, secondAddr)
	ctx := patience(t)
	if d, err := c.Take(ctx, "five", "a", 1); err != nil || d.Owner != "n1" {
		t.Fatalf("%+v, %v; want an answer of n1", d, err)
	}
	first.Stop()
	if d, err := c.Take(ctx, "five", "a", 1); err != nil || d.Owner != "n2" {
		t.Errorf("take after the node was killed: %+v, %v; want an answer of n2", d, err)
	}
	if out, err := check(ctx, c, []*penstockv1.Item{item("five", "a", 1)}, false); err != nil ||
		out[0].Owner != "n2" {
		t.Errorf("check after the node was killed: %v, %v; want an answer of n2", out, err)
	}
}

func TestNobodyThere(t *testing.T) {
	c := newClient(t, deadAddress(t), deadAddress(t))
	ctx := patience(t)
	if _, err := c.Take(ctx, "five", "a", 1); status.Code(err) != codes.Unavailable {
		t.Errorf("take: %v, want Unavailable", err)
	}
	if _, err := check(ctx, c, []*penstockv1.Item{item("five", "a", 1)},
		false); status.Code(err) != codes.Unavailable {
		t.Errorf("check: %v, want Unavailable", err)
	}
}

// script is a node that does as a test says.
type script struct {
	penstockv1.UnimplementedRateLimiterServer
	stream func(n int64, s penstockv1.RateLimiter_CheckStreamServer) error
	check  func(n int64, in *penstockv1.CheckRequest) (*penstockv1.CheckResponse, error)

	streams, checks atomic.Int64
}

func (s *script) CheckStream(stream penstockv1.RateLimiter_CheckStreamServer) error {
	return s.stream(s.streams.Add(1), stream)
}

func (s *script) Check(_ context.Context,
	in *penstockv1.CheckRequest,
) (*penstockv1.CheckResponse, error) {
	return s.check(s.checks.Add(1), in)
}

func (s *script) serve(t *testing.T) string {
	t.Helper()
	l := listen(t)
	server := grpc.NewServer()
	penstockv1.RegisterRateLimiterServer(server, s)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return l.Addr().String()
}

func allow(in *penstockv1.CheckRequest) *penstockv1.CheckResponse {
	out := new(penstockv1.CheckResponse)
	for range in.Items {
		out.Decisions = append(out.Decisions, &penstockv1.Decision{Allowed: true})
	}
	return out
}

func ids(in *penstockv1.CheckRequest) (ids []string) {
	for _, it := range in.Items {
		ids = append(ids, it.Id.String())
	}
	return ids
}

// Promise: a retry is the same take to its owner: it has the same id.
func TestRetryHasTheSameID(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	note := func(in *penstockv1.CheckRequest) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, ids(in)...)
	}
	s := &script{
		stream: func(n int64, stream penstockv1.RateLimiter_CheckStreamServer) error {
			in, err := stream.Recv()
			if err != nil {
				return err
			}
			note(in.Check)
			if n == 1 {
				return status.Error(codes.Unavailable, "gone")
			}
			stream.Send(&penstockv1.CheckStreamResponse{Tag: in.Tag, Check: allow(in.Check)})
			_, err = stream.Recv()
			return err
		},
		check: func(n int64, in *penstockv1.CheckRequest) (*penstockv1.CheckResponse, error) {
			note(in)
			if n == 1 {
				return nil, status.Error(codes.Unavailable, "gone")
			}
			return allow(in), nil
		},
	}
	c := newClient(t, s.serve(t))
	if d, err := c.Take(patience(t), "five", "a", 1); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	given := item("five", "b", 1)
	if _, err := check(patience(t), c, []*penstockv1.Item{given}, false); err != nil {
		t.Fatal(err)
	}
	if given.Id != nil {
		t.Errorf("Check has left an id in the caller's item: %v; the next Check of it would be "+
			"a repeat", given.Id)
	}
	if len(seen) != 4 || seen[0] != seen[1] || seen[2] != seen[3] || seen[0] == seen[2] ||
		slices.Contains(seen, "") {
		t.Errorf("ids of take, its retry, check, its retry: %q", seen)
	}
	seen = nil
	s.checks.Store(0)
	if _, err := c.DoAll(patience(t), []client.Request{
		{Limit: "five", Key: "c"},
		{Limit: "five", Key: "d"},
	}); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 4 || seen[0] != seen[2] || seen[1] != seen[3] || seen[0] == seen[1] {
		t.Errorf("ids of all, and their retry: %q", seen)
	}
}

func TestTakeIsRepeatedOnce(t *testing.T) {
	s := &script{stream: func(int64, penstockv1.RateLimiter_CheckStreamServer) error {
		return status.Error(codes.Unavailable, "gone")
	}}
	c := newClient(t, s.serve(t))
	if _, err := c.Take(patience(t), "five", "a", 1); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want Unavailable", err)
	}
	if n := s.streams.Load(); n > 3 {
		t.Errorf("%d streams for one take", n)
	}
}

// Promise: no call outlives its context, however the node behaves.
func TestTakeEndsWithItsContext(t *testing.T) {
	got := make(chan int64, 1)
	s := &script{stream: func(_ int64, stream penstockv1.RateLimiter_CheckStreamServer) error {
		in, err := stream.Recv()
		if err == nil {
			got <- in.TimeoutMs
		}
		<-stream.Context().Done()
		return nil
	}}
	c := newClient(t, s.serve(t))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	go func() {
		if ms := <-got; ms <= 50_000 || ms > 60_000 {
			t.Errorf("the node was told %d ms of a minute", ms)
		}
		cancel()
	}()
	if _, err := c.Take(ctx, "five", "a", 1); status.Code(err) != codes.Canceled {
		t.Errorf("%v, want Canceled", err)
	}
	done := make(chan error)
	go func() {
		_, err := c.Take(context.Background(), "five", "b", 1)
		done <- err
	}()
	c.Close()
	if err := <-done; status.Code(err) != codes.Canceled &&
		status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a take at a closed client: %v", err)
	}
	if _, err := c.Take(context.Background(), "five", "c", 1); status.Code(err) != codes.Canceled {
		t.Errorf("a take after Close: %v, want Canceled", err)
	}
}

// Promise: a take without a deadline has DefaultTimeout, and a late answer reaches no other take.
func TestTakeHasATimeout(t *testing.T) {
	s := &script{stream: func(_ int64, stream penstockv1.RateLimiter_CheckStreamServer) error {
		var before []*penstockv1.CheckStreamResponse
		for n := int64(1); ; n++ {
			in, err := stream.Recv()
			if err != nil {
				return err
			}
			answer := &penstockv1.CheckStreamResponse{Tag: in.Tag, Check: allow(in.Check)}
			for _, d := range answer.Check.Decisions {
				d.Limit = n
			}
			if n == 1 || string(in.Check.Items[0].Key) == "silent" {
				before = append(before, answer)
				continue
			}
			for _, late := range append(before, answer) {
				stream.Send(late)
			}
			before = nil
		}
	}}
	c := newClient(t, s.serve(t))
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	for n, ctx := range []context.Context{context.Background(), cancellable} {
		var group sync.WaitGroup
		for range 3 { // by one request or by several
			group.Go(func() {
				if d, err := c.Take(ctx, "five", "silent",
					1); status.Code(err) != codes.DeadlineExceeded {
					t.Errorf("a node that is silent: %+v, %v", d, err)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		group.Wait()
		if d, err := c.Take(ctx, "five", "a", 1); err != nil || d.Limit < int64(n)+2 {
			t.Errorf("the take after those: %+v, %v, which is another's answer", d, err)
		}
	}
}

func TestConfig(t *testing.T) {
	for target, want := range map[string]string{"": "Targets is empty", "nowhere": `"nowhere"`} {
		config := client.Config{}
		if target != "" {
			config.Targets = []string{target}
		}
		if _, err := client.New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("targets %v: %v, want %q", config.Targets, err, want)
		}
	}
}

// The token goes with every call, and a unix socket is as good as a port.
func TestTokenOverUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	tokens := make(chan []string, 1)
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, in any,
		_ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		tokens <- md.Get("authorization")
		return next(ctx, in)
	}))
	penstockv1.RegisterRateLimiterServer(server,
		&script{check: func(_ int64,
			in *penstockv1.CheckRequest,
		) (*penstockv1.CheckResponse, error) {
			return allow(in), nil
		}})
	go server.Serve(l)
	defer server.Stop()
	c, err := client.New(client.Config{Targets: []string{"unix://" + path}, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := check(patience(t), c, []*penstockv1.Item{item("five", "a", 1)},
		false); err != nil {
		t.Fatal(err)
	}
	if got := <-tokens; len(got) != 1 || got[0] != "Bearer secret" {
		t.Errorf("sent %q", got)
	}
}

// Promise: a Request asks for all that the protocol has, and a limit that has it not refuses and
// charges nothing.
func TestDo(t *testing.T) {
	_, addr := serveNode(t, "n1")
	c := newClient(t, addr)
	ctx := patience(t)
	if d, err := c.Do(ctx, client.Request{
		Limit: "five", Key: "alice", Cost: 7,
		Drain: true,
	}); err != nil || d.Allowed || d.Drained != 5 || d.Remaining != 0 {
		t.Errorf("drained: %+v, %v", d, err)
	}
	if d, err := c.Do(ctx, client.Request{
		Limit: "five", Key: "alice", Cost: 7,
		Report: true,
	}); err != nil || !d.Allowed {
		t.Errorf("reported: %+v, %v", d, err)
	}
	for field, r := range map[string]client.Request{
		"at_ms":  {At: time.Unix(1, 0)},
		"strict": {Strict: true},
	} {
		r.Limit, r.Key, r.Cost = "five", "bob", 1
		if _, err := c.Do(ctx, r); status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	cost := int64(0)
	out, err := check(ctx, c,
		[]*penstockv1.Item{{Limit: "five", Key: []byte("bob"), Cost: &cost, Drain: true}}, false)
	if err != nil || out[0].Remaining != 5 {
		t.Errorf("refused requests were charged: %v, %v", out, err)
	}
}

// Promise: many requests in one message are decided as they would be one by one, in order.
func TestDoAll(t *testing.T) {
	_, addr := serveNode(t, "n1")
	c := newClient(t, addr)
	var requests []client.Request
	for i := range client.MaxAll {
		requests = append(requests, client.Request{
			Limit: "five", Key: fmt.Sprint(i % 100),
			Cost: 1,
		})
	}
	kept := make([]client.Decision, 0, len(requests)+1)
	for turn := range 2 {
		kept = append(kept[:0], client.Decision{Owner: "kept"})
		out, err := c.AppendAll(patience(t), kept, requests)
		if err != nil || len(out) != len(requests)+1 || out[0].Owner != "kept" ||
			&out[0] != &kept[0] {
			t.Fatalf("%d decisions, %v; they belong behind those of the caller", len(out), err)
		}
		out = out[1:]
		for i, d := range out {
			if k := i/100 + 10*turn; d.Allowed != (k < 5) || d.Remaining != int64(max(0, 4-k)) ||
				d.Limit != 5 || d.LimitName != "five" || d.Owner != "n1" || d.Source != "owner" {
				t.Fatalf("turn %d, request %d: %+v", turn, i, d)
			}
		}
	}
	mixed := []client.Request{
		{Limit: "five", Key: "a", Cost: 7, Drain: true},
		{Limit: "big", Key: "a", Cost: -3},
		{Limit: "five", Key: "a", Cost: 1},
	}
	if out, err := c.DoAll(patience(t), mixed); err != nil || out[0].Drained != 5 ||
		!out[1].Allowed || out[1].Limit != 10_000 || out[2].Allowed {
		t.Errorf("%+v, %v", out, err)
	}
	for name, c := range map[string]struct {
		requests []client.Request
		want     string
	}{
		"none":     {nil, "0 requests; a message takes 1 to 1000"},
		"too many": {make([]client.Request, 1001), "1001 requests"},
		"no text":  {[]client.Request{mixed[0], {Limit: "\xff"}}, "items[1].limit"},
		"no such name": {[]client.Request{
			{Limit: "big", Key: "b", Cost: 1},
			{Limit: "large", Key: "b"},
		}, "large"},
	} {
		if out, err := newClient(t, addr).DoAll(patience(t), c.requests); err == nil ||
			out != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if out, err := newClient(t, addr).DoTogether(patience(t), c.requests); err == nil ||
			out != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, together: %v, want %q", name, err, c.want)
		}
	}
	if d, err := c.Peek(patience(t), "big", "b", 0); err != nil || d.Remaining != 10_000 {
		t.Errorf("after a refused batch: %+v, %v", d, err)
	}
}

// Promise: while no node answers, many requests are answered as one would be: by Config.OnError;
// and a node that answers what is not an answer to the request is not believed.
func TestDoAllWithoutAnswer(t *testing.T) {
	two := []client.Request{{Limit: "five", Key: "a", Cost: 1}, {Limit: "five", Key: "b", Cost: 1}}
	if _, err := newClient(t, deadAddress(t)).DoAll(patience(t),
		two); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want Unavailable", err)
	}
	open, err := client.New(client.Config{
		Targets: []string{deadAddress(t)},
		OnError: client.FailOpen,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if out, err := open.DoAll(patience(t), two); err != nil || !out[0].Allowed ||
		!out[1].Degraded || out[1].Bound != -1 || out[1].Source != "client" {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := open.DoTogether(patience(t), two); status.Code(err) != codes.Unavailable {
		t.Errorf("%+v, %v; nothing can say that all are admitted", out, err)
	}
	for _, answers := range []int{0, 1, 3} {
		s := &script{check: func(_ int64,
			in *penstockv1.CheckRequest,
		) (*penstockv1.CheckResponse, error) {
			return &penstockv1.CheckResponse{Decisions: make([]*penstockv1.Decision, answers)}, nil
		}}
		if out, err := newClient(t, s.serve(t)).DoAll(patience(t), two); err == nil {
			t.Errorf("%d answers to two requests are believed: %+v", answers, out)
		}
	}
}

// Promise: a program may say what it knows of a request, and leave the limits to the rules.
func TestCheckRules(t *testing.T) {
	_, addr := serveNode(t, "n1")
	c := newClient(t, addr)
	ann := map[string]string{"user": "ann"}
	v, err := c.CheckRules(patience(t), ann, 4)
	if err != nil || !v.Allowed || v.RetryAfter != -1 || len(v.Decisions) != 2 ||
		v.Decisions[0].Remaining != 1 || len(v.Rules) != 1 {
		t.Fatalf("%+v, %v", v, err)
	}
	v, err = c.CheckRules(patience(t), ann, 4)
	if err != nil || v.Allowed || len(v.RefusedBy) != 1 || v.RefusedBy[0] != "five" ||
		v.RetryAfter <= 0 {
		t.Fatalf("%+v, %v", v, err)
	}
	if d, err := c.Peek(patience(t), "big", "ann", 0); err != nil || d.Remaining != 9996 {
		t.Errorf("%+v, %v; a denied request burns nothing", d, err)
	}
	if _, err := c.CheckRules(patience(t), map[string]string{"colour": "red"},
		1); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// Promise: a name that is no text is refused here, and does not spoil the stream for others.
func TestTakeOfANameThatIsNoText(t *testing.T) {
	_, addr := serveNode(t, "n1")
	c := newClient(t, addr)
	if _, err := c.Take(t.Context(), "bi\xffg", "k", 1); status.Code(err) != codes.InvalidArgument {
		t.Fatalf("got %v, want INVALID_ARGUMENT", err)
	}
	if d, err := c.Take(t.Context(), "big", "k\xff", 1); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
}
