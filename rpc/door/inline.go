package door

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/access"
)

// Inlines turns the limits that clients send along into *limiter.Limit, the same one for the same
// Spec. The doors of a node share one, so that a client has its bound once and not at each of them.
// Its zero value is ready to use.
type Inlines struct {
	Deny  bool          // such limits are refused; set before the first use
	Node  *cluster.Node // counts refusals; nil: nobody does
	cache LimitCache
	uses  inlineUses
}

// Get returns the limit of spec, with or without a name, for a request that charges nothing. An
// error is a *limiter.SpecError, or errInlineDenied; see InlineError.
func (c *Inlines) Get(spec limiter.Spec, from Caller) (*limiter.Limit, error) {
	if err := c.permit(from, access.Read); err != nil {
		return nil, err
	}
	l, err := c.named(spec)
	return l.OrNil(), err
}

// Bring is get for a request that may charge: the limit counts among those of its client.
func (c *Inlines) Bring(spec limiter.Spec, from Caller) (*limiter.Limit, error) {
	l, _, err := c.BringUntil(spec, from, time.Now())
	return l, err
}

// BringUntil is Bring at now for a client that has the limit at hand: it must bring it again from
// until on.
func (c *Inlines) BringUntil(
	spec limiter.Spec, from Caller, now time.Time,
) (_ *limiter.Limit, until time.Time, err error) {
	if err := c.permit(from, 0); err != nil {
		return nil, until, err
	}
	l, err := c.named(spec)
	if err != nil {
		return nil, until, err
	}
	if counted := l.counted.Load(); now.UnixNano() < counted {
		return l.limit, time.Unix(0, counted), nil
	}
	if err := c.uses.add(from.Name(), l.limit, now); err != nil {
		if c.Node != nil {
			c.Node.Stats().InlineRefused.Add(1)
		}
		return nil, until, err
	}
	// By half of that time it is shown again: else it would count for nobody while it is in use.
	until = now.Add(lifetime(l.limit) / 2)
	l.counted.Store(until.UnixNano())
	return l.limit, until, nil
}

// permit is nil if the client may bring limits along. The right instead allows it as well.
func (c *Inlines) permit(from Caller, instead access.Right) error {
	if c.Deny {
		return errInlineDenied
	}
	t := from.Ticket()
	if t == nil {
		return nil
	}
	client, err := t.Client()
	if err != nil || instead != 0 && client.May(instead) == nil {
		return err
	}
	return client.MayBring()
}

// BringCall is the limit of spec, which a request of a further Door has brought along; ctx is that
// of the request, with its grpc/peer. An error is for StatusError and WriteError.
func (c *Inlines) BringCall(ctx context.Context, spec limiter.Spec) (*limiter.Limit, error) {
	l, err := c.Bring(spec, Caller{Context: ctx})
	var wrong *limiter.SpecError
	if errors.As(err, &wrong) {
		return nil, &cluster.InputError{Field: "inline." + wrong.Field, Reason: wrong.Reason}
	}
	return l, err
}

// named is the limit of spec, unless its name is one that no request may use.
func (c *Inlines) named(spec limiter.Spec) (*cachedLimit, error) {
	if why := limiter.TakenInline(spec.Name); why != "" {
		return nil, &limiter.SpecError{Field: "name", Reason: why}
	}
	return c.Known(spec)
}

// Known is the limit of spec, whether such limits are refused or not: what was reserved under one
// can always be settled.
func (c *Inlines) Known(spec limiter.Spec) (*cachedLimit, error) {
	if spec.Name == "" {
		spec.Name, spec.Nameless = limiter.InlineName, true
	}
	spec.Inline = true
	return c.cache.entry(spec)
}

// refuseInline refuses an inline limit that is right by itself.
func refuseInline(code codes.Code, status int, text string) *Fault {
	return &Fault{Code: code, Status: status, Field: "inline", Text: "inline: " + text}
}

var errInlineDenied = refuseInline(codes.PermissionDenied, http.StatusForbidden,
	"this node takes no limits that requests bring along (--inline deny); "+
		"name one of the limits that it has")

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

// add counts l among the limits of a client. The error is a *fault.
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
		return refuseInline(codes.ResourceExhausted, http.StatusTooManyRequests, fmt.Sprintf(
			"this client has brought %d different limits whose counters still count, "+
				"which is the most; use fewer, or limits that the cluster has", maxInlinePerClient))
	case len(u.limits) >= limiter.MaxInline:
		return refuseInline(codes.ResourceExhausted, http.StatusTooManyRequests, fmt.Sprintf(
			"clients have brought %d different limits whose counters still count, "+
				"which is the most; try again later, or use limits that the cluster has",
			limiter.MaxInline))
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

// Restarted reports whether a door says so. Limits without a name of their own share one and
// nothing else: none of them takes another's place.
func Restarted(d *cluster.Decision) bool { return d.Restarted && d.Rule.Name != limiter.InlineName }

// OrNew is given, or new ones of a door alone.
func OrNew(given *Inlines, n *cluster.Node) *Inlines {
	if given == nil {
		return &Inlines{Node: n}
	}
	return given
}
