package door

import (
	"crypto/tls"
	"net"
	"sync"
	"time"

	"penstock/rpc/fair"
)

// Handover is a listener of connections that another server has accepted: one address serves two
// protocols, and the first bytes of a connection, or its handshake, say which one it speaks.
type Handover struct {
	at     net.Addr
	gate   *fair.Gate
	cost   time.Duration
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewHandover makes one for connections that come to an address. While gate has an overload, they
// cost their clients so much of a processor, as with Keeper.Charge.
func NewHandover(at net.Addr, gate *fair.Gate, cost time.Duration) *Handover {
	return &Handover{
		at: at, gate: gate, cost: cost,
		conns: make(chan net.Conn), closed: make(chan struct{}),
	}
}

// Hand gives a connection to the server of h. What it returns is closed with the connection.
func (h *Handover) Hand(c net.Conn) (ended <-chan struct{}) {
	handed := &Handed{Conn: c, ended: make(chan struct{})}
	if !affordable(h.gate, h.cost, c) {
		handed.Close()
		return handed.ended
	}
	select {
	case h.conns <- handed:
	case <-h.closed:
		handed.Close()
	}
	return handed.ended
}

// Accept waits for a connection.
func (h *Handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept, and closes what is handed over from then on.
func (h *Handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr is the address of the other server.
func (h *Handover) Addr() net.Addr { return h.at }

// Handed is a connection that was handed over.
type Handed struct {
	net.Conn
	ended chan struct{}
	once  sync.Once
}

// TLS is the connection if it is one of TLS, after its handshake; else nil.
func (c *Handed) TLS() *tls.Conn {
	t, _ := c.Conn.(*tls.Conn)
	return t
}

// NetConn is what was handed over.
func (c *Handed) NetConn() net.Conn { return c.Conn }

// Close closes the connection.
func (c *Handed) Close() error {
	defer c.once.Do(func() { close(c.ended) })
	return c.Conn.Close()
}
