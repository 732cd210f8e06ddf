package native

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
)

const checkMethod = "/penstock.v1.RateLimiter/Check"

// rawClient speaks HTTP/2 to a gRPC door, frame by frame.
type rawClient struct {
	net.Conn
	*http2.Framer
	next uint32 // id of the next stream
}

func newRawClient(t testing.TB, address string) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	io.WriteString(conn, http2.ClientPreface)
	c := &rawClient{conn, http2.NewFramer(conn, conn), 1}
	if err := c.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

// open begins a call.
func (c *rawClient) open(method string) (stream uint32, err error) {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", "localhost"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	stream = c.next
	c.next += 2
	return stream, c.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      stream,
		BlockFragment: b.Bytes(), EndHeaders: true,
	})
}

// half begins a call, and sends a part of its message, which has size bytes.
func (c *rawClient) half(method string, size, sent int) error {
	stream, err := c.open(method)
	if err != nil {
		return err
	}
	message := make([]byte, 5+sent)
	message[1], message[2], message[3], message[4] = byte(size>>24), byte(size>>16), byte(size>>8),
		byte(size)
	return c.WriteData(stream, false, message)
}

// ended reads until the connection is closed, a stream ends, or nothing has come for a while.
func (c *rawClient) ended() (stream uint32, err error) {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return 0, err
		}
		switch h := f.Header(); {
		case h.Type == http2.FrameRSTStream, h.Type == http2.FrameHeaders &&
			h.Flags.Has(http2.FlagHeadersEndStream):
			return h.StreamID, nil
		}
	}
}

// newOpenDoor serves a door for clients to a node that is alone.
func newOpenDoor(t testing.TB, c Config) (address string, in *intake) {
	t.Helper()
	c.Node, c.Clock = rpctest.Alone(t, rpctest.PerHour), clock.New()
	c.Metrics = door.NewMetrics(c.Node)
	s, in := newServer(c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return l.Addr().String(), in
}

// Promise: whatever clients leave unfinished, it takes no more memory than there is room for, and a
// client that finishes what it begins is not the one to pay for it.
func TestUnfinishedCallsAreBounded(t *testing.T) {
	const room = 4 << 20
	address, door := newOpenDoor(t,
		Config{Unfinished: room, Logger: slog.New(slog.DiscardHandler)})
	honest := rpctest.Dial(t, address)
	check := func() {
		t.Helper()
		if _, err := honest.Check(rpctest.Patience(t),
			&penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("demo", "k",
				1)}}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
	}
	check()
	for _, kind := range []struct {
		name       string
		size, sent int
	}{{"headers", 0, 0}, {"small pieces", 1000, 1}, {"large messages", 1 << 20, 16_000}} {
		before := door.closed.Load()
		var attack sync.WaitGroup
		for range 4 {
			c := newRawClient(t, address)
			go io.Copy(io.Discard, c.Conn)
			attack.Go(func() {
				for range 1000 {
					if kind.size == 0 {
						if _, err := c.open(checkMethod); err != nil {
							return
						}
					} else if c.half(checkMethod, kind.size, kind.sent) != nil {
						return
					}
				}
			})
		}
		attack.Wait()
		rpctest.Eventually(t, kind.name+": connections are closed",
			func() bool { return door.closed.Load() > before })
		rpctest.Eventually(t, kind.name+": there is room",
			func() bool { return door.used.Load() <= room })
		check()
	}
}

// Promise: answers that clients do not read take no more memory than there is room for, and a
// client that reads its answers is not the one to pay for it.
func TestUnreadAnswersAreBounded(t *testing.T) {
	const room = 4 << 20
	address, door := newOpenDoor(t,
		Config{Unfinished: room, Logger: slog.New(slog.DiscardHandler)})
	honest := rpctest.Dial(t, address)
	for _, kind := range []struct {
		name         string
		items, calls int
	}{{"long answers", 500, 100}, {"short answers", 1, 1000}} {
		before := door.closed.Load()
		in := &penstockv1.PeekRequest{}
		for i := range kind.items {
			in.Items = append(in.Items, rpctest.Item("demo", fmt.Sprint(i), 1))
		}
		b, err := proto.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
		for range 4 {
			c := newRawClient(t, address)
			go io.Copy(io.Discard, c.Conn)
			c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			c.WriteWindowUpdate(0, 1<<30)
			for range kind.calls {
				stream, err := c.open("/penstock.v1.RateLimiter/Peek")
				if err != nil || c.WriteData(stream, true, message) != nil {
					break // it is closed
				}
			}
		}
		rpctest.Eventually(t, kind.name+": connections are closed",
			func() bool { return door.closed.Load() > before })
		rpctest.Eventually(t, kind.name+": there is room",
			func() bool { return door.used.Load() <= room })
		if _, err := honest.Peek(rpctest.Patience(t), in, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
	}
}

// Promise: what is complete weighs nothing, whatever way a call ends.
func TestCompleteCallsWeighNothing(t *testing.T) {
	address, door := newOpenDoor(t, Config{})
	client := rpctest.Dial(t, address)
	for i := range 200 {
		ctx := rpctest.Patience(t)
		request := &penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("demo",
			fmt.Sprint(i), 1)}}
		for range i * i % 700 {
			request.Items = append(request.Items, rpctest.Item("demo", fmt.Sprint(rand.Int64()), 1))
		}
		if _, err := client.Check(ctx, request); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Check(rpctest.Patience(t),
		&penstockv1.CheckRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Fatal(err)
	}
	rpctest.Eventually(t, "nothing is left of the calls",
		func() bool { return door.used.Load() == 0 })
	ctx, cancel := context.WithCancel(rpctest.Patience(t))
	stream, err := client.CheckStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		items := make([]*penstockv1.Item, 1+i*i%900)
		for k := range items {
			items[k] = rpctest.Item("demo", fmt.Sprint(i, k), 1)
		}
		if err := stream.Send(&penstockv1.CheckStreamRequest{
			Tag:   uint64(i),
			Check: &penstockv1.CheckRequest{Items: items},
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	// the last answer may have come before the door has noted that it is gone
	rpctest.Eventually(t, "a stream that has sent whole messages weighs no more than an open one",
		func() bool { return door.used.Load() == streamWeight })
	cancel()
	rpctest.Eventually(t, "the stream weighs nothing", func() bool { return door.used.Load() == 0 })
	raw := newRawClient(t, address)
	if err := raw.half(checkMethod, 100, 10); err != nil {
		t.Fatal(err)
	}
	rpctest.Eventually(t, "half a call weighs",
		func() bool { return door.used.Load() > streamWeight })
	raw.WriteRSTStream(1, http2.ErrCodeCancel)
	rpctest.Eventually(t, "a call that is taken back weighs nothing",
		func() bool { return door.used.Load() == 0 })
	raw.half(checkMethod, 100, 10)
	rpctest.Eventually(t, "half a call weighs",
		func() bool { return door.used.Load() > streamWeight })
	raw.Close()
	rpctest.Eventually(t, "a connection that is gone weighs nothing",
		func() bool { return door.used.Load() == 0 })
	door.mu.Lock()
	defer door.mu.Unlock()
	if len(door.conns) != 1 {
		t.Errorf("%d connections are weighed, want the client's", len(door.conns))
	}
}

// Promise: a call without a message weighs as others do until its answer has gone: gRPC keeps it
// for as long as its client does not read.
func TestCallsWithoutAMessageWeigh(t *testing.T) {
	conn, far := net.Pipe()
	far.Close() // nobody reads
	door := newIntake(1<<20, slog.New(slog.DiscardHandler))
	c := newWeighedConn(conn, conn, door)
	var asks, answers bytes.Buffer
	asks.WriteString(http2.ClientPreface)
	head := http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true}
	if http2.NewFramer(&asks, nil).WriteHeaders(head) != nil ||
		http2.NewFramer(&answers, nil).WriteHeaders(head) != nil {
		t.Fatal("no frames")
	}
	c.received(asks.Bytes())
	if w := door.used.Load(); w != answerWeight || c.unfinished() {
		t.Errorf("a call weighs %d; want %d", w, answerWeight)
	}
	_, _ = c.Write(answers.Bytes())
	if w := door.used.Load(); w != 0 {
		t.Errorf("a call that was answered weighs %d", w)
	}
}

// Promise: without the token, nothing is kept of a call, however much of it is sent.
func TestNothingIsKeptBeforeTheToken(t *testing.T) {
	address, door := newOpenDoor(t, Config{AuthToken: "secret"})
	c := newRawClient(t, address)
	for range 100 {
		if err := c.half(checkMethod, 1<<20, 1000); err != nil {
			t.Fatal(err)
		}
	}
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	ended := map[uint32]bool{}
	for len(ended) < 100 {
		stream, err := c.ended()
		if err != nil {
			t.Fatal(err)
		}
		ended[stream] = true
	}
	rpctest.Eventually(t, "nothing weighs", func() bool { return door.used.Load() == 0 })
}

// Promise: a request that does not come to its end is not waited for: a call with one request has a
// deadline, and a message of a stream too. (The timers are run by hand.)
func TestRequestsHaveADeadline(t *testing.T) {
	a := &admit{single: map[string]bool{checkMethod: true}}
	ctx, err := a.handle(context.Background(), &tap.Info{FullMethodName: checkMethod})
	if err != nil {
		t.Fatal(err)
	}
	if _, says := ctx.Deadline(); says {
		t.Error("the door's own deadline is taken for the client's")
	}
	if ends, ok := ctx.(*undated).Context.Deadline(); !ok || time.Until(ends) > mostUnary {
		t.Errorf("a call without a deadline ends at %v", ends)
	}
	ctx, _ = a.handle(context.Background(),
		&tap.Info{FullMethodName: "/penstock.v1.RateLimiter/CheckStream"})
	if ctx != context.Background() {
		t.Error("a stream has a deadline")
	}

	address, door := newOpenDoor(t, Config{})
	c := newRawClient(t, address)
	if err := c.half("/penstock.v1.RateLimiter/CheckStream", 100, 10); err != nil {
		t.Fatal(err)
	}
	var conn *weighedConn
	rpctest.Eventually(t, "the message is looked at", func() bool {
		door.mu.Lock()
		defer door.mu.Unlock()
		for conn = range door.conns {
			conn.mu.Lock()
			defer conn.mu.Unlock()
			return conn.armed
		}
		return false
	})
	conn.look()
	if door.slow.Load() != 0 {
		t.Fatal("a message that is young was given up")
	}
	conn.mu.Lock()
	for _, u := range conn.calls {
		u.since = u.since.Add(-messageTimeout)
	}
	conn.mu.Unlock()
	conn.look()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if stream, err := c.ended(); err == nil || door.slow.Load() != 1 {
		t.Errorf("stream %d, %v, %d given up", stream, err, door.slow.Load())
	}
}

// Promise: frames are told apart however the bytes of a connection are cut.
func TestFrameWalk(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, nil)
	f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20})
	f.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: []byte("abc"),
		EndHeaders: true,
	})
	f.WriteData(1, false, []byte("hello"))
	f.WriteData(1, true, nil)
	f.WriteRSTStream(3, http2.ErrCodeCancel)
	f.WriteData(5, true, bytes.Repeat([]byte("x"), 1000))
	const want = "4/0 +4/0 1/1 +1/1 0/1 hello+0/1 0/1 +0/1! 3/3 +3/3! 0/5 "
	rapid.Check(t, func(t *rapid.T) {
		w, got := frameWalk{skip: clientPreface}, &noted{}
		for rest := b.Bytes(); len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), 40)).Draw(t, "n")
			w.walk(rest[:n], got)
			rest = rest[n:]
		}
		if text := got.String(); text != want+string(bytes.Repeat([]byte("x"), 1000))+"+0/5! " {
			t.Fatalf("%.200s", text)
		}
	})
}

// noted writes down what a walk finds.
type noted struct{ bytes.Buffer }

func (n *noted) begun(f frameHead)          { fmt.Fprintf(n, "%d/%d ", f.kind, f.stream) }
func (n *noted) data(_ frameHead, b []byte) { n.Write(b) }
func (n *noted) ended(f frameHead) {
	fmt.Fprintf(n, "+%d/%d%s ", f.kind, f.stream, map[bool]string{true: "!"}[f.ends()])
}
