package client

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
)

// grantor is a node that grants leases, and keeps no hold for long.
type grantor struct {
	penstockv1.RateLimiterClient
	grant   chan struct{} // lets an answer go
	settled chan int64    // the used units
	keeps   atomic.Bool   // it keeps holds after all
}

func (g *grantor) Reserve(context.Context, *penstockv1.ReserveRequest,
	...grpc.CallOption,
) (*penstockv1.ReserveResponse, error) {
	<-g.grant
	return &penstockv1.ReserveResponse{Holds: []*penstockv1.Hold{
		{Id: "h", Units: 100, Decision: &penstockv1.Decision{Allowed: true, Limit: 1000}},
	}}, nil
}

func (g *grantor) Settle(_ context.Context, in *penstockv1.SettleRequest,
	_ ...grpc.CallOption,
) (*penstockv1.SettleResponse, error) {
	g.settled <- in.Actual
	if g.keeps.Load() {
		return &penstockv1.SettleResponse{}, nil
	}
	return nil, status.Error(codes.NotFound, "charged in full, and forgotten")
}

// Promise: units leased here are not used after they have expired in the cluster, also if this
// clock stood still because the machine was suspended: neither those of a lease in use, nor those
// of one that was granted before. Nothing of them is charged again.
func TestLeasesEndWhileTheMachineIsSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &grantor{grant: make(chan struct{}, 9), settled: make(chan int64, 9)}
		c := &Client{limits: g, origin: 1, fallback: fallback{clock: clock.New()}}
		c.leases, c.takes = newLeases(c), newTakes(nil, nil)
		c.takes.close() // which refuses to charge what was used
		suspended := false
		c.leases.suspended = func() bool {
			was := suspended
			suspended = false
			return was
		}
		take := func() bool {
			time.Sleep(leaseLook) // so the clock is looked at
			var d Decision
			return c.leases.decide(&Request{Limit: "lent", Key: "k", Cost: 1}, &d)
		}
		lent := func() {
			for range 99 {
				if take() {
					return
				}
			}
			t.Error("no lease is used")
		}
		g.grant <- struct{}{}
		lent()
		suspended = true
		if take() {
			t.Error("a lease of before is used")
		}
		if used := <-g.settled; used != 1 {
			t.Errorf("settled with %d, want 1", used)
		}
		for !c.leases.limits["lent"].keys["k"].asking { // the next lease is asked for
			take()
		}
		suspended = true // … and granted before it
		g.grant <- struct{}{}
		synctest.Wait()
		if take() {
			t.Error("a lease that was granted before is used")
		}
		if used := <-g.settled; used != 0 {
			t.Errorf("a lease that was granted before is settled with %d", used)
		}
		g.grant <- struct{}{}
		lent()
		g.keeps.Store(true)
		for range 5 {
			g.grant <- struct{}{}
		}
		c.leases.close()
	})
}
