package native

import (
	"errors"
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"

	"penstock/rpc/door"
)

// readyConn is c so that gRPC holds a buffer for reading only while there is something to read:
// idle connections are most, and a buffer is 32 KiB. gRPC does that itself for sockets that nothing
// stands before.
func readyConn(c *weighedConn) net.Conn {
	if c.Conn != c.raw { // TLS stands between
		return c
	}
	socket, ok := c.raw.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return c
	}
	r := &readyWeighed{weighedConn: c, socket: raw}
	r.try = r.tryRead
	return r
}

// readyWeighed is a weighedConn over a socket.
type readyWeighed struct {
	*weighedConn
	socket syscall.RawConn
	try    func(fd uintptr) bool // tryRead, made once
	turn   readTurn
}

// readTurn is one ReadOnReady.
type readTurn struct {
	size int
	pool mem.BufferPool
	buf  *[]byte
	n    int
	err  error
}

// ReadOnReady waits for bytes, and then takes a buffer for them.
func (r *readyWeighed) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	r.line.Wait()
	r.turn = readTurn{size: size, pool: pool}
	err := r.socket.Read(r.try)
	t := r.turn
	r.turn = readTurn{}
	if err == nil {
		err = t.err
	}
	if err == nil && t.n == 0 {
		err = io.EOF
	}
	if err != nil {
		if t.buf != nil {
			pool.Put(t.buf)
		}
		return nil, 0, err
	}
	if !r.received((*t.buf)[:t.n]) {
		pool.Put(t.buf)
		return nil, 0, net.ErrClosed
	}
	return t.buf, t.n, nil
}

// tryRead reports whether waiting is over.
func (r *readyWeighed) tryRead(fd uintptr) bool {
	t := &r.turn
	t.buf = t.pool.Get(t.size)
	most := r.line.Most(len(*t.buf))
	if t.n, t.err = door.ReadSocket(fd, (*t.buf)[:most]); t.err == nil {
		return true
	}
	t.n = 0
	t.pool.Put(t.buf)
	t.buf = nil
	return !errors.Is(t.err, syscall.EAGAIN)
}
