package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/rpc/client"
)

// Promise: clients that decide in their own processes (client.Config.Leases) are never admitted
// more than the limit in any of its windows, while the node that owns the key is paused and started
// anew; if it is killed, no more than what it had decided itself within its last tick beyond that:
// what is lent its heir knows of. Afterwards they are lent to again.
func TestLeasedClientsWhileNodesFail(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const limit, lasts, each = 10_000, 7 * time.Second, 5
	limits := write(t,
		"limits:\n  - {name: hot, algorithm: fixed_window, limit: 10000, per: 1s, consistency: "+
			"leased}\n")
	c := &churn{t: t, limits: limits}
	for i := range 3 {
		c.add(i)
	}
	key := keysOwnedBy(t, c.nodes[0], 3, "n2", 1)[0]
	var clients []*client.Client
	for i := range 6 {
		var targets []string
		for k := range c.nodes {
			targets = append(targets, c.nodes[(i+k)%len(c.nodes)].grpc)
		}
		to, err := client.New(client.Config{Targets: targets, Leases: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { to.Close() })
		clients = append(clients, to)
	}

	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + clockStep)))
	began := time.Now()
	window := &seconds{first: began.Unix(), within: make([]atomic.Int64, int(lasts/time.Second)+10)}
	var lent, failed, degraded, denied, offered atomic.Int64
	var killed atomic.Int64 // second
	var all sync.WaitGroup
	for _, to := range clients {
		all.Go(func() {
			for time.Since(began) < lasts {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				sent := time.Now()
				d, err := to.Take(ctx, "hot", key, each)
				cancel()
				offered.Add(1)
				switch {
				case err != nil:
					failed.Add(1)
				case d.Degraded:
					degraded.Add(1)
				case !d.Allowed:
					denied.Add(1)
				default:
					window.count(sent, time.Now(), each)
					if d.Source == "lease" {
						lent.Add(1)
					}
				}
				time.Sleep(500 * time.Microsecond)
			}
		})
	}
	time.Sleep(time.Until(began.Add(time.Second)))
	c.signal(1, syscall.SIGSTOP)
	time.Sleep(time.Second)
	c.signal(1, syscall.SIGCONT)
	time.Sleep(500 * time.Millisecond)
	c.leave(1)
	c.add(1)
	time.Sleep(max(0, time.Until(began.Add(4500*time.Millisecond))))
	killed.Store(time.Now().Unix() - began.Unix())
	c.signal(1, syscall.SIGKILL)
	<-c.nodes[1].exited
	all.Wait()

	t.Logf("%d takes: %d from leases, %d denied, %d degraded, %d failed", offered.Load(),
		lent.Load(), denied.Load(), degraded.Load(), failed.Load())
	offers := float64(offered.Load()*each) / lasts.Seconds()
	for i := range window.within {
		most := int64(limit)
		// what was lent is spent within a second
		if i == int(killed.Load()) || i == int(killed.Load())+1 {
			most += lastTick(offers)
		}
		if got := window.within[i].Load(); got > most {
			t.Errorf("second %d: %d admitted, of %d", i, got, most)
		}
	}
	if lent.Load() == 0 {
		t.Error("no take was decided from a lease")
	}
	eventually(t, "a client is lent to again", func() error {
		d, err := clients[0].Take(t.Context(), "hot", key, 1)
		if err == nil && d.Source != "lease" {
			err = fmt.Errorf("%+v", d)
		}
		return err
	})
}
