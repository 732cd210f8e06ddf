package embedded_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/embedded"
	"penstock/limiter"
	"penstock/rpc/client"
)

// Promise: errors have the codes that client.Limiter speaks of, whichever Limiter a program has;
// and those of a context that has ended are that context's.
func TestErrorsHaveCodes(t *testing.T) {
	n := start(t, embedded.Config{Name: "n1", Limits: []limiter.Spec{login}, Memory: 1 << 20})
	defer n.Close(patience(t))
	ctx := patience(t)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	late, cancel := context.WithDeadline(ctx, time.Unix(1, 0))
	defer cancel()
	for what, row := range map[string]struct {
		ctx        context.Context
		limit, key string
		code       codes.Code
		is         error
	}{
		"an unknown limit":      {ctx, "none", "alice", codes.NotFound, nil},
		"no key":                {ctx, "login", "", codes.InvalidArgument, nil},
		"a caller that is gone": {gone, "login", "alice", codes.Canceled, context.Canceled},
		"a deadline that is over": {
			late, "login", "alice", codes.DeadlineExceeded, context.DeadlineExceeded,
		},
	} {
		_, take := n.Take(row.ctx, row.limit, row.key, 1)
		_, peek := n.Peek(row.ctx, row.limit, row.key, 1)
		_, do := n.Do(row.ctx, client.Request{Limit: row.limit, Key: row.key, Cost: 1})
		_, reserve := n.Reserve(row.ctx, row.limit, row.key, 1, time.Minute)
		for call, err := range map[string]error{
			"Take": take, "Peek": peek, "Do": do, "Reserve": reserve,
		} {
			if status.Code(err) != row.code || row.is != nil && !errors.Is(err, row.is) {
				t.Errorf("%s: %s: %v, of code %v", what, call, err, status.Code(err))
			}
		}
	}
	if _, err := n.CheckRules(ctx, map[string]string{"a": "b"}, 1); status.Code(
		err) != codes.NotFound {
		t.Errorf("without rules: %v, of code %v", err, status.Code(err))
	}
}
