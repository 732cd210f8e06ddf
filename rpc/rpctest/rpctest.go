// Package rpctest has what the tests of several doors need: nodes that run in the test's process
// without sockets, a page asked without a listener, a client that talks RESP, and an authority that
// signs certificates. Only tests import it.
package rpctest

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/ring"
	"penstock/rpc/clock"
	"penstock/rpc/resp"
)

// Unreached is a Network for a node that is alone: nobody is asked.
type Unreached struct{ T testing.TB }

func (u Unreached) Call([]cluster.Call) { u.T.Error("a node that is alone asked a peer") }

func (u Unreached) Wait(limiter.Instant) { u.T.Error("a node that is alone waits for somebody") }

// Alone makes a node by itself, with the limits of specs.
func Alone(t testing.TB, specs ...limiter.Spec) *cluster.Node {
	t.Helper()
	n, err := cluster.New(cluster.Config{
		ID: "n1", Boot: 1, Clock: clock.New(), Network: Unreached{T: t}, Table: limiter.NewTable(
			limiter.TableConfig{Bytes: 4 << 20}),
	})
	if err != nil {
		t.Fatal(err)
	}
	limits := cluster.Limits{}
	for _, s := range specs {
		if limits[s.Name], err = limiter.New(s); err != nil {
			t.Fatal(err)
		}
	}
	n.SetLimits(limits)
	v, err := cluster.NewView(
		"n1",
		[]cluster.Member{
			{ID: "n1", Boot: 1, State: cluster.StateActive, HTTPAddr: "127.0.0.1:7949"},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	n.SetView(v)
	return n
}

// wires is a Network within one process: an ask is delivered where it is sent from.
type wires struct{ nodes map[string]*cluster.Node }

// Call delivers all calls at once.
func (w *wires) Call(calls []cluster.Call) {
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			if n := w.nodes[calls[i].To.ID]; n != nil {
				calls[i].Answer = n.Deliver(calls[i].Ask)
			} else {
				calls[i].Err = cluster.ErrUnsent
			}
		})
	}
	all.Wait()
}

// Wait is not needed where every peer answers.
func (*wires) Wait(limiter.Instant) {}

// Joined makes nodes n1 … nk that reach each other within the process, with the limits of specs.
func Joined(t testing.TB, k int, specs ...limiter.Spec) []*cluster.Node {
	t.Helper()
	limits := cluster.Limits{}
	for _, s := range specs {
		limits[s.Name] = MustLimit(s)
	}
	w := &wires{nodes: make(map[string]*cluster.Node)}
	all := make([]*cluster.Node, k)
	var members []cluster.Member
	for i := range all {
		m := cluster.Member{
			ID: fmt.Sprintf("n%d", i+1), Boot: uint64(i + 1), State: cluster.StateActive,
			Features: cluster.OwnFeatures,
		}
		n, err := cluster.New(cluster.Config{
			ID: m.ID, Boot: m.Boot, Clock: clock.New(), Network: w, CallTimeout: time.Minute,
			Table: limiter.NewTable(limiter.TableConfig{Bytes: 16 << 20}),
		})
		if err != nil {
			t.Fatal(err)
		}
		n.SetLimits(limits)
		all[i], w.nodes[m.ID] = n, n
		members = append(members, m)
	}
	for range 2 { // a claim that came before its receiver knew its sender is not repeated
		for _, n := range all {
			v, err := cluster.NewView(n.ID(), members)
			if err != nil {
				t.Fatal(err)
			}
			n.SetView(v)
		}
	}
	Eventually(t, "every partition has a holder", func() bool {
		held := 0
		for _, n := range all {
			held += n.Held()
		}
		return held == ring.Partitions
	})
	return all
}

// OwnKey returns a key that owner owns, the i-th of them.
func OwnKey(owner *cluster.Node, i int) string {
	v := owner.View()
	for k := 0; ; k++ {
		key := fmt.Sprintf("key-%d", k)
		if !v.Owns(limiter.Hash(key)) {
			continue
		}
		if i == 0 {
			return key
		}
		i--
	}
}

// MustLimit is the limit of s, which is right.
func MustLimit(s limiter.Spec) *limiter.Limit {
	l, err := limiter.New(s)
	if err != nil {
		panic(err)
	}
	return l
}

// Eventually waits until ok is true: for what other goroutines do in their own time.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not after 30 s: %s", what)
		}
	}
}

// Page asks h, and returns the answer with its body.
func Page(h http.Handler, method, target, body string, header ...string) (*http.Response, string) {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rw := httptest.NewRecorder()
	h.ServeHTTP(rw, r)
	return rw.Result(), rw.Body.String()
}

// Patience is a context for calls that a busy machine must not fail.
func Patience(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Item is an item of a message.
func Item(limit, key string, cost int64) *penstockv1.Item {
	return &penstockv1.Item{Limit: limit, Key: []byte(key), Cost: &cost}
}

// server is a door that serves a listener until it is told to stop.
type server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context)
}

// Serve opens d on loopback and returns its address.
func Serve(t testing.TB, d server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- d.Serve(l) }()
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		d.Shutdown(now)
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

// Dial is a client of the gRPC door at address.
func Dial(t testing.TB, address string) penstockv1.RateLimiterClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return penstockv1.NewRateLimiterClient(conn)
}

// Talk is a client that sends bytes and looks at what comes back.
type Talk struct {
	t    testing.TB
	Conn net.Conn
	In   *bufio.Reader
}

func TalkTo(t testing.TB, address string) *Talk {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return TalkOver(t, conn)
}

// TalkOver is TalkTo for a connection that is there.
func TalkOver(t testing.TB, conn net.Conn) *Talk { return &Talk{t, conn, bufio.NewReader(conn)} }

// Command is one as clients send it.
func Command(words ...string) string {
	b := resp.AppendArray(nil, len(words))
	for _, w := range words {
		b = resp.AppendBulk(b, w)
	}
	return string(b)
}

func (c *Talk) Send(raw string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, raw); err != nil {
		c.t.Fatalf("sending %.100q: %v", raw, err)
	}
}

// Expect reads as many bytes as want has.
func (c *Talk) Expect(what, want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(c.In, got)
	if got = got[:n]; err != nil || string(got) != want {
		c.t.Fatalf("%.100s: %q (%v); want %q", what, got, err, want)
	}
}

// Says sends a command in words with blanks between, and expects the reply.
func (c *Talk) Says(line, want string) {
	c.t.Helper()
	c.Send(Command(strings.Fields(line)...))
	c.Expect(line, want)
}

// Closed expects that nothing comes any more.
func (c *Talk) Closed(what string) {
	c.t.Helper()
	var timeout net.Error
	if rest, err := io.ReadAll(c.In); len(rest) > 0 || errors.As(err, &timeout) &&
		timeout.Timeout() {
		c.t.Errorf("%s: %q, %v; want the end", what, rest, err)
	}
}

// MinimizeBriefly bounds how often the fuzzer tries to shorten an input that reaches new code. By
// default it tries for a minute, and mutates nothing meanwhile: a long input costs a try for each
// pair of its bytes. The flag goes before it.
func MinimizeBriefly() {
	if tries := flag.Lookup("test.fuzzminimizetime"); tries.Value.String() == tries.DefValue {
		tries.Value.Set("50x")
	}
}
