package web

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

	"penstock/limiter"
	"penstock/limiter/rules"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/admin"
	"penstock/rpc/catalog"
	"penstock/rpc/notation"
	"penstock/rpc/rpctest"
)

// Promise: a limit that is listed can be put again, and is the same, over gRPC and HTTP.
func TestLimitsThereAndBack(t *testing.T) {
	for i, s := range []limiter.Spec{
		{
			Algorithm: limiter.GCRA, Limit: 10, Per: 1500 * time.Millisecond, Burst: 20,
			OnError: limiter.ErrorDeny, DryRun: true, MaxDebt: 3,
		},
		{
			Algorithm: limiter.TokenBucket, Limit: 10, Per: time.Hour, Refill: 3,
			Anchor: limiter.Epoch,
		},
		{
			Algorithm: limiter.TokenBucket, Limit: 10, Per: 90 * time.Second,
			Anchor: limiter.FirstHit,
			Strict: true, Drain: true, ClientTime: true,
		},
		{
			Algorithm: limiter.FixedWindow, Limit: 10, Calendar: limiter.Months,
			Per: limiter.Months.Per(), TimeZone: "Europe/Berlin", Sync: true,
		},
		{
			Algorithm: limiter.FixedWindow, Limit: 10, Per: 24 * time.Hour,
			Anchor:        limiter.FirstHit,
			CountRejected: true, OnDeny: limiter.DenyShadow,
		},
		{
			Algorithm: limiter.SlidingLog, Limit: 10, Per: time.Minute, MinGap: 2 * time.Second,
			OnPartition: limiter.PartitionOpen,
		},
		{
			Algorithm: limiter.SlidingCounter, Limit: 10, Per: time.Minute, Buckets: 30,
			Lenient:   true,
			Unsettled: limiter.UnsettledRelease,
		},
		{
			Algorithm: limiter.SlidingWindow, Limit: 10, Per: time.Minute,
			Consistency: limiter.Leased,
			OnError:     limiter.ErrorAllow,
		},
		{
			Algorithm: limiter.LeakyBucket, Limit: 10, Per: time.Second,
			Consistency: limiter.Replicated,
		},
		{Algorithm: limiter.StatedWindow, Limit: 10, Per: time.Second},
		{Algorithm: limiter.StatedBucket, Limit: 10, Per: time.Second},
		{Algorithm: limiter.Concurrency, Limit: 10, Per: time.Second},
	} {
		s.Name = fmt.Sprint(i)
		l, err := limiter.New(s)
		if err != nil {
			t.Fatal(s, err)
		}
		again, err := limiter.New(notation.ReadLimit(notation.LimitMessage(&l.Spec)))
		if err != nil || again.Spec != l.Spec {
			t.Errorf("over gRPC\n%+v became\n%+v, %v", l.Spec, again, err)
		}
		text, err := json.Marshal(notation.NewLimitJSON(&l.Spec))
		if err != nil {
			t.Fatal(err)
		}
		in, err := decodeJSON[notation.LimitJSON](text, "")
		if err != nil {
			t.Fatal(err)
		}
		spec, err := in.Spec()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if again, err = limiter.New(spec); err != nil || again.Spec != l.Spec {
			t.Errorf("over HTTP\n%+v became\n%+v, %v\n%s", l.Spec, again, err, text)
		}
	}
}

// Promise: a limit that was put counts at once, keeps what keys have used when it is put anew, and
// is told from a file's.
func TestPutLimit(t *testing.T) {
	n := rpctest.Alone(t, rpctest.Specs...)
	c := catalog.OrAlone(nil, n)
	h := New(Config{Node: n, Admin: true, Catalog: c})
	put := func(body string) (int, string) {
		r, text := rpctest.Page(h, "PUT", "/v1/limits", body)
		return r.StatusCode, text
	}
	const window = `{"name":"new","algorithm":"fixed_window","anchor":"first_hit","per":"1h"`
	code, text := put(window + `,"limit":3}`)
	if code != 200 || strings.Contains(text, "replaced") {
		t.Fatal(code, text)
	}
	rpctest.Page(h, "GET", "/v1/check?limit=new&key=k&cost=3", "")
	code, text = put(window + `,"limit":5}`)
	if code != 200 || !strings.Contains(text, `"replaced":true`) {
		t.Fatal(code, text)
	}
	if _, text := rpctest.Page(h, "GET", "/v1/check?limit=new&key=k&cost=1", ""); !strings.Contains(
		text,
		`"remaining":1,`,
	) {
		t.Error(text)
	}
	const perHour = `{"name":"x","algorithm":"gcra","limit":3,"per":"1h"`
	for body, want := range map[string]string{
		`{"algorithm":"gcra","limit":3,"per":"1h"}`:             "limit.name: is missing",
		`{"name":"x","algorithm":"gcra","limit":3}`:             "limit.per: ",
		`{"name":"x","algorithm":"gcra","limit":-3,"per":"1h"}`: "limit.limit: is -3",
		`{"name":"x","algorithm":"fancy","limit":3,"per":"1h"}`: `limit.algorithm: \"fancy\" is ` +
			`not there`,
		`{"name":"x","on_error":"shrug","algorithm":"gcra"}`: `limit.on_error: \"shrug\" is ` +
			`unknown; there is: local, allow, deny`,

		perHour + `,"status":200}`:                              "limit.status: is 200; 400 to 599",
		perHour + `,"spread":"x"}`:                              `spread: \"x\" is not a share`,
		perHour + `,"overrides":[{"key":"a"}]}`:                 "limit.overrides[0].key: ",
		perHour + `,"overrides":[{"key":"a","limit":2,"x":1}]}`: "x: is unknown",
		`{"name":"x","limit":"ten"}`:                            `"field":"limit"`,
		`{"name":"x","status":"bad"}`: "status: is string (byte 26); a whole number " +
			"is expected there",
	} {
		if code, text := put(body); code == 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", body, code, text)
		}
	}
	a := admin.New(admin.Config{Node: n, Catalog: c})
	ctx := context.Background()
	out, err := a.Limits(ctx, nil)
	if err != nil || len(out.Limits) != len(rpctest.Specs)+1 {
		t.Fatal(out, err)
	}
	for _, l := range out.Limits {
		if l.Put != (l.Limit.Name == "new") {
			t.Errorf("%v: put %v", l.Limit.Name, l.Put)
		}
	}
	for name, want := range map[string]codes.Code{
		"demo":    codes.FailedPrecondition,
		"nothing": codes.NotFound, "": codes.NotFound, "new": codes.OK,
	} {
		if _, err := a.DeleteLimit(ctx, &penstockv1.DeleteLimitRequest{Name: name}); status.Code(
			err,
		) != want {
			t.Errorf("delete %q: %v", name, err)
		}
	}
	if r, _ := rpctest.Page(h, "GET", "/v1/check?limit=new&key=k",
		""); r.StatusCode != http.StatusNotFound {
		t.Error("a limit that was deleted is there")
	}
	for _, in := range []*penstockv1.PutLimitRequest{
		{},
		{Limit: &penstockv1.InlineLimit{Name: "x"}},
	} {
		if _, err := a.PutLimit(ctx, in); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", in, err)
		}
	}
	if _, err := a.Drain(ctx, nil); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
}

// Promise: a limit that is put over one of a file is in force, and says so; when it is deleted the
// file's is in force again, and cannot be deleted.
func TestPutOverAFile(t *testing.T) {
	n := rpctest.Alone(t, rpctest.Specs...)
	h := New(Config{Node: n, Admin: true})
	expect := func(method, path, body string, status int, want string) {
		t.Helper()
		if r, text := rpctest.Page(h, method, path, body); r.StatusCode != status ||
			!strings.Contains(text, want) {
			t.Errorf("%s %s %s: %d %s", method, path, body, r.StatusCode, text)
		}
	}
	rpctest.SetRules(t, n, rules.Rule{
		Name: "all", Match: map[string][]string{"path": {"*"}},
		Apply: []rules.Apply{{Limit: "demo", Key: "{path}"}},
	})
	before, _ := json.Marshal(n.Limits()["demo"].Limit)
	limit := `{"name":"demo","algorithm":"gcra","limit":77,"per":"1h"}`
	expect(
		"PUT",
		"/v1/limits?version=1@x",
		limit,
		409,
		"version: the limit is at none, and not at 1@x",
	)
	expect("PUT", "/v1/limits?version=none", limit, 200, `"version":"1@`)
	expect("PUT", "/v1/limits?version=none", limit, 409, "version: the limit is at 1@")
	expect(
		"PUT",
		"/v1/limits?version=nonsense",
		limit,
		400,
		`is no version; versions look like 12@node-1`,
	)
	expect("GET", "/v1/peek?limit=demo&key=k", "", 200, `"limit":77,`)
	expect("POST", "/v1/check", `{"attributes":{"path":"/x"},"cost":1}`, 200, `"remaining":76,`)
	expect("GET", "/v1/limits", "", 200, `"over_file":true`)
	expect("DELETE", "/v1/limits?name=demo", "", 200, `"missing":[]`)
	expect("GET", "/v1/peek?limit=demo&key=k", "", 200, `"limit":`+string(before)+`,`)
	expect(
		"DELETE",
		"/v1/limits?name=demo",
		"",
		409,
		"name: a limit of this name comes from a file, and was not put",
	)
	expect("POST", "/v1/limits/rollback?name=demo&to=1@"+n.ID(), "", 200, `"version":"3@`)
	expect("GET", "/v1/peek?limit=demo&key=k", "", 200, `"limit":77,`)
	expect(
		"POST",
		"/v1/limits/rollback?name=demo&to=9@x",
		"",
		404,
		"version: the log has no such entry",
	)
	expect("DELETE", "/v1/limits", "", 400, "name: is missing")
	expect("POST", "/v1/limits/rollback?name=none&to=9@x", "", 404, "no limit of this name was put")
	expect("GET", "/v1/limits/history?name=demo", "", 200, `"base":"2@`)
	expect("GET", "/v1/limits/history?name=no", "", 200, `"entries":[]`)
	expect(
		"PUT",
		"/v1/limits",
		`{"name":"../v1/limits?name=x","algorithm":"gcra","limit":4,"per":"1h"}`,
		200,
		`"version":"4@`,
	)
	expect("GET", "/v1/peek?limit=..%2Fv1%2Flimits%3Fname%3Dx&key=k", "", 200, `"limit":4,`)
	expect("DELETE", "/v1/limits?name=..%2Fv1%2Flimits%3Fname%3Dx", "", 200, "")
}
