package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"penstock/cluster"
)

// wire is a network in memory for testing/synctest: packets arrive at once or never, and a
// connection that is cut off takes its whole timeout to fail, as over a real black hole.
type wire struct {
	mu    sync.Mutex // guards what follows
	ends  map[string]*wireEnd
	sides map[string]int // by address; ends of different sides do not reach each other
	dials int
	boots map[uint64]bool // nodes that run and answer at their peer doors
}

func newWire() *wire {
	return &wire{ends: map[string]*wireEnd{}, sides: map[string]int{}, boots: map[uint64]bool{}}
}

// runs says whether a boot runs.
func (w *wire) runs(boot uint64, does bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boots[boot] = does
}

// answers is Config.Answers where nothing is ever cut off.
func (w *wire) answers(_ context.Context, m cluster.Member) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.boots[m.Boot] {
		return cluster.ErrGone
	}
	return nil
}

// end plugs a node in, in place of the one that had the address before.
func (w *wire) end(addr string) *wireEnd {
	e := &wireEnd{
		wire: w, addr: addr,
		packets: make(chan *memberlist.Packet, 1024), streams: make(chan net.Conn),
		unplugged: make(chan struct{}),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.ends[addr]; old != nil {
		old.unplugLocked()
	}
	w.ends[addr] = e
	return e
}

// split puts these addresses on a side of their own; heal undoes it.
func (w *wire) split(side int, addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range addrs {
		w.sides[a] = side
	}
}

func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.sides)
}

// reach is the end at an address as seen from e: nil, errCut if it is cut off, or a plain error if
// nobody is there.
func (w *wire) reach(e *wireEnd, to string) (*wireEnd, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dest := w.ends[to]
	switch {
	case w.ends[e.addr] != e || w.sides[e.addr] != w.sides[to]:
		return nil, errCut
	case dest == nil:
		return nil, fmt.Errorf("dial %s: connection refused", to)
	}
	return dest, nil
}

var errCut = errors.New("cut off")

// wireEnd is one node's plug: a memberlist.NodeAwareTransport.
type wireEnd struct {
	wire      *wire
	addr      string
	packets   chan *memberlist.Packet
	streams   chan net.Conn
	unplugged chan struct{} // closed
}

var _ memberlist.NodeAwareTransport = (*wireEnd)(nil)

// unplug makes the node vanish, as a crash does.
func (e *wireEnd) unplug() {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	if e.wire.ends[e.addr] == e {
		delete(e.wire.ends, e.addr)
		e.unplugLocked()
	}
}

func (e *wireEnd) unplugLocked() { close(e.unplugged) }

func (e *wireEnd) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	a, err := net.ResolveTCPAddr("tcp", e.addr)
	if err != nil {
		return nil, 0, err
	}
	return a.IP, a.Port, nil
}

func (e *wireEnd) WriteTo(b []byte, addr string) (time.Time, error) {
	return e.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (e *wireEnd) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	now := time.Now()
	dest, err := e.wire.reach(e, to.Addr)
	if err != nil {
		return now, nil // as with UDP: nobody says so
	}
	select {
	case dest.packets <- &memberlist.Packet{
		Buf: slices.Clone(b), From: wireAddr(e.addr),
		Timestamp: now,
	}:
	default:
	}
	return now, nil
}

func (e *wireEnd) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return e.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (e *wireEnd) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn,
	error,
) {
	e.wire.mu.Lock()
	e.wire.dials++
	e.wire.mu.Unlock()
	dest, err := e.wire.reach(e, to.Addr)
	if errors.Is(err, errCut) {
		time.Sleep(timeout)
		return nil, fmt.Errorf("dial %s: %w", to.Addr, os.ErrDeadlineExceeded)
	}
	if err != nil {
		return nil, err
	}
	here, there := net.Pipe()
	select {
	case dest.streams <- there:
		return here, nil
	case <-dest.unplugged:
	case <-time.After(timeout):
	}
	return nil, fmt.Errorf("dial %s: %w", to.Addr, os.ErrDeadlineExceeded)
}

func (e *wireEnd) PacketCh() <-chan *memberlist.Packet { return e.packets }
func (e *wireEnd) StreamCh() <-chan net.Conn           { return e.streams }

func (e *wireEnd) Shutdown() error {
	e.unplug()
	return nil
}

type wireAddr string

func (wireAddr) Network() string  { return "wire" }
func (a wireAddr) String() string { return string(a) }

// The promise of the wire itself: what is cut off does not arrive, and what is not does.
func TestWire(t *testing.T) {
	w := newWire()
	a, b := w.end("10.0.0.1:1"), w.end("10.0.0.2:1")
	send := func() bool {
		_, _ = a.WriteTo([]byte("x"), b.addr)
		select {
		case <-b.packets:
			return true
		default:
			return false
		}
	}
	if !send() {
		t.Error("nothing arrives")
	}
	w.split(1, b.addr)
	if send() {
		t.Error("arrives though cut off")
	}
	w.heal()
	if !send() {
		t.Error("nothing arrives after the heal")
	}
	b.unplug()
	if _, err := a.DialTimeout(b.addr, time.Second); err == nil || errors.Is(err, errCut) {
		t.Errorf("dialling nobody: %v", err)
	}
}
