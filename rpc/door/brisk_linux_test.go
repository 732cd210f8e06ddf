package door

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pair is a connection of two ends.
func pair(t *testing.T) (one, other net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if one, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if other, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{one, other} { // so that what is written does not fit at once
		c.(*net.TCPConn).SetWriteBuffer(8 << 10)
	}
	t.Cleanup(func() { one.Close(); other.Close() })
	return Brisk(one), other
}

// Promise: a brisk connection brings what any other brings, both ways at once, whatever the sizes.
func TestBriskBringsAll(t *testing.T) {
	one, other := pair(t)
	all := make([]byte, 3<<20)
	for i := range all {
		all[i] = byte(i * i >> 8)
	}
	var wg sync.WaitGroup
	for _, way := range []struct{ from, to net.Conn }{{one, other}, {other, one}} {
		wg.Go(func() {
			for rest, n := all, 1; len(rest) > 0; n = (3*n + 1) % (50 << 10) {
				k := min(n, len(rest))
				if wrote, err := way.from.Write(rest[:k]); wrote != k || err != nil {
					t.Errorf("%d of %d bytes are written: %v", wrote, k, err)
					return
				}
				rest = rest[k:]
			}
		})
		wg.Go(func() {
			got := make([]byte, len(all))
			if _, err := io.ReadFull(way.to, got); err != nil || !bytes.Equal(got, all) {
				t.Errorf("what is read is not what was written: %v", err)
			}
		})
	}
	wg.Wait()
	if n, err := one.Write(nil); n != 0 || err != nil {
		t.Errorf("writing nothing: %d, %v", n, err)
	}
	if n, err := one.Read(nil); n != 0 || err != nil {
		t.Errorf("reading into nothing: %d, %v", n, err)
	}
}

// Promise: a brisk connection ends as any other does: at the end of what comes, at a deadline, when
// it is closed, and when the other end breaks it.
func TestBriskEnds(t *testing.T) {
	one, other := pair(t)
	b := make([]byte, 1)
	one.SetReadDeadline(time.Now().Add(-time.Second))
	_, err := one.Read(b)
	var late net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("reading after the deadline: %v", err)
	}
	one.SetReadDeadline(time.Time{})
	other.(*net.TCPConn).CloseWrite()
	if _, err := one.Read(b); !errors.Is(err, io.EOF) {
		t.Errorf("reading at the end: %v", err)
	}
	one.Close()
	if _, err := one.Read(b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("reading what is closed: %v", err)
	}
	if _, err := one.Write(b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("writing to what is closed: %v", err)
	}

	one, other = pair(t)
	waits := make(chan error)
	go func() { _, err := one.Read(make([]byte, 1)); waits <- err }()
	other.(*net.TCPConn).SetLinger(0)
	other.Close()
	if err := <-waits; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reading what is broken: %v", err)
	}
	if _, err := one.Write(b); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("writing to what is broken: %v", err)
	}
}

// Promise: whatever is no socket of TCP stays as it is.
func TestBriskLeavesOthers(t *testing.T) {
	c, _ := net.Pipe()
	if Brisk(c) != c {
		t.Error("a pipe is wrapped")
	}
}
