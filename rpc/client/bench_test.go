package client_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/client"
)

// BenchmarkClient compares a Take, which shares a stream, with a Check, which is a call of its own.
func BenchmarkClient(b *testing.B) {
	_, addr := serveNode(b, "n1")
	c := newClient(b, addr)
	ctx := context.Background()
	for _, way := range []struct {
		name string
		call func() error
	}{
		{"take", func() error { _, err := c.Take(ctx, "big", "k", 0); return err }},
		{"check", func() error {
			_, err := check(ctx, c, []*penstockv1.Item{item("big", "k", 0)},
				false)
			return err
		}},
	} {
		for _, callers := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("%s/callers=%d", way.name, callers), func(b *testing.B) {
				b.ReportAllocs()
				var next atomic.Int64
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for next.Add(1) <= int64(b.N) {
							if err := way.call(); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
	}
}

// BenchmarkAll measures a decision in a message of many: by AppendAll, by DoAll, and by the
// generated stubs.
func BenchmarkAll(b *testing.B) {
	_, addr := serveNode(b, "n1")
	c := newClient(b, addr)
	for _, n := range []int{100, 1000} {
		requests, items := make([]client.Request, n), make([]*penstockv1.Item, n)
		for i := range n {
			requests[i] = client.Request{Limit: "big", Key: fmt.Sprintf("account:%09d", i), Cost: 1}
			items[i] = item("big", requests[i].Key, 1)
		}
		out := make([]client.Decision, n)
		for name, call := range map[string]func() error{
			"AppendAll": func() (err error) {
				out, err = c.AppendAll(b.Context(), out[:0],
					requests)
				return err
			},
			"DoAll": func() error { _, err := c.DoAll(b.Context(), requests); return err },
			"Check": func() error { _, err := check(b.Context(), c, items, false); return err },
		} {
			b.Run(fmt.Sprintf("%s/items=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; i < b.N; i += n {
					if err := call(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkLease is a Take of a key that is decided in this process, nearly always, and for
// comparison one that is not.
func BenchmarkLease(b *testing.B) {
	all := serveCluster(b, 1, 1<<40)
	for name, c := range map[string]*client.Client{
		"leases": lender(b, all[0].addr),
		"none":   newClient(b, all[0].addr),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			local := 0
			for b.Loop() {
				d, err := c.Take(b.Context(), "lent", "k", 1)
				if err != nil || !d.Allowed {
					b.Fatalf("%+v, %v", d, err)
				}
				if d.Source == "lease" {
					local++
				}
			}
			b.ReportMetric(float64(local)/float64(b.N), "local")
		})
	}
}

// BenchmarkLocal asks one node of two, over gRPC, for a key that it owns and one of the other, by
// turns; that one it decides from a lease, nearly always. The figures are the median times from
// question to answer.
func BenchmarkLocal(b *testing.B) {
	all := serveCluster(b, 2, 1<<40)
	c := newClient(b, all[0].addr)
	var keys [2]string
	for i := 0; keys[0] == "" || keys[1] == ""; i++ {
		key := fmt.Sprint("key-", i)
		owner := 1
		if all[0].node.View().Owns(limiter.Hash(key)) {
			owner = 0
		}
		keys[owner] = key
	}
	var took [2][]time.Duration
	var local int
	for i := range b.N {
		began := time.Now()
		d, err := c.Take(b.Context(), "lent", keys[i%2], 1)
		if err != nil || !d.Allowed {
			b.Fatalf("%+v, %v", d, err)
		}
		if took[i%2] = append(took[i%2], time.Since(began)); d.Source == "lease" {
			local++
		}
	}
	b.ReportMetric(2*float64(local)/float64(b.N), "local")
	if b.N < 2 {
		return
	}
	var p50 [2]float64
	for i := range took {
		slices.Sort(took[i])
		p50[i] = float64(took[i][len(took[i])/2].Nanoseconds())
	}
	b.ReportMetric(p50[0], "ns/owner")
	b.ReportMetric(p50[1], "ns/lease")
	b.ReportMetric(p50[1]/p50[0], "ratio")
}
