package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// inUseError says that somebody else listens there already.
type inUseError struct{ place }

func (e *inUseError) Error() string {
	return fmt.Sprintf("%s %s is in use, perhaps by another node", e.flag, e.address)
}

// listen opens d. Errors name the flag and the address, and say what to do.
func (d place) listen() (net.Listener, error) {
	if d.network == "unix" {
		d.removeStale()
	}
	l, err := net.Listen(d.network, d.address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE) && d.taken():
		return nil, fmt.Errorf("%s %s: there is a file that is no socket; remove it, or give "+
			"another path", d.flag, d.address)
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, &inUseError{d}
	case d.network == "unix" && len(d.address) > longestSocket:
		return nil, fmt.Errorf("%s: the path of a socket has at most %d bytes, and this one has "+
			"%d: %s", d.flag, longestSocket, len(d.address), d.address)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%s %s: this user may not listen there: %w", d.flag, d.address, err)
	}
	return nil, fmt.Errorf("%s %s: %w", d.flag, d.address, err)
}

// longestSocket is the longest path of a socket that every system takes, in bytes.
const longestSocket = 103

// taken reports whether a file that is no socket lies where d would have one.
func (d place) taken() bool {
	info, err := os.Lstat(d.address)
	return d.network == "unix" && err == nil && info.Mode().Type() != fs.ModeSocket
}

// removeStale removes the socket file of a process that is gone. A socket that somebody answers
// stays, and listen then fails.
func (d place) removeStale() {
	info, err := os.Lstat(d.address)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return
	}
	c, err := net.DialTimeout("unix", d.address, time.Second)
	if err == nil {
		c.Close()
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		os.Remove(d.address)
	}
}

// reachable is the address by which others reach a listener; host stands for all addresses of this
// machine.
func reachable(l net.Listener, host string) string {
	if l.Addr().Network() == "unix" {
		return "unix://" + l.Addr().String()
	}
	own, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return l.Addr().String()
	}
	if ip, err := netip.ParseAddr(own); err == nil && ip.IsUnspecified() && host != "" {
		own = host
	}
	return net.JoinHostPort(own, port)
}

// ownAddress is the address of this machine that others most likely reach: a private one, else any
// that is not loopback.
func ownAddress() (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "",
			fmt.Errorf("cannot list this machine's addresses: %w; say with --advertise by which "+
				"one others reach it", err)
	}
	best := netip.Addr{}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		ip := p.Addr()
		if ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		if !best.IsValid() || rank(ip) > rank(best) {
			best = ip
		}
	}
	if !best.IsValid() {
		return "",
			errors.New("this machine has no address that others could reach; say with " +
				"--advertise which one they shall dial")
	}
	return best.String(), nil
}

// rank prefers private addresses to public ones, and IPv4 to IPv6.
func rank(ip netip.Addr) (r int) {
	if ip.IsPrivate() {
		r += 2
	}
	if ip.Is4() {
		r++
	}
	return r
}
