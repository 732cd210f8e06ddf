package native

import (
	"context"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
	"penstock/rpc/hold"
	"penstock/rpc/notation"
)

// Reserve opens holds.
func (s *rateLimiter) Reserve(ctx context.Context,
	in *penstockv1.ReserveRequest,
) (*penstockv1.ReserveResponse, error) {
	c := checkCalls.Get().(*checkCall)
	defer c.free()
	c.from = door.Caller{Context: ctx}
	if err := c.decode(in.Items, cluster.OpTake, s.inlines); err != nil {
		s.node.Stats().Refused.Add(1)
		return nil, door.StatusError(err)
	}
	c.until(s.deadline(ctx))
	if in.Lease {
		return s.lend(c, in)
	}
	ids, allowed, err := hold.Reserve(s.decider(c), c.from.Ticket(), &c.request, c.out,
		s.terms(c, in))
	if err != nil {
		return nil, door.StatusError(err)
	}
	out := &penstockv1.ReserveResponse{Allowed: allowed, Holds: make([]*penstockv1.Hold, len(ids))}
	for i, d := range notation.Decisions(c.out) {
		out.Holds[i] = &penstockv1.Hold{Id: ids[i], Decision: d}
	}
	return out, nil
}

// terms are those of the holds that a client asks for.
func (s *rateLimiter) terms(c *checkCall, in *penstockv1.ReserveRequest) *cluster.HoldTerms {
	return &cluster.HoldTerms{
		TTL: door.FromMillis(in.TtlMs), Holder: in.Holder, Client: c.from.Mark(s.node.ID()),
	}
}

// lend makes leases of the items, each by itself. A client that cannot be lent anything, for
// whatever reason, asks for each request.
func (s *rateLimiter) lend(c *checkCall,
	in *penstockv1.ReserveRequest,
) (*penstockv1.ReserveResponse, error) {
	terms := s.terms(c, in)
	for i := range c.request.Items {
		it := &c.request.Items[i]
		it.Op, it.Hold = cluster.OpLease, terms
		if it.ID == (cluster.ID{}) {
			it.ID = hold.RandomID()
		}
	}
	if err := s.charge(c); err != nil {
		return nil, door.StatusError(err)
	}
	out := &penstockv1.ReserveResponse{Allowed: true, Holds: make([]*penstockv1.Hold, len(c.out))}
	for i := range c.out {
		given, d := new(penstockv1.Hold), &c.out[i]
		switch {
		case d.Hold == limiter.HoldOpen && d.Drained > 0:
			given.Id, given.Units = hold.Token(&c.request.Items[i], d.ID), d.Drained
		case d.Degraded: // it may have been set aside all the same: the client settles it
			given.Id = hold.Token(&c.request.Items[i], d.ID)
		}
		d.Drained = 0
		out.Allowed = out.Allowed && given.Units > 0
		out.Holds[i] = given
	}
	for i, d := range notation.Decisions(c.out) {
		out.Holds[i].Decision = d
	}
	return out, nil
}

// Settle says what was used.
func (s *rateLimiter) Settle(ctx context.Context,
	in *penstockv1.SettleRequest,
) (*penstockv1.SettleResponse, error) {
	d, err := hold.SettleOrExtend(s.node, door.RecorderOf(ctx, s.audit), s.inlines, in.Id,
		cluster.OpSettle,
		in.Actual, 0, in.Holder, s.deadline(ctx))
	if err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.SettleResponse{Decision: notation.Decisions([]cluster.Decision{d})[0]}, nil
}

// Extend is a sign of life.
func (s *rateLimiter) Extend(ctx context.Context,
	in *penstockv1.ExtendRequest,
) (*penstockv1.ExtendResponse, error) {
	d, err := hold.SettleOrExtend(s.node, door.RecorderOf(ctx, s.audit), s.inlines, in.Id,
		cluster.OpExtend, 0,
		in.TtlMs, in.Holder, s.deadline(ctx))
	if err != nil {
		return nil, door.StatusError(err)
	}
	return &penstockv1.ExtendResponse{Decision: notation.Decisions([]cluster.Decision{d})[0]}, nil
}
