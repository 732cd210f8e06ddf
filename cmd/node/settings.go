package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"penstock/cluster"
	"penstock/cluster/gossip"
	"penstock/limiter/rules"
	"penstock/rpc/peer"
)

// settings are one node in the words of serve's flags. demo and bench fill in what they need.
type settings struct {
	Name      string   `default:"${hostname}" placeholder:"ID" help:"Stable id of this node, 1 to 128 bytes. Default: the host's name."`
	Cluster   string   `default:"penstock" help:"Name of the cluster: nodes of another one are refused."`
	Role      string   `default:"member" enum:"member,agent" help:"member owns keys; agent owns none, it forwards."`
	Join      []string `placeholder:"SEED" help:"Nodes to find the cluster by, with commas: host:port, dns+name:port or dnssrv+name. Retried for ever. Give all nodes the same list. Without it a node starts a cluster of its own."`
	Advertise string   `placeholder:"HOST" help:"Host or address that other nodes dial. Default: that of --gossip and --peer."`

	memberFlags
	doorFlags
	limitFlags
	securityFlags

	LogLevel string `default:"info" enum:"debug,info,warn,error" help:"debug, info, warn or error."`
	logFormat
	tracing

	// What no flag gives: demo, bench and tests use it.
	named  cluster.Limits // in force if Limits is empty
	ruled  *rules.Set     // likewise
	timing gossip.Timing
	nodes  int // of this process, which share its file descriptors; 0 is 1
	// is told that nothing is asked of the node, and when that is over; may be nil
	onIdle func(idle bool)
}

// memberFlags say how this node and others make a cluster.
type memberFlags struct {
	Expect       int           `placeholder:"N" help:"How many members found a new cluster together: a majority of them has to be there. Needed where --join has names of all nodes. Default: as many as --join leads to, and this one."`
	Failover     time.Duration `default:"1s" help:"How long to wait for a silent owner, 300ms to 1m. The first members set it for the whole cluster. Below 1s: up to 200 members, on machines that do not throttle."`
	Copies       *int          `default:"1" placeholder:"N" help:"How many heirs keep a copy of each partition, 0 to 2: as many nodes as that can die together with its owner, and no counter is lost. The first members set it for the whole cluster."`
	Zone         *string       `placeholder:"NAME" help:"Where this node is: a rack, or a zone of a cloud. Copies are kept in another zone where there is one."`
	TrustRefused bool          `default:"true" negatable:"" help:"A refused connection means that the process is gone, and its heirs go on at once. With =false its right to decide is waited for: for networks in which something else refuses."`
}

// doorFlags say where this node listens.
type doorFlags struct {
	Gossip string `group:"doors" default:"127.0.0.1:7946" help:"Membership, TCP and UDP."`
	Peer   string `group:"doors" default:"127.0.0.1:7947" help:"Node to node."`
	GRPC   string `group:"doors" name:"grpc" default:"127.0.0.1:7948" help:"Clients, gRPC; unix:///path too."`
	HTTP   string `group:"doors" name:"http" default:"127.0.0.1:7949" help:"Clients, HTTP and JSON; unix:///path too."`
	Admin  string `group:"doors" placeholder:"HOST:PORT" help:"Metrics, pprof, reset, status and the gRPC service Admin on a listener of their own, and nowhere else; off: nowhere. Default: on --http, and Admin on --grpc."`
	Redis  string `group:"doors" default:"127.0.0.1:7950" help:"Clients, Redis protocol; unix:///path too."`
}

// limitFlags say what is limited, and where counters are kept.
type limitFlags struct {
	Limits      string `group:"limits" type:"path" placeholder:"PATH" help:"YAML file, or directory of them, with the named limits. Watched; SIGHUP reads it again."`
	Inline      string `group:"limits" default:"allow" enum:"allow,deny" help:"Limits that requests bring along: allow or deny. Of one client, and in all, there is a bound; they take no room from limits of files."`
	Memory      size   `group:"limits" default:"256MiB" help:"Budget of the table of counters, in B, KiB, MiB or GiB; 64KiB at least."`
	EnvoyConfig string `group:"limits" type:"path" placeholder:"DIR" help:"Files of envoyproxy/ratelimit, YAML, served to Envoys as they are. Watched; SIGHUP reads them again."`
	DataDir     string `group:"limits" type:"path" placeholder:"DIR" help:"Keep the counters in a file there as well, so that they survive a restart of every node. For this node alone."`
}

// securityFlags say which clients and nodes this node trusts.
type securityFlags struct {
	TLSCert       string `group:"security" name:"tls-cert" type:"path" placeholder:"FILE" help:"Certificate of --grpc, --http, --redis and --admin (PEM). Read again when it changes."`
	TLSKey        string `group:"security" name:"tls-key" type:"path" placeholder:"FILE" help:"Private key of --tls-cert."`
	TLSCA         string `group:"security" name:"tls-ca" type:"path" placeholder:"FILE" help:"Clients must show a certificate of this authority."`
	PeerTLSCert   string `group:"security" name:"peer-tls-cert" type:"path" placeholder:"FILE" help:"Certificate that this node shows to other nodes."`
	PeerTLSKey    string `group:"security" name:"peer-tls-key" type:"path" placeholder:"FILE" help:"Private key of --peer-tls-cert."`
	PeerTLSCA     string `group:"security" name:"peer-tls-ca" type:"path" placeholder:"FILE" help:"Other nodes must show a certificate of this authority."`
	AuthTokenFile string `group:"security" type:"path" placeholder:"FILE" help:"Clients must send a bearer token, of the Redis protocol by AUTH. A file with one token, which may do everything, or with a list of clients and their rights (docs/security.md). Watched; SIGHUP reads it again."`
	AuditLog      string `group:"security" type:"path" placeholder:"FILE" help:"Append what clients and files change to this file, as lines of JSON. Default: the log, without refunds. SIGHUP opens it again, after it was renamed. GET /v1/audit shows the last 1000 entries."`
	gossipGuard
	TrustedProxy networks `group:"security" placeholder:"CIDR,..." help:"Networks or addresses of proxies: their X-Forwarded-For names the client in the key {ip}. With commas. Default: none."`
	HTTPHost     []string `group:"security" name:"http-host" sep:"," placeholder:"NAME" help:"Further names that requests to --http and --admin may have in Host, with commas; * is any. Addresses, localhost, --name and --advertise always may, and with a token or TLS all names."`
	Insecure     bool     `group:"security" help:"Listen off loopback although the flags above do not protect it."`
}

// gossipGuard keeps strangers out of gossip.
type gossipGuard struct {
	GossipKeyFile string   `group:"security" type:"path" placeholder:"FILE" help:"Keys of the gossip, one per line; the first encrypts, all decrypt. Watched; SIGHUP reads it again. See keygen --rotate."`
	GossipAllow   networks `group:"security" placeholder:"CIDR,..." help:"Networks or addresses of this cluster's nodes, with commas: gossip from other addresses is dropped. Default: all."`
}

var groups = []kong.Group{
	{Key: "doors", Title: "Doors: where this node listens, host:port, or off"},
	{Key: "limits", Title: "Limits and memory"},
	{
		Key:   "inline",
		Title: "A limit that comes with the request, instead of one that the cluster has",
	},
	{Key: "traces", Title: "Traces: OpenTelemetry's spans of checks"},
	{Key: "security", Title: "Security: a listener off loopback needs these, or --insecure"},
}

// size is a number of bytes, written with its unit.
type size int64

// UnmarshalText reads "256MiB".
func (s *size) UnmarshalText(text []byte) error {
	units := []struct {
		suffix string
		bytes  int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}
	for _, u := range units {
		digits, found := strings.CutSuffix(string(text), u.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n <= 0 || n > (1<<62)/u.bytes {
			break
		}
		*s = size(n * u.bytes)
		return nil
	}
	return fmt.Errorf("%q is not a size; write a whole number and B, KiB, MiB or GiB, as in 256MiB",
		text)
}

// place is one place to listen.
type place struct {
	flag    string // its name on the command line, for errors and logs: "--grpc"
	network string // tcp or unix; empty if it is off
	address string // host:port or path
}

func (d place) off() bool { return d.network == "" }

// loopback reports whether only this machine can reach d.
func (d place) loopback() bool {
	if d.network != "tcp" {
		return true
	}
	host, _, err := net.SplitHostPort(d.address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// everywhere reports whether d listens on all addresses of the machine.
func (d place) everywhere() bool {
	host, _, err := net.SplitHostPort(d.address)
	if err != nil || d.network != "tcp" {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// parseDoor reads "host:port", "off" and, where it is allowed, "unix:///path".
func parseDoor(flag, text string, unix bool) (place, error) {
	if text == "off" {
		return place{flag: flag}, nil
	}
	if path, found := strings.CutPrefix(text, "unix://"); found {
		if !unix {
			return place{}, fmt.Errorf("%s %s: a unix socket is not possible here; give host:port",
				flag, text)
		}
		if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
			return place{},
				fmt.Errorf("%s %s: give an absolute path, as in unix:///run/penstock.sock", flag,
					text)
		}
		return place{flag, "unix", path}, nil
	}
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		forms := "host:port or off"
		if unix {
			forms = "host:port, unix:///path or off"
		}
		return place{}, fmt.Errorf("%s %q: give %s", flag, text, forms)
	}
	return place{flag, "tcp", text}, nil
}

// doors are where a node listens.
type doors struct {
	gossip, peer, grpc, http, redis, admin place
}

// Bounds of --memory: a table of two shards, and more than a machine has.
const (
	leastMemory size = 64 << 10
	mostMemory  size = 4 << 40
)

func (s size) check() error {
	switch {
	case s < leastMemory:
		return fmt.Errorf("--memory: %d bytes are too few for a table of counters; give 64KiB or "+
			"more, as in 256MiB", s)
	case s > mostMemory:
		return fmt.Errorf("--memory: %d bytes are more than a table can have; give 4096GiB or "+
			"less, as in 256MiB", s)
	}
	return nil
}

// check says what is wrong with s, before anything is opened.
func (s *settings) check() (d doors, err error) {
	if err := s.checkNames(); err != nil {
		return d, err
	}
	if err := s.Memory.check(); err != nil {
		return d, err
	}
	if d, err = s.doors(); err != nil {
		return d, err
	}
	if err := s.checkMembership(d); err != nil {
		return d, err
	}
	if err := s.checkFiles(); err != nil {
		return d, err
	}
	return d, s.checkExposure(d)
}

// doors reads where the node listens.
func (s *settings) doors() (d doors, err error) {
	flags := map[place]string{} // by where they listen
	for _, p := range []struct {
		door *place
		flag string
		text string
		unix bool
	}{
		{&d.gossip, "--gossip", s.Gossip, false},
		{&d.peer, "--peer", s.Peer, false},
		{&d.grpc, "--grpc", s.GRPC, true},
		{&d.http, "--http", s.HTTP, true},
		{&d.redis, "--redis", cmp.Or(s.Redis, "off"), true},
		{&d.admin, "--admin", cmp.Or(s.Admin, "off"), true},
	} {
		if *p.door, err = parseDoor(p.flag, p.text, p.unix); err != nil {
			return d, err
		}
		if p.door.off() || strings.HasSuffix(p.door.address, ":0") {
			continue
		}
		at := place{network: p.door.network, address: p.door.address}
		if other := flags[at]; other != "" {
			return d, fmt.Errorf("%s and %s are both %s; give each an address of its own, or off",
				other, p.flag, p.text)
		}
		flags[at] = p.flag
	}
	return d, nil
}

// checkGossip says what is wrong with how the node finds others.
func (s *settings) checkGossip(d doors) error {
	if d.peer.off() != d.gossip.off() {
		return errors.New("--peer and --gossip are open or off together: a node that others " +
			"know of must be reachable for them, and the other way round")
	}
	if d.gossip.off() && len(s.Join) > 0 {
		return errors.New("--join needs --gossip and --peer, and they are off")
	}
	if s.Expect < 0 || s.Expect > cluster.MostMembers || s.Expect > 0 && len(s.Join) == 0 {
		return fmt.Errorf("--expect %d: give how many members found the cluster, 1 to %d, and "+
			"--join, by which they find each other", s.Expect, cluster.MostMembers)
	}
	return nil
}

// checkAdvertise refuses what others could not dial.
func (s *settings) checkAdvertise() error {
	if s.Advertise == "" || peer.IsHost(s.Advertise) {
		return nil
	}
	return fmt.Errorf("--advertise %q: give one host or address that other nodes dial, without "+
		"a port; the ports are those of --gossip and --peer", s.Advertise)
}

// checkMembership says what is wrong with how the node joins its cluster.
func (s *settings) checkMembership(d doors) error {
	if err := s.checkGossip(d); err != nil {
		return err
	}
	if err := s.checkAdvertise(); err != nil {
		return err
	}
	if s.Failover != 0 && (s.Failover < cluster.LeastFailover ||
		s.Failover > cluster.MostFailover) {
		return fmt.Errorf("--failover %v: give %v to %v", s.Failover, cluster.LeastFailover,
			cluster.MostFailover)
	}
	if s.Copies != nil && (*s.Copies < 0 || *s.Copies > cluster.MostCopies) {
		return fmt.Errorf("--copies %d: give how many heirs keep a copy of each partition, 0 to %d",
			*s.Copies, cluster.MostCopies)
	}
	if s.Zone != nil {
		if err := cluster.CheckZone(*s.Zone); err != nil {
			return fmt.Errorf("--zone %w; without the flag the node is in no zone", err)
		}
	}
	if d.gossip.off() && s.Role == "agent" {
		return errors.New("--role agent needs --gossip and --peer: alone it would own nothing " +
			"and reach nobody")
	}
	return nil
}

// checkFiles demands the halves of pairs.
func (s *settings) checkFiles() error {
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key belong together; one of them is missing")
	}
	if s.TLSCA != "" && s.TLSCert == "" {
		return errors.New("--tls-ca needs --tls-cert and --tls-key")
	}
	given := 0
	for _, f := range []string{s.PeerTLSCert, s.PeerTLSKey, s.PeerTLSCA} {
		if f != "" {
			given++
		}
	}
	if given != 0 && given != 3 {
		return errors.New("--peer-tls-cert, --peer-tls-key and --peer-tls-ca belong together: " +
			"nodes show each other certificates of one authority")
	}
	return nil
}

// checkExposure refuses listeners that strangers could reach and use, unless --insecure says that
// this is meant.
func (s *settings) checkExposure(d doors) error {
	exposed := s.exposed(d)
	if s.Insecure || len(exposed) == 0 {
		return nil
	}
	return fmt.Errorf("other machines could reach and use this node:\n  %s\n"+
		"Give these files, listen on loopback, or say --insecure if the network is trusted",
		strings.Join(exposed, "\n  "))
}

// exposed names each listener off loopback that has less than its protection, and what is missing.
func (s *settings) exposed(d doors) (lines []string) {
	need := func(at place, missing ...string) {
		var words []string
		for _, m := range missing {
			if m != "" {
				words = append(words, m)
			}
		}
		if !at.off() && !at.loopback() && len(words) > 0 {
			lines = append(lines, fmt.Sprintf("%s %s lacks %s", at.flag, at.address,
				strings.Join(words, " and ")))
		}
	}
	if s.GossipKeyFile == "" {
		need(d.gossip, "--gossip-key-file")
	}
	if s.PeerTLSCert == "" {
		need(d.peer, "--peer-tls-cert, --peer-tls-key, --peer-tls-ca")
	}
	var cert, who string
	if s.TLSCert == "" {
		cert = "--tls-cert, --tls-key"
	}
	if s.TLSCA == "" && s.AuthTokenFile == "" {
		who = "--auth-token-file (or --tls-ca)"
	}
	need(d.grpc, cert, who)
	need(d.http, cert, who)
	need(d.redis, cert, who)
	need(d.admin, cert, who)
	return lines
}
