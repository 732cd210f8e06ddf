package native

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/door"
	"penstock/rpc/notation"
	"penstock/rpc/wire"
)

// checkCall is one Check with the memory of all that it is made of, used again and again: a
// thousand items are half a megabyte. Items come straight from the message, and decisions go
// straight into it.
type checkCall struct {
	request cluster.Request // what is asked; its texts and keys lie in bytes
	out     []cluster.Decision
	verdict *penstockv1.Verdict // nil: none was asked for
	from    door.Caller         // the client
	hungUp  func() bool         // whether it waits no more; until makes it

	bytes []byte                   // of the message
	in    *penstockv1.CheckRequest // the message, if it is not as foreseen; nil: request is
}

var checkCalls = sync.Pool{New: func() any { return new(checkCall) }}

// begin makes room for n items.
func (c *checkCall) begin(n int) {
	c.request.Items, c.out = slices.Grow(c.request.Items[:0], n)[:n], slices.Grow(c.out[:0], n)[:n]
}

// clear makes c as good as new.
func (c *checkCall) clear() {
	clear(c.request.Items)
	clear(c.out)
	*c = checkCall{
		request: cluster.Request{Items: c.request.Items[:0]}, out: c.out[:0],
		bytes: c.bytes[:0], hungUp: c.hungUp,
	}
}

// until gives the request of c a deadline, and tells the node when its client hangs up.
func (c *checkCall) until(deadline limiter.Instant) {
	if c.hungUp == nil {
		c.hungUp = func() bool { return c.from.Context.Err() != nil }
	}
	c.request.Deadline, c.request.HungUp = deadline, c.hungUp
}

// free gives c to others.
func (c *checkCall) free() {
	c.clear()
	checkCalls.Put(c)
}

// Read reads a message of items and nothing else. It keeps nothing of b.
func (c *checkCall) Read(b []byte) bool {
	c.bytes = append(c.bytes[:0], b...)
	return c.readItems(c.bytes)
}

// ReadByLibrary reads any message.
func (c *checkCall) ReadByLibrary(b []byte) error {
	c.in = new(penstockv1.CheckRequest)
	return proto.Unmarshal(b, c.in)
}

// readItems reads a message of items and nothing else, which stays where it is.
func (c *checkCall) readItems(b []byte) bool {
	n := wire.CountItems(b)
	if n == 0 || n > cluster.MaxItems {
		return false
	}
	c.begin(n)
	outer := wire.Fields{Rest: b}
	for i := range c.request.Items {
		outer.Next()
		if !hotItem(outer.Bytes, &c.request.Items[i]) {
			return false
		}
	}
	return true
}

func hotItem(b []byte, to *cluster.Item) (ok bool) {
	*to = cluster.Item{Cost: 1}
	ok = true
	f, identified := wire.Fields{Rest: b}, false
	for ok && f.Next() {
		switch {
		case f.Wire == protowire.BytesType && f.Num == 1:
			to.Limit, ok = wire.TextOf(f.Bytes)
		case f.Wire == protowire.BytesType && f.Num == 3:
			to.Key = wire.Borrow(f.Bytes)
		case f.Wire == protowire.VarintType && f.Num == 4:
			to.Cost = int64(f.Value)
		// or there are two halves of one
		case f.Wire == protowire.BytesType && f.Num == 5 && !identified:
			identified, ok = true, readID(f.Bytes, &to.ID)
		default:
			ok = false
		}
	}
	return ok && f.Err == nil
}

// Written is the answer. It is the last that is asked of c, which others use from here on.
func (c *checkCall) Written(codec wire.Codec) (mem.BufferSlice, error) {
	defer c.free()
	return c.write(codec)
}

func (c *checkCall) write(codec wire.Codec) (mem.BufferSlice, error) {
	var w checkWriter
	w.Begin(96 * (1 + len(c.out)))
	w.check(c)
	if w.Unforeseen {
		w.Free()
		return codec.CodecV2.Marshal(c.response())
	}
	return w.Slice(), nil
}

// response is the answer as the generated code has it.
func (c *checkCall) response() *penstockv1.CheckResponse {
	return &penstockv1.CheckResponse{Decisions: notation.Decisions(c.out), Verdict: c.verdict}
}

// registerRateLimiter registers r as penstock.v1.RateLimiter. Checks do not go by way of the
// generated code, which makes each message anew.
func registerRateLimiter(s grpc.ServiceRegistrar, r *rateLimiter) {
	desc := wire.ByHand(penstockv1.RateLimiter_ServiceDesc, "Check", check)
	desc.Streams = slices.Clone(desc.Streams)
	for i := range desc.Streams {
		if desc.Streams[i].StreamName == "CheckStream" {
			desc.Streams[i].Handler = checkStream
		}
	}
	s.RegisterService(&desc, r)
}

func check(door any, ctx context.Context, decode func(any) error,
	guard grpc.UnaryServerInterceptor,
) (any, error) {
	c := checkCalls.Get().(*checkCall)
	if err := decode(c); err != nil {
		return nil, err
	}
	return wire.Guarded(ctx, guard, door.(*rateLimiter),
		penstockv1.RateLimiter_Check_FullMethodName, c, (*rateLimiter).serve)
}

// check decides on c, which is a Check or of a CheckStream.
func (s *rateLimiter) check(deadline limiter.Instant, c *checkCall) error {
	if c.in != nil {
		return s.checkMessage(deadline, c)
	}
	c.request.Atomic = false
	c.until(deadline)
	return s.charge(c)
}
