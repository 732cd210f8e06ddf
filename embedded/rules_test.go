package embedded_test

import (
	"slices"
	"strings"
	"testing"

	"penstock/embedded"
	"penstock/limiter"
	"penstock/limiter/rules"
)

// Promise: a node in a program goes by rules as well.
func TestCheckRules(t *testing.T) {
	list := []rules.Rule{{Name: "all", Apply: []rules.Apply{{Limit: "login", Key: "{user}"}}}}
	n := start(t, embedded.Config{
		Name: "n1", Limits: []limiter.Spec{login}, Rules: list,
		Memory: 1 << 20,
	})
	ctx := patience(t)
	defer n.Close(ctx)
	if v, err := n.CheckRules(ctx, map[string]string{"user": "ann"}, 20); err != nil ||
		!v.Allowed || v.Decisions[0].Remaining != 10 {
		t.Fatal(v, err)
	}
	if v, err := n.CheckRules(ctx, map[string]string{"user": "ann"}, 20); err != nil || v.Allowed ||
		!slices.Equal(v.RefusedBy, []string{"login"}) || v.RetryAfter <= 0 {
		t.Fatal(v, err)
	}
	if _, err := n.CheckRules(ctx, nil, 1); err == nil ||
		!strings.HasPrefix(err.Error(), "attributes.user: is missing") {
		t.Error(err)
	}
	list[0].Match = map[string][]string{"user": {"bo"}}
	if err := n.SetRules(list); err != nil {
		t.Fatal(err)
	}
	if v, err := n.CheckRules(ctx, map[string]string{"user": "ann"}, 20); err != nil ||
		!v.Allowed || v.Rules != nil {
		t.Error(v, err)
	}
	list[0].Apply[0].Limit = "logn"
	if err := n.SetRules(list); err == nil ||
		!strings.HasPrefix(err.Error(), `embedded: rules[0].apply[0].limit: "logn"`) {
		t.Error(err)
	}
}
