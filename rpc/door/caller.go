package door

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"net/netip"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"penstock/rpc/access"
	"penstock/rpc/fair"
)

// Caller is the client of a request, as far as its door knows it.
type Caller struct {
	Context context.Context // of gRPC; else nil
	TLS     *tls.ConnectionState
	Addr    string // host:port, an address or a network; else it is on this machine
	Remote  string // host:port of the connection, where Addr is what a proxy says; empty: Addr
	// Pass is the ticket of a request that does not come by gRPC; nil: there is none
	Pass *access.Ticket
}

// Ticket is that of the request, or nil.
func (c Caller) Ticket() *access.Ticket {
	if c.Pass != nil || c.Context == nil {
		return c.Pass
	}
	return access.Of(c.Context)
}

// connInfo is what a connection of the gRPC door has found out in its handshake, with the name of
// the client at the other end, which is worked out once.
type connInfo interface {
	credentials.AuthInfo
	Handshake() credentials.AuthInfo
	Origin() string
	Line() *fair.Line
}

// Line is that of the connection of a call of gRPC, or nil.
func (c Caller) Line() *fair.Line {
	if p, ok := peer.FromContext(c.Context); ok {
		if known, ok := p.AuthInfo.(connInfo); ok {
			return known.Line()
		}
	}
	return nil
}

// TLSState is the state of the TLS connection that a handshake of gRPC has made, or nil.
func TLSState(info credentials.AuthInfo) *tls.ConnectionState {
	if known, ok := info.(connInfo); ok {
		info = known.Handshake()
	}
	if t, ok := info.(credentials.TLSInfo); ok {
		return &t.State
	}
	return nil
}

// Name is what the client's limits are counted by: its name among the clients of the node, its
// certificate, or its address.
func (c Caller) Name() string {
	if t := c.Ticket(); t != nil {
		if client, err := t.Client(); err == nil && client.Named() {
			return "client " + client.Name
		}
	}
	if c.Context != nil {
		if p, ok := peer.FromContext(c.Context); ok {
			if known, ok := p.AuthInfo.(connInfo); ok {
				return known.Origin()
			}
			c.Addr = p.Addr.String()
			c.TLS = TLSState(p.AuthInfo)
		}
	}
	if c.TLS != nil && len(c.TLS.VerifiedChains) > 0 {
		return "certificate " + c.TLS.PeerCertificates[0].Subject.String()
	}
	addr, err := netip.ParseAddrPort(c.Addr)
	if err != nil {
		return c.Addr
	}
	if ip := addr.Addr().Unmap().WithZone(""); ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked().String() // which is one customer's
	}
	return addr.Addr().Unmap().String()
}

// Mark is what the client's holds are counted by (limiter.Hold), the same at every node. An address
// on the machine of a node is another client at each: node is its name. It is a part of a SHA-256:
// an address with the mark of another client is not to be found.
func (c Caller) Mark(node string) uint64 {
	name := c.Name()
	if local(name) {
		name += "@" + node
	}
	sum := sha256.Sum256([]byte(name))
	return binary.LittleEndian.Uint64(sum[:]) | 1 // 0 is no client
}

// local reports whether a Name is an address on the machine of the node.
func local(name string) bool {
	if name == "" || name == "@" { // of a Unix socket
		return true
	}
	if network, err := netip.ParsePrefix(name); err == nil {
		return network.Contains(netip.IPv6Loopback())
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.IsLoopback()
}
