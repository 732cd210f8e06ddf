//go:build (amd64 || arm64) && !race

package gossip

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// datagrams is a socket of UDP of which the calls are not announced to the Go runtime, as those of
// links are not (rpc/door/brisk_linux.go tells why). The socket is non-blocking, so they never
// wait. The race detector knows of announced calls only, so with it there are no others. One
// goroutine reads, any write.
type datagrams struct {
	conn *net.UDPConn
	raw  syscall.RawConn
	six  bool // it is a socket of IPv6, which may carry IPv4 as well
	in   arrival
}

// arrival is the call that reads.
type arrival struct {
	b    []byte
	n    int
	err  error
	from syscall.RawSockaddrInet6 // the larger of the two
	step func(fd uintptr) bool    // made once
}

func newDatagrams(conn *net.UDPConn) (*datagrams, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	d := &datagrams{conn: conn, raw: raw}
	d.in.step = d.in.read
	failed := raw.Control(func(fd uintptr) {
		var at syscall.Sockaddr
		at, err = syscall.Getsockname(int(fd))
		_, d.six = at.(*syscall.SockaddrInet6)
	})
	return d, errors.Join(failed, err)
}

func (d *datagrams) close() { d.conn.Close() }

// read waits for a packet.
func (d *datagrams) read(b []byte) (n int, from netip.AddrPort, err error) {
	d.in.b = b
	if err = d.raw.Read(d.in.step); err == nil {
		err = os.NewSyscallError("recvfrom", d.in.err)
	}
	if err != nil {
		return 0, from, err
	}
	return d.in.n, d.in.sender(), nil
}

// read reports whether waiting is over.
func (a *arrival) read(fd uintptr) bool {
	for {
		size := uint32(unsafe.Sizeof(a.from))
		n, _, e := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd,
			uintptr(unsafe.Pointer(&a.b[0])), uintptr(len(a.b)), 0,
			uintptr(unsafe.Pointer(&a.from)), uintptr(unsafe.Pointer(&size)))
		a.n, a.err = int(n), nil
		switch e {
		case 0:
			return true
		case syscall.EAGAIN:
			return false
		case syscall.EINTR:
			continue
		}
		a.err = e
		return true
	}
}

func (a *arrival) sender() netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&a.from.Port))[:])
	if a.from.Family == syscall.AF_INET {
		four := (*syscall.RawSockaddrInet4)(unsafe.Pointer(&a.from))
		return netip.AddrPortFrom(netip.AddrFrom4(four.Addr), port)
	}
	ip := netip.AddrFrom16(a.from.Addr).Unmap()
	if a.from.Scope_id != 0 {
		ip = ip.WithZone(strconv.FormatUint(uint64(a.from.Scope_id), 10))
	}
	return netip.AddrPortFrom(ip, port)
}

// write sends a packet. A call that fails is made once more, announced: that one waits until there
// is room, and says what is wrong.
func (d *datagrams) write(b []byte, to netip.AddrPort) error {
	if len(b) == 0 || to.Addr().Zone() != "" || !d.six && !to.Addr().Unmap().Is4() {
		_, err := d.conn.WriteToUDPAddrPort(b, to)
		return err
	}
	sent := false
	err := d.raw.Control(func(fd uintptr) { sent = d.send(fd, b, to) })
	if err == nil && !sent {
		_, err = d.conn.WriteToUDPAddrPort(b, to)
	}
	return err
}

func (d *datagrams) send(fd uintptr, b []byte, to netip.AddrPort) (sent bool) {
	var name syscall.RawSockaddrInet6
	size := unsafe.Sizeof(name)
	if d.six {
		name.Family, name.Addr = syscall.AF_INET6, to.Addr().As16()
	} else {
		size = syscall.SizeofSockaddrInet4
		name.Family = syscall.AF_INET
		(*syscall.RawSockaddrInet4)(unsafe.Pointer(&name)).Addr = to.Addr().Unmap().As4()
	}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&name.Port))[:], to.Port())
	_, _, e := syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&b[0])),
		uintptr(len(b)), 0, uintptr(unsafe.Pointer(&name)), size)
	return e == 0
}
