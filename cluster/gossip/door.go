package gossip

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// door lies between the network and the library, which would read packets and streams of anybody,
// make room for whatever they announce, and unpack what no node packs. It passes on what comes from
// allowed addresses and what a node may have sent, and bounds what all streams take (stream.go).
type door struct {
	memberlist.NodeAwareTransport
	allow   []netip.Prefix
	label   string              // is authenticated with what is encrypted
	keys    *memberlist.Keyring // nil: nothing is encrypted
	refused *Refused
	log     *log.Logger
	room    *room
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{} // closed by Shutdown
	once    sync.Once
	passing sync.WaitGroup
}

// Refused counts what a node did not read of what came to its gossip address.
type Refused struct {
	Network atomic.Uint64 // from an address outside of Config.Allow
	Message atomic.Uint64 // no node sends such messages: packed ones, of users, too long ones
	Room    atomic.Uint64 // streams that would have taken more memory than there is for them
}

// longestPacket is how many bytes a packet may have. Nodes send less than 2,000: the library fills
// packets up to 1,400, and one message, a label or a nonce may come on top. The library may keep
// 2,048 packets until it reads them.
const longestPacket = 4 << 10

// create opens the door and makes the library listen there.
func (g *Gossip) create(c *memberlist.Config) error {
	var err error
	under := g.config.transport
	if under == nil {
		if under, err = openTransport(g.bound.Addr(), c); err != nil {
			return err
		}
	}
	d := openDoor(under, g.config, c)
	c.Transport = d
	if g.list, err = memberlist.Create(c); err != nil {
		_ = d.Shutdown()
	}
	g.config.transport = d
	return err
}

// portTries is how often a free port is looked for: one that TCP takes may be taken for UDP.
const portTries = 10

// openTransport listens where c says, and writes the port into c.
func openTransport(at netip.Addr, c *memberlist.Config) (t *sockets, err error) {
	for range portTries {
		t, err = openSockets(at, c.BindPort, c.Logger)
		if err == nil || c.BindPort != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err == nil && c.BindPort == 0 {
		c.BindPort = t.port()
		c.AdvertisePort = c.BindPort
	}
	return t, err
}

func openDoor(under memberlist.NodeAwareTransport, c Config, list *memberlist.Config) *door {
	d := &door{
		NodeAwareTransport: under, allow: c.Allow, refused: c.Refused, log: list.Logger,
		label: list.Label, keys: list.Keyring, room: newRoom(), done: make(chan struct{}),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
	}
	if d.refused == nil {
		d.refused = new(Refused)
	}
	pass(d, under.PacketCh(), d.packets, d.admitPacket, func(*memberlist.Packet) {})
	pass(d, under.StreamCh(), d.streams, d.admitStream, func(c net.Conn) { c.Close() })
	return d
}

// admitPacket reports whether p is passed on.
func (d *door) admitPacket(p *memberlist.Packet) (*memberlist.Packet, bool) {
	switch {
	case !allowed(d.allow, p.From.String()):
		d.refused.Network.Add(1)
	case len(p.Buf) > longestPacket || d.foreign(p.Buf):
		d.refused.Message.Add(1)
		d.log.Printf("[WARN] a packet of %d bytes from %s is dropped: no node sends such a "+
			"one", len(p.Buf), p.From)
	default:
		return p, true
	}
	return nil, false
}

// admitStream returns the stream that is passed on in the place of c.
func (d *door) admitStream(c net.Conn) (net.Conn, bool) {
	if !allowed(d.allow, c.RemoteAddr().String()) {
		d.refused.Network.Add(1)
		c.Close()
		return nil, false
	}
	return d.streamOver(c)
}

// pass starts a goroutine that passes on what is admitted, until d is shut down.
func pass[T any](d *door, from <-chan T, to chan<- T, admit func(T) (T, bool), drop func(T)) {
	d.passing.Go(func() {
		for {
			select {
			case <-d.done:
				return
			case x := <-from:
				x, ok := admit(x)
				if !ok {
					continue
				}
				select {
				case to <- x:
				case <-d.done:
					drop(x)
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

// PacketCh has the packets that are admitted.
func (d *door) PacketCh() <-chan *memberlist.Packet { return d.packets }

// StreamCh has the connections that are admitted.
func (d *door) StreamCh() <-chan net.Conn { return d.streams }

// DialAddressTimeout refuses to dial an address that is not allowed. The answers on the stream are
// bounded as incoming streams are.
func (d *door) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if !allowed(d.allow, a.Addr) {
		return nil, fmt.Errorf("%s is in none of the networks of --gossip-allow", a.Addr)
	}
	c, err := d.NodeAwareTransport.DialAddressTimeout(a, timeout)
	if err != nil {
		return nil, err
	}
	if s, ok := d.streamOver(c); ok {
		return s, nil
	}
	return nil, errNoRoom
}

// DialTimeout is DialAddressTimeout for an address without a name.
func (d *door) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return d.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// Shutdown closes the door. Its goroutines have ended when it returns.
func (d *door) Shutdown() error {
	// first: its goroutines hand over what they have just read
	err := d.NodeAwareTransport.Shutdown()
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
