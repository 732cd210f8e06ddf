package peer

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// renewed are credentials that look for what to show and to trust at each handshake, so that a
// change of authorities needs no restart.
type renewed struct {
	credentials.TransportCredentials // as things are at the start: for what a client asks besides
	now                              func() *tls.Config
}

// tls is how the next connection is secured; nil: in no way.
func (c *LinesConfig) tls() *tls.Config {
	if c.Renewed != nil {
		return c.Renewed()
	}
	return c.TLS
}

// credentials are those of the lines to other nodes.
func (c *LinesConfig) credentials() credentials.TransportCredentials {
	switch {
	case c.Renewed != nil:
		return renewed{credentials.NewTLS(c.Renewed()), c.Renewed}
	case c.TLS != nil:
		return credentials.NewTLS(c.TLS)
	}
	return insecure.NewCredentials()
}

// ClientHandshake is a handshake with what the files say now.
func (r renewed) ClientHandshake(
	ctx context.Context,
	authority string,
	c net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.now()).ClientHandshake(ctx, authority, c)
}

// Clone is a copy.
func (r renewed) Clone() credentials.TransportCredentials {
	return renewed{r.TransportCredentials.Clone(), r.now}
}
