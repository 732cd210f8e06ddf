package client

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
)

// Reservation is an amount that is reserved until it is settled, or until its deadline. It is
// settled once.
type Reservation struct {
	Decision // Allowed says whether anything is reserved

	at Settler // nil: there is nothing to settle
}

// Settler settles and extends one reservation. An implementation of Limiter gives its own to
// NewReservation. An error UNAVAILABLE says that no keeper of the hold was reached: then the
// Reservation calls again.
type Settler interface {
	Settle(ctx context.Context, actual int64) error
	Extend(ctx context.Context, ttl time.Duration) error
}

// NewReservation is for implementations of Limiter. at is nil if nothing is reserved.
func NewReservation(d Decision, at Settler) *Reservation { return &Reservation{d, at} }

// remoteHold is a hold by its id.
type remoteHold struct {
	client     *Client
	id, holder string
}

func (h remoteHold) Settle(ctx context.Context, actual int64) error {
	_, err := h.client.limits.Settle(ctx, &penstockv1.SettleRequest{
		Id: h.id, Actual: actual,
		Holder: h.holder,
	})
	return err
}

func (h remoteHold) Extend(ctx context.Context, ttl time.Duration) error {
	_, err := h.client.limits.Extend(ctx,
		&penstockv1.ExtendRequest{Id: h.id, TtlMs: ttl.Milliseconds(), Holder: h.holder})
	return err
}

// saidAgain is the pause after no keeper of a hold could be reached: its heir may be about to take
// over.
const saidAgain = 50 * time.Millisecond

// untilHeard calls until a node that keeps the hold has answered. Messages about a hold may be
// repeated.
func untilHeard(ctx context.Context, call func(context.Context) error) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	for {
		err := call(ctx)
		if status.Code(err) != codes.Unavailable || sleep(ctx, saidAgain) != nil {
			return err
		}
	}
}

// HoldOptions are further options of a reservation.
type HoldOptions struct {
	// name of the holder, at most 128 bytes: shown in lists, and its number of holds is bounded
	Holder string
}

// Reserve reserves estimate units of key, for a price that is known later. ttl is at least 100 ms
// and at most a day. The units count as spent until the reservation is settled; if that does not
// happen within ttl, they are charged, or released, as the limit says. A denial is an answer:
// Allowed is false, and there is nothing to settle. An estimate above the limit is
// INVALID_ARGUMENT.
func (c *Client) Reserve(ctx context.Context, limit, key string, estimate int64,
	ttl time.Duration,
) (*Reservation, error) {
	all, err := c.ReserveAll(ctx, []Request{{Limit: limit, Key: key, Cost: estimate}}, ttl,
		HoldOptions{})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// ReserveAll reserves the costs of all requests, or nothing. If one limit refuses, its reservation
// is not Allowed, and there is nothing to settle.
func (c *Client) ReserveAll(ctx context.Context, requests []Request, ttl time.Duration,
	o HoldOptions,
) ([]*Reservation, error) {
	in := &penstockv1.ReserveRequest{
		Items: make([]*penstockv1.Item, len(requests)),
		TtlMs: ttl.Milliseconds(), Holder: o.Holder,
	}
	for i := range requests {
		in.Items[i] = requests[i].item()
	}
	out, err := c.limits.Reserve(ctx, in)
	if err != nil {
		return nil, err
	}
	if len(out.Holds) != len(requests) {
		return nil, status.Errorf(codes.Internal, "client: the node answered %d of %d reservations",
			len(out.Holds), len(requests))
	}
	all := make([]*Reservation, len(requests))
	for i, h := range out.Holds {
		all[i] = &Reservation{Decision: decision(h.Decision)}
		if h.Id != "" {
			all[i].at = remoteHold{c, h.Id, o.Holder}
		}
	}
	return all, nil
}

// Settle charges the amount really used, 0 or more, also more than was reserved, and releases the
// rest. It may be repeated with the same amount until it succeeds. While no keeper of the hold can
// be reached, it tries again until ctx ends. FAILED_PRECONDITION: the deadline came first.
func (r *Reservation) Settle(ctx context.Context, actual int64) error {
	if r.at == nil {
		return nil
	}
	return untilHeard(ctx, func(ctx context.Context) error { return r.at.Settle(ctx, actual) })
}

// Cancel releases all of it: nothing was used.
func (r *Reservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Extend postpones the deadline, to ttl from now. A later deadline stays. It tries again as Settle
// does.
func (r *Reservation) Extend(ctx context.Context, ttl time.Duration) error {
	if r.at == nil {
		return nil
	}
	return untilHeard(ctx, func(ctx context.Context) error { return r.at.Extend(ctx, ttl) })
}

// item is r as the generated stubs send it.
func (r *Request) item() *penstockv1.Item {
	it := &penstockv1.Item{
		Limit: r.Limit, Key: []byte(r.Key), Cost: &r.Cost, Report: r.Report,
		Drain: r.Drain, Strict: r.Strict, Plan: r.Plan,
	}
	if !r.At.IsZero() {
		at := r.At.UnixMilli()
		it.AtMs = &at
	}
	if ms, said := r.maxDelayMs(); said {
		it.MaxDelayMs = &ms
	}
	return it
}

// Permit is one or more places under a limit with algorithm concurrency. A permit is extended
// regularly until it is released; if its process dies, it expires and the places are free again.
type Permit struct {
	Reservation
	lost chan struct{} // closed when the places are no longer this permit's
	stop context.CancelFunc
	over sync.WaitGroup
}

// Acquire takes n places of key under a limit with algorithm concurrency. A denial is an answer:
// Allowed is false, and there is nothing to release. The permit is extended every third of ttl, and
// expires ttl after the last extension.
func (c *Client) Acquire(ctx context.Context, limit, key string, n int64, ttl time.Duration,
	o HoldOptions,
) (*Permit, error) {
	asked := time.Now()
	all, err := c.ReserveAll(ctx, []Request{{Limit: limit, Key: key, Cost: n}}, ttl, o)
	if err != nil {
		return nil, err
	}
	return keep(all[0], asked, ttl), nil
}

// Acquire takes n places of key, as Client.Acquire does.
func Acquire(ctx context.Context, l Limiter, limit, key string, n int64,
	ttl time.Duration,
) (*Permit, error) {
	asked := time.Now()
	r, err := l.Reserve(ctx, limit, key, n, ttl)
	if err != nil {
		return nil, err
	}
	return keep(r, asked, ttl), nil
}

// keep makes a permit of a reservation, which was asked for at asked, and starts extending it.
func keep(r *Reservation, asked time.Time, ttl time.Duration) *Permit {
	p := &Permit{Reservation: *r, lost: make(chan struct{})}
	alive, stop := context.WithCancel(context.Background())
	p.stop = stop
	if p.at != nil {
		p.over.Go(func() { p.live(alive, asked.Add(ttl), ttl) })
	}
	return p
}

// live extends the permit, which lasts until deadline, until it is released or lost. Of each
// extension too the time counts from when it was asked for: its node counts from later on.
func (p *Permit) live(ctx context.Context, deadline time.Time, ttl time.Duration) {
	for sleep(ctx, min(ttl/3, time.Until(deadline))) == nil {
		asked := time.Now()
		in, cancel := context.WithDeadline(ctx, deadline)
		err := p.Extend(in, ttl)
		cancel()
		switch status.Code(err) {
		case codes.OK:
			deadline = asked.Add(ttl)
		case codes.NotFound, codes.FailedPrecondition:
			deadline = asked
		}
		if !time.Now().Before(deadline) {
			close(p.lost)
			return
		}
	}
}

// Lost is closed when another client may have the places: no extension has reached the cluster for
// ttl.
func (p *Permit) Lost() <-chan struct{} { return p.lost }

// Release returns the places.
func (p *Permit) Release(ctx context.Context) error {
	p.stop()
	p.over.Wait()
	return p.Cancel(ctx)
}
