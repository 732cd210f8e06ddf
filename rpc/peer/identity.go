package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"penstock/cluster"
)

// A certificate of the peers' authority says which node it is for, in its subject alternative
// names:
//
//	penstock://node/n1       the node n1 (escaped as in a path); without any such name, the DNS
//	                         name n1 says the same
//	penstock://role/member   it may own keys; penstock://role/agent: it may not
//
// A member's certificate is good for an agent too. One that is an agent's alone may name all nodes
// with a prefix: penstock://node/shop-*. One without a role is for a member or an agent, but only
// under the names that it has in full: it can take nobody's place. One that names no node is
// nobody's.
const (
	nodeURI = "node"
	roleURI = "role"
	scheme  = "penstock"
)

// identity is the node of a certificate.
type identity struct {
	nodes  []string
	member bool // by a role
	agent  bool // by a role
}

func identityOf(cert *x509.Certificate) (id identity) {
	for _, u := range cert.URIs {
		name := strings.TrimPrefix(u.Path, "/")
		switch {
		case u.Scheme != scheme:
		case u.Host == nodeURI:
			id.nodes = append(id.nodes, name)
		case u.Host == roleURI && name == cluster.RoleMember.String():
			id.member = true
		case u.Host == roleURI && name == cluster.RoleAgent.String():
			id.agent = true
		}
	}
	if len(id.nodes) == 0 {
		id.nodes = cert.DNSNames // of an authority that knows nothing of this
	}
	return id
}

// names reports whether the certificate is the node's.
func (id *identity) names(node string) bool {
	return slices.ContainsFunc(id.nodes, func(name string) bool {
		prefix, any := strings.CutSuffix(name, "*")
		if any && id.agent && !id.member && prefix != "" {
			return strings.HasPrefix(node, prefix)
		}
		return name == node
	})
}

// is reports whether the certificate is for the role.
func (id *identity) is(role cluster.Role) bool {
	// a member may do all that an agent may
	return role == cluster.RoleAgent || id.member || !id.agent
}

// String names what the certificate is for, for people.
func (id *identity) String() string {
	nodes := "no node"
	if len(id.nodes) > 0 {
		nodes = fmt.Sprintf("%q", id.nodes)
	}
	switch {
	case id.member && id.agent:
		return nodes + " (member, agent)"
	case id.member:
		return nodes + " (member)"
	case id.agent:
		return nodes + " (agent)"
	}
	return nodes + " (no role)"
}

// errIdentity is wrapped by errors about certificates that are another node's.
var errIdentity = errors.New("the certificate is not this node's")

// check is an error if the certificate is not that of a node in a role.
func (id *identity) check(node string, role cluster.Role) error {
	if id.names(node) && id.is(role) {
		return nil
	}
	return fmt.Errorf("%w: it is for %v, and shown by the %s %q; make one with: penstock certs "+
		"add %s --role %s",
		errIdentity, id, role, node, node, role)
}

// CheckNode is a TLSFiles.Check that refuses the certificate of another node, or of another role.
func CheckNode(node string, role cluster.Role) func(*x509.Certificate) error {
	return func(cert *x509.Certificate) error {
		id := identityOf(cert)
		return id.check(node, role)
	}
}

// NodeURI and RoleURI are what a certificate says of a node.
func NodeURI(node string) *url.URL {
	return &url.URL{Scheme: scheme, Host: nodeURI, Path: "/" + node}
}

// RoleURI is NodeURI's companion.
func RoleURI(role cluster.Role) *url.URL {
	return &url.URL{Scheme: scheme, Host: roleURI, Path: "/" + role.String()}
}

// shown is the identity that the other end of a stream has shown; nil if there is no certificate.
func shown(ctx context.Context) *identity {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	return identityIn(p.AuthInfo)
}

// identityIn is the same for the outcome of a handshake of gRPC.
func identityIn(info credentials.AuthInfo) *identity {
	t, ok := info.(credentials.TLSInfo)
	if !ok {
		return nil
	}
	return identityOfState(&t.State)
}

// identityOfState is the same for the state of TLS.
func identityOfState(state *tls.ConnectionState) *identity {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	id := identityOf(state.PeerCertificates[0])
	return &id
}
