package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/rpc/client"
)

// lateKeeper is a limiter of which answers take their time.
type lateKeeper struct {
	client.Fake
	reserved time.Duration // from the grant to its answer
	extended time.Duration // of an extension, which fails
}

func (k *lateKeeper) Reserve(context.Context, string, string, int64,
	time.Duration,
) (*client.Reservation, error) {
	time.Sleep(k.reserved)
	return client.NewReservation(client.Decision{Allowed: true}, k), nil
}

func (k *lateKeeper) Settle(context.Context, int64) error { return nil }

func (k *lateKeeper) Extend(ctx context.Context, _ time.Duration) error {
	select {
	case <-time.After(k.extended):
		return status.Error(codes.Internal, "this node cannot do that")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Promise: Lost is closed as soon as another client may have the places: ttl after the permit was
// asked for, if no extension has reached the cluster, however long answers take.
func TestPermitIsLostInTime(t *testing.T) {
	const ttl = 3 * time.Second
	for _, k := range []*lateKeeper{
		{reserved: 500 * time.Millisecond},
		{extended: 400 * time.Millisecond},
		{reserved: 700 * time.Millisecond, extended: 700 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := time.Now()
			p, err := client.Acquire(t.Context(), k, "permits", "a", 1, ttl)
			if err != nil {
				t.Fatal(err)
			}
			<-p.Lost()
			if held := time.Since(asked); held > ttl {
				t.Errorf("answers after %v, extensions fail after %v: lost after %v, want %v",
					k.reserved, k.extended, held, ttl)
			}
			if err := p.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// unreached is a reservation of which no keeper is reached at first.
type unreached struct{ calls int }

func (u *unreached) Settle(context.Context, int64) error {
	if u.calls++; u.calls < 4 {
		return status.Error(codes.Unavailable, "not reached")
	}
	return nil
}

func (u *unreached) Extend(ctx context.Context, _ time.Duration) error { return u.Settle(ctx, 0) }

// Promise: while no keeper of a hold can be reached, Settle and Extend try again until their
// context ends, whichever Limiter has made the reservation.
func TestReservationIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, call := range map[string]func(context.Context, *client.Reservation) error{
			"Settle": func(ctx context.Context, r *client.Reservation) error {
				return r.Settle(ctx, 5)
			},
			"Extend": func(ctx context.Context, r *client.Reservation) error {
				return r.Extend(ctx, time.Minute)
			},
		} {
			u := new(unreached)
			r := client.NewReservation(client.Decision{Allowed: true}, u)
			if err := call(t.Context(), r); err != nil || u.calls != 4 {
				t.Errorf("%s: %v after %d calls, want 4", name, err, u.calls)
			}
			u.calls = -1 << 40
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := call(ctx, r); status.Code(err) != codes.Unavailable {
				t.Errorf("%s is never heard: %v, want UNAVAILABLE", name, err)
			}
			cancel()
		}
	})
}
