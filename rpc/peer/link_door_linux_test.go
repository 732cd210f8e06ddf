package peer

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"google.golang.org/grpc/credentials"
)

// Promise: a door gives up a link to a machine that is gone as soon as it gives up a connection of
// gRPC.
func TestLinksOfGoneMachinesAreGivenUp(t *testing.T) {
	d := newDoor(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k := dialLink(t, l.Addr().String(), greeting{testCluster, "n9", 9})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = newLinkCredentials(nil, d).ServerHandshake(conn)
	if !errors.Is(err, credentials.ErrConnDispatched) {
		t.Fatalf("a link stays with gRPC: %v", err)
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const userTimeout = 0x12 // TCP_USER_TIMEOUT
	raw.Control(func(fd uintptr) {
		ms, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout)
		if err != nil || int64(ms) != ackTimeout.Milliseconds() {
			t.Errorf("it may stay unacknowledged for %d ms, %v", ms, err)
		}
	})
	k.conn.Close()
	d.reading.Wait()
}
