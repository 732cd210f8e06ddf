package rpc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
)

// emptyMethod is a unary call that does nothing, on the same server, with the same options: what gRPC costs here.
const emptyMethod = "/bench.Empty/Call"

var emptyService = grpc.ServiceDesc{
	ServiceName: "bench.Empty", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(emptypb.Empty)
		return in, decode(in)
	}}},
}

// ways are the calls that are compared: an empty one, a Check at the owner of the key, one at another node, and the
// same two with 100 keys at once.
func ways(b *testing.B) map[string]func(i int) error {
	spec := limiter.Spec{Name: "big", Algorithm: limiter.GCRA, Limit: 1 << 30, Per: time.Second}
	stations := newStations(b, 2, spec)
	here, ctx := stations[0], context.Background()
	const many = 1024
	request := func(owner *station) []*penstockv1.CheckRequest {
		requests := make([]*penstockv1.CheckRequest, many)
		for i := range requests {
			requests[i] = &penstockv1.CheckRequest{Items: []*penstockv1.Item{{Limit: "big", Key: []byte(keyOf(owner, i))}}}
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

// BenchmarkShare reports what a Check reaches of the calls per second of an empty gRPC call in the same run: the ways take
// turns, so that what else the machine does hits all of them.
func BenchmarkShare(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			all := ways(b)
			var took [3]time.Duration
			for _, call := range all {
				spread(b, callers, 200, call)
			}
			b.ResetTimer()
			for range b.N {
				for k, way := range []string{"empty", "owner", "forwarded"} {
					began := time.Now()
					spread(b, callers, 50*callers, all[way])
					took[k] += time.Since(began)
				}
			}
			b.ReportMetric(float64(took[0])/float64(took[1]), "owner/empty")
			b.ReportMetric(float64(took[0])/float64(took[2]), "forwarded/empty")
			b.ReportMetric(float64(b.N*50*callers)/took[0].Seconds(), "empty-calls/s")
		})
	}
}

// BenchmarkPeers is the wire between nodes alone: each caller waits for its own answer, the node asked decides.
func BenchmarkPeers(b *testing.B) {
	spec := limiter.Spec{Name: "big", Algorithm: limiter.GCRA, Limit: 1 << 30, Per: time.Second}
	stations := newStations(b, 2, spec)
	here, there := stations[0], stations[1]
	limit, key := here.node.Limits()["big"], keyOf(there, 0)
	for _, callers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			before := [2]uint64{here.peers.stats.Asks.Load(), here.peers.stats.Frames.Load()}
			b.ReportAllocs()
			spread(b, callers, b.N, func(int) error {
				deadline := here.clock.Now().Add(5 * time.Second)
				calls := []cluster.Call{{To: there.member, Deadline: deadline, Ask: &cluster.Ask{
					Hop: 1, Deadline: deadline, Items: []cluster.AskItem{{Limit: limit, Key: key, Cost: 1}},
				}}}
				here.peers.Call(calls)
				return calls[0].Err
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "asks/s")
			b.ReportMetric(float64(here.peers.stats.Asks.Load()-before[0])/float64(here.peers.stats.Frames.Load()-before[1]), "asks/frame")
		})
	}
}
