//go:build !race

package door

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// brisk is a connection of which the calls for reading and writing are not announced to the Go
// runtime. A call that is announced wakes the runtime's monitor up, if it sleeps, which it does
// whenever a process has nothing to do; the monitor then looks around every 20 µs until that is so
// again. Of a node that does little this was two fifths of its processor time. Without it the
// monitor sleeps until the next timer, or the next call of another kind.
//
// These calls never wait, for the socket is non-blocking, and large ones are announced, so that
// others may run on meanwhile. The race detector knows of announced calls only, so with it there
// are no others.
type brisk struct {
	*net.TCPConn
	raw     syscall.RawConn
	in, out transfer
}

// transfer is a call of one direction.
type transfer struct {
	mu   sync.Mutex // held during a call
	b    []byte     // what is left of it
	n    int
	err  error
	step func(fd uintptr) bool // made once
}

// maxUnannounced is how many bytes are read or written without an announcement.
const maxUnannounced = 32 << 10

// Brisk is a connection, with calls that are not announced if it is one of TCP.
func Brisk(c net.Conn) net.Conn {
	socket, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return c
	}
	s := &brisk{TCPConn: socket, raw: raw}
	s.in.step, s.out.step = s.in.read, s.out.write
	return s
}

// Read reads what is there, or waits for it.
func (s *brisk) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return s.TCPConn.Read(b)
	}
	t := &s.in
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b, t.n, t.err = b[:min(len(b), maxUnannounced)], 0, nil
	err := s.raw.Read(t.step)
	t.b = nil
	switch {
	case err != nil:
		return 0, err
	case t.err != nil:
		return 0, s.failed("read", t.err)
	case t.n == 0:
		return 0, io.EOF
	}
	return t.n, nil
}

// Write writes all of b.
func (s *brisk) Write(b []byte) (int, error) {
	if len(b) == 0 || len(b) > maxUnannounced {
		return s.TCPConn.Write(b)
	}
	t := &s.out
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b, t.n, t.err = b, 0, nil
	err := s.raw.Write(t.step)
	t.b = nil
	if err == nil && t.err != nil {
		err = s.failed("write", t.err)
	}
	return t.n, err
}

func (s *brisk) failed(what string, err error) error {
	return &net.OpError{
		Op: what, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(),
		Err: os.NewSyscallError(what, err),
	}
}

// read reports whether waiting is over.
func (t *transfer) read(fd uintptr) bool {
	t.n, t.err = ReadSocket(fd, t.b)
	return !errors.Is(t.err, syscall.EAGAIN)
}

// write reports whether all is written, or nothing more can be.
func (t *transfer) write(fd uintptr) bool {
	for len(t.b) > 0 {
		n, err := call(syscall.SYS_WRITE, fd, t.b)
		if errors.Is(err, syscall.EAGAIN) {
			return false
		}
		if err != nil {
			t.err = err
			return true
		}
		t.n, t.b = t.n+n, t.b[n:]
	}
	return true
}

// ReadSocket reads from a non-blocking socket, as syscall.Read does, without an announcement.
func ReadSocket(fd uintptr, b []byte) (int, error) { return call(syscall.SYS_READ, fd, b) }

// call makes a call with b, which is not empty, until no signal interrupts it.
func call(number, fd uintptr, b []byte) (int, error) {
	for {
		n, _, e := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch e {
		case 0:
			return int(n), nil
		case syscall.EINTR:
			continue
		}
		return 0, e
	}
}
