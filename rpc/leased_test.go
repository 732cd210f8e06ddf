package rpc

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/rpctest"
)

// Promise: leased: what many clients of all nodes are admitted at once is the limit, to the unit.
func TestLeasedLimitIsUsedUp(t *testing.T) {
	for _, batch := range []int{1, 50} {
		spec := limiter.Spec{
			Name: "leased", Algorithm: limiter.FixedWindow,
			Anchor: limiter.FirstHit, Limit: 20_000, Per: time.Hour, Consistency: limiter.Leased,
		}
		s := newStations(t, 3, spec)
		key := rpctest.OwnKey(s[2].node, 0)
		var admitted, local atomic.Int64
		var all sync.WaitGroup
		for i := range 24 {
			all.Go(func() {
				items, out := make([]cluster.Item, batch), make([]cluster.Decision, batch)
				for round := range 3000 / batch {
					for k := range items {
						items[k] = cluster.Item{
							Limit: "leased", Key: key, Cost: 1,
							ID: cluster.ID{
								Origin:   uint64(i + 1),
								Sequence: uint64(round*batch + k),
							},
						}
					}
					if err := s[i%3].node.Check(&cluster.Request{Items: items}, out); err != nil {
						t.Error(err)
						return
					}
					for k := range out {
						if out[k].Allowed && !out[k].Degraded {
							admitted.Add(1)
						}
						if out[k].Source == cluster.SourceLease {
							local.Add(1)
						}
					}
				}
			})
		}
		all.Wait()
		if got := admitted.Load(); got > spec.Limit || got < spec.Limit*97/100 {
			t.Errorf("batches of %d: admitted %d of %d, %d by leases", batch, got, spec.Limit,
				local.Load())
		}
	}
}
