package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc/credentials"
)

// Promise: a line that is dialled again trusts the authorities of that moment, and not those of the
// time when it was made.
func TestAuthoritiesAreRenewed(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	trusted := x509.NewCertPool()
	now := func() *tls.Config { return &tls.Config{RootCAs: trusted} }
	c := LinesConfig{Renewed: now}
	lines := c.credentials()
	shake := func(with credentials.TransportCredentials) error {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _, err = with.ClientHandshake(context.Background(), "127.0.0.1", conn)
		return err
	}
	if err := shake(lines); err == nil {
		t.Error("a certificate of no trusted authority is taken")
	}
	trusted = x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	for _, with := range []credentials.TransportCredentials{lines, lines.Clone()} {
		if err := shake(with); err != nil {
			t.Errorf("the authority is trusted now: %v", err)
		}
	}
}
