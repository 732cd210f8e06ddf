package peer

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"

	"penstock/rpc/door"
)

// ackTimeout is how long a door waits for the machine at the other end to acknowledge what was
// sent, or that it is there: as long as gRPC does.
const ackTimeout = 5 * time.Second

// linkCredentials are those of a peer door. A connection on which a link begins leaves gRPC when
// that is known: after the handshake of TLS, or after the first bytes where there is none.
type linkCredentials struct {
	credentials.TransportCredentials
	door *peerDoor
}

func newLinkCredentials(t *tls.Config, d *peerDoor) credentials.TransportCredentials {
	if t != nil {
		t = offersLink(t)
	}
	return linkCredentials{door.Credentials(t), d}
}

// offersLink is t with the protocol of links before all others.
func offersLink(t *tls.Config) *tls.Config {
	t = t.Clone()
	t.NextProtos = append([]string{linkProtocol}, t.NextProtos...)
	if now := t.GetConfigForClient; now != nil {
		t.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := now(hello)
			if err == nil && c != nil && !slices.Contains(c.NextProtos, linkProtocol) {
				c = offersLink(c)
			}
			return c, err
		}
	}
	return t
}

// ServerHandshake is that of gRPC, for connections that stay there.
func (c linkCredentials) ServerHandshake(
	raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	if t, ok := info.(credentials.TLSInfo); ok {
		if t.State.NegotiatedProtocol != linkProtocol {
			return conn, info, nil
		}
	} else {
		// gRPC has set a deadline for all of the handshake
		begin := make([]byte, len(linkPreface))
		if _, err := io.ReadFull(conn, begin); err != nil {
			return nil, nil, err
		}
		if string(begin) != linkPreface {
			return &begun{conn, begin}, info, nil
		}
	}
	door.SetUserTimeout(raw, ackTimeout) // gRPC does so for connections that it keeps
	c.door.reading.Go(func() { c.door.serveLink(conn, raw, identityIn(info)) })
	return nil, nil, credentials.ErrConnDispatched
}

// Clone is a copy.
func (c linkCredentials) Clone() credentials.TransportCredentials {
	return linkCredentials{c.TransportCredentials.Clone(), c.door}
}

// begun is a connection of which the first bytes were read already.
type begun struct {
	net.Conn
	rest []byte
}

// Read begins with them.
func (c *begun) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// serveLink serves a link until the other end or the door ends it.
func (d *peerDoor) serveLink(conn, raw net.Conn, id *identity) {
	k := newLink(conn, maxRead)
	k.raw = raw
	defer k.hangUp()
	// No deadline: gRPC takes that away when it gives the connection up.
	late := time.AfterFunc(greetingTimeout, k.hangUp)
	other, version, ok, err := k.greeted()
	if !late.Stop() || err != nil {
		return
	}
	agent := false
	if err = d.me.admit(other, version, ok); err == nil {
		agent, err = d.meet(other, id)
	}
	served := uint64(0)
	if err == nil {
		err = k.greet(d.me)
	}
	if err == nil {
		served, err = d.serve(other, agent, k)
	} else {
		k.hurry()
	}
	if err != nil && k.end(served, err) == nil {
		// What the other end has still sent is read: a connection that is closed over unread bytes
		// takes the last words with it.
		io.Copy(io.Discard, conn)
	}
}
