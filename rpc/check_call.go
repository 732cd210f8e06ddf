package rpc

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	penstockv1 "penstock/proto/penstock/v1"
)

// checkCall is one Check with the memory of all that it is made of. Those that come by a call of their own are used again and again: a
// thousand items are 0.8 MB.
type checkCall struct {
	in  *penstockv1.CheckRequest
	out penstockv1.CheckResponse

	bytes    []byte                // of the message; texts and keys of in lie there
	items    []*penstockv1.Item    // of in, if it was read here
	asked    []askedItem           // which items points to
	answered []penstockv1.Decision // which out points to
}

// askedItem is an item with what it points to.
type askedItem struct {
	item penstockv1.Item
	cost int64
	id   penstockv1.RequestId
}

var checkCalls = sync.Pool{New: func() any { return &checkCall{in: new(penstockv1.CheckRequest)} }}

// read reads a message into c.in, and reports whether it is as foreseen. It keeps nothing of b.
func (c *checkCall) read(b []byte) bool {
	c.bytes = append(c.bytes[:0], b...)
	c.in.Reset()
	return c.readItems(c.bytes)
}

// readItems reads into c.in, which is empty, and reports whether b is as foreseen. Texts and keys stay in b.
func (c *checkCall) readItems(b []byte) bool {
	n := countItems(b)
	c.asked, c.items = slices.Grow(c.asked[:0], n)[:n], slices.Grow(c.items[:0], n)[:n]
	outer := fields{rest: b}
	for i := range c.asked {
		outer.next()
		if !c.asked[i].read(outer.bytes) {
			return false
		}
		c.items[i] = &c.asked[i].item
	}
	c.in.Items = c.items
	return n > 0
}

func (a *askedItem) read(b []byte) bool {
	to, ok := &a.item, true
	to.Limit, to.Key, to.Cost, to.Id = "", nil, nil, nil // nothing else is ever set here
	f := fields{rest: b}
	for ok && f.next() {
		switch {
		case f.wire == protowire.BytesType && f.num == 1:
			to.Limit, ok = textOf(f.bytes)
		case f.wire == protowire.BytesType && f.num == 3:
			to.Key = f.bytes[:len(f.bytes):len(f.bytes)]
		case f.wire == protowire.VarintType && f.num == 4:
			a.cost = int64(f.value)
			to.Cost = &a.cost
		case f.wire == protowire.BytesType && f.num == 5 && to.Id == nil: // or there are two halves of one
			to.Id = &a.id
			a.id.Origin, a.id.Sequence = 0, 0
			ok = readID(f.bytes, to.Id)
		default:
			ok = false
		}
	}
	return ok && f.err == nil
}

// written is the answer as the library or w writes it. It is the last that is asked of c, which others use from here on.
func (c *checkCall) written(codec hotCodec) (mem.BufferSlice, error) {
	b, err := c.write(codec)
	checkCalls.Put(c)
	return b, err
}

func (c *checkCall) write(codec hotCodec) (mem.BufferSlice, error) {
	b, err := codec.Marshal(&c.out)
	c.out.Verdict = nil
	return b, err
}

// registerRateLimiter registers r as penstock.v1.RateLimiter. Checks do not go by way of the generated code, which makes each
// message anew.
func registerRateLimiter(s grpc.ServiceRegistrar, r *rateLimiter) {
	desc := penstockv1.RateLimiter_ServiceDesc
	desc.Methods = slices.Clone(desc.Methods)
	for i := range desc.Methods {
		if desc.Methods[i].MethodName == "Check" {
			desc.Methods[i].Handler = check
		}
	}
	s.RegisterService(&desc, r)
}

func check(door any, ctx context.Context, decode func(any) error, guard grpc.UnaryServerInterceptor) (any, error) {
	c := checkCalls.Get().(*checkCall)
	if err := decode(c); err != nil {
		return nil, err
	}
	if guard == nil {
		return c, door.(*rateLimiter).serve(ctx, c)
	}
	info := &grpc.UnaryServerInfo{Server: door, FullMethod: penstockv1.RateLimiter_Check_FullMethodName}
	return guard(ctx, c, info, func(ctx context.Context, _ any) (any, error) {
		return c, door.(*rateLimiter).serve(ctx, c)
	})
}
