package embedded_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"penstock/embedded"
	"penstock/limiter"
	"penstock/rpc/client"
	"penstock/rpc/door"
)

// codeOf is the name of the gRPC code that err has.
func codeOf(err error) string {
	var coded door.Coded
	if !errors.As(err, &coded) {
		return "none"
	}
	return coded.GRPCStatus().Code().String()
}

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
		code       string
		is         error
	}{
		"an unknown limit":      {ctx, "none", "alice", "NotFound", nil},
		"no key":                {ctx, "login", "", "InvalidArgument", nil},
		"a caller that is gone": {gone, "login", "alice", "Canceled", context.Canceled},
		"a deadline that is over": {
			late, "login", "alice", "DeadlineExceeded", context.DeadlineExceeded,
		},
	} {
		_, take := n.Take(row.ctx, row.limit, row.key, 1)
		_, peek := n.Peek(row.ctx, row.limit, row.key, 1)
		_, do := n.Do(row.ctx, client.Request{Limit: row.limit, Key: row.key, Cost: 1})
		_, reserve := n.Reserve(row.ctx, row.limit, row.key, 1, time.Minute)
		for call, err := range map[string]error{
			"Take": take, "Peek": peek, "Do": do, "Reserve": reserve,
		} {
			if codeOf(err) != row.code || row.is != nil && !errors.Is(err, row.is) {
				t.Errorf("%s: %s: %v, of code %v", what, call, err, codeOf(err))
			}
		}
	}
	if _, err := n.CheckRules(ctx, map[string]string{"a": "b"}, 1); codeOf(
		err) != "NotFound" {
		t.Errorf("without rules: %v, of code %v", err, codeOf(err))
	}
}
