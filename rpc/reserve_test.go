package rpc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/cluster"
	"penstock/limiter"
	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/hold"
	"penstock/rpc/rpctest"
	"penstock/rpc/web"
)

var tokensPerHour = limiter.Spec{
	Name: "tokens", Algorithm: limiter.FixedWindow,
	Anchor: limiter.FirstHit, Limit: 1000, Per: time.Hour, MaxDebt: 500,
}

// Promise: reserve through one node, settle through another; less is released, more is charged,
// again is once.
func TestReserveAndSettle(t *testing.T) {
	s := newStations(t, 2, tokensPerHour, five)
	key := rpctest.OwnKey(s[1].node, 0)
	ctx := rpctest.Patience(t)
	inline := &penstockv1.InlineLimit{
		Name: "mine", Algorithm: penstockv1.Algorithm_ALGORITHM_GCRA,
		Limit: 1000, PerMs: 3_600_000, Burst: 1000,
	}
	for _, row := range []struct {
		item      *penstockv1.Item
		actual    int64
		remaining int64
	}{
		{rpctest.Item("tokens", key, 400), 100, 900},
		{rpctest.Item("tokens", key, 400), 600, 300},
		{&penstockv1.Item{Inline: inline, Key: []byte(key), Cost: new(int64(500))}, 200, 800},
	} {
		out, err := s[0].client.Reserve(ctx,
			&penstockv1.ReserveRequest{Items: []*penstockv1.Item{row.item, rpctest.Item("five", key,
				1)}, TtlMs: 60_000, Holder: "a proxy"})
		if err != nil || !out.Allowed || len(out.Holds) != 2 || out.Holds[0].Id == "" ||
			out.Holds[0].Id == out.Holds[1].Id {
			t.Fatalf("%v, %v", out, err)
		}
		if _, err := s[1].client.Extend(ctx, &penstockv1.ExtendRequest{
			Id:    out.Holds[0].Id,
			TtlMs: 120_000,
		}); err != nil {
			t.Fatal(err)
		}
		for _, node := range []*station{s[1], s[0], s[1]} {
			got, err := node.client.Settle(ctx, &penstockv1.SettleRequest{
				Id:     out.Holds[0].Id,
				Actual: row.actual, Holder: "a proxy",
			})
			if err != nil || !got.Decision.Allowed || got.Decision.Remaining > row.remaining ||
				got.Decision.Remaining < row.remaining-1 || got.Decision.Owner != "n2" {
				t.Fatalf("settled with %d at %s: %v, %v; want remaining %d", row.actual,
					node.member.ID, got, err, row.remaining)
			}
		}
		for want, in := range map[codes.Code]*penstockv1.SettleRequest{
			codes.AlreadyExists:    {Id: out.Holds[0].Id, Actual: row.actual + 1},
			codes.PermissionDenied: {Id: out.Holds[1].Id, Actual: 1, Holder: "another"},
			codes.InvalidArgument:  {Id: out.Holds[1].Id, Actual: -1},
		} {
			if _, err := s[0].client.Settle(ctx, in); status.Code(err) != want {
				t.Errorf("%v: %v, want %v", in, err, want)
			}
		}
	}
}

func TestReserveRefuses(t *testing.T) {
	s := newStations(t, 1, tokensPerHour)[0]
	ctx := rpctest.Patience(t)
	for want, in := range map[string]*penstockv1.ReserveRequest{
		"ttl_ms: is 0; 100 (100ms) to": {Items: []*penstockv1.Item{rpctest.Item("tokens",
			"k", 1)}},
		"ttl_ms: is 86400001;": {Items: []*penstockv1.Item{rpctest.Item("tokens",
			"k", 1)}, TtlMs: 86_400_001},
		"items[0].cost: is 1001; of limit": {Items: []*penstockv1.Item{rpctest.Item("tokens",
			"k", 1001)}, TtlMs: 1000},
		"items[0].cost: is 0;": {Items: []*penstockv1.Item{rpctest.Item("tokens",
			"k", 0)}, TtlMs: 1000},
		"items[0].limit: no limit is named": {Items: []*penstockv1.Item{rpctest.Item("none", "k",
			1)}, TtlMs: 1000},
		"holder: has 200 bytes;": {Items: []*penstockv1.Item{rpctest.Item("tokens",
			"k", 1)}, TtlMs: 1000, Holder: strings.Repeat("h", 200)},
		"items: has 0 items; 1 to 1000": {TtlMs: 1000},
		"items[0].report: is for a take; a h": {Items: []*penstockv1.Item{{
			Limit: "tokens",
			Key:   []byte("k"), Report: true,
		}}, TtlMs: 1000},
	} {
		_, err := s.client.Reserve(ctx, in)
		if text := status.Convert(err).Message(); !strings.HasPrefix(text, want) {
			t.Errorf("want %s…; got %v", want, err)
		}
	}
	for want, id := range map[codes.Code]string{
		codes.InvalidArgument: "no id",
		codes.NotFound: hold.Token(&cluster.Item{Limit: "tokens", Key: "k"},
			cluster.ID{Origin: 1, Sequence: 2}),
	} {
		if _, err := s.client.Settle(ctx,
			&penstockv1.SettleRequest{Id: id}); status.Code(err) != want {
			t.Errorf("settle %q: %v, want %v", id, err, want)
		}
	}
	more := rpctest.Item("tokens", "k", 600)
	out, err := s.client.Reserve(ctx,
		&penstockv1.ReserveRequest{Items: []*penstockv1.Item{more, more}, TtlMs: 1000})
	if err != nil || out.Allowed || out.Holds[0].Id != "" || out.Holds[1].Id != "" {
		t.Errorf("more than there is: %v, %v", out, err)
	}
	got, err := s.client.Peek(ctx,
		&penstockv1.PeekRequest{Items: []*penstockv1.Item{rpctest.Item("tokens", "k", 0)}})
	if err != nil || got.Decisions[0].Remaining != 1000 {
		t.Errorf("something is set aside: %v, %v", got, err)
	}
}

// Promise: a client with too many holds open is told so, with what to do, and others are not.
func TestTooManyHolds(t *testing.T) {
	node := rpctest.Alone(t, tokensPerHour)
	l := rpctest.MustLimit(limiter.Spec{
		Name: "inline", Algorithm: limiter.GCRA, Limit: 1 << 30,
		Per: time.Hour,
	})
	terms := &cluster.HoldTerms{TTL: time.Minute, Holder: "greedy"}
	r, out := new(cluster.Request), make([]cluster.Decision, 1000)
	for opened := 0; opened < limiter.MaxHoldsOfHolder; opened += len(r.Items) {
		r.Items, r.Atomic, r.Deadline = r.Items[:0], true, 0
		for range min(1000, limiter.MaxHoldsOfHolder-opened) {
			r.Items = append(r.Items, cluster.Item{
				Inline: l, Key: "k", Cost: 1,
				Op: cluster.OpReserve, Hold: terms, ID: hold.RandomID(),
			})
		}
		if err := node.Check(r, out[:len(r.Items)]); err != nil || out[0].Hold != limiter.HoldOpen {
			t.Fatalf("%+v, %v", out[0], err)
		}
	}
	h := web.New(web.Config{Node: node})
	ask := func(holder string) (int, string) {
		body := `{"inline":{"name":"inline","algorithm":"gcra","limit":1073741824,"per":"1h"},` +
			`"key":"k","ttl_ms":1000,"holder":"` + holder + `"}`
		r, text := rpctest.Page(h, "POST", "/v1/reserve", body)
		return r.StatusCode, text
	}
	if code, text := ask("greedy"); code != 429 ||
		!strings.Contains(text,
			"holder: has 16384 holds of this limit open on one node, which is the most; settle "+
				"some") {
		t.Errorf("%d %s", code, text)
	}
	if code, text := ask("another"); code != 200 || !strings.Contains(text, `"allowed":true`) {
		t.Errorf("%d %s", code, text)
	}
}

func TestReserveOverHTTP(t *testing.T) {
	h := web.New(web.Config{Node: rpctest.Alone(t, tokensPerHour, rpctest.PerHour)})
	post := func(path, body string, want int) (answer map[string]any) {
		t.Helper()
		r, text := rpctest.Page(h, "POST", path, body)
		if r.StatusCode != want {
			t.Fatalf("%s %s: %d %s; want %d", path, body, r.StatusCode, text, want)
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	one := post("/v1/reserve", `{"limit":"tokens","key":"a","cost":400,"ttl_ms":60000}`, 200)
	if one["allowed"] != true || one["remaining"] != 600.0 || one["id"] == "" ||
		len(one["holds"].([]any)) != 1 {
		t.Errorf("%v", one)
	}
	post("/v1/extend", fmt.Sprintf(`{"id":%q,"ttl_ms":120000}`, one["id"]), 200)
	for range 2 {
		if got := post("/v1/settle", fmt.Sprintf(`{"id":%q,"actual":150}`, one["id"]),
			200); got["remaining"] != 850.0 {
			t.Errorf("%v", got)
		}
	}
	both := post("/v1/reserve",
		`{"items":[{"limit":"tokens","key":"a","cost":800},{"limit":"demo","key":"a"}],`+
			`"ttl_ms":60000,"holder":"me"}`, 200)
	if both["allowed"] != true || len(both["holds"].([]any)) != 2 || both["id"] != nil {
		t.Errorf("%v", both)
	}
	if no := post("/v1/reserve", `{"limit":"tokens","key":"a","cost":400,"ttl_ms":60000}`,
		200); no["allowed"] != false || no["id"] != "" {
		t.Errorf("%v", no)
	}
	for _, row := range []struct {
		path, body string
		status     int
		field      string
	}{
		{"/v1/settle", fmt.Sprintf(`{"id":%q,"actual":151}`, one["id"]), 409, "id"},
		{"/v1/settle", fmt.Sprintf(`{"id":%q,"actual":-1}`, one["id"]), 400, "actual"},
		{"/v1/settle", fmt.Sprintf(`{"id":%q}`, one["id"]), 400, "actual"},
		{"/v1/settle", `{"id":"","actual":1}`, 400, "id"},
		{"/v1/settle", `{"id":"####","actual":1}`, 400, "id"},
		{"/v1/settle", `{"id":"x","actual":1,"more":2}`, 400, "more"},
		{"/v1/settle", `{"id":"x","actual":1.5}`, 400, "actual"},
		{"/v1/settle", ``, 400, "body"},
		{"/v1/extend", fmt.Sprintf(`{"id":%q,"ttl_ms":0}`, one["id"]), 400, "ttl_ms"},
		{"/v1/reserve", `{"limit":"tokens","key":"a","cost":400}`, 400, "ttl_ms"},
		{"/v1/reserve", `{"ttl_ms":1000}`, 400, "items"},
		{
			"/v1/reserve", `{"items":[{"limit":"tokens","key":"a","cost":5000}],"ttl_ms":1000}`,
			400,
			"items[0].cost",
		},
		{
			"/v1/reserve", `{"items":[{"limit":"tokens","key":"a"}],"ttl_ms":1000,"atomic":true}`,
			400,
			"atomic",
		},
	} {
		if got := post(row.path, row.body, row.status); got["field"] != row.field {
			t.Errorf("%s %s: %v; want field %q", row.path, row.body, got, row.field)
		}
	}
}
