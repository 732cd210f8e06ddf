package rpc

import (
	"context"
	"crypto/tls"
	"net/netip"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"penstock/rpc/access"
)

// caller is the client of a request, as far as its door knows it.
type caller struct {
	ctx  context.Context // of gRPC; else nil
	tls  *tls.ConnectionState
	addr string // host:port, an address or a network; else it is on this machine
	// client is the ticket of a request that does not come by gRPC; nil: there is none
	client *access.Ticket
}

// ticket is that of the request, or nil.
func (c caller) ticket() *access.Ticket {
	if c.client != nil || c.ctx == nil {
		return c.client
	}
	return access.Of(c.ctx)
}

// connInfo is what a connection of the gRPC door has found out in its handshake, with the name of
// the client at the other end, which is worked out once.
type connInfo interface {
	credentials.AuthInfo
	handshake() credentials.AuthInfo
	origin() string
}

// tlsState is the state of the TLS connection that a handshake of gRPC has made, or nil.
func tlsState(info credentials.AuthInfo) *tls.ConnectionState {
	if known, ok := info.(connInfo); ok {
		info = known.handshake()
	}
	if t, ok := info.(credentials.TLSInfo); ok {
		return &t.State
	}
	return nil
}

// name is what the client's limits are counted by: its name among the clients of the node, its
// certificate, or its address.
func (c caller) name() string {
	if t := c.ticket(); t != nil {
		if client, err := t.Client(); err == nil && client.Named() {
			return "client " + client.Name
		}
	}
	if c.ctx != nil {
		if p, ok := peer.FromContext(c.ctx); ok {
			if known, ok := p.AuthInfo.(connInfo); ok {
				return known.origin()
			}
			c.addr = p.Addr.String()
			c.tls = tlsState(p.AuthInfo)
		}
	}
	if c.tls != nil && len(c.tls.VerifiedChains) > 0 {
		return "certificate " + c.tls.PeerCertificates[0].Subject.String()
	}
	addr, err := netip.ParseAddrPort(c.addr)
	if err != nil {
		return c.addr
	}
	if ip := addr.Addr().Unmap().WithZone(""); ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked().String() // which is one customer's
	}
	return addr.Addr().Unmap().String()
}
