package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/memberlist"

	"penstock/cluster"
	"penstock/ring"
)

// Config names a node and the places where it finds the others.
type Config struct {
	// Member is this node as the others shall see it. ID, Boot and PeerAddr are required. State is
	// JOINING, or ACTIVE if Join is empty.
	Member cluster.Member
	// Started orders the boots of one ID: the earliest wins, of those that are in the ring.
	// Default: now.
	Started time.Time

	// Version is that of the program, for people: others show it. Default: they show none.
	Version string

	// Bind is the host:port to gossip on, TCP and UDP. Port 0 takes a free one; an empty host means
	// all IPv4 interfaces, and Advertise is then worth setting.
	Bind string
	// Advertise is the host or host:port by which others reach Bind. Default: Bind, or a private
	// address of this machine if Bind is all interfaces.
	Advertise string
	// Cluster is a name, 1 … 255 bytes. Nodes with another name are refused.
	Cluster string
	// Keys are AES-256 keys of 32 bytes. The first encrypts, all decrypt. Without keys, every
	// machine that reaches Bind can read gossip and take part in it.
	Keys [][]byte
	// Allow are the networks from which gossip is heard, and in which members may be. Without any,
	// all are.
	Allow []netip.Prefix
	// Refused counts what is not read. Default: nobody sees it.
	Refused *Refused
	// Join lists the seeds: "host:port", "dns+name:port" (every A and AAAA record is one),
	// "dnssrv+name" (every SRV record is one). Empty: this is the first node.
	Join []string
	// Resolver looks up the hosts. Default: net.DefaultResolver.
	Resolver Resolver

	// OnView receives every View that differs from the one before, in order and one at a time: the
	// first before Start returns. It must return soon, and must not call methods of the Gossip
	// other than View.
	OnView func(*cluster.View)
	// OnContest is called, after OnView, when another node is alive under this node's ID that comes
	// before this one. This one must stop deciding at once; whether it must stop is asked then.
	// Same rules as OnView.
	OnContest func()
	// OnConflict is called at most once, if a node that comes before this one answers under this
	// node's ID. The caller should stop this one. The error names the other one. Same rules as
	// OnView.
	OnConflict func(error)
	// Agreed reports whether a boot is a member by what the cluster has agreed on, as far as this
	// node can be sure of that: of the boots of one ID it comes before those that are none. It must
	// return at once. nil: none is.
	Agreed func(boot uint64) bool
	// Answers asks an earlier boot of this node's ID at its peer address whether it is there: nil
	// if it answers, an error that wraps cluster.ErrGone if it is gone, another one if nobody
	// knows. nil: only gossip is asked.
	Answers func(ctx context.Context, earlier cluster.Member) error
	// Logger receives what happens here and what the library says. Default: nothing.
	Logger *slog.Logger

	Timing Timing

	// transport is what the door lies over, and then the door. nil: TCP and UDP; tests have others.
	transport memberlist.NodeAwareTransport
}

// Timing is how often things happen. Zero fields take the value of Balanced.
type Timing struct {
	Probe        time.Duration // each node asks one other "are you there" this often
	ProbeTimeout time.Duration // and waits this long before it asks others to ask; well below Probe
	Gossip       time.Duration // news go to three others this often (stir.go)
	PushPull     time.Duration // all that is known is exchanged with one other this often
	// the reconnector's rounds, ±20 %; five times as often until the cluster is reached
	Reconnect time.Duration
	// a join waits this long for others before it becomes a View; a death does not
	Coalesce time.Duration
}

// Balanced finds a crashed node in about 3 s in a cluster of up to 10 and in 5 s in one of 100, and
// lets a node be unreachable for 1.5 s without declaring it dead.
func Balanced() Timing {
	return Timing{
		Probe:        500 * time.Millisecond,
		ProbeTimeout: 250 * time.Millisecond,
		Gossip:       100 * time.Millisecond,
		PushPull:     10 * time.Second,
		Reconnect:    5 * time.Second,
		Coalesce:     100 * time.Millisecond,
	}
}

func (t Timing) orBalanced() Timing {
	b := Balanced()
	return Timing{
		Probe:        cmp.Or(t.Probe, b.Probe),
		ProbeTimeout: cmp.Or(t.ProbeTimeout, b.ProbeTimeout),
		Gossip:       cmp.Or(t.Gossip, b.Gossip),
		PushPull:     cmp.Or(t.PushPull, b.PushPull),
		Reconnect:    cmp.Or(t.Reconnect, b.Reconnect),
		Coalesce:     cmp.Or(t.Coalesce, b.Coalesce),
	}
}

func validate(c Config) error {
	if err := validateID(c.Member.ID); err != nil {
		return fmt.Errorf("gossip: %w; give the node another --name", err)
	}
	if c.Member.Boot == 0 {
		return errors.New("gossip: the boot id of this node is 0; draw a random one at every start")
	}
	if _, _, err := net.SplitHostPort(c.Member.PeerAddr); err != nil {
		return fmt.Errorf("gossip: the peer address %q of this node is not host:port: %w",
			c.Member.PeerAddr, err)
	}
	if c.Member.State == cluster.StateActive && len(c.Join) > 0 {
		return errors.New(
			"gossip: a node with seeds cannot start as active: it must reach its cluster first")
	}
	if n := len(c.Cluster); n == 0 || n > memberlist.LabelMaxSize {
		return fmt.Errorf("gossip: the cluster's name has %d bytes; it needs 1 to %d (--cluster)",
			n, memberlist.LabelMaxSize)
	}
	return checkKeys(c.Keys)
}

// validateID is also applied to the ids of others: one that no ring accepts would stop every View.
func validateID(id string) error {
	switch {
	case id == "":
		return errors.New("the node id is empty")
	case len(id) > ring.MaxID:
		return fmt.Errorf("the node id %.32q… has %d bytes; at most %d are supported", id, len(id),
			ring.MaxID)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Errorf("the node id %.64q has control characters or is not UTF-8", id)
	}
	return nil
}

// listConfig is the library's configuration. It also sets g.bound.
func (g *Gossip) listConfig(ctx context.Context) (*memberlist.Config, error) {
	c := memberlist.DefaultLANConfig()
	c.Name = g.roster.name
	c.Label = g.config.Cluster
	if err := g.setAddresses(ctx, c); err != nil {
		return nil, err
	}
	if err := g.keepTo(c); err != nil {
		return nil, err
	}

	c.ProbeInterval, c.ProbeTimeout = g.timing.Probe, g.timing.ProbeTimeout
	c.GossipInterval, c.PushPullInterval = quietFactor*g.timing.Gossip, g.timing.PushPull
	c.RetransmitMult = retransmits
	c.TCPTimeout = streamTimeout
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = 4, 3
	c.GossipToTheDeadTime = 30 * time.Second
	// names carry the boot, so this matters only for a copied process
	c.DeadNodeReclaimTime = time.Second
	c.AwarenessMaxMultiplier = 4
	c.EnableCompression = false // costs more than it saves on packets this small
	// RequireNodeNames stays false: with it the library cannot join by address, and its probes
	// carry names anyway.

	c.DelegateProtocolVersion, c.DelegateProtocolMin, c.DelegateProtocolMax = protocol, protocol,
		protocol
	c.Delegate, c.Events, c.Alive, c.Merge, c.Conflict = g.roster, g.roster, g.roster, g.roster,
		g.roster
	c.Logger = log.New(&libraryLog{to: g.log}, "", 0)

	if len(g.config.Keys) > 0 {
		keys, err := memberlist.NewKeyring(g.config.Keys, g.config.Keys[0])
		if err != nil {
			return nil, fmt.Errorf("gossip: keys: %w", err)
		}
		g.keys, c.Keyring = keys, keys
	}
	return c, nil
}

// setAddresses hands the library literal addresses only: it takes a host name to bind for "all
// interfaces".
func (g *Gossip) setAddresses(ctx context.Context, c *memberlist.Config) error {
	host, portText, err := net.SplitHostPort(g.config.Bind)
	if err != nil {
		return fmt.Errorf("gossip: the address %q to bind is not host:port: %w", g.config.Bind, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return fmt.Errorf(
			"gossip: the address %q to bind: the port is not a number from 0 to 65535",
			g.config.Bind)
	}
	ip, err := g.lookupOne(ctx, cmp.Or(host, "0.0.0.0"))
	if err != nil {
		return fmt.Errorf("gossip: the address %q to bind: %w", g.config.Bind, err)
	}
	g.bound = netip.AddrPortFrom(ip, uint16(port))
	c.BindAddr, c.BindPort, c.AdvertisePort = ip.String(), int(port), int(port)

	if g.config.Advertise == "" {
		if ip == netip.IPv6Unspecified() {
			return fmt.Errorf(
				"gossip: %q is not an address that others can dial; say by which they can "+
					"(--advertise)", g.config.Bind)
		}
		return nil
	}
	host = g.config.Advertise
	if h, p, err := net.SplitHostPort(host); err == nil {
		port, err := strconv.ParseUint(p, 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf(
				"gossip: the address %q to advertise: the port is not a number from 1 to 65535",
				g.config.Advertise)
		}
		host, c.AdvertisePort = h, int(port)
	}
	ip, err = g.lookupOne(ctx, host)
	if err != nil {
		return fmt.Errorf("gossip: the address %q to advertise: %w", g.config.Advertise, err)
	}
	c.AdvertiseAddr = ip.WithZone("").String()
	return nil
}

func (g *Gossip) lookupOne(ctx context.Context, host string) (netip.Addr, error) {
	ips, err := lookup(ctx, g.config.Resolver, host)
	if err != nil {
		return netip.Addr{}, err
	}
	if i := slices.IndexFunc(ips, netip.Addr.Is4); i >= 0 {
		return ips[i], nil
	}
	return ips[0], nil
}
