package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/access"
)

// inlineName is the name of an inline limit that has none.
const inlineName = "inline"

// Inlines turns the limits that clients send along into *limiter.Limit, the same one for the same
// Spec. The doors of a node share one, so that a client has its bound once and not at each of them.
// Its zero value is ready to use.
type Inlines struct {
	Deny  bool          // such limits are refused; set before the first use
	Node  *cluster.Node // counts refusals; nil: nobody does
	cache limitCache
	uses  inlineUses
}

// get returns the limit of spec, whose name may be empty, for a request that charges nothing. An
// error is a *limiter.SpecError, or errInlineDenied; see inlineError.
func (c *Inlines) get(spec limiter.Spec, from caller) (*limiter.Limit, error) {
	if err := c.permit(from, access.Read); err != nil {
		return nil, err
	}
	l, err := c.known(spec)
	if err != nil {
		return nil, err
	}
	return l.limit, nil
}

// bring is get for a request that may charge: the limit counts among those of its client.
func (c *Inlines) bring(spec limiter.Spec, from caller) (*limiter.Limit, error) {
	if err := c.permit(from, 0); err != nil {
		return nil, err
	}
	l, err := c.known(spec)
	if err != nil || l.brought.Load() {
		return l.orNil(), err
	}
	if err := c.uses.add(from.name(), l.limit, time.Now()); err != nil {
		if c.Node != nil {
			c.Node.Stats().InlineRefused.Add(1)
		}
		return nil, err
	}
	l.brought.Store(true)
	return l.limit, nil
}

// permit is nil if the client may bring limits along. The right instead allows it as well.
func (c *Inlines) permit(from caller, instead access.Right) error {
	if c.Deny {
		return errInlineDenied
	}
	t := from.ticket()
	if t == nil {
		return nil
	}
	client, err := t.Client()
	if err != nil || instead != 0 && client.May(instead) == nil {
		return err
	}
	return client.MayBring()
}

// Bring is the limit of spec, which a request of a further Door has brought along; ctx is that of
// the request, with its grpc/peer. An error is for StatusError and WriteError.
func (c *Inlines) Bring(ctx context.Context, spec limiter.Spec) (*limiter.Limit, error) {
	l, err := c.bring(spec, caller{ctx: ctx})
	var wrong *limiter.SpecError
	if errors.As(err, &wrong) {
		return nil, &cluster.InputError{Field: "inline." + wrong.Field, Reason: wrong.Reason}
	}
	return l, err
}

// known is the limit of spec, whether such limits are refused or not: what was reserved under one
// can always be settled.
func (c *Inlines) known(spec limiter.Spec) (*cachedLimit, error) {
	if spec.Name == "" {
		spec.Name, spec.Nameless = inlineName, true
	}
	spec.Inline = true
	return c.cache.entry(spec)
}

// inlineFault refuses an inline limit that is right by itself.
type inlineFault struct {
	code   codes.Code
	status int
	text   string
}

func (f *inlineFault) Error() string { return f.text }

var errInlineDenied = &inlineFault{
	codes.PermissionDenied, http.StatusForbidden,
	"inline: this node takes no limits that requests bring along (--inline deny); name one of the limits that it has",
}

// maxInlinePerClient is how many inline limits of one client may have counters at a time, as far as
// one node knows.
const maxInlinePerClient = 2048

// inlineUses knows which clients have brought which limits, until the counters of these have run
// out. The first client that brings a limit has it on its account.
type inlineUses struct {
	mu      sync.Mutex // guards below
	limits  map[uint64]inlineUse
	clients map[string]int // how many of limits each has
	pruned  time.Time      // when limits was last searched for what has run out
}

type inlineUse struct {
	client string
	until  time.Time
}

// pruneEvery is how often it is searched for what has run out: a client at its bound must not cause
// a search with each request.
const pruneEvery = time.Second

// add counts l among the limits of a client. The error is an *inlineFault.
func (u *inlineUses) add(client string, l *limiter.Limit, now time.Time) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if use, again := u.limits[l.Identity()]; again {
		use.until = now.Add(lifetime(l))
		u.limits[l.Identity()] = use
		return nil
	}
	if u.clients == nil {
		u.limits, u.clients = make(map[uint64]inlineUse), make(map[string]int)
	}
	fault := u.fullLocked(client)
	if fault != nil && now.Sub(u.pruned) >= pruneEvery {
		u.pruneLocked(now)
		fault = u.fullLocked(client)
	}
	if fault != nil {
		return fault
	}
	u.limits[l.Identity()] = inlineUse{client, now.Add(lifetime(l))}
	u.clients[client]++
	return nil
}

func (u *inlineUses) fullLocked(client string) error {
	switch {
	case u.clients[client] >= maxInlinePerClient:
		return &inlineFault{codes.ResourceExhausted, http.StatusTooManyRequests, fmt.Sprintf(
			"inline: this client has brought %d different limits whose counters still count, which is the most; use fewer, or limits that the cluster has", maxInlinePerClient)}
	case len(u.limits) >= limiter.MaxInline:
		return &inlineFault{codes.ResourceExhausted, http.StatusTooManyRequests, fmt.Sprintf(
			"inline: clients have brought %d different limits whose counters still count, which is the most; try again later, or use limits that the cluster has", limiter.MaxInline)}
	}
	return nil
}

func (u *inlineUses) pruneLocked(now time.Time) {
	u.pruned = now
	for id, use := range u.limits {
		if use.until.After(now) {
			continue
		}
		delete(u.limits, id)
		if u.clients[use.client]--; u.clients[use.client] == 0 {
			delete(u.clients, use.client)
		}
	}
}

// lifetime is how long a counter of l may count, at most.
func lifetime(l *limiter.Limit) time.Duration {
	share := 2.0 // a window, and the one after
	switch l.Algorithm {
	case limiter.GCRA, limiter.StatedBucket, limiter.LeakyBucket:
		share = max(share, float64(l.Capacity())/float64(l.Limit))
	case limiter.TokenBucket:
		share = max(share, float64(l.Limit)/float64(l.Refill)+1)
	}
	return time.Duration(min(share*float64(l.Per), float64(limiter.MaxFill)))
}

// caller is the client of a request, as far as its door knows it.
type caller struct {
	ctx  context.Context // of gRPC; else nil
	tls  *tls.ConnectionState
	addr string // host:port, an address or a network; else it is on this machine
	// client is the ticket of a request that does not come by gRPC; nil: there is none
	client *access.Ticket
}

// ticket is that of the request, or nil.
func (c caller) ticket() *access.Ticket {
	if c.client != nil || c.ctx == nil {
		return c.client
	}
	return access.Of(c.ctx)
}

// tlsState is the state of the TLS connection that a handshake of gRPC has made, or nil.
func tlsState(info credentials.AuthInfo) *tls.ConnectionState {
	if weighed, ok := info.(weighedInfo); ok {
		info = weighed.AuthInfo
	}
	if t, ok := info.(credentials.TLSInfo); ok {
		return &t.State
	}
	return nil
}

// name is what the client's limits are counted by: its name among the clients of the node, its
// certificate, or its address.
func (c caller) name() string {
	if t := c.ticket(); t != nil {
		if client, err := t.Client(); err == nil && client.Named() {
			return "client " + client.Name
		}
	}
	if c.ctx != nil {
		if p, ok := peer.FromContext(c.ctx); ok {
			if weighed, ok := p.AuthInfo.(weighedInfo); ok {
				return weighed.conn.origin(weighed.AuthInfo)
			}
			c.addr = p.Addr.String()
			c.tls = tlsState(p.AuthInfo)
		}
	}
	if c.tls != nil && len(c.tls.VerifiedChains) > 0 {
		return "certificate " + c.tls.PeerCertificates[0].Subject.String()
	}
	addr, err := netip.ParseAddrPort(c.addr)
	if err != nil {
		return c.addr
	}
	if ip := addr.Addr().Unmap().WithZone(""); ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked().String() // which is one customer's
	}
	return addr.Addr().Unmap().String()
}

// restarted reports whether a door says so. Limits without a name of their own share one and
// nothing else: none of them takes another's place.
func restarted(d *cluster.Decision) bool { return d.Restarted && d.Rule.Name != inlineName }

// limitCache keeps the limits that arrive by the wire, so that a limit is checked and worked out
// once and not once per message, and everybody who sends the same Spec counts with the same
// pointer. It is bounded, because whoever sends names can draw new ones for ever: when young is
// full it becomes old, and what is in neither is made again.
type limitCache struct {
	mu         sync.RWMutex // guards the maps
	young, old map[limiter.Spec]*cachedLimit
}

// cachedLimit is a limit with what its door remembers of it.
type cachedLimit struct {
	limit   *limiter.Limit
	brought atomic.Bool // it is in Inlines.uses, or was
}

func (l *cachedLimit) orNil() *limiter.Limit {
	if l == nil {
		return nil
	}
	return l.limit
}

// limitCacheSize bounds each half of a limitCache: at most some 5 MB in all.
const limitCacheSize = 4096

// get returns the limit of spec. Its texts may lie in borrowed memory: what is kept has a copy.
func (c *limitCache) get(spec limiter.Spec) (*limiter.Limit, error) {
	l, err := c.entry(spec)
	return l.orNil(), err
}

func (c *limitCache) entry(spec limiter.Spec) (*cachedLimit, error) {
	c.mu.RLock()
	l := c.young[spec]
	c.mu.RUnlock()
	if l != nil {
		return l, nil
	}
	spec.Name, spec.TimeZone, spec.Override = strings.Clone(spec.Name), strings.Clone(spec.TimeZone), strings.Clone(spec.Override)
	c.mu.Lock()
	defer c.mu.Unlock()
	if l = c.young[spec]; l != nil {
		return l, nil
	}
	if l = c.old[spec]; l == nil {
		made, err := limiter.New(spec)
		if err != nil {
			return nil, err
		}
		l = &cachedLimit{limit: made}
	}
	if c.young == nil || len(c.young) >= limitCacheSize {
		c.young, c.old = make(map[limiter.Spec]*cachedLimit), c.young
	}
	l.brought.Store(false) // its client shows again that it uses it
	c.young[spec] = l
	return l, nil
}
