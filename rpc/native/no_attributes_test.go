package native

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"penstock/limiter"
	"penstock/limiter/rules"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

// Promise: a request of which nothing is known is under the rules for all requests, over gRPC as
// over HTTP, where the attributes are {}.
func TestNoAttributes(t *testing.T) {
	n := rpctest.Alone(t, limiter.Spec{
		Name: "total", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 3, Per: time.Hour,
	})
	rpctest.SetRules(t, n, rules.Rule{
		Name: "every", Apply: []rules.Apply{{Limit: "total", Key: "all"}},
	})
	h := web.New(web.Config{Node: n})
	s := &rateLimiter{node: n, clock: clock.New(), inlines: new(door.Inlines)}
	for i, want := range []bool{true, true, true, false} {
		var allowed bool
		var named []string
		if i%2 == 0 {
			a, code, text := asked(t, h, `{"attributes":{}}`)
			if code != 200 {
				t.Fatal(text)
			}
			allowed, named = a.Verdict.Allowed, a.Verdict.Rules
		} else {
			out, err := s.Check(t.Context(), &penstockv1.CheckRequest{Cost: proto.Int64(1)})
			if err != nil {
				t.Fatal(err)
			}
			allowed, named = out.Verdict.Allowed, out.Verdict.Rules
		}
		if allowed != want || !slices.Equal(named, []string{"every"}) {
			t.Errorf("request %d: allowed %v, rules %q; want %v", i, allowed, named, want)
		}
	}
}
