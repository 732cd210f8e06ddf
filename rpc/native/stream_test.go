package native

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
	"penstock/rpc/wire"
)

// burst is a stream of so many requests in error, all of which are taken in before the first answer
// is sent.
type burst struct {
	grpc.ServerStream
	ctx     context.Context
	left    int
	taken   chan struct{} // closed when all are
	ended   chan struct{} // closed when the client ends the stream
	answers atomic.Int32
}

func (b *burst) Context() context.Context { return b.ctx }

func (b *burst) RecvMsg(m any) error {
	if b.left == 0 {
		close(b.taken)
		<-b.ended
		return io.EOF
	}
	b.left--
	m.(*streamCall).in = new(penstockv1.CheckRequest)
	return nil
}

func (b *burst) SendMsg(m any) error {
	<-b.taken
	b.answers.Add(1)
	_, err := wire.NewCodec().Marshal(m)
	return err
}

// TestStreamKeepsFewGoroutines: after many requests at once a few goroutines wait for more, and
// none when the stream has ended.
func TestStreamKeepsFewGoroutines(t *testing.T) {
	node := rpctest.Alone(t, rpctest.PerHour)
	synctest.Test(t, func(t *testing.T) {
		b := &burst{
			ctx: t.Context(), left: 100, taken: make(chan struct{}),
			ended: make(chan struct{}),
		}
		k := &talk{
			door:   &rateLimiter{node: node, clock: clock.New(), inlines: new(door.Inlines)},
			stream: b, calls: make(chan *streamCall), slots: make(chan struct{}, maxInFlight),
		}
		over := make(chan error)
		go func() { over <- k.read() }()
		synctest.Wait()
		if got, idle, held := b.answers.Load(), k.idle.Load(), len(k.slots); got != 100 ||
			idle != maxIdle || held != 0 {
			t.Errorf("%d answers, %d goroutines wait, %d requests are under way; want 100, %d, 0",
				got, idle, held, maxIdle)
		}
		close(b.ended)
		if err := <-over; err != io.EOF {
			t.Errorf("the stream ended with %v", err)
		}
		close(k.calls)
		if synctest.Wait(); k.idle.Load() != 0 {
			t.Errorf("%d goroutines wait for a stream that has ended", k.idle.Load())
		}
	})
}
