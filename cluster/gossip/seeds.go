package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Resolver looks names up. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (cname string, records []*net.SRV,
		err error)
}

// place is where one node may be found: by one address, or by several of one host.
type place []netip.AddrPort

// places are the nodes that the addresses of a seed stand for.
func (s seed) places(addrs []netip.AddrPort) (places []place) {
	if s.kind == seedHost {
		return []place{addrs} // also if it is not known yet
	}
	for _, a := range addrs {
		places = append(places, place{a})
	}
	return places
}

// seed is one entry of Config.Join.
type seed struct {
	text string
	kind seedKind
	host string
	port uint16 // not of SRV
}

type seedKind uint8

const (
	seedHost seedKind = iota // host:port: one node
	seedDNS                  // dns+name:port: all nodes have this name
	seedSRV                  // dnssrv+name: all nodes have a record of this name
)

func parseSeeds(texts []string) ([]seed, error) {
	seeds := make([]seed, len(texts))
	for i, text := range texts {
		s, err := parseSeed(text)
		if err != nil {
			return nil, fmt.Errorf(
				"gossip: seed %d of %d, %q: %w (--join takes host:port, dns+name:port or "+
					"dnssrv+name)",
				i+1, len(texts), text, err)
		}
		seeds[i] = s
	}
	return seeds, nil
}

func parseSeed(text string) (seed, error) {
	if name, ok := strings.CutPrefix(text, "dnssrv+"); ok {
		if name == "" || strings.ContainsAny(name, ":/ ") {
			return seed{}, errors.New(
				"the name of an SRV record is missing or has a port, a slash or a space")
		}
		return seed{text: text, kind: seedSRV, host: name}, nil
	}
	s := seed{text: text, kind: seedHost}
	rest, ok := strings.CutPrefix(text, "dns+")
	if ok {
		s.kind = seedDNS
	}
	host, portText, err := net.SplitHostPort(rest)
	if err != nil {
		return seed{}, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	switch {
	case err != nil || port == 0:
		return seed{}, errors.New("the port is not a number from 1 to 65535")
	case host == "" || strings.ContainsAny(host, "+/ "):
		return seed{}, errors.New("the host is missing or has a plus, a slash or a space")
	}
	s.host, s.port = host, uint16(port)
	return s, nil
}

// resolve looks the seed up, now.
func (s seed) resolve(ctx context.Context, r Resolver) ([]netip.AddrPort, error) {
	if s.kind != seedSRV {
		return resolveHost(ctx, r, s.host, s.port)
	}
	_, records, err := r.LookupSRV(ctx, "", "", s.host)
	if err != nil {
		return nil, fmt.Errorf("looking up %s: %w", s.text, err)
	}
	var addrs []netip.AddrPort
	var errs []error
	for _, record := range records {
		found, err := resolveHost(ctx, r, record.Target, record.Port)
		addrs, errs = append(addrs, found...), append(errs, err)
	}
	return addrs, errors.Join(errs...)
}

func resolveHost(ctx context.Context, r Resolver, host string, port uint16) ([]netip.AddrPort,
	error,
) {
	ips, err := lookup(ctx, r, host)
	addrs := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		addrs[i] = netip.AddrPortFrom(ip, port)
	}
	return addrs, err
}

// lookup is the addresses of a host: at least one, or an error. Names of zones are dropped, the
// library has no use for them.
func lookup(ctx context.Context, r Resolver, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap().WithZone("")}, nil
	}
	ips, err := r.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("looking up %s: %w", host, err)
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("looking up %s: it has no addresses", host)
	}
	for i, ip := range ips {
		ips[i] = ip.Unmap().WithZone("")
	}
	return ips, nil
}
