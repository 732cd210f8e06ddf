package embedded

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/rules"
	"penstock/rpc"
	"penstock/rpc/peer"
)

// Config describes a node. Its zero value is a node that is alone, without limits.
type Config struct {
	Limits []limiter.Spec // each with a name of its own
	Rules  []rules.Rule   // rules of CheckRules; they name limits of Limits
	Memory int64          // budget of the counters, in bytes; default limiter.DefaultBytes
	// stable, and unique in the cluster; up to 128 bytes without blanks and slashes; default: the
	// host name
	Name string

	// Gossip is the host:port, TCP and UDP, by which nodes find each other; port 0 takes a free
	// one. If it is empty, this node stays alone and listens nowhere, and the fields below have no
	// meaning.
	Gossip string
	// host:port on which other nodes ask this one; default: the host of Gossip, a free port
	Peer string
	// host by which other nodes reach both; needed if they are bound to all interfaces
	Advertise string
	// seeds: host:port, dns+name:port or dnssrv+name; empty: this is the first node
	Join    []string
	Cluster string // default: penstock. Nodes of another cluster are refused
	Agent   bool   // own no keys: ask the members, and join and leave freely

	// To listen on other interfaces than loopback, a node needs GossipKeys and the three files of
	// PeerTLS, or Insecure.
	GossipKeys [][]byte // AES-256 keys of 32 bytes: the first encrypts, all decrypt
	PeerTLS    PeerTLS
	Insecure   bool

	Logger *slog.Logger // default: none
}

// PeerTLS are PEM files for the connections between nodes. Both sides present certificates: so all
// three are needed, or none. They are read again when they change.
type PeerTLS struct{ Cert, Key, CA string }

// complete fills in the defaults, and refuses settings that contradict each other.
func (c *Config) complete() (err error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Cluster == "" {
		c.Cluster = "penstock"
	}
	if c.Name == "" {
		if c.Name, err = os.Hostname(); err != nil {
			return fmt.Errorf("embedded: Name: %w; give one", err)
		}
	}
	if !isName(c.Name) {
		return fmt.Errorf("embedded: Name %q: give 1 to %d bytes of UTF-8 without control "+
			"characters, blanks and slashes", c.Name, maxName)
	}
	if c.Gossip == "" {
		if c.Peer != "" || len(c.Join) > 0 || c.Agent {
			return errors.New("embedded: Gossip is empty, but Peer, Join or Agent is set: a node " +
				"that is alone has none of them; give a host:port")
		}
		return nil
	}
	return c.completeAddresses()
}

// completeAddresses is complete for a node that is not alone.
func (c *Config) completeAddresses() error {
	host, _, err := net.SplitHostPort(c.Gossip)
	if err != nil {
		return fmt.Errorf("embedded: Gossip: %w; give host:port", err)
	}
	if c.Peer == "" {
		c.Peer = net.JoinHostPort(host, "0")
	}
	peerHost, _, err := net.SplitHostPort(c.Peer)
	if err != nil {
		return fmt.Errorf("embedded: Peer: %w; give host:port", err)
	}
	everywhere := isEverywhere(host) || isEverywhere(peerHost)
	switch {
	case c.Advertise != "" && !peer.IsHost(c.Advertise):
		return fmt.Errorf("embedded: Advertise %q: give one host or address that other nodes "+
			"dial, without a port; the ports are those of Gossip and Peer", c.Advertise)
	case everywhere && c.Advertise == "":
		return errors.New("embedded: Advertise is empty, but a node that is bound to all " +
			"interfaces needs it; give the host by which others reach it")
	case isLoopback(host) && isLoopback(peerHost) || c.Insecure:
	case len(c.GossipKeys) == 0 || c.PeerTLS == PeerTLS{}:
		return errors.New("embedded: other machines can reach this node: give GossipKeys and " +
			"PeerTLS, or set Insecure")
	}
	return nil
}

// maxName bounds Name, which travels in every gossip packet.
const maxName = 128

// isName tells whether a node of penstock serve could have the name: versions of limits, pages and
// files contain it.
func isName(s string) bool {
	return s != "" && len(s) <= maxName && utf8.ValidString(s) &&
		!strings.ContainsAny(s, "/ ") && !strings.ContainsFunc(s, unicode.IsControl)
}

func isEverywhere(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// load reads the files, if there are any: for the next connection to another node, and for those
// that come.
func (p PeerTLS) load(
	node string, role cluster.Role,
) (asClient func() *tls.Config, asServer *tls.Config, err error) {
	switch {
	case p == PeerTLS{}:
		return nil, nil, nil
	case p.Cert == "" || p.Key == "" || p.CA == "":
		return nil, nil, errors.New("one of Cert, Key and CA is missing; give all three: nodes " +
			"show each other certificates of one authority")
	}
	files := rpc.TLSFiles{
		Cert: p.Cert, Key: p.Key, CA: p.CA, Mutual: true, Check: peer.CheckNode(node, role),
	}
	now, err := files.Caller()
	if err != nil {
		return nil, nil, err
	}
	if asServer, err = files.Server(); err != nil {
		return nil, nil, err
	}
	return func() *tls.Config { return rpc.PeerTLS(now()) }, rpc.PeerTLS(asServer), nil
}
