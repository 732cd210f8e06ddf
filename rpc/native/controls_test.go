package native

import (
	"fmt"
	"testing"

	"golang.org/x/net/http2"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
)

// Promise: a connection that sends frames of control without calls takes neither the processor nor
// memory: gRPC hears no more of it. A client that is answered may send as many as belong to that.
func TestFramesOfControlAreBounded(t *testing.T) {
	for name, write := range map[string]func(c *rawClient) error{
		"pings":    func(c *rawClient) error { return c.WritePing(false, [8]byte{1}) },
		"settings": func(c *rawClient) error { return c.WriteSettings() },
		"windows":  func(c *rawClient) error { return c.WriteWindowUpdate(0, 1) },
		"priorities": func(c *rawClient) error {
			return c.WritePriority(1, http2.PriorityParam{StreamDep: 3})
		},
	} {
		t.Run(name, func(t *testing.T) {
			address, door := newOpenDoor(t, Config{})
			client := rpctest.Dial(t, address)
			flood := newRawClient(t, address)
			for range mostControls {
				if write(flood) != nil {
					break // it is closed
				}
			}
			rpctest.Eventually(t, "the flood is seen",
				func() bool { return door.flooded.Load() == 1 })
			rpctest.Eventually(t, "gRPC has done with it", func() bool {
				door.mu.Lock()
				defer door.mu.Unlock()
				return len(door.conns) <= 1
			})
			if _, err := client.Check(rpctest.Patience(t), &penstockv1.CheckRequest{
				Items: []*penstockv1.Item{rpctest.Item("demo", "k", 1)},
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("calls with windows", func(t *testing.T) {
		address, door := newOpenDoor(t, Config{})
		c := newRawClient(t, address)
		for range mostControls {
			stream, err := c.open(checkMethod)
			for range 8 {
				_ = c.WriteWindowUpdate(0, 1)
			}
			if err == nil {
				err = c.WriteData(stream, true, make([]byte, 5))
			}
			if err != nil {
				t.Fatal(err)
			}
			if ended, err := c.ended(); err != nil || ended != stream {
				t.Fatalf("stream %d, %v, want an answer to %d", ended, err, stream)
			}
		}
		if n := door.flooded.Load(); n > 0 {
			t.Errorf("%d floods, want none", n)
		}
	})
	t.Run("answers to pings", func(t *testing.T) {
		address, door := newOpenDoor(t, Config{})
		c := newRawClient(t, address)
		if err := c.half(checkMethod, maxRequest, 1); err != nil {
			t.Fatal(err)
		}
		for range 2 * mostControls { // pieces that come slowly over a short line: one ping each
			if err := c.answerPing(); err != nil {
				t.Fatalf("%v; %d floods, want none", err, door.flooded.Load())
			}
			if err := c.WriteData(1, false, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// answerPing answers the next ping of the server, by which it measures the connection.
func (c *rawClient) answerPing() error {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return err
		}
		if ping, ok := f.(*http2.PingFrame); ok && !ping.IsAck() {
			return c.WritePing(true, ping.Data)
		}
	}
}

// Promise: both doors that speak gRPC show what they refuse, each under its own name.
func TestBothDoorsShowWhatTheyRefuse(t *testing.T) {
	c := Config{Node: rpctest.Alone(t, rpctest.PerHour), Clock: clock.New()}
	c.Metrics = door.NewMetrics(c.Node)
	defer NewServer(c).Stop()
	defer NewAdminServer(c).Stop()
	families, err := c.Metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				shown[fmt.Sprint(f.GetName(), " ", l.GetValue())] = true
			}
		}
	}
	for _, name := range []string{
		"unfinished_bytes", "overweight_total", "overdue_total", "flooded_total",
	} {
		for _, at := range []string{"grpc", "admin"} {
			if !shown["penstock_grpc_"+name+" "+at] {
				t.Errorf("penstock_grpc_%s is not shown of %s", name, at)
			}
		}
	}
}
