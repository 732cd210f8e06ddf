package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/rpctest"
)

// Promise: the keys that have used most come first, of all keys of the node, each with what it has
// used.
func TestTop(t *testing.T) {
	node := rpctest.Alone(t, httpSpecs...)
	h := NewHTTP(HTTPConfig{Node: node, Admin: true})
	for i := range 300 {
		rpctest.Page(h, "GET", fmt.Sprintf("/v1/check?limit=demo&key=user-%d&cost=%d", i, 1+i/150),
			"")
	}
	rpctest.Page(h, "GET", "/v1/check?limit=demo&key=most&cost=5", "")
	rpctest.Page(h, "GET", "/v1/check?limit=shadow&key=other", "")
	a := &admin{node: node}
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
	var got topKeys
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Keys) != 1 ||
		got.Keys[0].Key != "other" || got.Seen != 302 {
		t.Errorf("%s", text)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if out := top(ended, node, 5, ""); !out.Partial || len(out.Keys) != 0 {
		t.Errorf("a caller who is gone: %+v", out)
	}
	for _, bad := range []string{"count=0", "count=-1", "count=1001", "count=x", "key=x"} {
		if answer, text := rpctest.Page(h, "GET", "/v1/top?"+bad, ""); answer.StatusCode != 400 ||
			!strings.Contains(text, strings.Split(bad, "=")[0]) {
			t.Errorf("%s: %d %s", bad, answer.StatusCode, text)
		}
	}
	if answer, _ := rpctest.Page(NewHTTP(HTTPConfig{Node: node}), "GET", "/v1/top",
		""); answer.StatusCode != 404 {
		t.Errorf("keys are shown on a listener without the admin pages: %d", answer.StatusCode)
	}
}

// Promise: page by page, each key with the prefix comes once.
func TestKeysByPrefix(t *testing.T) {
	node := rpctest.Alone(t, httpSpecs...)
	h := NewHTTP(HTTPConfig{Node: node})
	for i := range 500 {
		rpctest.Page(h, "GET", fmt.Sprintf("/v1/check?limit=demo&key=a%d", i), "")
		rpctest.Page(h, "GET", fmt.Sprintf("/v1/check?limit=demo&key=b%d", i), "")
	}
	a := &admin{node: node}
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
