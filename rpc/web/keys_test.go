package web

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/admin"
	"penstock/rpc/history"
	"penstock/rpc/rpctest"
)

// Promise: the keys that have used most come first, of all keys of the node, each with what it has
// used.
func TestTop(t *testing.T) {
	node := rpctest.Alone(t, rpctest.Specs...)
	h := New(Config{Node: node, Admin: true})
	for i := range 300 {
		rpctest.Page(h, "GET", fmt.Sprintf("/v1/check?limit=demo&key=user-%d&cost=%d", i, 1+i/150),
			"")
	}
	rpctest.Page(h, "GET", "/v1/check?limit=demo&key=most&cost=5", "")
	rpctest.Page(h, "GET", "/v1/check?limit=shadow&key=other", "")
	a := admin.New(admin.Config{Node: node})
	out, err := a.Top(t.Context(), &penstockv1.TopRequest{Count: 3})
	if err != nil || len(out.Keys) != 3 || out.Node != "n1" || out.Seen != 302 || out.Partial {
		t.Fatalf("%v, %v", out, err)
	}
	for i, want := range []string{
		"most demo 5 of 5", "user-150 demo 2 of 5",
		"user-151 demo 2 of 5",
	} {
		k := out.Keys[i]
		if got := fmt.Sprintf("%s %s %d of %d", k.Key, k.LimitName, k.Used, k.Limit); got != want ||
			k.ResetAfterMs <= 0 {
			t.Errorf("%d: %s, as new in %d ms; want %s", i, got, k.ResetAfterMs, want)
		}
	}
	_, text := rpctest.Page(h, "GET", "/v1/top?limit=shadow", "")
	var got admin.TopKeys
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Keys) != 1 ||
		got.Keys[0].Key != "other" || got.Seen != 302 {
		t.Errorf("%s", text)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if out := admin.Top(ended, node, 5, ""); !out.Partial || len(out.Keys) != 0 {
		t.Errorf("a caller who is gone: %+v", out)
	}
	for _, bad := range []string{"count=0", "count=-1", "count=1001", "count=x", "key=x"} {
		if answer, text := rpctest.Page(h, "GET", "/v1/top?"+bad, ""); answer.StatusCode != 400 ||
			!strings.Contains(text, strings.Split(bad, "=")[0]) {
			t.Errorf("%s: %d %s", bad, answer.StatusCode, text)
		}
	}
	if answer, _ := rpctest.Page(New(Config{Node: node}), "GET", "/v1/top",
		""); answer.StatusCode != 404 {
		t.Errorf("keys are shown on a listener without the admin pages: %d", answer.StatusCode)
	}
}

// Promise: the list is what sorting all keys would give, however many it has.
func TestTopOfMany(t *testing.T) {
	node := rpctest.Alone(t, rpctest.Specs...)
	h := New(Config{Node: node, Admin: true})
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 700 {
		rpctest.Page(h, "GET", fmt.Sprintf("/v1/check?limit=demo&key=u%d&cost=%d", i,
			1+random.IntN(5)), "")
	}
	all := admin.Top(t.Context(), node, 10_000, "").Keys
	if len(all) != 700 || !slices.IsSortedFunc(all, admin.ByUse) {
		t.Fatalf("%d keys, in order: %v", len(all), slices.IsSortedFunc(all, admin.ByUse))
	}
	for _, count := range []int{1, 2, 3, 20, 699, 700, 701} {
		got := admin.Top(t.Context(), node, count, "")
		want := all[:min(count, len(all))]
		same := func(a, b admin.KeyState) bool { return admin.ByUse(a, b) == 0 }
		if !slices.EqualFunc(got.Keys, want, same) || got.Seen != 700 {
			t.Errorf("the %d first of %d are others than those of all", count, got.Seen)
		}
	}
}

// BenchmarkTop is a look at a table in which all keys have used the same, in ns a key.
func BenchmarkTop(b *testing.B) {
	const keys = 40_000
	node := rpctest.Alone(b, rpctest.Specs...)
	items, out := make([]cluster.Item, 500), make([]cluster.Decision, 500)
	for from := 0; from < keys; from += len(items) {
		for i := range items {
			items[i] = cluster.Item{
				Limit: "demo", Key: fmt.Sprintf("user-%07d", from+i), Cost: 1,
			}
		}
		if err := node.Check(&cluster.Request{Items: items}, out); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		admin.Top(b.Context(), node, 20, "")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
}

// Promise: with the keys that have used most come, if they are asked for, those that were asked for
// most, and what the doors have answered; and no list is longer than it may be.
func TestTopAsked(t *testing.T) {
	node := rpctest.Alone(t, rpctest.Specs...)
	recorder := history.NewRecorder(node, 0, time.Now)
	h := New(Config{Node: node, Admin: true})
	for i := range 12 {
		rpctest.Page(h, "GET", fmt.Sprintf("/v1/check?limit=demo&key=user-%d", i%3%2), "")
	}
	a := admin.New(admin.Config{Node: node, Recorder: recorder})
	out, err := a.Top(t.Context(), &penstockv1.TopRequest{Asked: 1})
	if err != nil || out.Allowed != 9 || out.Denied != 3 || out.Degraded != 0 ||
		out.Boot != node.Boot() {
		t.Fatalf("%v, %v", out, err)
	}
	s := out.Asked
	if len(s.Keys) != 1 || s.Total != 12 || s.Sampled != 1 || s.Unseen != 4 {
		t.Fatalf("%v", s)
	}
	if k := s.Keys[0]; string(k.Key) != "user-0" || k.LimitName != "demo" || k.Checks != 8 ||
		k.Over != 0 || k.Denied != 3 {
		t.Errorf("%v", k)
	}
	if out, err = a.Top(t.Context(), &penstockv1.TopRequest{}); err != nil || out.Asked != nil {
		t.Errorf("keys that were not asked for: %v, %v", out, err)
	}
	for _, n := range []int32{-1, 1001} {
		_, err := a.Top(t.Context(), &penstockv1.TopRequest{Asked: n})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "asked") {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// Promise: page by page, each key with the prefix comes once.
func TestKeysByPrefix(t *testing.T) {
	node := rpctest.Alone(t, rpctest.Specs...)
	h := New(Config{Node: node})
	for i := range 500 {
		rpctest.Page(h, "GET", fmt.Sprintf("/v1/check?limit=demo&key=a%d", i), "")
		rpctest.Page(h, "GET", fmt.Sprintf("/v1/check?limit=demo&key=b%d", i), "")
	}
	a := admin.New(admin.Config{Node: node})
	seen := map[string]bool{}
	cursor := ""
	for pages := 0; ; pages++ {
		out, err := a.Keys(t.Context(), &penstockv1.KeysRequest{
			Prefix: []byte("a"), Count: 33,
			Cursor: cursor,
		})
		if err != nil || pages > 500 {
			t.Fatal(pages, err)
		}
		for _, k := range out.Keys {
			if seen[string(k.Key)] || k.Key[0] != 'a' || k.Used != 1 {
				t.Errorf("%v", k)
			}
			seen[string(k.Key)] = true
		}
		if cursor = out.Next; cursor == "" {
			break
		}
	}
	if len(seen) != 500 {
		t.Errorf("%d keys, want 500", len(seen))
	}
	for field, in := range map[string]*penstockv1.KeysRequest{
		"count":  {Count: -1},
		"prefix": {Prefix: make([]byte, 1025)},
		"cursor": {Cursor: "1.2 and more"},
	} {
		if _, err := a.Keys(t.Context(), in); status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
