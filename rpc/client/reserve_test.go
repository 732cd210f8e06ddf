package client_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

func TestReserve(t *testing.T) {
	_, address := serveNode(t, "n1")
	c, ctx := newClient(t, address), patience(t)
	r, err := c.Reserve(ctx, "big", "a", 4000, time.Minute)
	if err != nil || !r.Allowed || r.Remaining != 6000 {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := r.Extend(ctx, 2*time.Minute); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := r.Settle(ctx, 1000); err != nil {
			t.Error(err)
		}
	}
	if err := r.Cancel(ctx); status.Code(err) != codes.AlreadyExists {
		t.Errorf("settled with another amount: %v", err)
	}
	if d, err := c.Peek(ctx, "big", "a", 0); err != nil || d.Remaining != 9000 {
		t.Errorf("%+v, %v; want 9000 remaining", d, err)
	}
	all, err := c.ReserveAll(ctx, []client.Request{
		{Limit: "big", Key: "a", Cost: 9000},
		{Limit: "five", Key: "a", Cost: 1},
	}, time.Minute, client.HoldOptions{Holder: "me"})
	if err != nil || !all[0].Allowed || !all[1].Allowed {
		t.Fatalf("%+v, %v", all, err)
	}
	no, err := c.ReserveAll(ctx, []client.Request{
		{Limit: "big", Key: "a", Cost: 1},
		{Limit: "five", Key: "a", Cost: 1},
	}, time.Minute, client.HoldOptions{})
	if err != nil || no[0].Allowed || no[0].Settle(ctx, 1) != nil {
		t.Errorf("%+v, %v", no, err)
	}
	if err := all[0].Cancel(ctx); err != nil {
		t.Error(err)
	}
	for _, ttl := range []time.Duration{0, 400 * 24 * time.Hour} {
		if _, err := c.Reserve(ctx, "big", "a", 1, ttl); status.Code(err) != codes.InvalidArgument {
			t.Errorf("ttl %v: %v", ttl, err)
		}
	}
}

// keeper is a node that has a hold, and at first cannot reach its keeper.
type keeper struct {
	penstockv1.UnimplementedRateLimiterServer
	settled atomic.Int64
}

func (k *keeper) Reserve(context.Context,
	*penstockv1.ReserveRequest,
) (*penstockv1.ReserveResponse, error) {
	return &penstockv1.ReserveResponse{Holds: []*penstockv1.Hold{{
		Id:       "h",
		Decision: &penstockv1.Decision{Allowed: true},
	}}}, nil
}

func (k *keeper) Settle(_ context.Context,
	in *penstockv1.SettleRequest,
) (*penstockv1.SettleResponse, error) {
	if k.settled.Add(1) < 6 {
		return nil, status.Error(codes.Unavailable, "not reached")
	}
	return &penstockv1.SettleResponse{}, nil
}

// Promise: what was used is said again until somebody has heard it, or the caller does not wait any
// longer.
func TestSettleIsRepeated(t *testing.T) {
	l, server, k := listen(t), grpc.NewServer(), new(keeper)
	penstockv1.RegisterRateLimiterServer(server, k)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	c := newClient(t, l.Addr().String())
	r, err := c.Reserve(patience(t), "big", "a", 10, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Settle(patience(t), 5); err != nil {
		t.Error(err)
	}
	k.settled.Store(-1 << 40)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := r.Settle(ctx, 5); status.Code(err) != codes.Unavailable &&
		status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v, want Unavailable", err)
	}
}

// Promise: no more permits than the limit has; a released or expired permit makes room, an extended
// one keeps its place.
func TestAcquire(t *testing.T) {
	_, address := serveNode(t, "n1")
	c, ctx := newClient(t, address), patience(t)
	const ttl = 300 * time.Millisecond
	first, err := c.Acquire(ctx, "permits", "a", 1, ttl, client.HoldOptions{Holder: "me"})
	if err != nil || !first.Allowed {
		t.Fatalf("%+v, %v", first, err)
	}
	dead, err := c.Reserve(ctx, "permits", "a", 1, ttl) // nobody gives signs of life for it
	if err != nil || !dead.Allowed {
		t.Fatalf("%+v, %v", dead, err)
	}
	third, err := c.Acquire(ctx, "permits", "a", 1, ttl, client.HoldOptions{})
	if err != nil || third.Allowed {
		t.Fatalf("a third permit of two: %+v, %v", third, err)
	}
	if err := third.Release(ctx); err != nil {
		t.Error(err)
	}
	for { // until the dead one's is back
		d, err := c.Peek(ctx, "permits", "a", 0)
		if err != nil {
			t.Fatal(err)
		}
		if d.Remaining > 1 {
			t.Skip("this machine was too busy for a sign of life")
		}
		if d.Remaining == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	select {
	case <-first.Lost():
		t.Skip("this machine was too busy for a sign of life")
	default:
	}
	if err := first.Release(ctx); err != nil {
		t.Error(err)
	}
	if d, err := c.Peek(ctx, "permits", "a", 0); err != nil || d.Remaining != 2 {
		t.Errorf("%+v, %v; want both back", d, err)
	}
}
