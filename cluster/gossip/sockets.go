package gossip

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-sockaddr"
	"github.com/hashicorp/memberlist"
)

// sockets is the transport below the door: TCP and UDP at one port. The library's own transport
// makes 64 KiB of garbage for each packet, and announces its calls to the Go runtime: both were a
// large part of the cost of an idle node (docs/performance.md).
type sockets struct {
	tcp     *net.TCPListener
	udp     *datagrams
	log     *log.Logger
	packets chan *memberlist.Packet
	streams chan net.Conn
	closed  chan struct{} // closed by Shutdown
	once    sync.Once
	reading sync.WaitGroup
}

const (
	// unreadBytes is the room that the kernel is asked for, for packets that were not read yet.
	unreadBytes = 2 << 20
	// acceptPause is the first pause after a connection that could not be accepted; the longest is
	// a second.
	acceptPause = 5 * time.Millisecond
)

// openSockets listens at an address, and at a free port if the port is 0.
func openSockets(ip netip.Addr, port int, l *log.Logger) (*sockets, error) {
	at := netip.AddrPortFrom(ip, uint16(port))
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("TCP at %s: %w", at, err)
	}
	at = netip.AddrPortFrom(ip, tcp.Addr().(*net.TCPAddr).AddrPort().Port())
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		tcp.Close()
		return nil, fmt.Errorf("UDP at %s: %w", at, err)
	}
	for n := unreadBytes; n > 0 && udp.SetReadBuffer(n) != nil; n /= 2 {
	}
	s := &sockets{
		tcp: tcp, log: l, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		closed: make(chan struct{}),
	}
	if s.udp, err = newDatagrams(udp); err != nil {
		tcp.Close()
		udp.Close()
		return nil, fmt.Errorf("UDP at %s: %w", at, err)
	}
	s.reading.Go(s.readPackets)
	s.reading.Go(s.acceptStreams)
	return s, nil
}

func (s *sockets) port() int { return s.tcp.Addr().(*net.TCPAddr).Port }

// isClosed reports whether Shutdown was called: then errors are no news.
func (s *sockets) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

func (s *sockets) readPackets() {
	room := make([]byte, 64<<10) // longer ones do not exist
	for {
		n, from, err := s.udp.read(room)
		now := time.Now()
		switch {
		case s.isClosed():
			return
		case err != nil:
			s.log.Printf("[ERR] a packet cannot be read: %v", err)
			continue
		case n == 0:
			continue
		}
		p := &memberlist.Packet{
			Buf: slices.Clone(room[:n]), From: net.UDPAddrFromAddrPort(from), Timestamp: now,
		}
		select {
		case s.packets <- p:
		case <-s.closed:
			return
		}
	}
}

func (s *sockets) acceptStreams() {
	for pause := acceptPause; ; {
		c, err := s.tcp.AcceptTCP()
		if err == nil {
			pause = acceptPause
			select {
			case s.streams <- c:
				continue
			case <-s.closed:
				c.Close()
				return
			}
		}
		if s.isClosed() {
			return
		}
		s.log.Printf("[ERR] a connection cannot be accepted: %v", err)
		select {
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		case <-s.closed:
			return
		}
	}
}

// FinalAdvertiseAddr is the address that others are told: the one that the configuration names, or
// where this node listens, or a private address of this machine if that is everywhere.
func (s *sockets) FinalAdvertiseAddr(text string, port int) (net.IP, int, error) {
	if text != "" {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, 0, err
		}
		return ip.Unmap().AsSlice(), port, nil
	}
	ip := s.tcp.Addr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	if !ip.IsUnspecified() {
		return ip.AsSlice(), s.port(), nil
	}
	text, err := sockaddr.GetPrivateIP()
	if err != nil {
		return nil, 0, err
	}
	if ip, err = netip.ParseAddr(text); err != nil {
		return nil, 0, errors.New("this machine has no private address; say by which others " +
			"reach it (--advertise)")
	}
	return ip.AsSlice(), s.port(), nil
}

// WriteToAddress sends a packet, and says when.
func (s *sockets) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	to, err := netip.ParseAddrPort(a.Addr)
	if err != nil {
		return time.Time{}, err
	}
	err = s.udp.write(b, to)
	return time.Now(), err
}

// WriteTo is WriteToAddress for an address without a name.
func (s *sockets) WriteTo(b []byte, addr string) (time.Time, error) {
	return s.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// DialAddressTimeout opens a stream.
func (s *sockets) DialAddressTimeout(a memberlist.Address, d time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", a.Addr, d)
}

// DialTimeout is DialAddressTimeout for an address without a name.
func (s *sockets) DialTimeout(addr string, d time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", addr, d)
}

// PacketCh has the packets that come.
func (s *sockets) PacketCh() <-chan *memberlist.Packet { return s.packets }

// StreamCh has the connections that others open.
func (s *sockets) StreamCh() <-chan net.Conn { return s.streams }

// Shutdown closes both sockets. The goroutines that read them have ended when it returns.
func (s *sockets) Shutdown() error {
	s.once.Do(func() {
		close(s.closed)
		s.tcp.Close()
		s.udp.close()
	})
	s.reading.Wait()
	return nil
}
