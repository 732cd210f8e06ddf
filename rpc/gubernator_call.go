package rpc

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

// gubernatorCall is one GetRateLimits with the memory of all that it is made of. Those that come
// over gRPC are used again and again: a thousand requests are half a megabyte.
type gubernatorCall struct {
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

var gubernatorCalls = sync.Pool{New: func() any { return &gubernatorCall{in: new(gubernator.GetRateLimitsReq)} }}

// begin makes room for n requests.
func (c *gubernatorCall) begin(n int) {
	c.out.Responses = slices.Grow(c.out.Responses[:0], n)[:n]
	c.request.Items = slices.Grow(c.request.Items[:0], n)
	c.places = slices.Grow(c.places[:0], n)
	c.decisions = slices.Grow(c.decisions[:0], n)
	c.answered = slices.Grow(c.answered[:0], n)[:n]
}

// read reads a message into c.in, and reports whether it is as foreseen. It keeps nothing of b.
func (c *gubernatorCall) read(b []byte) bool {
	c.bytes = append(c.bytes[:0], b...)
	n := countItems(c.bytes)
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
				to.Name, ok = textOf(f.Bytes)
			case f.Wire == protowire.BytesType && f.Num == 2:
				to.UniqueKey, ok = textOf(f.Bytes)
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

// readByLibrary reads any message.
func (c *gubernatorCall) readByLibrary(b []byte) error { return proto.Unmarshal(b, c.in) }

// written is the answer. It is the last that is asked of c, which others use from here on.
func (c *gubernatorCall) written(codec hotCodec) (mem.BufferSlice, error) {
	b, err := c.write(codec)
	c.request = cluster.Request{Items: c.request.Items}
	gubernatorCalls.Put(c)
	return b, err
}

func (c *gubernatorCall) write(codec hotCodec) (mem.BufferSlice, error) {
	var w answerWriter
	w.begin(128 * (1 + len(c.out.Responses)))
	w.rateLimits(&c.out)
	if w.unforeseen {
		w.free()
		return codec.CodecV2.Marshal(&c.out)
	}
	return w.slice(), nil
}

// registerGubernator registers g as pb.gubernator.V1. Its calls do not go by way of the generated
// code, which makes each message anew.
func registerGubernator(s grpc.ServiceRegistrar, g *gubernatorDoor) {
	desc := byHand(gubernator.V1_ServiceDesc, "GetRateLimits", getRateLimits)
	s.RegisterService(&desc, g)
}

func getRateLimits(door any, ctx context.Context, decode func(any) error, guard grpc.UnaryServerInterceptor) (any, error) {
	c := gubernatorCalls.Get().(*gubernatorCall)
	if err := decode(c); err != nil {
		return nil, err
	}
	return guarded(ctx, guard, door.(*gubernatorDoor), gubernator.V1_GetRateLimits_FullMethodName, c, (*gubernatorDoor).serve)
}
