package gossip

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// door is the library's transport, to and from allowed addresses alone. The library compares the
// addresses that nodes claim with its own list of networks; it would read packets and streams of
// anybody.
type door struct {
	*memberlist.NetTransport
	allow   []netip.Prefix
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{} // closed by Shutdown
	once    sync.Once
	passing sync.WaitGroup
}

// create opens the door and makes the library listen there. The library makes a transport itself
// where all addresses are allowed, or a test has given one.
func create(c *memberlist.Config, allow []netip.Prefix) (*memberlist.Memberlist, error) {
	if len(allow) == 0 || c.Transport != nil {
		return memberlist.Create(c)
	}
	d, err := openDoor(c, allow)
	if err != nil {
		return nil, err
	}
	c.Transport = d
	list, err := memberlist.Create(c)
	if err != nil {
		_ = d.Shutdown()
	}
	return list, err
}

// portTries is how often a free port is looked for: one that TCP takes may be taken for UDP.
const portTries = 10

// openDoor listens where c says, and writes the port into c.
func openDoor(c *memberlist.Config, allow []netip.Prefix) (*door, error) {
	d := &door{
		allow: allow, done: make(chan struct{}),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
	}
	var err error
	for range portTries {
		d.NetTransport, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{c.BindAddr}, BindPort: c.BindPort, Logger: c.Logger,
		})
		if err == nil || c.BindPort != 0 || !errors.Is(err, syscall.EADDRINUSE) && !isInUse(err) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if c.BindPort == 0 {
		c.BindPort = d.GetAutoBindPort()
		c.AdvertisePort = c.BindPort
	}
	pass(d, d.NetTransport.PacketCh(), d.packets,
		func(p *memberlist.Packet) net.Addr { return p.From }, func(*memberlist.Packet) {})
	pass(
		d,
		d.NetTransport.StreamCh(),
		d.streams,
		net.Conn.RemoteAddr,
		func(c net.Conn) { c.Close() },
	)
	return d, nil
}

// isInUse reports what the library's text says: it does not wrap its errors.
func isInUse(err error) bool { return strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) }

// pass starts a goroutine that passes on what comes from allowed addresses, until d is shut down.
func pass[T any](d *door, from <-chan T, to chan<- T, source func(T) net.Addr, refuse func(T)) {
	d.passing.Go(func() {
		for {
			select {
			case <-d.done:
				return
			case x := <-from:
				if !allowed(d.allow, source(x).String()) {
					refuse(x)
					continue
				}
				select {
				case to <- x:
				case <-d.done:
					refuse(x)
					return
				}
			}
		}
	})
}

// allowed reports whether a host:port is in one of the networks. Without any, all are.
func allowed(networks []netip.Prefix, hostPort string) bool {
	if len(networks) == 0 {
		return true
	}
	at, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return false
	}
	ip := at.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// PacketCh has the packets of allowed addresses.
func (d *door) PacketCh() <-chan *memberlist.Packet { return d.packets }

// StreamCh has the connections from allowed addresses.
func (d *door) StreamCh() <-chan net.Conn { return d.streams }

// DialAddressTimeout refuses to dial an address that is not allowed.
func (d *door) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if !allowed(d.allow, a.Addr) {
		return nil, fmt.Errorf("%s is in none of the networks of --gossip-allow", a.Addr)
	}
	return d.NetTransport.DialAddressTimeout(a, timeout)
}

// DialTimeout is DialAddressTimeout for an address without a name.
func (d *door) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return d.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// Shutdown closes the door. Its goroutines have ended when it returns.
func (d *door) Shutdown() error {
	err := d.NetTransport.Shutdown() // first: its goroutines hand over what they have just read
	d.once.Do(func() { close(d.done) })
	d.passing.Wait()
	return err
}

// keepTo has the library keep to the networks of Config.Allow.
func (g *Gossip) keepTo(c *memberlist.Config) error {
	if len(g.config.Allow) == 0 {
		return nil
	}
	for _, p := range g.config.Allow {
		c.CIDRsAllowed = append(c.CIDRsAllowed, net.IPNet{
			IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
		})
	}
	own := c.AdvertiseAddr
	if own == "" {
		own = c.BindAddr
	}
	if ip, err := netip.ParseAddr(own); err == nil && !ip.IsUnspecified() &&
		!allowed(g.config.Allow, netip.AddrPortFrom(ip, 1).String()) {
		return fmt.Errorf(
			"gossip: this node's address %s is in none of the networks of --gossip-allow; add it",
			own,
		)
	}
	return nil
}
