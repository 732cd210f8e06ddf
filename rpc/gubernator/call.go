package gubernator

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"penstock/cluster"
	"penstock/proto/gubernator"
	"penstock/rpc/door"
	"penstock/rpc/wire"
)

// call is one GetRateLimits with the memory of all that it is made of. Those that come
// over gRPC are used again and again: a thousand requests are half a megabyte.
type call struct {
	in  *gubernator.GetRateLimitsReq
	out gubernator.GetRateLimitsResp

	from      door.Caller // the client
	request   cluster.Request
	places    []int // of its items among the requests
	decisions []cluster.Decision
	answered  []gubernator.RateLimitResp // out points to these

	bytes []byte                    // of the message; the texts of in lie there
	asked []gubernator.RateLimitReq // in points to these
}

var calls = sync.Pool{New: func() any { return &call{in: new(gubernator.GetRateLimitsReq)} }}

// begin makes room for n requests.
func (c *call) begin(n int) {
	c.out.Responses = slices.Grow(c.out.Responses[:0], n)[:n]
	c.request.Items = slices.Grow(c.request.Items[:0], n)
	c.places = slices.Grow(c.places[:0], n)
	c.decisions = slices.Grow(c.decisions[:0], n)
	c.answered = slices.Grow(c.answered[:0], n)[:n]
}

// Read reads a message into c.in, and reports whether it is as foreseen. It keeps nothing of b.
func (c *call) Read(b []byte) bool {
	c.bytes = append(c.bytes[:0], b...)
	n := wire.CountItems(c.bytes)
	c.asked = slices.Grow(c.asked[:0], n)[:n]
	c.in.Requests = slices.Grow(c.in.Requests[:0], n)[:n]
	outer := wire.Fields{Rest: c.bytes}
	for i := range c.asked {
		outer.Next()
		to, ok := &c.asked[i], true
		*to = gubernator.RateLimitReq{}
		f := wire.Fields{Rest: outer.Bytes}
		for ok && f.Next() {
			switch {
			case f.Wire == protowire.BytesType && f.Num == 1:
				to.Name, ok = wire.TextOf(f.Bytes)
			case f.Wire == protowire.BytesType && f.Num == 2:
				to.UniqueKey, ok = wire.TextOf(f.Bytes)
			default:
				ok = f.Wire == protowire.VarintType && setHit(to, f.Num, f.Value)
			}
		}
		if !ok || f.Err != nil {
			return false
		}
		c.in.Requests[i] = to
	}
	return n > 0
}

// ReadByLibrary reads any message.
func (c *call) ReadByLibrary(b []byte) error { return proto.Unmarshal(b, c.in) }

// Written is the answer. It is the last that is asked of c, which others use from here on.
func (c *call) Written(codec wire.Codec) (mem.BufferSlice, error) {
	b, err := c.write(codec)
	c.request = cluster.Request{Items: c.request.Items}
	calls.Put(c)
	return b, err
}

func (c *call) write(codec wire.Codec) (mem.BufferSlice, error) {
	var w answerWriter
	w.Begin(128 * (1 + len(c.out.Responses)))
	w.rateLimits(&c.out)
	if w.Unforeseen {
		w.Free()
		return codec.CodecV2.Marshal(&c.out)
	}
	return w.Slice(), nil
}

// Register registers g as pb.gubernator.V1. Its calls do not go by way of the generated
// code, which makes each message anew.
func Register(s grpc.ServiceRegistrar, g *Door) {
	desc := wire.ByHand(gubernator.V1_ServiceDesc, "GetRateLimits", getRateLimits)
	s.RegisterService(&desc, g)
}

func getRateLimits(
	door any, ctx context.Context, decode func(any) error, guard grpc.UnaryServerInterceptor,
) (any, error) {
	c := calls.Get().(*call)
	if err := decode(c); err != nil {
		return nil, err
	}
	return wire.Guarded(ctx, guard, door.(*Door), gubernator.V1_GetRateLimits_FullMethodName, c,
		(*Door).serve)
}
