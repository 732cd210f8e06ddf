package native

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"

	"penstock/rpc/wire"
)

// gRPC keeps an answer until its client has a window for it, and a client may have a thousand
// calls. So answers weigh (intake) from when they are written until they are sent, or their call is
// over: the interceptors here say of which connection an answer is, and the codec weighs it.

// connOf is the connection of a call, or nil.
func connOf(ctx context.Context) *weighedConn {
	if p, ok := peer.FromContext(ctx); ok {
		if info, weighed := p.AuthInfo.(weighedInfo); weighed {
			return info.conn
		}
	}
	return nil
}

// answer is an answer to a client of conn.
type answer struct {
	conn    *weighedConn
	message any
}

func weighAnswer(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	out, err := next(ctx, in)
	if conn := connOf(ctx); conn != nil && err == nil {
		return &answer{conn, out}, nil
	}
	return out, err
}

func weighAnswers(service any, s grpc.ServerStream, _ *grpc.StreamServerInfo,
	next grpc.StreamHandler,
) error {
	if conn := connOf(s.Context()); conn != nil {
		s = &weighedStream{s, conn}
	}
	return next(service, s)
}

// weighedStream is a stream with answers that are weighed.
type weighedStream struct {
	grpc.ServerStream
	conn *weighedConn
}

// SendMsg sends an answer.
func (s *weighedStream) SendMsg(m any) error { return s.ServerStream.SendMsg(&answer{s.conn, m}) }

// weighingCodec weighs the answers that it writes.
type weighingCodec struct{ wire.Codec }

// Marshal writes v.
func (c weighingCodec) Marshal(v any) (mem.BufferSlice, error) {
	a, weighed := v.(*answer)
	if !weighed {
		return c.Codec.Marshal(v)
	}
	b, err := c.Codec.Marshal(a.message)
	// a short one is a part of answerWeight, and gRPC does not say when it is sent
	if size := b.Len(); err == nil && !mem.IsBelowBufferPoolingThreshold(size) {
		data := b[0].ReadOnlyData()
		if len(b) > 1 {
			data = b.Materialize()
		}
		a.conn.weigh(int64(size))
		b = mem.BufferSlice{mem.NewBuffer(&data, &unsent{a.conn, int64(size), b})}
	}
	return b, err
}

// unsent is an answer that weighs. gRPC takes it for the pool that the answer's memory is from, and
// puts that back when it needs it no more.
type unsent struct {
	conn *weighedConn
	size int64
	b    mem.BufferSlice
}

// Get is for nobody.
func (*unsent) Get(length int) *[]byte { return wire.Buffers.Get(length) }

// Put ends the weight.
func (u *unsent) Put(*[]byte) {
	u.conn.weigh(-u.size)
	u.b.Free()
}

// weigh adds to the weight of c.
func (c *weighedConn) weigh(change int64) {
	c.mu.Lock()
	c.change += change
	heavier := c.settleLocked()
	c.mu.Unlock()
	if heavier && c.door.used.Load() > c.door.room {
		c.door.relieve(c)
	}
}
