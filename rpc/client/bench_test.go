package client_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

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
		{"check", func() error { _, err := c.Check(ctx, []*penstockv1.Item{item("big", "k", 0)}, false); return err }},
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

// BenchmarkLease is a Take of a key that is decided in this process, nearly always, and for comparison one that is not.
func BenchmarkLease(b *testing.B) {
	all := serveCluster(b, 1, 1<<40)
	for name, c := range map[string]*client.Client{"leases": lender(b, all[0].addr), "none": newClient(b, all[0].addr)} {
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
