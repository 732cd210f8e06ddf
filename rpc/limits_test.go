package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/rpctest"
)

// Promise: a limit that is listed can be put again, and is the same, over gRPC and HTTP.
func TestLimitsThereAndBack(t *testing.T) {
	for i, s := range []limiter.Spec{
		{Algorithm: limiter.GCRA, Limit: 10, Per: 1500 * time.Millisecond, Burst: 20, OnError: limiter.ErrorDeny, DryRun: true, MaxDebt: 3},
		{Algorithm: limiter.TokenBucket, Limit: 10, Per: time.Hour, Refill: 3, Anchor: limiter.Epoch},
		{Algorithm: limiter.TokenBucket, Limit: 10, Per: 90 * time.Second, Anchor: limiter.FirstHit, Strict: true, Drain: true, ClientTime: true},
		{Algorithm: limiter.FixedWindow, Limit: 10, Calendar: limiter.Months, Per: limiter.Months.Per(), TimeZone: "Europe/Berlin", Sync: true},
		{Algorithm: limiter.FixedWindow, Limit: 10, Per: 24 * time.Hour, Anchor: limiter.FirstHit, CountRejected: true, OnDeny: limiter.DenyShadow},
		{Algorithm: limiter.SlidingLog, Limit: 10, Per: time.Minute, MinGap: 2 * time.Second, OnPartition: limiter.PartitionOpen},
		{Algorithm: limiter.SlidingCounter, Limit: 10, Per: time.Minute, Buckets: 30, Lenient: true, Unsettled: limiter.UnsettledRelease},
		{Algorithm: limiter.SlidingWindow, Limit: 10, Per: time.Minute, Consistency: limiter.Leased, OnError: limiter.ErrorAllow},
		{Algorithm: limiter.LeakyBucket, Limit: 10, Per: time.Second, Consistency: limiter.Replicated},
		{Algorithm: limiter.StatedWindow, Limit: 10, Per: time.Second},
		{Algorithm: limiter.StatedBucket, Limit: 10, Per: time.Second},
		{Algorithm: limiter.Concurrency, Limit: 10, Per: time.Second},
	} {
		s.Name = fmt.Sprint(i)
		l, err := limiter.New(s)
		if err != nil {
			t.Fatal(s, err)
		}
		again, err := limiter.New(inlineSpec(limitMessage(&l.Spec)))
		if err != nil || again.Spec != l.Spec {
			t.Errorf("over gRPC\n%+v became\n%+v, %v", l.Spec, again, err)
		}
		text, err := json.Marshal(newInlineJSON(&l.Spec))
		if err != nil {
			t.Fatal(err)
		}
		in, err := decodeJSON[inlineJSON](text, "")
		if err != nil {
			t.Fatal(err)
		}
		spec, err := in.spec()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if again, err = limiter.New(spec); err != nil || again.Spec != l.Spec {
			t.Errorf("over HTTP\n%+v became\n%+v, %v\n%s", l.Spec, again, err, text)
		}
	}
}

// Promise: a limit that was put counts at once, keeps what keys have used when it is put anew, and
// is no file's.
func TestPutLimit(t *testing.T) {
	n := rpctest.Alone(t, httpSpecs...)
	h := NewHTTP(HTTPConfig{Node: n, Admin: true})
	put := func(body string) (int, string) {
		r, text := rpctest.Page(h, "PUT", "/v1/limits", body)
		return r.StatusCode, text
	}
	if code, text := put(`{"name":"new","algorithm":"fixed_window","anchor":"first_hit","limit":3,"per":"1h"}`); code != 200 || strings.Contains(text, "replaced") {
		t.Fatal(code, text)
	}
	rpctest.Page(h, "GET", "/v1/check?limit=new&key=k&cost=3", "")
	if code, text := put(`{"name":"new","algorithm":"fixed_window","anchor":"first_hit","limit":5,"per":"1h"}`); code != 200 || !strings.Contains(text, `"replaced":true`) {
		t.Fatal(code, text)
	}
	if _, text := rpctest.Page(h, "GET", "/v1/check?limit=new&key=k&cost=1", ""); !strings.Contains(text, `"remaining":1,`) {
		t.Error(text)
	}
	for body, want := range map[string]string{
		`{"algorithm":"gcra","limit":3,"per":"1h"}`:               "limit.name: is missing",
		`{"name":"x","algorithm":"gcra","limit":3}`:               "limit.per: ",
		`{"name":"x","algorithm":"gcra","limit":-3,"per":"1h"}`:   "limit.limit: is -3",
		`{"name":"x","algorithm":"fancy","limit":3,"per":"1h"}`:   `limit.algorithm: \"fancy\" is not there`,
		`{"name":"x","on_error":"shrug","algorithm":"gcra"}`:      `limit.on_error: \"shrug\" is unknown; there is: local, allow, deny`,
		`{"name":"x","overrides":[]}`:                             "overrides: is unknown",
		`{"name":"demo","algorithm":"gcra","limit":3,"per":"1h"}`: "name: a limit of this name comes from a file",
	} {
		if code, text := put(body); code == 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", body, code, text)
		}
	}
	a := &admin{node: n}
	ctx := context.Background()
	out, err := a.Limits(ctx, nil)
	if err != nil || len(out.Limits) != len(httpSpecs)+1 {
		t.Fatal(out, err)
	}
	for _, l := range out.Limits {
		if l.Put != (l.Limit.Name == "new") {
			t.Errorf("%v: put %v", l.Limit.Name, l.Put)
		}
	}
	for name, want := range map[string]codes.Code{"demo": codes.FailedPrecondition, "nothing": codes.NotFound, "": codes.NotFound, "new": codes.OK} {
		if _, err := a.DeleteLimit(ctx, &penstockv1.DeleteLimitRequest{Name: name}); status.Code(err) != want {
			t.Errorf("delete %q: %v", name, err)
		}
	}
	if r, _ := rpctest.Page(h, "GET", "/v1/check?limit=new&key=k", ""); r.StatusCode != http.StatusNotFound {
		t.Error("a limit that was deleted is there")
	}
	for _, in := range []*penstockv1.PutLimitRequest{{}, {Limit: &penstockv1.InlineLimit{Name: "x"}}} {
		if _, err := a.PutLimit(ctx, in); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", in, err)
		}
	}
	if _, err := a.Drain(ctx, nil); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
}

// Promise: what was put is bounded, survives other files, and gives way to a file of its name.
func TestPutLimitsAreBounded(t *testing.T) {
	n := rpctest.Alone(t)
	limit := func(name string) *limiter.Limit {
		l, err := limiter.New(limiter.Spec{Name: name, Algorithm: limiter.GCRA, Limit: 1, Per: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for i := range cluster.MaxPut {
		if _, err := n.PutLimit(limit(fmt.Sprint(i))); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := n.PutLimit(limit("more")); err != cluster.ErrManyPut {
		t.Error(err)
	}
	n.SetLimits(cluster.Limits{"0": limit("0"), "file": limit("file")})
	if got := len(n.Limits()); got != cluster.MaxPut+1 || n.IsPut("0") || !n.IsPut("1") {
		t.Errorf("%d limits", got)
	}
	n.SetLimits(cluster.Limits{})
	if got := len(n.Limits()); got != cluster.MaxPut-1 {
		t.Errorf("%d limits; what gave way to a file does not come back", got)
	}
	if _, err := n.PutLimit(limit("more")); err != nil {
		t.Error(err)
	}
}
