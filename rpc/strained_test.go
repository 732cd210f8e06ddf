package rpc

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/fair"
	"penstock/rpc/native"
	"penstock/rpc/redis"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

// kept serves a door behind a Keeper, as a node does.
func kept(t *testing.T, serve func(net.Listener) error) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	k := door.NewKeeper(l, door.KeeperConfig{Own: 10, Most: 10, Logger: slog.Default()})
	go func() { _ = serve(k) }()
	return l.Addr().String()
}

// asker opens a connection from an address of this machine, and returns a function that asks over
// it and reports whether it heard OVERLOADED.
type asker func(t *testing.T, address, from string) (ask func() bool)

func dialFrom(t *testing.T, address, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
	conn, err := d.Dial("tcp", address)
	if err != nil {
		t.Skipf("no connection from %s here: %v", from, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func askHTTP(t *testing.T, address, from string) func() bool {
	conn := dialFrom(t, address, from)
	in := bufio.NewReader(conn)
	return func() bool {
		fmt.Fprint(conn, "GET /v1/check?limit=five&key=k&cost=0 HTTP/1.1\r\nHost: x\r\n\r\n")
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		var body [4 << 10]byte
		for n := 1; n > 0 && err == nil; {
			n, err = answer.Body.Read(body[:])
		}
		return answer.StatusCode == http.StatusTooManyRequests
	}
}

func askRedis(t *testing.T, address, from string) func() bool {
	talk := dialFrom(t, address, from)
	in := bufio.NewReader(talk)
	return func() bool {
		fmt.Fprint(talk, rpctest.Command("CL.THROTTLE", "k", "9", "10", "60", "1"))
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line[0] == '-' {
			return true
		}
		for range 5 {
			_, _ = in.ReadString('\n')
		}
		return false
	}
}

func askGRPC(t *testing.T, address, from string) func() bool {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return dialFrom(t, address, from), nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	in := &penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("five", "k", 0)}}
	return func() bool {
		_, err := penstockv1.NewRateLimiterClient(conn).Check(rpctest.Patience(t), in)
		if err != nil && status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
		return err != nil
	}
}

// standing is a clock that stands still.
func standing() time.Duration { return 0 }

// Promise: at every door of an overloaded node, a client that has had its share hears OVERLOADED,
// and its connection is not read for a time; another client is answered at once.
func TestLinesOfGreedyClientsAreReadLess(t *testing.T) {
	gate := fair.Strained(1e-4, standing)
	s := newStations(t, 1, five)[0]
	page := web.NewServer(web.New(web.Config{Node: s.node, Gate: gate}))
	grpcDoor := native.NewServer(native.Config{Node: s.node, Clock: clock.New(), Gate: gate})
	redisDoor := redis.New(redis.Config{Node: s.node, Gate: gate})
	t.Cleanup(func() { page.Close(); grpcDoor.Stop(); redisDoor.Shutdown(rpctest.Patience(t)) })
	for i, d := range []struct {
		name  string
		serve func(net.Listener) error
		open  asker
		least time.Duration // that a refused connection is not read
	}{
		{"HTTP", page.Serve, askHTTP, 500 * time.Millisecond},
		{"Redis", redisDoor.Serve, askRedis, 500 * time.Millisecond},
		{"gRPC", grpcDoor.Serve, askGRPC, 50 * time.Millisecond},
	} {
		t.Run(d.name, func(t *testing.T) {
			address := kept(t, d.serve)
			greedy, modest := fmt.Sprintf("127.0.1.%d", i+1), fmt.Sprintf("127.0.2.%d", i+1)
			first, second := d.open(t, address, greedy), d.open(t, address, greedy)
			if first() {
				t.Error("the first request of a client is refused")
			}
			began := time.Now()
			if !second() {
				t.Error("a client that has had its share is not refused")
			}
			again := make(chan time.Duration, 1)
			go func() { second(); again <- time.Since(began) }()
			if d.open(t, address, modest)() {
				t.Error("another client is refused")
			}
			if d.least >= 500*time.Millisecond && len(again) > 0 {
				t.Error("another client waits for the one that was refused")
			}
			if took := <-again; took < d.least {
				t.Errorf("after a refusal the connection is read after %v", took)
			}
		})
	}
}

// Promise: a client of the Redis door pays also for commands that are no checks.
func TestCommandsThatAreNoChecksArePaidFor(t *testing.T) {
	gate := fair.Strained(1e-6, standing)
	d := redis.New(redis.Config{Node: newStations(t, 1, five)[0].node, Gate: gate})
	t.Cleanup(func() { d.Shutdown(rpctest.Patience(t)) })
	talk := rpctest.TalkTo(t, rpctest.Serve(t, d))
	talk.Says("PING", "+PONG\r\n")
	talk.Says("ECHO a", "$1\r\na\r\n")
	talk.Says("CL.THROTTLE k 9 10 60 1", "-BUSY "+fair.ErrOverloaded.Error()+"\r\n")
}

// Promise: what a client sends in a stream beyond its share waits until it may be decided, and is
// not refused: the stream is not read meanwhile, also as far as it has come already.
func TestStreamsBeyondTheShareWait(t *testing.T) {
	s := newStations(t, 1, five)[0]
	began := time.Now()
	running := func() time.Duration { return time.Since(began) }
	d := native.NewServer(native.Config{
		Node: s.node, Clock: clock.New(), Gate: fair.Strained(1e-4, running),
	})
	t.Cleanup(d.Stop)
	talk, err := rpctest.Dial(t, kept(t, d.Serve)).CheckStream(rpctest.Patience(t))
	if err != nil {
		t.Fatal(err)
	}
	const requests = 4
	in := &penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("five", "k", 0)}}
	for tag := range uint64(requests) {
		err := talk.Send(&penstockv1.CheckStreamRequest{Tag: tag, Check: in})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range requests {
		out, err := talk.Recv()
		if err != nil || out.Error != nil {
			t.Fatalf("a request of a client beyond its share: %v, %v", out.GetError(), err)
		}
	}
}
