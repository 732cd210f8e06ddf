package web

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/admin"
	"penstock/rpc/rpctest"
)

// Promise: however many ask for keys, one goroutine at a time looks through the table.
func TestKeysAreLookedThroughInTurns(t *testing.T) {
	node := rpctest.Alone(t, rpctest.PerHour)
	for i := range 50 {
		r := &cluster.Request{Items: []cluster.Item{{
			Limit: rpctest.PerHour.Name, Key: strconv.Itoa(i), Cost: 1,
		}}}
		if err := node.Check(r, make([]cluster.Decision, 1)); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	var inside, together atomic.Int64
	for range 8 {
		all.Go(func() {
			admin.EachKey(t.Context(), node, "", limiter.Cursor{}, admin.MaxListed,
				func(*limiter.Limit, string, limiter.Decision) {
					if inside.Add(1) > 1 {
						together.Add(1)
					}
					runtime.Gosched() // to another one, if there is one
					inside.Add(-1)
				})
		})
	}
	all.Wait()
	if n := together.Load(); n > 0 {
		t.Errorf("two were looking %d times", n)
	}
}
