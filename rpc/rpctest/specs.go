package rpctest

import (
	"net/http"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/rules"
	penstockv1 "penstock/proto/penstock/v1"
)

// PerHour, bucket and shadowed are limits of three kinds; specs are all of them.
var (
	PerHour = limiter.Spec{
		Name: "demo", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 5, Per: time.Hour,
	}
	bucket = limiter.Spec{
		Name: `a "quoted\ bucket" ü`, Algorithm: limiter.GCRA, Limit: 2,
		Per: time.Second, Burst: 10,
	}
	Shadowed = limiter.Spec{
		Name: "shadow", Algorithm: limiter.FixedWindow,
		Anchor: limiter.FirstHit, Limit: 1, Per: time.Hour, OnDeny: limiter.DenyShadow,
	}
	Specs = []limiter.Spec{PerHour, bucket, Shadowed}
)

// Written is a header field as it is written on the wire, to the letter.
func Written(answer *http.Response, name string) []string { return answer.Header[name] }

// SetRules gives a node rules, which name its limits.
func SetRules(t testing.TB, n *cluster.Node, list ...rules.Rule) {
	t.Helper()
	s, err := rules.New(list, n.Limits())
	if err != nil {
		t.Fatal(err)
	}
	n.SetRules(s)
}

// Inline is a limit that a request brings along, with a change.
func Inline(change func(*penstockv1.InlineLimit)) *penstockv1.InlineLimit {
	in := &penstockv1.InlineLimit{
		Algorithm: penstockv1.Algorithm_ALGORITHM_FIXED_WINDOW, Limit: 3,
		PerMs: 60_000, Anchor: penstockv1.Anchor_ANCHOR_FIRST_HIT,
	}
	change(in)
	return in
}
