package door

import (
	"fmt"
	"log/slog"
	"net"
	"testing"
)

// fromAddress is a connection of a client at an address.
type fromAddress struct {
	net.Conn
	at     *net.TCPAddr
	closed *int
}

func (c fromAddress) RemoteAddr() net.Addr { return c.at }
func (c fromAddress) Close() error         { *c.closed++; return nil }

// queue is a listener with connections that wait.
type queue struct {
	net.Listener
	waiting chan net.Conn
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.waiting:
		return c, nil
	default:
		return nil, net.ErrClosed
	}
}

// Promise: one address, or one network of an IPv6 customer, cannot take a door for itself: it gets
// seven eighths, and every other address finds room. Room comes back with each connection that
// ends.
func TestOneAddressCannotTakeADoor(t *testing.T) {
	for _, door := range []KeeperConfig{
		{Own: 400, Most: 800, Common: NewCommonRoom(400)},
		{Own: 800, Most: 800},
	} {
		q := &queue{waiting: make(chan net.Conn, 1)}
		door.Fair, door.Logger = true, slog.New(slog.DiscardHandler)
		k := NewKeeper(q, door)
		closed := 0
		let := func(address string) net.Conn {
			t.Helper()
			q.waiting <- fromAddress{
				at:     &net.TCPAddr{IP: net.ParseIP(address), Port: 1},
				closed: &closed,
			}
			c, _ := k.Accept()
			return c
		}
		var greedy []net.Conn
		for i := range 800 {
			if c := let(fmt.Sprintf("2001:db8::%x", i)); c != nil {
				greedy = append(greedy, c)
			}
		}
		if n := len(greedy); n < 690 || n > 700 {
			t.Errorf("one network has %d of 800 connections", n)
		}
		for i := range 50 {
			if let(fmt.Sprintf("192.0.2.%d", i)) == nil {
				t.Errorf("another address, the %d., finds no room", i)
			}
		}
		if let("2001:db8::1") != nil {
			t.Error("the network has more than its share")
		}
		for _, c := range greedy {
			c.Close()
			c.Close()
		}
		if n := len(k.from); n != 50 {
			t.Errorf("%d addresses are kept, of 50 with connections", n)
		}
		if let("2001:db8::1") == nil {
			t.Error("the network finds no room after its connections have ended")
		}
	}
}
