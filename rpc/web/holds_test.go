package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/admin"
	"penstock/rpc/rpctest"
)

// Promise: the operator of a cluster sees the open holds; one that is settled is not there any
// more; ids are not told.
func TestWhoHoldsWhat(t *testing.T) {
	n := rpctest.Alone(t, rpctest.Specs...)
	h := New(Config{Node: n, Admin: true})
	ids := map[string]string{}
	for i, holder := range []string{"ann", "bo", "ann"} {
		var hold holdJSON
		_, text := rpctest.Page(h, "POST", "/v1/reserve",
			fmt.Sprintf(`{"limit":"demo","key":"k%d","ttl_ms":%d,"cost":%d,"holder":%q}`, i%2,
				60_000-i*1000, i+1, holder))
		if err := json.Unmarshal([]byte(text), &hold); err != nil || hold.ID == "" {
			t.Fatal(text, err)
		}
		ids[holder] = hold.ID
	}
	list := func(query string) (units []int64, out admin.OpenHolds) {
		r, text := rpctest.Page(h, "GET", "/v1/holds"+query, "")
		if err := json.Unmarshal([]byte(text), &out); err != nil || r.StatusCode != http.StatusOK ||
			strings.Contains(text, ids["bo"]) {
			t.Fatal(query, text)
		}
		for _, h := range out.Holds {
			units = append(units, h.Units)
		}
		return units, out
	}
	for query, want := range map[string][]int64{
		"": {3, 2, 1}, "?limit=demo": {3, 2, 1}, "?limit=other": nil, "?key=k0": {3, 1},
		"?holder=bo": {2}, "?key=k0&holder=bo": nil, "?count=2": {3, 2},
	} {
		if got, _ := list(query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	if _, out := list("?count=1"); out.There != 3 || out.Node != "n1" ||
		out.Holds[0].Holder != "ann" || out.Holds[0].Key != "k0" || out.Holds[0].LeftMs < 50_000 {
		t.Errorf("%+v", out)
	}
	rpctest.Page(h, "POST", "/v1/settle", fmt.Sprintf(`{"id":%q,"actual":1}`, ids["bo"]))
	if got, _ := list(""); !slices.Equal(got, []int64{3, 1}) {
		t.Errorf("after bo has settled: %v", got)
	}

	a := admin.New(admin.Config{Node: n})
	if out, err := a.Holds(context.Background(),
		&penstockv1.HoldsRequest{Holder: "ann"}); err != nil || out.There != 2 ||
		out.Holds[0].Units != 3 || out.Holds[0].LimitName != "demo" {
		t.Error(out, err)
	}
	for _, in := range []*penstockv1.HoldsRequest{
		{Count: -1},
		{Count: 1001},
		{Key: make([]byte, 1025)},
		{Holder: strings.Repeat("h", 129)},
	} {
		if _, err := a.Holds(context.Background(), in); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%.40v: %v", in, err)
		}
	}
}
