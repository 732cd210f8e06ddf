//go:build unix

package rpc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/rpctest"
)

// ways are the calls that are compared: an empty one, a Check at the owner of the key, and one at
// another node.
func ways(b *testing.B) map[string]func(i int) error {
	spec := limiter.Spec{Name: "big", Algorithm: limiter.GCRA, Limit: 1 << 30, Per: time.Second}
	stations := newStations(b, 2, spec)
	here, ctx := stations[0], context.Background()
	const many = 1024
	request := func(owner *station) []*penstockv1.CheckRequest {
		requests := make([]*penstockv1.CheckRequest, many)
		for i := range requests {
			requests[i] = &penstockv1.CheckRequest{Items: []*penstockv1.Item{{
				Limit: "big",
				Key:   []byte(rpctest.OwnKey(owner.node, i)),
			}}}
		}
		return requests
	}
	own, foreign := request(here), request(stations[1])
	check := func(requests []*penstockv1.CheckRequest) func(int) error {
		return func(i int) error {
			out, err := here.client.Check(ctx, requests[i%many])
			if err == nil && (out.Decisions[0].Degraded || !out.Decisions[0].Allowed) {
				err = fmt.Errorf("a decision that measures nothing: %v", out.Decisions[0])
			}
			return err
		}
	}
	return map[string]func(int) error{
		"empty": func(int) error {
			return here.conn.Invoke(ctx, emptyMethod, &emptypb.Empty{}, &emptypb.Empty{})
		},
		"owner":     check(own),
		"forwarded": check(foreign),
	}
}

// spread has callers goroutines make n calls together.
func spread(b *testing.B, callers, n int, call func(int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := call(int(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkUnary(b *testing.B) {
	for _, callers := range []int{1, 64} {
		for _, way := range []string{"empty", "owner", "forwarded"} {
			b.Run(fmt.Sprintf("%s/callers=%d", way, callers), func(b *testing.B) {
				call := ways(b)[way]
				spread(b, callers, 100, call)
				b.ReportAllocs()
				b.ResetTimer()
				spread(b, callers, b.N, call)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
	}
}

// BenchmarkShare reports what a Check reaches of the calls per second of an empty gRPC call in the
// same run, by the clock and by the processor time that client and nodes took together: the second
// counts only what this process does. The ways take turns, so that what else the machine does hits
// all of them.
func BenchmarkShare(b *testing.B) {
	names := []string{"empty", "owner", "forwarded"}
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			all := ways(b)
			var wall, cpu [3]time.Duration
			turn := max(200, 50*callers)
			for _, name := range names {
				spread(b, callers, turn, all[name])
			}
			b.ResetTimer()
			for range b.N {
				for k, name := range names {
					began, used := time.Now(), cpuTime(b)
					spread(b, callers, turn, all[name])
					wall[k] += time.Since(began)
					cpu[k] += cpuTime(b) - used
				}
			}
			for k, name := range names {
				b.ReportMetric(float64(b.N*turn)/wall[k].Seconds(), name+"/s")
				b.ReportMetric(float64(cpu[k].Microseconds())/float64(b.N*turn), name+"-cpu-µs")
				if k > 0 {
					b.ReportMetric(float64(wall[0])/float64(wall[k]), name+"/empty")
					b.ReportMetric(float64(cpu[0])/float64(cpu[k]), name+"/empty-by-cpu")
				}
			}
		})
	}
}

// cpuTime is the processor time of this process so far.
func cpuTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkPeers is the wire between nodes alone: each caller waits for its own answer, the node
// asked decides.
func BenchmarkPeers(b *testing.B) {
	spec := limiter.Spec{Name: "big", Algorithm: limiter.GCRA, Limit: 1 << 30, Per: time.Second}
	stations := newStations(b, 2, spec)
	here, there := stations[0], stations[1]
	limit, key := here.node.Limits()["big"], rpctest.OwnKey(there.node, 0)
	for _, callers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			before := [2]uint64{here.peers.Stats().Asks.Load(), here.peers.Stats().Frames.Load()}
			b.ReportAllocs()
			spread(b, callers, b.N, func(int) error {
				deadline := here.clock.Now().Add(5 * time.Second)
				calls := []cluster.Call{{To: there.member, Deadline: deadline, Ask: &cluster.Ask{
					Hop: 1, Deadline: deadline,
					Items: []cluster.AskItem{{Limit: limit, Key: key, Cost: 1}},
				}}}
				here.peers.Call(calls)
				return calls[0].Err
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "asks/s")
			b.ReportMetric(float64(here.peers.Stats().Asks.Load()-before[0])/float64(
				here.peers.Stats().Frames.Load()-before[1]), "asks/frame")
		})
	}
}
