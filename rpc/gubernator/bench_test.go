package gubernator

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"penstock/proto/gubernator"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
	"penstock/rpc/wire"
)

// BenchmarkGubernatorDoor is what a node does for a message of Gubernator's API, from its bytes to
// those of the answer, without the transport.
func BenchmarkGubernatorDoor(b *testing.B) {
	for _, items := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("items=%d", items), func(b *testing.B) {
			door := &Door{Node: rpctest.Alone(b), Inlines: new(door.Inlines)}
			in := &gubernator.GetRateLimitsReq{}
			for i := range items {
				in.Requests = append(in.Requests, &gubernator.RateLimitReq{
					Name: "requests_per_hour", UniqueKey: fmt.Sprintf("account:%09d", i*7919),
					Hits: 1, Limit: 1_000_000_000, Duration: 3_600_000,
				})
			}
			message, err := proto.Marshal(in)
			if err != nil {
				b.Fatal(err)
			}
			codec := wire.NewCodec()
			b.ReportAllocs()
			for b.Loop() {
				c := calls.Get().(*call)
				if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(message)},
					c); err != nil {
					b.Fatal(err)
				}
				err := door.answer(time.Now(), c)
				if err != nil || c.out.Responses[items-1].Status != gubernator.Status_UNDER_LIMIT {
					b.Fatal(err, &c.out)
				}
				written, err := codec.Marshal(c)
				if err != nil {
					b.Fatal(err)
				}
				written.Free()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*items), "ns/item")
		})
	}
}
