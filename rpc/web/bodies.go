package web

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"

	"google.golang.org/grpc/codes"

	"penstock/rpc/door"
)

// maxBodies is how many bytes of bodies a listener takes in at a time, in all. It is for 32
// requests of the largest kind, or 60,000 of the usual one; without it, every connection could hold
// a body of 2 MiB that never ends until its time is over.
const maxBodies = 64 << 20

// bodies is the room for the bodies of requests under way.
type bodies struct {
	room int64
	used atomic.Int64
}

// bounded gives h bodies that count.
func (b *bodies) bounded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
			h.ServeHTTP(rw, r)
			return
		}
		body := &countedBody{ReadCloser: r.Body, bodies: b}
		if header := rw.Header(); header["Connection"] == nil {
			// An answer that comes before the end of the body is the last of its connection. If
			// it were not, net/http would wait for the rest of the body, and only then send the
			// answer (RFC 9110, 10.1.1).
			header["Connection"] = closing
			if r.TransferEncoding == nil {
				body.answer = header
			} // else net/http hides whether there was a Content-Length beside it. A proxy that
			// goes by that takes what comes next for another request (RFC 9112, 6.1).
		}
		r.Body = body
		defer func() { b.used.Add(-body.held.Swap(0)) }()
		h.ServeHTTP(rw, r)
	})
}

// closing is the header Connection of an answer that is the last of its connection.
var closing = []string{"close"}

// countedBody counts what has been read of a body until its request is answered.
type countedBody struct {
	io.ReadCloser
	bodies *bodies
	held   atomic.Int64
	answer http.Header // keeps the connection once the body has been read to its end; or nil
}

func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.held.Add(int64(n))
	if c.bodies.used.Add(int64(n)) > c.bodies.room {
		return 0, door.ErrBodies
	}
	switch {
	case err == nil:
	case err != io.EOF:
		err = unread(err)
	case c.answer != nil:
		c.answer.Del("Connection")
		c.answer = nil
	}
	return n, err
}

// unread says why a body could not be read. The words of net/http name the addresses of the
// connection, and not what is wrong.
func unread(err error) error {
	f := &door.Fault{Code: codes.InvalidArgument, Status: http.StatusBadRequest, Field: "body"}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		f.Status = http.StatusRequestTimeout
		f.Text = fmt.Sprintf("body: has not come within %v of the request's header", requestTimeout)
	case errors.Is(err, io.ErrUnexpectedEOF):
		f.Text = "body: is shorter than its Content-Length, or its last chunk is missing"
	default:
		f.Text = fmt.Sprintf("body: cannot be read: %v", err)
	}
	return f
}
