package client

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Promise: OnError answers no caller that has canceled, however the call failed beside that, and
// answers a caller that has run out of time.
func TestCanceledCallerIsNotAnswered(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	broken := status.Error(codes.Unavailable, "the connection breaks")
	f := fallback{on: FailOpen}
	for _, row := range []struct {
		name string
		ctx  context.Context
		code codes.Code
	}{
		{"canceled", canceled, codes.Canceled},
		{"its time is up", late, codes.OK},
		{"it waits", t.Context(), codes.OK},
	} {
		d, err := f.take(row.ctx, broken, Request{Limit: "l", Key: "k", Cost: 1})
		if status.Code(err) != row.code || d.Allowed != (err == nil) {
			t.Errorf("%s: take: %+v, %v", row.name, d, err)
		}
		d, err = f.peek(row.ctx, broken, "l", "k", 1)
		if status.Code(err) != row.code || d.Allowed != (err == nil) {
			t.Errorf("%s: peek: %+v, %v", row.name, d, err)
		}
	}
}
