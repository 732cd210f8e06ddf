package main

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"penstock/rpc"
	"penstock/rpc/peer"
)

// tlsState is how the last reading of each group of TLS files ended. mu guards faulty.
type tlsState struct {
	mu     sync.Mutex
	faulty map[string]bool // by the flag of the certificate
}

func (s *tlsState) set(flag string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faulty == nil {
		s.faulty = make(map[string]bool)
	}
	s.faulty[flag] = err != nil
}

// good reports whether the files that are in force are those that lie there.
func (s *tlsState) good() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, faulty := range s.faulty {
		if faulty {
			return false
		}
	}
	return true
}

// peerFiles are the files of --peer-tls-cert. The certificate must be this node's.
func (r *running) peerFiles() rpc.TLSFiles {
	s := &r.settings
	files := r.files.tlsFiles("--peer-tls-cert", s.PeerTLSCert, s.PeerTLSKey, s.PeerTLSCA)
	files.Mutual, files.Check = true, peer.CheckNode(r.member.ID, r.member.Role)
	return files
}

// doorFiles are the files of --tls-cert. A certificate without any alternative name is refused: no
// client can verify it. One for other names than this node's is told of in the log and taken: a
// load balancer or a service in front of the node has a name that only its clients know, and the
// node cannot tell that from a mistake. It can where the files change while it runs: a certificate
// that has no name of this node, and none of the one in force, is refused if that one was the
// node's.
func (r *running) doorFiles() rpc.TLSFiles {
	s := &r.settings
	files := r.files.tlsFiles("--tls-cert", s.TLSCert, s.TLSKey, s.TLSCA)
	var told string // the certificate that was last looked at
	var inForce *x509.Certificate
	files.Check = func(c *x509.Certificate) (err error) {
		defer func() {
			if err == nil {
				inForce = c
			}
		}()
		names := r.doors.names(s)
		if len(names) == 0 || told == string(c.Raw) {
			return nil
		}
		if len(c.DNSNames)+len(c.IPAddresses) == 0 {
			return fmt.Errorf(
				"has no alternative name (DNS or IP), and clients look at these alone; "+
					"issue one for %s",
				strings.Join(names, ", "),
			)
		}
		if isForAny(c, names) {
			told = string(c.Raw)
			return nil
		}
		of := alternatives(c)
		if inForce != nil && isForAny(inForce, names) && !isForAny(c, alternatives(inForce)) {
			return fmt.Errorf(
				"is for %s, and the one in force for %s: clients of this node would refuse it; "+
					"issue one for a name of this node (%s), or start it anew with this one",
				strings.Join(of, ", "), strings.Join(alternatives(inForce), ", "),
				strings.Join(names, ", "),
			)
		}
		told = string(c.Raw)
		r.log.Warn("the certificate of --tls-cert is for other names than this node's: clients "+
			"that dial it by one of its own refuse it; give a certificate for one of them, or "+
			"name "+
			"with --http-host what clients dial", "file", s.TLSCert, "certificate",
			of, "node", names)
		return nil
	}
	return files
}

// alternatives are the names and addresses that a certificate is for.
func alternatives(c *x509.Certificate) (of []string) {
	of = slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		of = append(of, ip.String())
	}
	return of
}

// isForAny reports whether a certificate is good for one of some names.
func isForAny(c *x509.Certificate, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return name == "*" || c.VerifyHostname(name) == nil
	})
}

// names are the names and addresses by which clients may dial this node's doors; none if they
// are all unix sockets.
func (o *openDoors) names(s *settings) (names []string) {
	for _, flag := range []string{"--grpc", "--http", "--redis", "--admin"} {
		d := o.of(flag)
		if d == nil || d.network != "tcp" {
			continue
		}
		if d.loopback() {
			names = append(names, "localhost")
		}
		if host, _, err := net.SplitHostPort(d.address); err == nil && !d.everywhere() {
			names = append(names, host)
		}
	}
	if len(names) == 0 &&
		!slices.ContainsFunc(o.list,
			func(d *openDoor) bool { return d.everywhere() && d.flag != "--peer" }) {
		return nil
	}
	host, _ := os.Hostname() // without one, the others remain
	names = append(names, s.Name, host, s.Advertise, o.host)
	names = append(names, s.HTTPHost...)
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	slices.Sort(names)
	return slices.Compact(names)
}
