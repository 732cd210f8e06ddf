package main

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

var (
	leasedFor = flag.Duration("leased.for", 3*time.Second,
		"how long TestLeasedHotKey asks, in whole seconds")
	leasedLimit = flag.Int64("leased.limit", 100_000, "limit per second of TestLeasedHotKey")
	leasedBatch = flag.Int("leased.batch", 10, "checks per request in TestLeasedHotKey")
	leasedCost  = flag.Int64("leased.cost", 20, "units per check in TestLeasedHotKey")
	leasedJudge = flag.Bool("leased.judge", false,
		"TestLeasedHotKey also fails if too little is used or local: on a machine with nothing "+
			"else to do")
	leasedOwner = flag.String("leased.owner", "n1",
		"owner of the key in TestLeasedHotKey: n1, n2 or n3")
	leasedFault = flag.String("leased.fault", "",
		"done to the node n2 in the middle: kill, restart or pause")
)

// clockStep is by how much the clocks of two processes may differ: each reads the wall's once, at
// its start.
const clockStep = 20 * time.Millisecond

// seconds counts by second of the wall clock, which is what the limit's windows go by.
type seconds struct {
	first int64
	// admitted by requests that were sent and answered in that second, whatever clock says so
	within []atomic.Int64
}

func (s *seconds) count(sent, answered time.Time, admitted int64) {
	if w := sent.Add(-clockStep).Unix(); w == answered.Add(clockStep).Unix() {
		s.within[w-s.first].Add(admitted)
	}
}

// Promise: a hot key under a leased limit: 64 clients of three processes are never admitted more
// than the limit in any of its windows, nor more in all than all windows have. They use nearly all
// of it, and nearly all decisions are local: that needs a machine to itself, and is judged with
// -leased.judge.
func TestLeasedHotKey(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of all cores")
	}
	limits := write(t,
		fmt.Sprintf("limits:\n  - {name: hot, algorithm: fixed_window, limit: %d, per: 1s, "+
			"consistency: leased}\n", *leasedLimit))
	c := &churn{t: t, limits: limits}
	for i := range 3 {
		c.add(i)
	}
	clients := *c.clients.Load()
	key := keysOwnedBy(t, c.nodes[0], 3, *leasedOwner, 1)[0]
	by := map[penstockv1.Source]*atomic.Int64{}
	for s := range penstockv1.Source_name {
		by[penstockv1.Source(s)] = new(atomic.Int64)
	}
	var offered, admitted, failed, degraded atomic.Int64

	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + clockStep)))
	began := time.Now()
	// answers come before the next window
	end := began.Truncate(time.Second).Add(*leasedFor - 200*time.Millisecond)
	window := &seconds{
		first:  began.Unix(),
		within: make([]atomic.Int64, int(*leasedFor/time.Second)),
	}
	var all sync.WaitGroup
	all.Go(func() { c.disturb(*leasedFault, *leasedFor/3) })
	for i := range 64 {
		all.Go(func() {
			items := make([]*penstockv1.Item, *leasedBatch)
			for k := range items {
				items[k] = item("hot", key)
				items[k].Cost = leasedCost
			}
			for time.Now().Before(end) {
				sent := time.Now()
				decisions, err := ask(t.Context(), clients[i%len(clients)], items)
				answered := time.Now()
				if err != nil {
					failed.Add(1)
					time.Sleep(20 * time.Millisecond)
					continue
				}
				yes := int64(0)
				for _, d := range decisions {
					by[d.Source].Add(1)
					switch {
					case d.Degraded:
						degraded.Add(1)
					case d.Allowed:
						yes += *leasedCost
					}
				}
				offered.Add(int64(len(decisions)))
				admitted.Add(yes)
				window.count(sent, answered, yes)
			}
		})
	}
	all.Wait()

	total := *leasedLimit * int64(*leasedFor/time.Second)
	local := by[penstockv1.Source_SOURCE_LEASE].Load() +
		by[penstockv1.Source_SOURCE_DENIED_CACHE].Load() + by[penstockv1.Source_SOURCE_OWNER].Load()
	used, share := float64(admitted.Load())/float64(total), float64(local)/float64(offered.Load())
	t.Logf("%d checks in %v, %d units admitted: %.1f %% of the limit; %.1f %% local (%d by "+
		"lease, %d by the denied cache, %d by the owner, %d forwarded); %d degraded, %d "+
		"requests failed",
		offered.Load(), *leasedFor, admitted.Load(), 100*used, 100*share,
		by[penstockv1.Source_SOURCE_LEASE].Load(), by[penstockv1.Source_SOURCE_DENIED_CACHE].Load(),
		by[penstockv1.Source_SOURCE_OWNER].Load(), by[penstockv1.Source_SOURCE_FORWARDED].Load(),
		degraded.Load(), failed.Load())
	for i := range window.within {
		t.Logf("second %d: %d admitted", i, window.within[i].Load())
		if got := window.within[i].Load(); got > *leasedLimit {
			t.Errorf("second %d: %d admitted, the limit is %d", i, got, *leasedLimit)
		}
	}
	if over := time.Since(end); over > 200*time.Millisecond-clockStep {
		t.Logf("the last answer came %v late: another window may have begun", over)
		total += *leasedLimit
	}
	if admitted.Load() > total {
		t.Errorf("%d admitted in %v; all of its windows have %d", admitted.Load(), *leasedFor,
			total)
	}
	if *leasedFault != "" || !*leasedJudge {
		return
	}
	if failed.Load() > 0 || degraded.Load() > 0 {
		t.Errorf("%d requests failed, %d decisions were degraded", failed.Load(), degraded.Load())
	}
	if *leasedCost*offered.Load() < 2*total {
		t.Logf("only %d units were asked for, %d is the limit: not judged how much of that was "+
			"used", *leasedCost*offered.Load(), total)
		return
	}
	if used < 0.97 || share < 0.95 {
		t.Errorf("%.1f %% of the limit used, want 97; %.1f %% decided locally, want 95", 100*used,
			100*share)
	}
}

func ask(ctx context.Context, c *client.Client,
	items []*penstockv1.Item,
) ([]*penstockv1.Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return checkItems(ctx, c, items)
}

// disturb does something to the second node after a while.
func (c *churn) disturb(fault string, after time.Duration) {
	if fault == "" {
		return
	}
	time.Sleep(after)
	switch fault {
	case "pause":
		c.signal(1, syscall.SIGSTOP)
		time.Sleep(after)
		c.signal(1, syscall.SIGCONT)
	case "kill":
		c.signal(1, syscall.SIGKILL)
		<-c.nodes[1].exited
	case "restart":
		c.leave(1)
		c.add(1)
	default:
		c.t.Errorf("no fault is called %q", fault)
	}
}
