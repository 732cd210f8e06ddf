package cluster

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"penstock/limiter"
)

// BenchmarkCheck is the path of a request without its transport: the door's Request to the
// Decision.
func BenchmarkCheck(b *testing.B) {
	w := newWorld(b, 2,
		limiter.Spec{Name: "rate", Algorithm: limiter.GCRA, Limit: 1 << 30, Per: time.Second})
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

// BenchmarkCheckByAll is Check of one item at the owner by a caller for each core (-cpu 1,2): all
// ask for the same keys, or each for keys that lie in other parts of the table than those of the
// next.
func BenchmarkCheckByAll(b *testing.B) {
	w := newWorld(b, 1,
		limiter.Spec{Name: "rate", Algorithm: limiter.GCRA, Limit: 1 << 30, Per: time.Second})
	n := w.nodes["n1"]
	keys, apart := make([]string, 10_000), [2][]string{}
	for i := range keys {
		keys[i] = fmt.Sprintf("account:%09d", i)
		half := limiter.Hash(keys[i]) >> 63
		apart[half] = append(apart[half], keys[i])
	}
	for _, same := range []bool{true, false} {
		b.Run(fmt.Sprintf("same=%v", same), func(b *testing.B) {
			var callers atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				items, out := make([]Item, 1), make([]Decision, 1)
				id := int(callers.Add(1))
				own := apart[id%2]
				if same {
					own = keys
				}
				for i := id * 997; pb.Next(); i++ {
					items[0] = Item{Limit: "rate", Key: own[i%len(own)], Cost: 1}
					r := Request{Items: items}
					if err := n.Check(&r, out); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkCheckOfMany is Check at the owner of a million keys, which are in no cache. What
// replication would be told is thrown away now and then, while the clock of the benchmark stands.
func BenchmarkCheckOfMany(b *testing.B) {
	w := newWorld(b, 1,
		limiter.Spec{Name: "rate", Algorithm: limiter.GCRA, Limit: 1000, Per: time.Hour})
	n := w.nodes["n1"]
	n.holder.table = limiter.NewTable(limiter.TableConfig{})
	n.holder.table.Track()
	keys := make([]string, 1_000_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-of-%09d-in-all", i*7919%len(keys))
		n.holder.table.Take(w.now, (*n.limits.Load())["rate"], keys[i], limiter.Hash(keys[i]), 1)
	}
	if got := n.holder.table.Stats().Keys; got != len(keys) {
		b.Fatalf("%d keys in the table, want %d", got, len(keys))
	}
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprintf("items=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			items, out := make([]Item, size), make([]Decision, size)
			next := 0
			for i := range b.N {
				if i%(50_000/size) == 0 {
					b.StopTimer()
					n.holder.table.Changed(w.now, func(uint64, limiter.Entry) {})
					b.StartTimer()
				}
				w.now += 1000
				for k := range items {
					// their bytes come one after the other, as out of a buffer
					next = (next + 1) % len(keys)
					items[k] = Item{Limit: "rate", Key: keys[next], Cost: 1}
				}
				r := Request{Items: items}
				if err := n.Check(&r, out); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/item")
		})
	}
}

// BenchmarkLocal is a decision that a node takes from a lease, and one that it takes as the owner
// of the key, by turns. A lease changes hands beside the requests, which is not measured.
func BenchmarkLocal(b *testing.B) {
	w := newWorld(b, 2, limiter.Spec{
		Name: "lent", Algorithm: limiter.GCRA, Limit: 1 << 40,
		Per: time.Second, Consistency: limiter.Leased,
	})
	keys := map[Source]string{SourceOwner: w.key("n1", 0), SourceLease: w.key("n2", 0)}
	spent, by := map[Source]time.Duration{}, map[Source]int{}
	const turn = 10_000 // and fewer than a tick lends
	out := make([]Decision, 1)
	for done := 0; done < b.N; done += turn {
		for _, source := range []Source{SourceOwner, SourceLease} {
			for i := range 20 {
				w.check("n1", Item{Limit: "lent", Key: keys[source], Cost: 4 * turn})
				if i%5 == 0 {
					w.pass(tickEvery)
				}
			}
			began := time.Now()
			for range turn {
				w.now++
				r := Request{Items: []Item{{Limit: "lent", Key: keys[source], Cost: 1}}}
				if err := w.nodes["n1"].Check(&r, out); err != nil {
					b.Fatal(err)
				}
				by[out[0].Source]++
			}
			spent[source] += time.Since(began)
		}
	}
	if by[SourceLease] < 99*by[SourceOwner]/100 {
		b.Fatalf("by source %v", by)
	}
	b.ReportMetric(float64(spent[SourceOwner].Nanoseconds())/float64(by[SourceOwner]), "ns/owner")
	b.ReportMetric(float64(spent[SourceLease].Nanoseconds())/float64(by[SourceLease]), "ns/lease")
	b.ReportMetric(float64(spent[SourceLease])/float64(spent[SourceOwner]), "ratio")
}
