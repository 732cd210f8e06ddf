package web

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
)

// NewAdmin makes the pages of the admin listener: metrics, profiles, status and reset.
func NewAdmin(c Config) http.Handler {
	w := newWeb(c)
	w.operators = true
	w.countRefusals("admin")
	m := w.mux()
	w.adminPages(m)
	return w.gated(w.screened(w.guarded(w.bodies.bounded(m))))
}

// NewAdminServer is NewServer for a handler of NewAdmin. It speaks HTTP/1.1: a connection of
// HTTP/2 is one of gRPC, and hand gives it to that server. hand returns what is closed with the
// connection.
func NewAdminServer(h http.Handler, hand func(net.Conn) <-chan struct{}) *http.Server {
	s := NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 { // net/http reads the preface as a request, and lets no other pass
			if c, err := hijacked(rw); err == nil {
				hand(c)
			}
			return
		}
		h.ServeHTTP(rw, r)
	}))
	s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(_ *http.Server, c *tls.Conn, _ http.Handler) { <-hand(c) },
	}
	return s
}

// readPreface is what net/http has read of the preface of HTTP/2.
const readPreface = "PRI * HTTP/2.0\r\n\r\n"

// hijacked is the connection of a request, with what was read of it.
func hijacked(rw http.ResponseWriter) (net.Conn, error) {
	conn, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return nil, err
	}
	ahead := make([]byte, buffered.Reader.Buffered())
	if _, err := io.ReadFull(buffered, ahead); err != nil {
		conn.Close()
		return nil, err
	}
	return &unreadConn{conn, strings.NewReader(readPreface + string(ahead))}, nil
}

// unreadConn is a connection of which something was read already.
type unreadConn struct {
	net.Conn
	ahead *strings.Reader
}

// NetConn is the connection.
func (c *unreadConn) NetConn() net.Conn { return c.Conn }

// Read reads that first.
func (c *unreadConn) Read(b []byte) (int, error) {
	if c.ahead.Len() > 0 {
		return c.ahead.Read(b)
	}
	return c.Conn.Read(b)
}
