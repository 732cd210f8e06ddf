package rpc

import (
	"sync"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/rpctest"
)

// Promise: between real nodes too, a client that has seen a refund or a reset answered meets no
// denial from before it, at any node; and a client that is denied again and again asks twice.
func TestDenialsBetweenNodes(t *testing.T) {
	stations := newStations(t, 3, limiter.Spec{
		Name: "five", Algorithm: limiter.FixedWindow,
		Anchor: limiter.FirstHit, Limit: 5, Per: time.Hour,
	})
	var clients sync.WaitGroup
	for c := range 6 {
		clients.Go(func() {
			owner := c % 3
			key := rpctest.OwnKey(stations[owner].node, c)
			ask := func(at int, it cluster.Item) cluster.Decision {
				it.Limit, it.Key = "five", key
				out := make([]cluster.Decision, 1)
				r := cluster.Request{
					Items:    []cluster.Item{it},
					Deadline: stations[at].clock.Now().Add(time.Minute),
				}
				if err := stations[at].node.Check(&r, out); err != nil {
					t.Error(err)
				}
				return out[0]
			}
			ask(owner, cluster.Item{Cost: 5})
			for i := range 60 {
				at, back := (owner+1+i%2)%3, (owner+i)%3
				var d cluster.Decision
				for n := 0; d.Source != cluster.SourceDenied; n++ {
					if d = ask(at, cluster.Item{Cost: 1}); d.Allowed || n > 100 {
						t.Errorf("client %d, round %d: asked %d times of a key of which nothing "+
							"is left: %+v", c, i, n, d)
						return
					}
				}
				give := cluster.Item{Cost: -1}
				if i%5 == 0 {
					give = cluster.Item{Op: cluster.OpReset}
				}
				began := stations[back].clock.Now()
				if d := ask(back, give); !d.Allowed {
					t.Errorf("client %d, round %d: %+v", c, i, d)
				}
				// a machine so busy may not have told in time
				slow := stations[back].clock.Now() > began.Add(200*time.Millisecond)
				if d := ask(at, cluster.Item{Cost: 1}); !d.Allowed && !slow {
					t.Errorf("client %d, round %d: what was given back at n%d is denied at n%d: "+
						"%+v", c, i, back+1, at+1, d)
				}
				if i%5 == 0 {
					ask(owner, cluster.Item{Cost: 4})
				}
			}
		})
	}
	clients.Wait()
	cached := uint64(0)
	for _, s := range stations {
		cached += s.node.Stats().Cached.Load()
	}
	if cached < 6*60 {
		t.Errorf("%d denials from memory in %d rounds", cached, 6*60)
	}
}
