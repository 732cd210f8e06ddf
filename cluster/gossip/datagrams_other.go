//go:build !linux || (!amd64 && !arm64) || race

package gossip

import (
	"net"
	"net/netip"
)

// datagrams is a socket of UDP.
type datagrams struct{ conn *net.UDPConn }

func newDatagrams(conn *net.UDPConn) (*datagrams, error) { return &datagrams{conn}, nil }

func (d *datagrams) close() { d.conn.Close() }

// read waits for a packet.
func (d *datagrams) read(b []byte) (n int, from netip.AddrPort, err error) {
	n, from, err = d.conn.ReadFromUDPAddrPort(b)
	return n, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), err
}

// write sends a packet.
func (d *datagrams) write(b []byte, to netip.AddrPort) error {
	_, err := d.conn.WriteToUDPAddrPort(b, to)
	return err
}
