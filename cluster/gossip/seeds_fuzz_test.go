package gossip

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// echo answers every question for a name with one address, and one record that leads back to the
// name.
type echo struct{}

func (echo) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host == "" {
		return nil, errors.New("no name")
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.9")}, nil
}

func (echo) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	if service+proto != "" || name == "" {
		return "", nil, errors.New("no name")
	}
	return "", []*net.SRV{{Target: name, Port: 7946}}, nil
}

// Promise: whatever --join says, each of its seeds leads to an address with a port, or the error
// says which does not.
func FuzzSeeds(f *testing.F) {
	for _, text := range []string{
		"a:7946", "[::1]:7946,dns+b:1", "dnssrv+_gossip._udp.c", "dns+dns+a:1", "dnssrv+", ":1",
		"a:0", "a:65536", "[fe80::1%lo]:1,", "a b:1",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		texts := strings.Split(text, ",")
		seeds, err := parseSeeds(texts)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "gossip: seed ") || seeds != nil {
				t.Fatalf("%v with an error without a place: %v", seeds, err)
			}
			return
		}
		for i, s := range seeds {
			if s.text != texts[i] || !strings.Contains(s.text, s.host) || s.host == "" ||
				(s.kind == seedSRV) != (s.port == 0) {
				t.Fatalf("%q is taken for %+v", texts[i], s)
			}
			addrs, err := s.resolve(context.Background(), echo{})
			if err != nil || len(addrs) != 1 || !addrs[0].IsValid() || addrs[0].Port() == 0 {
				t.Fatalf("%q leads to %v, %v", texts[i], addrs, err)
			}
		}
	})
}
