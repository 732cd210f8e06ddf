package gossip

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

func openTestSockets(t *testing.T, ip string) *sockets {
	t.Helper()
	s, err := openSockets(netip.MustParseAddr(ip), 0, log.New(io.Discard, "", 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	return s
}

func (s *sockets) arrives(t *testing.T) *memberlist.Packet {
	t.Helper()
	select {
	case p := <-s.packets:
		return p
	case <-time.After(10 * time.Second):
		t.Fatal("no packet arrives")
		return nil
	}
}

// Promise: packets of all sizes arrive whole, with the address of their sender, whichever of IPv4
// and IPv6 a socket speaks; and a packet stays as it is while others come.
func TestSocketsBringPackets(t *testing.T) {
	for _, way := range []struct{ from, to, dial string }{
		{"127.0.0.1", "127.0.0.1", "127.0.0.1"},
		{"0.0.0.0", "0.0.0.0", "127.0.0.1"},
		{"127.0.0.1", "::", "127.0.0.1"},
		{"::1", "::1", "::1"},
		{"::", "::1", "::1"},
	} {
		t.Run(way.from+" to "+way.to, func(t *testing.T) {
			if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
				if way.dial == "::1" || way.to == "::" {
					t.Skip("this machine has no IPv6")
				}
			} else {
				l.Close()
			}
			one, other := openTestSockets(t, way.from), openTestSockets(t, way.to)
			to := netip.AddrPortFrom(netip.MustParseAddr(way.dial), uint16(other.port())).String()
			sender := netip.AddrPortFrom(netip.MustParseAddr(way.dial), uint16(one.port()))
			var came []*memberlist.Packet
			for n := 1; n <= 60_000; n *= 3 {
				before := time.Now()
				sent, err := one.WriteTo(bytes.Repeat([]byte{byte(n)}, n), to)
				if err != nil || sent.Before(before) {
					t.Fatalf("%d bytes are sent at %v: %v", n, sent, err)
				}
				p := other.arrives(t)
				if p.From.String() != sender.String() || p.Timestamp.Before(before) {
					t.Errorf("%d bytes come from %v at %v", n, p.From, p.Timestamp)
				}
				came = append(came, p)
			}
			for i, n := 0, 1; i < len(came); i, n = i+1, n*3 {
				if !bytes.Equal(came[i].Buf, bytes.Repeat([]byte{byte(n)}, n)) {
					t.Errorf("of %d bytes %d have come, or others", n, len(came[i].Buf))
				}
			}
		})
	}
}

// Promise: a packet that is read makes little garbage. The library's own sockets make 64 KiB of
// it, which an idle node had to collect every ten seconds.
func TestPacketsMakeLittleGarbage(t *testing.T) {
	one, other := openTestSockets(t, "127.0.0.1"), openTestSockets(t, "127.0.0.1")
	const packets = 100
	to := other.tcp.Addr().String()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range packets {
		if _, err := one.WriteTo([]byte("news"), to); err != nil {
			t.Fatal(err)
		}
		other.arrives(t)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / packets; each > 4<<10 {
		t.Errorf("a packet makes %d bytes of garbage", each)
	}
}

// Promise: streams are accepted. After Shutdown nothing is sent or accepted any more, and the port
// is free.
func TestSocketsEnd(t *testing.T) {
	s := openTestSockets(t, "127.0.0.1")
	addr := s.tcp.Addr().String()
	c, err := s.DialTimeout(addr, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted := <-s.StreamCh()
	defer accepted.Close()
	if accepted.RemoteAddr().String() != c.LocalAddr().String() {
		t.Errorf("the stream from %v is accepted, not that from %v", accepted.RemoteAddr(),
			c.LocalAddr())
	}
	if _, err := s.WriteTo(make([]byte, 70_000), addr); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("a packet that is too long: %v", err)
	}
	if _, err := s.WriteTo([]byte("news"), "nowhere"); err == nil {
		t.Error("a packet is sent to what is no address")
	}
	at := netip.MustParseAddrPort(addr)
	if _, err := openSockets(at.Addr(), s.port(), s.log); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port that is in use: %v", err)
	}
	for range 2 {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.WriteTo([]byte("news"), addr); !errors.Is(err, net.ErrClosed) {
		t.Errorf("sending after the end: %v", err)
	}
	again, err := openSockets(at.Addr(), int(at.Port()), s.log)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Shutdown()
}

// Promise: others are told the address that is configured, or else where the node listens.
func TestAdvertisedAddress(t *testing.T) {
	s := openTestSockets(t, "127.0.0.1")
	ip, port, err := s.FinalAdvertiseAddr("192.0.2.7", 7946)
	if err != nil || ip.String() != "192.0.2.7" || port != 7946 {
		t.Errorf("configured: %v %d %v", ip, port, err)
	}
	ip, port, err = s.FinalAdvertiseAddr("", 0)
	if err != nil || ip.String() != "127.0.0.1" || port != s.port() {
		t.Errorf("not configured: %v %d %v", ip, port, err)
	}
	if ip, _, err = s.FinalAdvertiseAddr("node.test", 7946); err == nil {
		t.Errorf("what is no address: %v", ip)
	}
	everywhere := openTestSockets(t, "0.0.0.0")
	ip, _, err = everywhere.FinalAdvertiseAddr("", 0)
	if err == nil && !ip.IsPrivate() {
		t.Errorf("everywhere: %v", ip)
	}
}
