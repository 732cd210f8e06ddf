package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// Set is what a file says. It is never changed.
type Set struct {
	tokens       map[uint64]*entry // by the first bytes of the hash
	certificates map[string]*Client
	text         [sha256.Size]byte // hash of the file
	plain        bool              // it has a token in clear
}

type entry struct {
	hash   [sha256.Size]byte // of the token
	client *Client
}

// Alone is a set of one token that may do everything.
func Alone(token string) *Set {
	s := &Set{tokens: map[uint64]*entry{}, text: sha256.Sum256([]byte(token)), plain: true}
	s.tokens[short(s.text)] = &entry{s.text, &Client{Name: "token", all: true}}
	return s
}

func short(hash [sha256.Size]byte) uint64 { return binary.LittleEndian.Uint64(hash[:]) }

// Len is the number of tokens and certificates.
func (s *Set) Len() int { return len(s.tokens) + len(s.certificates) }

// Plain reports whether the file has a token in it, and not only hashes.
func (s *Set) Plain() bool { return s.plain }

// Certificates reports whether the set has clients with certificates.
func (s *Set) Certificates() bool { return len(s.certificates) > 0 }

// Lines describe each client with its rights for people, without a secret, in order of their names.
func (s *Set) Lines() (lines []string) {
	for _, e := range s.tokens {
		lines = append(lines, fmt.Sprintf("%s (token %x): %s", e.client.Name, e.hash[:4], e.client))
	}
	for name, c := range s.certificates {
		lines = append(lines, fmt.Sprintf("%s (certificate %s): %s", c.Name, name, c))
	}
	slices.Sort(lines)
	return lines
}

// Limits are the names of limits that clients may check, without those that end with *; each with
// the name of one of these clients.
func (s *Set) Limits() map[string]string {
	names := map[string]string{}
	add := func(c *Client) {
		for _, name := range c.limits {
			if !strings.HasSuffix(name, "*") {
				names[name] = c.Name
			}
		}
	}
	for _, e := range s.tokens {
		add(e.client)
	}
	for _, c := range s.certificates {
		add(c)
	}
	return names
}

// Tokens reports whether the set has clients with tokens.
func (s *Set) Tokens() bool { return len(s.tokens) > 0 }

// Equal reports whether both were read from the same text.
func (s *Set) Equal(other *Set) bool { return s.text == other.text }

// find returns the client of a token, by its hash. The first bytes of a hash find the entry, and
// the time that this takes says nothing about a token: nobody can choose a token by its hash.
func (s *Set) find(hash [sha256.Size]byte) *Client {
	e := s.tokens[short(hash)]
	if e == nil || subtle.ConstantTimeCompare(e.hash[:], hash[:]) != 1 {
		return nil
	}
	return e.client
}

// named returns the client of a certificate with one of these names.
func (s *Set) named(names []string) *Client {
	for _, name := range names {
		if c := s.certificates[name]; c != nil {
			return c
		}
	}
	return nil
}

// Clients are the clients of a node, by the set in force. A nil *Clients lets everybody in.
type Clients struct{ set atomic.Pointer[Set] }

// New makes clients of a set.
func New(s *Set) *Clients {
	c := new(Clients)
	c.set.Store(s)
	return c
}

// Replace puts another set in force, also for connections that are open.
func (c *Clients) Replace(s *Set) { c.set.Store(s) }

// Identify finds the client of a request with that Authorization header over a connection with that
// state, which may be nil. A token goes before a certificate. It returns nil if it finds nobody.
func (c *Clients) Identify(authorization string, state *tls.ConnectionState) *Ticket {
	if scheme, token, _ := strings.Cut(authorization, " "); strings.EqualFold(scheme, "Bearer") {
		if t := c.Token([]byte(strings.TrimSpace(token))); t != nil {
			return t
		}
	}
	return c.Certificate(state)
}

// Token finds the client of a token; nil if there is none.
func (c *Clients) Token(token []byte) *Ticket {
	t := &Ticket{clients: c, hash: sha256.Sum256(token)}
	if t.lookUp() == nil {
		return nil
	}
	return t
}

// Certificate finds the client of the verified certificate of a connection; nil if there is none.
func (c *Clients) Certificate(state *tls.ConnectionState) *Ticket {
	if state == nil || len(state.VerifiedChains) == 0 || !c.set.Load().Certificates() {
		return nil
	}
	t := &Ticket{clients: c, names: namesOf(state.PeerCertificates[0])}
	if t.lookUp() == nil {
		return nil
	}
	return t
}

// namesOf are the alternative names of a certificate.
func namesOf(cert *x509.Certificate) []string {
	names := append([]string{}, cert.DNSNames...)
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	return append(names, cert.EmailAddresses...)
}

// Ticket is an identity that a door has verified. A nil *Ticket is that of anybody, at a node
// that demands nothing.
type Ticket struct {
	clients *Clients
	hash    [sha256.Size]byte // of the token
	names   []string          // of the certificate; nil: it is a token
	last    atomic.Pointer[found]
}

// found is a client in a set.
type found struct {
	set    *Set
	client *Client
}

// lookUp finds the client in the set in force; nil if it is not there any more.
func (t *Ticket) lookUp() *Client {
	set := t.clients.set.Load()
	if f := t.last.Load(); f != nil && f.set == set {
		return f.client
	}
	c := (*Client)(nil)
	if t.names == nil {
		c = set.find(t.hash)
	} else {
		c = set.named(t.names)
	}
	t.last.Store(&found{set, c})
	return c
}

// ErrUnknown says that a request does not name its client, or not any more.
var ErrUnknown = errors.New(`authorization: send a token of this node's clients as "Bearer TOKEN"`)

// Client is the client with the rights of now.
func (t *Ticket) Client() (*Client, error) {
	if t == nil {
		return everybody, nil
	}
	if c := t.lookUp(); c != nil {
		return c, nil
	}
	return nil, ErrUnknown
}

// May is Client.May of the ticket's client.
func (t *Ticket) May(right Right) error {
	c, err := t.Client()
	if err != nil {
		return err
	}
	return c.May(right)
}

// Shown is the client's name and its credential as people see them, without a secret.
func (t *Ticket) Shown() string {
	if t == nil {
		return everybody.Name
	}
	name := "unknown"
	if c := t.lookUp(); c != nil {
		name = c.Name
	}
	if t.names != nil {
		return name + " (certificate)"
	}
	return fmt.Sprintf("%s (token %x)", name, t.hash[:4])
}

type contextKey struct{}

// With is ctx with a ticket.
func With(ctx context.Context, t *Ticket) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// Of is the ticket of ctx, or nil.
func Of(ctx context.Context) *Ticket {
	t, _ := ctx.Value(contextKey{}).(*Ticket)
	return t
}
