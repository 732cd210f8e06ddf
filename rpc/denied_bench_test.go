package rpc

import (
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/rpctest"
)

// BenchmarkDenied is a request for a key of another node of which nothing is left, by turns of a
// limit that counts refusals, so that the owner is asked each time, and of one with denials that
// are remembered. 64 callers, the node's own part of the way and the wire between nodes.
func BenchmarkDenied(b *testing.B) {
	window := limiter.Spec{
		Name: "remembered", Algorithm: limiter.FixedWindow,
		Anchor: limiter.FirstHit, Limit: 5, Per: time.Hour,
	}
	counts := window
	counts.Name, counts.CountRejected = "asked", true
	stations := newStations(b, 2, window, counts)
	here, key := stations[0], rpctest.OwnKey(stations[1].node, 0)
	names := []string{"asked", "remembered"}
	ask := func(name string) error {
		out := make([]cluster.Decision, 1)
		r := cluster.Request{
			Items:    []cluster.Item{{Limit: name, Key: key, Cost: 1}},
			Deadline: here.clock.Now().Add(time.Minute),
		}
		return here.node.Check(&r, out)
	}
	const turn = 20_000
	var wall, cpu [2]time.Duration
	var asks [2]uint64
	for _, name := range names {
		spread(b, 64, turn, func(int) error { return ask(name) })
	}
	b.ResetTimer()
	for range b.N {
		for k, name := range names {
			began, used, sent := time.Now(), cpuTime(b), here.peers.Stats().Asks.Load()
			spread(b, 64, turn, func(int) error { return ask(name) })
			wall[k] += time.Since(began)
			cpu[k] += cpuTime(b) - used
			asks[k] += here.peers.Stats().Asks.Load() - sent
		}
	}
	for k, name := range names {
		b.ReportMetric(float64(b.N*turn)/wall[k].Seconds(), name+"/s")
		b.ReportMetric(float64(cpu[k].Nanoseconds())/float64(b.N*turn), name+"-cpu-ns")
		b.ReportMetric(float64(asks[k])/float64(b.N*turn), name+"-messages")
	}
}
