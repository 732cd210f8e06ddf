package redis

import (
	"crypto/tls"
	"errors"
	"net"

	"penstock/rpc/access"
	"penstock/rpc/door"
)

// client is the client of a connection, as far as it has named itself.
type client struct {
	admits *access.Clients // nil: anybody
	conn   net.Conn
	id     uint64 // of the connection

	from    door.Caller // see caller
	named   string      // what origin has found; empty: it is looked up anew
	known   bool
	version int    // of the protocol: 2 or 3
	name    string // by CLIENT SETNAME
}

// reset makes the client as new: known if anybody is, or by its certificate.
func (c *client) reset() {
	*c = client{admits: c.admits, conn: c.conn, id: c.id, known: c.admits == nil, version: 2}
	t, ok := c.conn.(*tls.Conn)
	if !ok || c.admits == nil {
		return
	}
	state := t.ConnectionState()
	if ticket := c.admits.Certificate(&state); ticket != nil {
		c.admit(ticket)
	}
}

func (c *client) admit(ticket *access.Ticket) { c.from.Pass, c.known, c.named = ticket, true, "" }

// redisUser is the user that stands for any client; its name does as well.
const redisUser = "default"

const (
	unknown   = "NOAUTH Authentication required."
	wrongPass = "WRONGPASS invalid username-password pair or user is disabled."
	noToken   = "ERR AUTH was sent, but this node has no --auth-token-file: any client may ask; " +
		"omit the password"
)

// identify lets the client in if the token is right, and else says what is wrong.
func (c *client) identify(user, token []byte) (fault string) {
	if c.admits == nil {
		return noToken
	}
	ticket := c.admits.Token(token)
	client, err := ticket.Client()
	if ticket == nil || err != nil || string(user) != redisUser && string(user) != client.Name {
		return wrongPass
	}
	c.admit(ticket)
	return ""
}

// admitted reports whether the client is known, and not one that has lost its token.
func (c *client) admitted() bool {
	if c.from.Pass != nil {
		if _, err := c.from.Pass.Client(); err != nil {
			c.from.Pass, c.known = nil, false
		}
	}
	return c.known
}

// permit says why the client may not do that; empty: it may.
func (c *client) permit(ask access.Ask) (fault string) {
	if c.from.Pass == nil {
		return ""
	}
	client, err := c.from.Pass.Client()
	if err == nil {
		err = client.MayAsk(ask)
	}
	if err != nil {
		return accessFault(err)
	}
	return ""
}

// accessFault is the reply to a client that is unknown, or lacks a right.
func accessFault(err error) string {
	if errors.Is(err, access.ErrUnknown) { // its token was taken away just now
		return unknown
	}
	return "NOPERM " + err.Error()
}

// caller is the client as the node knows it.
func (c *client) caller() door.Caller {
	if c.from.Addr == "" {
		c.from.Addr = c.conn.RemoteAddr().String()
		if t, ok := c.conn.(*tls.Conn); ok {
			state := t.ConnectionState() // it has sent a command, so the handshake is over
			c.from.TLS = &state
		}
	}
	return c.from
}

// origin is the name of the client.
func (c *client) origin() string {
	if c.named == "" {
		if c.named = c.caller().Name(); c.named == "" {
			c.named = "this machine"
		}
	}
	return c.named
}
