package gossip

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/cluster"
)

// book is a Resolver with the names that a test has written down.
type book struct {
	mu    sync.Mutex // guards what follows
	hosts map[string][]string
	srv   map[string][]*net.SRV
}

func (b *book) set(host string, ips ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hosts == nil {
		b.hosts = map[string][]string{}
	}
	b.hosts[host] = ips
}

func (b *book) forget(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.hosts, host)
}

func (b *book) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ips, ok := b.hosts[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	var addrs []netip.Addr
	for _, ip := range ips {
		addrs = append(addrs, netip.MustParseAddr(ip))
	}
	return addrs, nil
}

func (b *book) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV,
	error,
) {
	b.mu.Lock()
	defer b.mu.Unlock()
	records, ok := b.srv[name]
	if !ok || service != "" || proto != "" {
		return "", nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return name, records, nil
}

// The promise: each form of a seed leads to the addresses that it stands for, and a bad one is
// refused.
func TestSeeds(t *testing.T) {
	b := &book{srv: map[string][]*net.SRV{
		"_gossip._tcp.pen.test": {
			{Target: "n1.test.", Port: 7946},
			{Target: "n2.test.", Port: 8946},
		},
		"half.test": {
			{Target: "n1.test.", Port: 7946},
			{Target: "gone.test.", Port: 7946},
		},
	}}
	b.set("pen.test", "10.0.0.1", "::ffff:10.0.0.2", "fd00::1%eth0")
	b.set("n1.test.", "10.0.0.1")
	b.set("n2.test.", "10.0.0.2")
	b.set("empty.test")
	for _, row := range []struct {
		text string
		want string // addresses, and then the error if there is one
	}{
		{"10.0.0.9:7946", "10.0.0.9:7946"},
		{"[::1]:7946", "[::1]:7946"},
		{"pen.test:1", "10.0.0.1:1 10.0.0.2:1 [fd00::1]:1"},
		{"dns+pen.test:7946", "10.0.0.1:7946 10.0.0.2:7946 [fd00::1]:7946"},
		{"dns+10.0.0.9:1", "10.0.0.9:1"},
		{"dnssrv+_gossip._tcp.pen.test", "10.0.0.1:7946 10.0.0.2:8946"},
		{
			"dnssrv+half.test",
			"10.0.0.1:7946 error: looking up gone.test.: lookup gone.test.: no such host",
		},
		{"dnssrv+none.test", "error: looking up dnssrv+none.test: lookup none.test: no such host"},
		{"dns+none.test:1", "error: looking up none.test: lookup none.test: no such host"},
		{"empty.test:1", "error: looking up empty.test: it has no addresses"},

		{"", "refused"},
		{"pen.test", "refused"},
		{"pen.test:", "refused"},
		{"pen.test:0", "refused"},
		{"pen.test:65536", "refused"},
		{"pen.test:http", "refused"},
		{":7946", "refused"},
		{"dns+:7946", "refused"},
		{"dns+pen.test", "refused"},
		{"dnssrv+", "refused"},
		{"dnssrv+pen.test:7946", "refused"},
		{"dnsserv+pen.test:7946", "refused"},
		{"name/10.0.0.9:7946", "refused"},
		{"::1:7946", "refused"},
	} {
		s, err := parseSeed(row.text)
		if err != nil {
			if row.want != "refused" {
				t.Errorf("%q: %v", row.text, err)
			}
			continue
		}
		addrs, err := s.resolve(t.Context(), b)
		got := asText(addrs)
		if err != nil {
			got = append(got, "error: "+err.Error())
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%q is %q, want %q", row.text, strings.Join(got, " "), row.want)
		}
	}
}

// The promise: names are looked up again in every round, so a seed may appear, or move, at any
// time.
func TestNamesAreLookedUpAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		w, names := newWire(), &book{}
		named := func(c *Config) { c.Join, c.Resolver = []string{"dns+pen.test:7946"}, names }
		a := start(t, w, "a", 1, nil)
		b := start(t, w, "b", 2, named)
		time.Sleep(time.Minute)
		if b.Joined() {
			t.Error("b has joined by a name that does not exist")
		}
		names.set("pen.test", "10.0.0.99", "10.0.0.2")
		time.Sleep(time.Minute)
		if b.Joined() {
			t.Error("b has joined though one record leads nowhere and the other to itself")
		}
		names.set("pen.test", "10.0.0.1")
		agree(t, "a b", a, b)

		c := start(t, w, "c", 3, nil) // an island
		names.set("pen.test", "10.0.0.1", "10.0.0.2", "10.0.0.3")
		agree(t, "a b c", a, b, c)
	})
}

// The promise: a node that has no seed but itself is the first one: at once if the seed is an
// address, after a while if it is a name that may not have the others' addresses yet. A name that
// cannot be looked up proves nothing.
func TestSeedsThatAreTheNodeItself(t *testing.T) {
	for _, row := range []struct {
		seeds []string
		first bool
		after time.Duration
	}{
		{[]string{"10.0.0.1:7946"}, true, time.Second},
		{[]string{"me.test:7946"}, true, time.Second},
		{[]string{"dns+me.test:7946"}, false, 5 * time.Second},
		{[]string{"dns+me.test:7946"}, true, time.Minute},
		{[]string{"10.0.0.1:7946", "dns+none.test:7946"}, false, time.Hour},
		{[]string{"10.0.0.1:7946", "10.0.0.2:7946"}, false, time.Hour},
	} {
		t.Run(fmt.Sprintf("%v after %v", row.seeds, row.after), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				names := &book{}
				names.set("me.test", "10.0.0.1")
				a := start(t, newWire(), "a", 1, func(c *Config) {
					c.Join, c.Resolver = row.seeds, names
				})
				time.Sleep(row.after)
				if a.Joined() != row.first {
					t.Errorf("joined: %v, want %v", a.Joined(), row.first)
				}
				err := unlessUnconfirmed(a.SetState(cluster.StateActive))
				if (err == nil) != row.first {
					t.Errorf("SetState: %v", err)
				}
			})
		})
	}
}
