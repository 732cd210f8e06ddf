package native

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
)

// Promise: with a deadline that had passed nothing is charged.
func TestExpiredRequestIsNotCharged(t *testing.T) {
	node := rpctest.Alone(t, rpctest.PerHour)
	door := &rateLimiter{node: node, clock: clock.New(), inlines: new(door.Inlines)}
	ctx, cancel := context.WithDeadline(context.Background(), time.Now())
	defer cancel()
	if _, err := door.Check(ctx,
		&penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("demo", "a",
			1)}}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("ended with %v, want DeadlineExceeded", err)
	}
	out := answerOnStream(t, door, &penstockv1.CheckStreamRequest{
		TimeoutMs: -1,
		Check: &penstockv1.CheckRequest{Items: []*penstockv1.Item{rpctest.Item("demo", "a",
			1)}},
	})
	if codes.Code(out.Error.GetCode()) != codes.DeadlineExceeded {
		t.Errorf("a stream's request with a negative timeout: %v", out)
	}
	if n := node.Stats().Changes(); n != 0 {
		t.Errorf("%d decisions have charged something", n)
	}
}
