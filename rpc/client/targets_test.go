package client_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// relay passes on what comes and goes, until it is frozen: then it still has all connections, as a
// machine without power has.
type relay struct {
	mu   sync.Mutex // guards below
	addr string
	gate *sync.RWMutex // of all connections since the last turn; locked while they are frozen
}

func (r *relay) freeze() { r.gate.Lock() }
func (r *relay) thaw()   { r.gate.Unlock() }

// turn freezes what there is, and leads what comes from now on to another address.
func (r *relay) turn(addr string) (thaw func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.gate
	was.Lock()
	r.addr, r.gate = addr, new(sync.RWMutex)
	return was.Unlock
}

func (r *relay) copy(gate *sync.RWMutex, to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		gate.RLock()
		_, err = to.Write(b[:n])
		gate.RUnlock()
		if err != nil {
			return
		}
	}
}

// before puts a relay before an address, and returns its own.
func before(t *testing.T, addr string) (*relay, string) {
	t.Helper()
	r, l := &relay{addr: addr, gate: new(sync.RWMutex)}, listen(t)
	var over sync.WaitGroup
	over.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			addr, gate := r.addr, r.gate
			r.mu.Unlock()
			out, err := net.Dial("tcp", addr)
			if err != nil {
				in.Close()
				continue
			}
			over.Go(func() { r.copy(gate, out, in) })
			over.Go(func() { r.copy(gate, in, out) })
		}
	})
	t.Cleanup(func() { l.Close(); over.Wait() })
	return r, l.Addr().String()
}

// all asks by every kind of call, many at once, and tells which nodes decided.
func all(t *testing.T, c *client.Client) (owners map[string]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	owners = map[string]int{}
	var mu sync.Mutex
	var asked sync.WaitGroup
	ask := func(what string, call func() (owner string, err error)) {
		asked.Go(func() {
			owner, err := call()
			// on a machine too busy to notice while a repeat is allowed
			for status.Code(err) == codes.Unavailable {
				owner, err = call()
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			owners[owner]++
		})
	}
	for range 10 {
		ask("take", func() (string, error) {
			d, err := c.Take(ctx, "big", "a", 1)
			return d.Owner, err
		})
	}
	ask("check", func() (string, error) {
		out, err := check(ctx, c, []*penstockv1.Item{item("big", "a", 1)}, false)
		if err != nil {
			return "", err
		}
		return out[0].Owner, nil
	})
	ask("all", func() (string, error) {
		out, err := c.DoAll(ctx, []client.Request{{Limit: "big", Key: "a", Cost: 1}})
		if err != nil {
			return "", err
		}
		return out[0].Owner, nil
	})
	ask("reserve", func() (string, error) {
		h, err := c.Reserve(ctx, "big", "a", 1, time.Minute)
		if err != nil {
			return "", err
		}
		return h.Owner, nil
	})
	asked.Wait()
	return owners
}

// Promise: a node that is silent, though its connections stand, is left for the next; what waits
// there is asked again.
func TestSilentNodeIsLeft(t *testing.T) {
	_, one := serveNode(t, "n1")
	_, two := serveNode(t, "n2")
	first, firstAddr := before(t, one)
	second, secondAddr := before(t, two)
	c := newClient(t, firstAddr, secondAddr)
	if got := all(t, c); got["n1"] != 13 {
		t.Fatalf("decided by %v; want n1 for all", got)
	}
	first.freeze()
	if got := all(t, c); got["n2"] != 13 {
		t.Errorf("decided by %v while the first is frozen; want n2 for all", got)
	}
	first.thaw()
	if got := all(t, c); got["n2"] != 13 {
		t.Errorf("decided by %v; want n2 for all: it answers, so why go back", got)
	}
	second.freeze()
	defer second.thaw()
	if got := all(t, c); got["n1"] != 13 {
		t.Errorf("decided by %v while the second is frozen; want n1 for all", got)
	}
}

// Promise: … also if the same name resolves to another address the next time, as that of a service
// does.
func TestSilentConnectionIsMadeAnew(t *testing.T) {
	_, one := serveNode(t, "n1")
	_, two := serveNode(t, "n2")
	service, addr := before(t, one)
	_, port, _ := net.SplitHostPort(addr)
	c := newClient(t, net.JoinHostPort("localhost", port))
	if got := all(t, c); got["n1"] != 13 {
		t.Fatalf("decided by %v; want n1 for all", got)
	}
	defer service.turn(two)()
	if got := all(t, c); got["n2"] != 13 {
		t.Errorf("decided by %v while n1 is frozen; want n2 for all", got)
	}
}

// Promise: a client with one target stays with it.
func TestOnlyTargetIsNotLeft(t *testing.T) {
	_, one := serveNode(t, "n1")
	first, addr := before(t, one)
	c := newClient(t, addr)
	all(t, c)
	first.freeze()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if d, err := c.Take(ctx, "big", "a", 1); err == nil {
		t.Errorf("%+v of a frozen node", d)
	}
	first.thaw()
	if got := all(t, c); got["n1"] != 13 {
		t.Errorf("decided by %v; want n1 for all", got)
	}
}

// healthy is a node with the health that a test sets.
type healthy struct {
	script
	healthv1.UnimplementedHealthServer
	status atomic.Int32
	asked  atomic.Int64
}

func (h *healthy) Check(context.Context,
	*healthv1.HealthCheckRequest,
) (*healthv1.HealthCheckResponse, error) {
	h.asked.Add(1)
	return &healthv1.HealthCheckResponse{
		Status: healthv1.HealthCheckResponse_ServingStatus(h.status.Load()),
	}, nil
}

func (h *healthy) serve(t *testing.T) string {
	t.Helper()
	l := listen(t)
	server := grpc.NewServer()
	penstockv1.RegisterRateLimiterServer(server, &h.script)
	healthv1.RegisterHealthServer(server, h)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return l.Addr().String()
}

func answers(decide func(*penstockv1.CheckRequest) *penstockv1.CheckResponse) func(int64,
	penstockv1.RateLimiter_CheckStreamServer) error {
	return func(_ int64, stream penstockv1.RateLimiter_CheckStreamServer) error {
		for {
			in, err := stream.Recv()
			if err != nil {
				return err
			}
			if err := stream.Send(&penstockv1.CheckStreamResponse{
				Tag:   in.Tag,
				Check: decide(in.Check),
			}); err != nil {
				return err
			}
		}
	}
}

// Promise: a node that takes its time over an answer, but lives, is not left.
func TestSlowNodeIsNotLeft(t *testing.T) {
	h := new(healthy)
	h.status.Store(int32(healthv1.HealthCheckResponse_SERVING))
	h.stream = answers(func(in *penstockv1.CheckRequest) *penstockv1.CheckResponse {
		for h.asked.Load() == 0 { // until the client wonders
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(300 * time.Millisecond)
		return allow(in)
	})
	_, two := serveNode(t, "n2")
	c := newClient(t, h.serve(t), two)
	if d, err := c.Take(patience(t), "five", "a", 1); err != nil || d.Owner != "" {
		t.Errorf("%+v, %v; want the answer of the slow one", d, err)
	}
	if n := h.streams.Load(); n != 1 {
		t.Errorf("%d streams", n)
	}
}

// Promise: a node that is not ready is left, if there is another.
func TestNodeThatIsNotReadyIsLeft(t *testing.T) {
	h := new(healthy)
	h.status.Store(int32(healthv1.HealthCheckResponse_NOT_SERVING))
	h.stream = answers(allow)
	_, two := serveNode(t, "n2")
	c := newClient(t, h.serve(t), two)
	ctx := patience(t)
	for {
		d, err := c.Take(ctx, "five", "a", 0)
		if err != nil {
			t.Fatal(err)
		}
		if d.Owner == "n2" {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Promise: a node that decides by fallbacks alone is left, if there is another; one of which only
// some decisions are fallbacks is not, and an only target never is.
func TestNodeThatIsCutOffIsLeft(t *testing.T) {
	for _, c := range []struct {
		name             string
		some, only, left bool
	}{
		{name: "all fallbacks", left: true},
		{name: "some", some: true},
		{name: "an only target", only: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := new(healthy)
			h.status.Store(int32(healthv1.HealthCheckResponse_SERVING))
			var n atomic.Int64
			h.stream = answers(func(in *penstockv1.CheckRequest) *penstockv1.CheckResponse {
				out := allow(in)
				for _, d := range out.Decisions {
					if n.Add(1)%2 == 0 || !c.some {
						d.Degraded, d.Source = true, penstockv1.Source_SOURCE_FALLBACK
					}
				}
				return out
			})
			targets := []string{h.serve(t)}
			if !c.only {
				_, two := serveNode(t, "n2")
				targets = append(targets, two)
			}
			cl, ctx, left := newClient(t, targets...), patience(t), false
			for range 80 {
				d, err := cl.Take(ctx, "five", "a", 0)
				if err != nil {
					t.Fatal(err)
				}
				if left = d.Owner == "n2"; left {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if left != c.left {
				t.Errorf("left: %t, want %t", left, c.left)
			}
		})
	}
}
