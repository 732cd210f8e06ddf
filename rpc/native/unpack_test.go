package native

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/fair"
	"penstock/rpc/rpctest"
)

func packed(t *testing.T, n int) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(make([]byte, n))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// Promise: a compressed message is unpacked up to a bound, and an error says what to do.
func TestUnpackedMessagesAreBounded(t *testing.T) {
	u := newUnpacker()
	if b, err := u.Do(packed(t, mostUnpacked)); err != nil || len(b) != mostUnpacked {
		t.Errorf("the largest message is unpacked to %d bytes, %v", len(b), err)
	}
	if _, err := u.Do(packed(t, mostUnpacked+1)); err == nil ||
		!strings.Contains(err.Error(), "without compression") {
		t.Errorf("a larger message: %v", err)
	}
	if _, err := u.Do(strings.NewReader("no gzip")); err == nil {
		t.Error("what is not compressed is unpacked")
	}
	u.asked.Store(mostPacked)
	if _, err := u.Do(packed(t, 1)); !errors.Is(err, fair.ErrOverloaded) {
		t.Errorf("one message too many: %v", err)
	}
	if len(u.turns) != 0 || u.asked.Load() != mostPacked {
		t.Error("a turn was not given back")
	}
}

// Promise: a client that compresses its requests is answered, and one that sends a bomb is not.
func TestCompressedRequests(t *testing.T) {
	node := rpctest.Alone(t)
	door := NewServer(Config{Node: node, Clock: clock.New()})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = door.Serve(l) }()
	t.Cleanup(door.Stop)
	client := rpctest.Dial(t, l.Addr().String())
	for _, c := range []struct {
		key  string
		want codes.Code
	}{{"k", codes.NotFound}, {strings.Repeat("k", 2*mostUnpacked), codes.Internal}} {
		in := &penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("none", c.key, 1)}}
		_, err := client.Check(rpctest.Patience(t), in, grpc.UseCompressor(grpcgzip.Name))
		if status.Code(err) != c.want {
			t.Errorf("a compressed request with a key of %d bytes: %v", len(c.key), err)
		}
	}
}
