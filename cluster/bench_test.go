package cluster

import (
	"fmt"
	"testing"
	"time"

	"penstock/limiter"
)

// BenchmarkCheck is the path of a request without its transport: the door's Request to the Decision.
func BenchmarkCheck(b *testing.B) {
	w := newWorld(b, 2, limiter.Spec{Name: "rate", Algorithm: limiter.GCRA, Limit: 1 << 30, Per: time.Second})
	for _, c := range []struct{ name, owner string }{{"owner=self", "n1"}, {"owner=peer", "n2"}} {
		for _, size := range []int{1, 100} {
			keys := make([]string, 1000)
			for i := range keys {
				keys[i] = w.key(c.owner, i)
			}
			b.Run(fmt.Sprintf("%s/items=%d", c.name, size), func(b *testing.B) {
				b.ReportAllocs()
				items, out := make([]Item, size), make([]Decision, size)
				for i := range b.N {
					w.now++
					for k := range items {
						items[k] = Item{Limit: "rate", Key: keys[(i*7+k)%len(keys)], Cost: 1}
					}
					r := Request{Items: items}
					if err := w.nodes["n1"].Check(&r, out); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/item")
			})
		}
	}
}
