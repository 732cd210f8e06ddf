package native

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/clock"
	"penstock/rpc/door"
	"penstock/rpc/page"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

// Promise: what a request asks for besides a cost counts alike at all doors, a limit that has it
// not says so, and nothing is charged then.
func TestTermsAtEachDoor(t *testing.T) {
	visit := limiter.Spec{
		Name: "visit", Algorithm: limiter.TokenBucket, Anchor: limiter.FirstHit,
		Limit: 5, Per: time.Minute, ClientTime: true, MaxDebt: 2,
	}
	session := limiter.Spec{
		Name: "session", Algorithm: limiter.TokenBucket,
		Anchor: limiter.FirstHit, Limit: 5, Per: time.Minute, ClientTime: true, Sessions: true,
	}
	node := rpctest.Alone(t, visit, session, rpctest.PerHour)
	h := web.New(web.Config{Node: node})
	byGRPC := &rateLimiter{node: node, clock: clock.New(), inlines: new(door.Inlines)}
	minute := time.Minute.Milliseconds()
	for _, row := range []struct {
		query, json                   string
		it                            *penstockv1.Item
		allowed                       bool
		remaining, drained, sessionMs int64
	}{
		{"cost=3&at_ms=0", `"cost":3,"at_ms":0`, &penstockv1.Item{
			Cost: new(int64(3)),
			AtMs: new(int64(0)),
		}, true, 2, 0, 0},
		{
			"cost=4&at_ms=7&drain=true", `"cost":4,"at_ms":7,"drain":true`,
			&penstockv1.Item{Cost: new(int64(4)), AtMs: new(int64(7)), Drain: true}, false, 0, 2, 0,
		},
		{
			"at_ms=59999&strict=true", `"at_ms":59999,"strict":true`,
			&penstockv1.Item{AtMs: new(minute - 1), Strict: true}, false, 0, 0, 0,
		},
		{"cost=0&at_ms=60000", `"cost":0,"at_ms":60000`, &penstockv1.Item{
			Cost: new(int64(0)),
			AtMs: &minute,
		}, true, 0, 0, 0},
		{
			"cost=9&at_ms=119999&report=true&drain=false", `"cost":9,"at_ms":119999,"report":true`,
			&penstockv1.Item{Cost: new(int64(9)), AtMs: new(2*minute - 1), Report: true}, true, 0,
			0, 0,
		},
		// it owed 2
		{"cost=4&at_ms=179999", `"cost":4,"at_ms":179999`, &penstockv1.Item{
			Cost: new(int64(4)),
			AtMs: new(3*minute - 1),
		}, false, 3, 0, 0},
		{
			"at_ms=60000", `"at_ms":60000`, &penstockv1.Item{Limit: "session", AtMs: &minute}, true,
			4,
			0, minute,
		},
	} {
		limit := "visit"
		if row.sessionMs != 0 {
			limit = "session"
		}
		row.it.Limit, row.it.Key = limit, []byte("grpc")
		out, err := byGRPC.Check(t.Context(),
			&penstockv1.CheckRequest{Items: []*penstockv1.Item{row.it}})
		if err != nil {
			t.Fatal(err)
		}
		d := out.Decisions[0]
		got := []web.DecisionJSON{{
			Allowed: d.Allowed, Remaining: d.Remaining, Drained: d.Drained,
			SessionMs: d.SessionMs,
		}}
		for _, text := range []string{
			second(rpctest.Page(h, "GET", "/v1/check?key=query&limit="+limit+"&"+row.query, "")),
			second(rpctest.Page(h, "POST", "/v1/check",
				`{"key":"body","limit":"`+limit+`",`+row.json+`}`)),
		} {
			var d web.DecisionJSON
			if err := json.Unmarshal([]byte(text), &d); err != nil {
				t.Fatal(err)
			}
			got = append(got, web.DecisionJSON{
				Allowed: d.Allowed, Remaining: d.Remaining,
				Drained: d.Drained, SessionMs: d.SessionMs,
			})
		}
		want := web.DecisionJSON{
			Allowed: row.allowed, Remaining: row.remaining, Drained: row.drained,
			SessionMs: row.sessionMs,
		}
		for i, door := range []string{"gRPC", "a query", "a body"} {
			if got[i] != want {
				t.Errorf("%s, %s: %+v, want %+v", row.query, door, got[i], want)
			}
		}
	}
	for _, row := range []struct{ query, json, field string }{
		{"at_ms=-1", `"at_ms":-1`, "at_ms"},
		{"at_ms=1.5", `"at_ms":1.5`, "at_ms"},
		{"at_ms=1", `"at_ms":1`, "at_ms"}, // demo goes by its owner's clock
		{"strict=true", `"strict":true`, "strict"},
		{"report=1", `"report":1`, "report"},
	} {
		for _, answer := range []string{
			second(rpctest.Page(h, "GET", "/v1/check?limit=demo&key=k&"+row.query, "")),
			second(rpctest.Page(h, "POST", "/v1/check", `{"limit":"demo","key":"k",`+row.json+`}`)),
		} {
			var p page.Problem
			if err := json.Unmarshal([]byte(answer), &p); err != nil || p.Status != 400 ||
				p.Field != row.field || !strings.HasPrefix(p.Detail, row.field+": ") {
				t.Errorf("%s: %s", row.query, answer)
			}
		}
	}
	if text := second(rpctest.Page(h, "GET", "/v1/peek?limit=demo&key=k",
		"")); !strings.Contains(text, `"remaining":5,`) {
		t.Errorf("requests in error were charged: %s", text)
	}
}

func second(_ *http.Response, text string) string { return text }

// Promise: an id without a drawn origin is refused, and charges nothing: two clients with such ids
// would be taken for one that repeats itself.
func TestIDsAreDrawn(t *testing.T) {
	node := rpctest.Alone(t, rpctest.PerHour)
	byGRPC := &rateLimiter{node: node, clock: clock.New(), inlines: new(door.Inlines)}
	check := func(id *penstockv1.RequestId) error {
		_, err := byGRPC.Check(t.Context(), &penstockv1.CheckRequest{Items: []*penstockv1.Item{
			{Limit: rpctest.PerHour.Name, Key: []byte("k"), Id: id},
		}})
		return err
	}
	for _, origin := range []uint64{0, 1 << 63} {
		err := check(&penstockv1.RequestId{Origin: origin, Sequence: 1})
		if err == nil || !strings.Contains(err.Error(), "items[0].id.origin: is ") {
			t.Errorf("origin %d: %v", origin, err)
		}
		_, err = byGRPC.Check(t.Context(), &penstockv1.CheckRequest{
			Attributes: map[string]string{"path": "/"},
			Id:         &penstockv1.RequestId{Origin: origin, Sequence: 1},
		})
		if err == nil || !strings.Contains(err.Error(), "id.origin: is ") {
			t.Errorf("attributes, origin %d: %v", origin, err)
		}
	}
	if n := node.Stats().Allowed(); n != 0 {
		t.Errorf("%d are admitted", n)
	}
	for _, id := range []*penstockv1.RequestId{nil, {}, {Origin: 1}, {Origin: 1 << 62}} {
		if err := check(id); err != nil {
			t.Errorf("%v: %v", id, err)
		}
	}
}
