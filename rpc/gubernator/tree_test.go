package gubernator

import (
	"strings"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/proto/gubernator"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
)

// Promise: a request that the parent of its limit cannot be charged for has an error of its own,
// and the others of its message are decided.
func TestFaultsOfTreesAreTheirRequests(t *testing.T) {
	team := limiter.Spec{
		Name: "team", Algorithm: limiter.FixedWindow, Limit: 10, Per: time.Hour,
	}
	user := team
	user.Name, user.Parent = "user", "team"
	g := &Door{
		Node: rpctest.Alone(t, team, user), Clock: clock.New(), Inlines: new(door.Inlines),
	}
	ask := func(key string, b gubernator.Behavior) *gubernator.RateLimitReq {
		return &gubernator.RateLimitReq{Name: "user", UniqueKey: key, Hits: 1, Behavior: b}
	}
	out, err := answerAt(g, time.Now(), &gubernator.GetRateLimitsReq{
		Requests: []*gubernator.RateLimitReq{
			ask("blue/ann", 0), ask("ann", 0), ask("/ann", 0), ask("blue/bob", drain),
			ask("ann", reset), ask("blue/ann", 0),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"", "field 'unique_key' is too short", "field 'unique_key' is too short",
		"behavior DRAIN_OVER_LIMIT is not for limit \"user\"", "", "",
	} {
		got := out.Responses[i]
		if !strings.HasPrefix(got.Error, want) || (want == "") != (got.Error == "") {
			t.Errorf("request %d: %v, want the error %q", i, got, want)
		}
	}
	if got := out.Responses[5]; got.Remaining != 8 {
		t.Errorf("the second of two good requests: %v, want 8 left", got)
	}
}
