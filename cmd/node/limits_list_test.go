package main

import (
	"strings"
	"testing"

	"penstock/limiter/policy"
	penstockv1 "penstock/proto/penstock/v1"
)

// namedLimits are the limits of a file as a node tells of them.
func namedLimits(t *testing.T, text string) (list []*penstockv1.NamedLimit) {
	t.Helper()
	set, err := policy.ParseParts("limits.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range policy.ParentsFirst(set.Limits) {
		l := set.Limits[name]
		list = append(list, &penstockv1.NamedLimit{
			Limit: &penstockv1.InlineLimit{
				Name: l.Name, Limit: l.Limit, PerMs: l.Per.Milliseconds(),
			},
			Overrides: int32(len(l.Overrides())), Definition: policy.Format(l),
		})
	}
	return list
}

// Promise: `limits list` finds every difference between nodes, also one of overrides by plan or of
// a candidate, and says which field has which value where.
func TestListSaysWhatDiffers(t *testing.T) {
	const api = "limits: [{name: api, algorithm: gcra, limit: 10, per: 1s"
	const plans = api + ", overrides: [{plan: free, limit: 20}, {plan: pro, limit: 1000}]"
	byNode := map[string][]*penstockv1.NamedLimit{}
	for node, text := range map[string]string{
		"n1": plans + "}]", "n2": plans + "}]", "n3": plans + "}]",
		"n4": api + ", overrides: [{plan: free, limit: 20}, {plan: pro, limit: 2000}]}]",
		"n5": api + ", overrides: [{plan: pro, limit: 1000}, {plan: free, limit: 20}]}]",
		"n6": plans + ", candidate: {limit: 5}}]",
		"n7": api + ", overrides: [{plan: free, limit: 20}, {key: 'vip/*', unlimited: true}]}]",
		"n8": "limits: []", "n9": "limits: []",
	} {
		byNode[node] = namedLimits(t, text)
	}
	rows := mergeLimits(byNode)
	if len(rows) != 1 {
		t.Fatalf("%+v", rows)
	}
	var b strings.Builder
	if err := (limitList{Limits: rows}).write(&b); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(b.String(), "\n\n")
	want := `DIFFERENT at n4: api
  override of plan pro: limit 1000 → limit 2000
DIFFERENT at n5: api
  order of overrides: plan free, plan pro → plan pro, plan free
DIFFERENT at n6: api
  candidate.algorithm: – → gcra
  candidate.limit: – → 5
  candidate.override of plan free: – → limit 20
  candidate.override of plan pro: – → limit 1000
  candidate.order of overrides: – → plan free, plan pro
  candidate.per: – → 1s
DIFFERENT at n7: api
  override of plan pro: limit 1000 → –
  order of overrides: plan free, plan pro → plan free, key vip/*
  override of key vip/*: – → unlimited true
DIFFERENT at n8, n9: api
  there is none
Give all nodes the same files, or put the limit: that wins over files.
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
