package door

import (
	"net"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall has not.
const tcpUserTimeout = 0x12

// SetUserTimeout has the kernel close c when its client has not acknowledged anything for d. It is
// an aid: without it, keepalive closes c.
func SetUserTimeout(c net.Conn, d time.Duration) {
	socket, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout,
				int(d.Milliseconds()))
		})
	}
}

// arrived reports whether c has bytes that were not read yet.
func arrived(c net.Conn) (yes bool) {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			var first [1]byte
			n, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			yes = err == nil && n > 0
		})
	}
	return yes
}
