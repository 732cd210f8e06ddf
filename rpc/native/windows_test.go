package native

import (
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/rpctest"
)

// Promise: a client may open its windows for answers long after they have come, as gRPC's C core
// does when a program in Python takes them one by one, and its stream goes on.
func TestWindowsForAnswersComeLate(t *testing.T) {
	const messages = 2000
	address, door := newOpenDoor(t, Config{})
	c := newRawClient(t, address)
	if err := c.WriteWindowUpdate(0, 1<<30); err != nil { // for all answers at once
		t.Fatal(err)
	}
	stream, err := c.open("/penstock.v1.RateLimiter/CheckStream")
	if err == nil {
		err = c.WriteWindowUpdate(stream, 1<<30)
	}
	for tag := 0; tag < messages && err == nil; tag++ {
		err = c.check(stream, uint64(tag))
		if err == nil && tag%100 == 99 {
			err = c.answers(100)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for range messages {
		if err := c.WriteWindowUpdate(stream, 1); err != nil {
			t.Fatalf("%v; %d floods, want none", err, door.flooded.Load())
		}
		if err := c.WriteWindowUpdate(0, 1); err != nil {
			t.Fatalf("%v; %d floods, want none", err, door.flooded.Load())
		}
	}
	if err := c.check(stream, messages); err != nil {
		t.Fatal(err)
	}
	if err := c.answers(1); err != nil {
		t.Fatalf("%v; %d floods, want none", err, door.flooded.Load())
	}
}

// check asks on a stream of checks.
func (c *rawClient) check(stream uint32, tag uint64) error {
	b, err := proto.Marshal(&penstockv1.CheckStreamRequest{
		Tag: tag,
		Check: &penstockv1.CheckRequest{
			Items: []*penstockv1.Item{rpctest.Item("demo", "k", 0)},
		},
	})
	if err != nil {
		return err
	}
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b)))
	return c.WriteData(stream, false, append(head, b...))
}

// answers reads n answers, each of which is a frame of data.
func (c *rawClient) answers(n int) error {
	for n > 0 {
		f, err := c.ReadFrame()
		if err != nil {
			return err
		}
		if f.Header().Type == http2.FrameData {
			n--
		}
	}
	return nil
}

// Promise: windows that gRPC cannot take, because the client takes nothing in, weigh like requests
// without an end and answers that are not read; and only windows for answers may be many.
func TestWindowsInTheQueueWeigh(t *testing.T) {
	server, client := net.Pipe() // a writing waits until it is read
	defer client.Close()
	in := newIntake(1<<20, slog.New(slog.DiscardHandler))
	c := newWeighedConn(server, server, in)
	c.in.skip = 0
	const answers = 100
	data := slices.Repeat([]byte{0, 0, 0, frameData, 0, 0, 0, 0, 1}, answers)
	window := []byte{0, 0, 4, frameWindow, 0, 0, 0, 0, 1, 0, 0, 0, 1}
	written := make(chan error)
	go func() {
		_, err := c.Write(data)
		written <- err
	}()
	rpctest.Eventually(t, "gRPC writes", c.controls.writing.Load)
	for range answers {
		c.received(window)
	}
	if got := c.weight.Load(); got != answers*windowWeight {
		t.Errorf("%d windows weigh %d, want %d each", answers, got, windowWeight)
	}
	if _, err := io.ReadFull(client, data); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if c.received(window); c.weight.Load() != 0 {
		t.Errorf("the connection weighs %d when gRPC has written, want nothing", c.weight.Load())
	}
	passed := answers + 1
	for c.received(window) {
		passed++
	}
	if most := answers*controlsForFrame + 2*mostControls; passed > most {
		t.Errorf("%d windows passed, want at most %d", passed, most)
	}
}
