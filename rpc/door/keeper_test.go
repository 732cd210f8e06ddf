package door

import (
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"penstock/rpc/fair"
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

// Promise: in an overload an address pays for its connections, and when it is ahead of its share it
// gets no further ones; others do.
func TestConnectionsArePaidForInAnOverload(t *testing.T) {
	q := &queue{waiting: make(chan net.Conn, 1)}
	k := NewKeeper(q, KeeperConfig{Own: 400, Most: 400, Logger: slog.New(slog.DiscardHandler)})
	standing := func() time.Duration { return 0 }
	k.Charge(fair.Strained(1e-6, standing), time.Microsecond)
	for i, c := range []struct {
		address string
		let     bool
	}{{"192.0.2.1", true}, {"192.0.2.1", false}, {"192.0.2.2", true}, {"192.0.2.1", false}} {
		closed := 0
		q.waiting <- fromAddress{
			at:     &net.TCPAddr{IP: net.ParseIP(c.address), Port: 1},
			closed: &closed,
		}
		if _, err := k.Accept(); (err == nil) != c.let || closed == 1 == c.let {
			t.Errorf("connection %d, of %s: %v, closed %d times", i, c.address, err, closed)
		}
	}
	if open := k.Open(); open != 2 {
		t.Errorf("%d connections are open, not 2", open)
	}
}

// Promise: the line of a connection that is closed has ended, so nothing waits to read it.
func TestClosedConnectionHasNoLine(t *testing.T) {
	closed := 0
	q := &queue{waiting: make(chan net.Conn, 1)}
	q.waiting <- fromAddress{at: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, closed: &closed}
	k := NewKeeper(q, KeeperConfig{Own: 1, Most: 1, Logger: slog.New(slog.DiscardHandler)})
	conn, err := k.Accept()
	if err != nil {
		t.Fatal(err)
	}
	line := LineOf(conn)
	before := line.Ended()
	conn.Close()
	if before || !line.Ended() || closed != 1 {
		t.Errorf("ended before %v, after %v; closed %d times", before, line.Ended(), closed)
	}
}

// endless is a connection of a client that has always sent more.
type endless struct{ net.Conn }

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// Promise: while a client sends without an end, each reading lets others have the processor. One
// time in 61 the scheduler goes on with the one that gives way, so the next reading may be needed.
func TestEndlessReadingLetsOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c := &admitted{Conn: endless{}}
	b := make([]byte, 16)
	if _, err := c.Read(b); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		var ran atomic.Bool
		go ran.Store(true)
		for range 2 {
			if _, err := c.Read(b); err != nil {
				t.Fatal(err)
			}
		}
		if !ran.Load() {
			t.Fatalf("readings %d and %d have not let another goroutine run", 2*i, 2*i+1)
		}
	}
}
