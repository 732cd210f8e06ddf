package web

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"penstock/rpc/admin"
	"penstock/rpc/page"
	"penstock/rpc/rpctest"
)

func TestHTTPCheck(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.Specs...)})
	for i := range 7 {
		answer, body := rpctest.Page(h, "GET", "/v1/check?limit=demo&key=alice", "")
		want, remaining := http.StatusOK, int64(4-i)
		if i >= 5 {
			want, remaining = http.StatusTooManyRequests, 0
		}
		if answer.StatusCode != want {
			t.Fatalf("check %d: status %d, want %d: %s", i+1, answer.StatusCode, want, body)
		}
		var d struct {
			DecisionJSON
			Type     string   `json:"type"`
			Status   int      `json:"status"`
			Violated []string `json:"violated-policies"`
		}
		if err := json.Unmarshal([]byte(body), &d); err != nil {
			t.Fatal(err)
		}
		if d.Allowed != (i < 5) || d.Remaining != remaining || d.Limit != 5 || d.Owner != "n1" ||
			d.Source != "owner" || d.Name != "demo" {
			t.Errorf("check %d: %+v", i+1, d)
		}
		if got := rpctest.Written(answer, "RateLimit-Policy"); len(got) != 1 ||
			got[0] != `"demo";q=5;w=3600` {
			t.Errorf("RateLimit-Policy: %q", got)
		}
		if got := rpctest.Written(answer, "RateLimit"); len(got) != 1 ||
			got[0] != fmt.Sprintf(`"demo";r=%d;t=3600`, remaining) {
			t.Errorf("RateLimit: %q", got)
		}
		retry := answer.Header.Get("Retry-After")
		if i < 5 {
			if retry != "" || d.RetryAfterMs != -1 ||
				answer.Header.Get("Content-Type") != "application/json" {
				t.Errorf("an admitted check has Retry-After %q, retry_after_ms %d, type %s", retry,
					d.RetryAfterMs, answer.Header.Get("Content-Type"))
			}
			continue
		}
		if retry != "3600" || d.RetryAfterMs < 3_590_000 ||
			answer.Header.Get("Content-Type") != "application/problem+json" ||
			d.Type != quotaExceeded || d.Status != 429 || len(d.Violated) != 1 ||
			d.Violated[0] != "demo" {
			t.Errorf("Retry-After %q: %s", retry, body)
		}
	}
	for range 6 { // HEAD charges nothing
		if answer, body := rpctest.Page(h, "HEAD", "/v1/check?limit=demo&key=head",
			""); answer.StatusCode != 405 || answer.Header.Get("Allow") != "GET, POST" {
			t.Errorf("HEAD: %d %v %s", answer.StatusCode, answer.Header, body)
		}
	}
	if answer, body := rpctest.Page(h, "GET", "/v1/check?limit=demo&key=head",
		""); answer.StatusCode != 200 || !strings.Contains(body, `"remaining":4`) {
		t.Errorf("after HEAD: %d %s", answer.StatusCode, body)
	}
}

func TestHTTPRateLimitOfABucket(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.Specs...)})
	const query = "/v1/check?limit=a+%22quoted%5C+bucket%22+%C3%BC&key=k&cost="
	// 10 at once, 2 a second: a full bucket takes 5 s to fill, and the next unit half a second.
	answer, _ := rpctest.Page(h, "GET", query+"3", "")
	if got := rpctest.Written(answer,
		"RateLimit-Policy")[0]; got != `"a \"quoted\\ bucket\" %C3%BC";q=10;w=5` {
		t.Errorf("RateLimit-Policy: %s", got)
	}
	if got := rpctest.Written(answer,
		"RateLimit")[0]; got != `"a \"quoted\\ bucket\" %C3%BC";r=7;t=1` {
		t.Errorf("RateLimit: %s", got)
	}
	answer, body := rpctest.Page(h, "GET", query+"11", "")
	if answer.StatusCode != 429 || answer.Header.Get("Retry-After") != "" ||
		!strings.Contains(body, `"retry_after_ms":-1`) {
		t.Errorf("more than the bucket ever holds: %d, Retry-After %q, %s", answer.StatusCode,
			answer.Header.Get("Retry-After"), body)
	}
	if answer, body = rpctest.Page(h, "GET", query+"9", ""); answer.StatusCode != 429 ||
		answer.Header.Get("Retry-After") != "1" {
		t.Errorf("2 too many at 2 a second: %d, Retry-After %q, %s", answer.StatusCode,
			answer.Header.Get("Retry-After"), body)
	}
	if answer, body = rpctest.Page(h, "GET", query+"-3", ""); answer.StatusCode != 200 ||
		!strings.Contains(body, `"remaining":10,`) {
		t.Errorf("a refund: %d %s", answer.StatusCode, body)
	}
}

func TestHTTPShadow(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.Specs...)})
	for i, want := range []string{"", "1"} {
		answer, body := rpctest.Page(h, "GET", "/v1/check?limit=shadow&key=k", "")
		if answer.StatusCode != 200 || answer.Header.Get("Penstock-Shadow") != want ||
			!strings.Contains(body, `"retry_after_ms":-1,`) {
			t.Errorf("check %d: %d, Penstock-Shadow %q, want %q: %s", i+1, answer.StatusCode,
				answer.Header.Get("Penstock-Shadow"), want, body)
		}
	}
}

func TestHTTPBody(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.Specs...), Admin: true})
	post := func(path, body string) map[string]any {
		t.Helper()
		answer, text := rpctest.Page(h, "POST", path, body)
		var out map[string]any
		if err := json.Unmarshal([]byte(text), &out); err != nil || answer.StatusCode != 200 {
			t.Fatalf("%s %s: %d %s", path, body, answer.StatusCode, text)
		}
		return out
	}
	first := func(out map[string]any) map[string]any {
		return out["decisions"].([]any)[0].(map[string]any)
	}

	out := post("/v1/check",
		`{"items":[{"limit":"demo","key":"a","cost":5},{"limit":"demo","key":"a"},`+
			`{"limit":"demo","key":"b"}]}`)
	all := out["decisions"].([]any)
	if out["allowed"] != false || len(all) != 3 || all[0].(map[string]any)["allowed"] != true ||
		all[1].(map[string]any)["allowed"] != false || all[2].(map[string]any)["remaining"] != 4.0 {
		t.Errorf("a batch: %v", out)
	}
	if out = post("/v1/check",
		`{"items":[{"limit":"demo","key":"c","cost":4},{"limit":"demo","key":"c","cost":2}],`+
			`"atomic":true}`); out["allowed"] != false {
		t.Errorf("all or nothing: %v", out)
	}
	for _, d := range out["decisions"].([]any) {
		if d.(map[string]any)["remaining"] != 5.0 || d.(map[string]any)["reset_after_ms"] != 0.0 {
			t.Errorf("%v: not what remains now", d)
		}
	}
	if out = post("/v1/check", `{"limit":"demo","key":"c","cost":0}`); out["remaining"] != 5.0 ||
		first(out)["remaining"] != 5.0 {
		t.Errorf("a denied atomic request charged something: %v", out)
	}
	inline := `{"key":"d","inline":{"algorithm":"gcra","limit":10,"per":"1m","burst":3}}`
	for i := range 4 {
		if out = post("/v1/check", inline); out["allowed"] != (i < 3) || out["name"] != "inline" {
			t.Errorf("inline, check %d: %v", i+1, out)
		}
	}
	if out = post("/v1/reset", `{"limit":"demo","key":"a"}`); out["remaining"] != 5.0 {
		t.Errorf("reset: %v", out)
	}
	if out = post("/v1/check", `{"limit":"demo","key":"a"}`); out["remaining"] != 4.0 {
		t.Errorf("after the reset: %v", out)
	}
}

// Every algorithm can be had at the door, under the name that files use, with the fields that only
// it has.
func TestHTTPEveryAlgorithm(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t)})
	for _, c := range []struct {
		inline string // beside limit 3 per 1h
		third  int64  // delay_ms of the third check
		retry  int64  // retry_after_ms of the fourth; 0: the window's rest, whatever that is
	}{
		{`"algorithm":"gcra"`, 0, 1_200_000},
		{`"algorithm":"gcra","burst":3`, 0, 1_200_000},
		{`"algorithm":"fixed_window","anchor":"first_hit"`, 0, 3_600_000},
		{`"algorithm":"sliding_window"`, 0, 0},
		{`"algorithm":"sliding_log"`, 0, 3_600_000},
		{`"algorithm":"token_bucket"`, 0, 3_600_000},
		{`"algorithm":"token_bucket","refill":1,"strict":true,"drain":true`, 0, 3_600_000},
		{`"algorithm":"leaky_bucket","burst":2`, 2_400_000, 1_200_000},
		{`"algorithm":"sliding_counter","buckets":60,"lenient":true`, 0, 0},
		{`"algorithm":"stated_window"`, 0, 3_600_000},
		{`"algorithm":"stated_bucket","burst":3`, 0, 1_200_000},
	} {
		for i := range 4 {
			_, body := rpctest.Page(h, "POST", "/v1/check",
				fmt.Sprintf(`{"key":"k","inline":{"name":%q,"limit":3,"per":"1h",%s}}`,
					strings.ReplaceAll(c.inline, `"`, ""), c.inline))
			var d DecisionJSON
			if err := json.Unmarshal([]byte(body), &d); err != nil {
				t.Fatal(err)
			}
			near := func(got, want int64) bool { return got <= want && got > want-60_000 }
			switch {
			case d.Allowed != (i < 3):
				t.Errorf("%s: check %d: %s", c.inline, i+1, body)
			case i == 2 && !near(d.DelayMs, c.third):
				t.Errorf("%s: the third waits %d ms, want about %d", c.inline, d.DelayMs, c.third)
			case i == 3 && c.retry > 0 && !near(d.RetryAfterMs, c.retry):
				t.Errorf("%s: the fourth may retry after %d ms, want about %d", c.inline,
					d.RetryAfterMs, c.retry)
			}
		}
	}
	for inline, field := range map[string]string{
		`"algorithm":"gcra","min_gap":"1s"`:           "inline.min_gap",
		`"algorithm":"sliding_log","min_gap":"2h"`:    "inline.min_gap",
		`"algorithm":"sliding_log","refill":1`:        "inline.refill",
		`"algorithm":"sliding_counter","buckets":7`:   "inline.buckets",
		`"algorithm":"sliding_counter","strict":true`: "inline.strict",
		`"algorithm":"concurrent"`:                    "inline.algorithm",
	} {
		answer, body := rpctest.Page(h, "POST", "/v1/check",
			`{"key":"k","inline":{"limit":3,"per":"1h",`+inline+`}}`)
		if answer.StatusCode != 400 || !strings.Contains(body, fmt.Sprintf(`"field":%q`, field)) {
			t.Errorf("%s: %s", inline, body)
		}
	}
}

// Promise: hostile or malformed input gets a clear error that names the field, and nothing is
// charged.
func TestHTTPBadInput(t *testing.T) {
	node := rpctest.Alone(t, rpctest.Specs...)
	h := New(Config{Node: node, Admin: true})
	items := func(n int) string {
		return `{"items":[` + strings.TrimSuffix(strings.Repeat(`{"limit":"demo","key":"k"},`, n),
			",") + `]}`
	}
	for _, c := range []struct {
		method, target, body string
		status               int
		field                string
	}{
		{"GET", "/v1/check?limit=demo&key=", "", 400, "key"},
		{"GET", "/v1/check?limit=demo", "", 400, "key"},
		{"GET", "/v1/check?limit=demo&key=" + strings.Repeat("k", 2048), "", 400, "key"},
		{"GET", "/v1/check?limit=none&key=k", "", 404, "limit"},
		{"GET", "/v1/check?key=k", "", 400, "limit"},
		{"GET", "/v1/check?limit=demo&key=k&cost=9223372036854775808", "", 400, "cost"},
		{"GET", "/v1/check?limit=demo&key=k&cost=1.5", "", 400, "cost"},
		{"GET", "/v1/check?limit=demo&key=k&cots=2", "", 400, "query"},
		{"GET", "/v1/check?limit=demo&key=k&key=l", "", 400, "key"},
		{"GET", "/v1/check?limit=demo&key=%zz", "", 400, "query"},
		{"POST", "/v1/check?cost=2", `{"limit":"demo","key":"k"}`, 400, "query"},
		{"POST", "/v1/check?limit=demo&key=k", "", 400, "query"},
		{"POST", "/v1/reset?key=k", `{"limit":"demo","key":"k"}`, 400, "query"},
		{"POST", "/v1/reserve?ttl_ms=9", `{"limit":"demo","key":"k","ttl_ms":900}`, 400, "query"},
		{"POST", "/v1/settle?actual=1", `{"id":"x","actual":1}`, 400, "query"},
		{"POST", "/v1/extend?ttl_ms=900", `{"id":"x","ttl_ms":900}`, 400, "query"},
		{"POST", "/v1/check", "", 400, "body"},
		{"POST", "/v1/check", "{", 400, "body"},
		{"POST", "/v1/check", "nonsense", 400, "body"},
		{"POST", "/v1/check", "[]", 400, "body"},
		{"POST", "/v1/check", "{}", 400, "items"},
		{"POST", "/v1/check", "null", 400, "items"},
		{"POST", "/v1/check", `{"items":[]}`, 400, "items"},
		{"POST", "/v1/check", items(1001), 400, "items"},
		{"POST", "/v1/check", items(1) + "{}", 400, "body"},
		{"POST", "/v1/check", `{"items":[{"limit":"demo","key":"k"}],"key":"k"}`, 400, "items"},
		{
			"POST", "/v1/check", `{"items":[{"limit":"demo","key":"k"},{"limit":"demo","key":""}]}`,
			400, "items[1].key",
		},
		{
			"POST", "/v1/check",
			`{"items":[{"limit":"demo","key":"k"},{"limit":"none","key":"k"}]}`,
			404, "items[1].limit",
		},
		{
			"POST", "/v1/check", `{"items":[{"limit":"demo","key":"k","cost":1e30}]}`, 400,
			"items[0].cost",
		},
		{
			"POST", "/v1/check", `{"items":[{"limit":"demo","key":"k","cost":"1"}]}`, 400,
			"items[0].cost",
		},
		{
			"POST", "/v1/check", `{"items":[{"limit":"demo","key":"k","costs":1}]}`, 400,
			"items[0].costs",
		},
		{
			"POST", "/v1/check",
			`{"items":[{"limit":"demo","inline":{"algorithm":"gcra","limit":1,"per":"1s"},` +
				`"key":"k"}]}`, 400, "items[0].limit",
		},
		{
			"POST", "/v1/check", `{"inline":{"algorithm":"gcra","limit":0,"per":"1s"},"key":"k"}`,
			400,
			"inline.limit",
		},
		{
			"POST", "/v1/check", `{"inline":{"algorithm":"gcra","limit":1,"per":"1y"},"key":"k"}`,
			400,
			"inline.per",
		},
		{
			"POST", "/v1/check", `{"inline":{"algorithm":"magic","limit":1,"per":"1s"},"key":"k"}`,
			400, "inline.algorithm",
		},
		{
			"POST", "/v1/check",
			`{"inline":{"algorithm":"gcra","limit":1,"per":"1s","on_error":"cry"},"key":"k"}`, 400,
			"inline.on_error",
		},
		{
			"POST", "/v1/check",
			`{"inline":{"name":"demo","algorithm":"gcra","limit":1,"per":"1s"},"key":"k"}`, 400,
			"inline.name",
		},
		{
			"POST", "/v1/check", `{"limit":"demo","key":"` + strings.Repeat("k", maxBody) + `"}`,
			413,
			"body",
		},
		{"POST", "/v1/reset", `{"limit":"none","key":"k"}`, 404, "limit"},
		{"GET", "/v1/auth?limit=demo&key={header:X-User}", "", 400, "key"},
		{"GET", "/v1/auth?limit=demo&key={user}", "", 400, "key"},
		{"GET", "/v1/auth?limit=demo&key={ip", "", 400, "key"},
		{"GET", "/v1/auth?limit=demo&key=ip}", "", 400, "key"},
		{"GET", "/v1/auth?limit=demo&key=k&deny_status=302", "", 400, "deny_status"},
		{"GET", "/v1/auth?limit=demo&key=k&deny_status=forbidden", "", 400, "deny_status"},
		{"GET", "/v1/auth?limit=demo&key=k&headers=ietf,y", "", 400, "headers"},
		{"GET", "/v1/check?limit=demo&key=k&report=", "", 400, "report"},
		{"GET", "/v1/check?limit=demo&key=k&drain=", "", 400, "drain"},
		{"GET", "/v1/check?limit=demo&key=k&strict=", "", 400, "strict"},
		{"GET", "/v1/check?limit=demo&key=k&headers=X", "", 400, "headers"},
		{"GET", "/v1/check?limit=demo&key=k&deny_body=no", "", 400, "query"},
		{"GET", "/v1/ring", "", 400, "key"},
		{"GET", "/v1/nothing", "", 404, ""},
		{"DELETE", "/v1/check?limit=demo&key=k", "", 405, ""},
		{"GET", "/v1/reset", "", 405, ""},
	} {
		answer, body := rpctest.Page(h, c.method, c.target, c.body)
		var p page.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil {
			t.Errorf("%s %.80s %.80s: no JSON: %s", c.method, c.target, c.body, body)
			continue
		}
		if answer.StatusCode != c.status || p.Status != c.status || p.Field != c.field ||
			answer.Header.Get("Content-Type") != "application/problem+json" || p.Title == "" ||
			p.Detail == "" {
			t.Errorf("%s %.80s %.80s:\n got %d, field %q: %s\nwant %d, field %q", c.method,
				c.target, c.body, answer.StatusCode, p.Field, body, c.status, c.field)
		}
		if c.status == 405 && answer.Header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", c.method, c.target)
		}
	}
	if keys := node.Table().Stats().Keys; keys != 0 {
		t.Errorf("requests in error left %d keys", keys)
	}
}

func TestHTTPBadInputChargesNothingOnABusyKey(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.Specs...)})
	rpctest.Page(h, "GET", "/v1/check?limit=demo&key=k", "")
	rpctest.Page(h, "POST", "/v1/check",
		`{"items":[{"limit":"demo","key":"k"},{"limit":"none","key":"k"}]}`)
	if _, body := rpctest.Page(h, "GET", "/v1/peek?limit=demo&key=k", ""); !strings.Contains(body,
		`"remaining":4,`) {
		t.Errorf("the good item of a request in error was charged: %s", body)
	}
}

func TestHTTPAuth(t *testing.T) {
	trusted := []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"),
		netip.MustParsePrefix("10.0.0.0/8"),
	}
	w := newWeb(Config{Node: rpctest.Alone(t, rpctest.Specs...), TrustedProxies: trusted})
	key := func(template, remote string, header ...string) string {
		r := httptest.NewRequest("GET", "/v1/auth", nil)
		r.RemoteAddr = remote
		for i := 0; i < len(header); i += 2 {
			r.Header.Add(header[i], header[i+1])
		}
		k, err := w.proxies.fill(template, r)
		if err != nil {
			return "error: " + err.Error()
		}
		return k
	}
	const client, proxy = "198.51.100.7:1", "192.0.2.1:1"
	for _, c := range []struct{ name, got, want string }{
		{"text", key("all", client), "all"},
		{"a header", key("u:{header:X-User}!", client, "X-User", "bo"), "u:bo!"},
		{"who is connected", key("{ip}", client), "198.51.100.7"},
		{
			"a stranger's X-Forwarded-For", key("{ip}", client, "X-Forwarded-For", "203.0.113.9"),
			"198.51.100.7",
		},
		{"a trusted proxy's", key("{ip}", proxy, "X-Forwarded-For", "203.0.113.9"), "203.0.113.9"},
		{"what a client wrote before it", key("{ip}", proxy, "X-Forwarded-For",
			"6.6.6.6, 203.0.113.9"), "203.0.113.9"},
		{"two trusted proxies", key("{ip}", proxy, "X-Forwarded-For",
			"6.6.6.6, 203.0.113.9, 10.1.1.1"), "203.0.113.9"},
		{"two headers", key("{ip}", proxy, "X-Forwarded-For", "203.0.113.9", "X-Forwarded-For",
			"10.1.1.1"), "203.0.113.9"},
		{"nonsense in it", key("{ip}", proxy, "X-Forwarded-For", "203.0.113.9, me"), "192.0.2.1"},
		{"IPv6 by /64", key("{ip}", "[2001:db8:1:2:3:4:5:6]:1"), "2001:db8:1:2::/64"},
		{"IPv4 in IPv6", key("{ip}", "[::ffff:198.51.100.7]:1"), "198.51.100.7"},
		{"method and path", key("{method} {path}", client), "GET /v1/auth"},
		{"of Traefik", key("{method} {path}", client, "X-Forwarded-Method", "PUT",
			"X-Forwarded-Uri", "/a/b?c=d"), "PUT /a/b"},
		{"of nginx", key("{method} {path}", client, "X-Original-Method", "PUT", "X-Original-URI",
			"/a/b?c=d"), "PUT /a/b"},
		{"of ingress-nginx", key("{method} {host} {path}", client, "X-Original-Method", "PUT",
			"X-Original-URL", "https://Shop.example:8443/a/./b/?c=d"), "PUT shop.example /a/b"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}

	h := New(Config{Node: rpctest.Alone(t, rpctest.Specs...)})
	for i := range 6 {
		want := map[bool]int{true: 200, false: 403}[i < 5]
		answer, _ := rpctest.Page(h, "PUT",
			"/v1/auth?limit=demo&key={header:X-User}&deny_status=403", "", "X-User", "bo")
		if answer.StatusCode != want || rpctest.Written(answer, "RateLimit") == nil {
			t.Errorf("check %d: %d, want %d", i+1, answer.StatusCode, want)
		}
	}
	if answer, _ := rpctest.Page(h, "GET", "/v1/auth?limit=demo&key={header:X-User}", "", "X-User",
		"bo"); answer.StatusCode != 429 {
		t.Errorf("without deny_status: %d", answer.StatusCode)
	}
}

func TestHTTPHealthAndShow(t *testing.T) {
	node := rpctest.Alone(t, rpctest.Specs...)
	draining := false
	h := New(Config{
		Node: node, Admin: true, Draining: func() bool { return draining },
		Version: "v9", Started: time.Now(),
	})
	status := func(path string) int {
		a,
			_ := rpctest.Page(h, "GET", path, "")
		return a.StatusCode
	}
	if status("/healthz") != 200 || status("/readyz") != 200 {
		t.Error("a node at work is not healthy or not ready")
	}
	draining = true
	if status("/healthz") != 200 || status("/readyz") != 503 {
		t.Error("a node that drains must be alive and not ready")
	}
	draining = false
	_, body := rpctest.Page(h, "GET", "/v1/members", "")
	if want := fmt.Sprintf(
		`{"members":[{"name":"n1","state":"active","role":"member",`+
			`"http_address":"127.0.0.1:7949","boot":"0000000000000001","limits":"%016x",`+
			`"self":true}],"ring":"%s","limits_disagreeing":[]}`+
			"\n", node.LimitsHash(), admin.RingName(node.View())); body != want {
		t.Errorf("members:\n%s\nwant\n%s", body, want)
	}
	if _, body = rpctest.Page(h, "GET", "/v1/ring?key=alice", ""); !strings.Contains(body,
		`"owner":"n1","heir":""`) {
		t.Errorf("ring: %s", body)
	}
	rpctest.Page(h, "GET", "/v1/check?limit=demo&key=secret-person", "")
	rpctest.Page(h, "GET", "/v1/peek?limit=demo&key=secret-person", "")
	rpctest.Page(h, "GET", "/v1/check?limit=demo&key=secret-person&cost=0", "")
	if _, body = rpctest.Page(h, "GET", "/v1/status", ""); !strings.Contains(body,
		`"version":"v9"`) || !strings.Contains(body, `"keys":1`) || !strings.Contains(body,
		`"allowed":1`) {
		t.Errorf("status: %s", body)
	}
	_, body = rpctest.Page(h, "GET", "/metrics", "")
	for _, want := range []string{
		"penstock_allowed_total 1\n", "penstock_denied_total 0\n",
		"penstock_peeks_total 2\n", "penstock_table_keys 1\n", "penstock_ready 1\n",
		`penstock_http_request_seconds_count{path="check"} 2`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
	// Keys are addresses and names of people: they stand in no metric and no status.
	if strings.Contains(body, "secret-person") {
		t.Error("a key stands in the metrics")
	}
}

// A browser that opens the door is led to the page, where there is one.
func TestHTTPRootLeadsToThePage(t *testing.T) {
	node := rpctest.Alone(t, rpctest.Specs...)
	for _, c := range []struct {
		name   string
		door   http.Handler
		method string
		want   int
	}{
		{"a door with the page", New(Config{Node: node, Admin: true}), "GET", 302},
		{"the admin's listener", NewAdmin(Config{Node: node}), "HEAD", 302},
		{"a door without the page", New(Config{Node: node}), "GET", 404},
		{"another method", New(Config{Node: node, Admin: true}), "POST", 404},
	} {
		a, _ := rpctest.Page(c.door, c.method, "/", "")
		if to := a.Header.Get("Location"); a.StatusCode != c.want ||
			(to == "/ui/") != (c.want == 302) {
			t.Errorf("%s, %s: %d to %q; want %d", c.name, c.method, a.StatusCode, to, c.want)
		}
	}
}

func TestHTTPAdminMayHaveItsOwnListener(t *testing.T) {
	node := rpctest.Alone(t, rpctest.Specs...)
	public, admin := New(Config{Node: node}), NewAdmin(Config{Node: node})
	const elsewhere = "is served at --admin alone"
	for _, path := range []string{"/metrics", "/v1/status", "/debug/pprof/", "/v1/top", "/ui/"} {
		a, text := rpctest.Page(public, "GET", path, "")
		b, _ := rpctest.Page(admin, "GET", path, "")
		if a.StatusCode != 404 || b.StatusCode != 200 || !strings.Contains(text, elsewhere) {
			t.Errorf("%s: %d at the public door, %d at the admin's: %s", path, a.StatusCode,
				b.StatusCode, text)
		}
	}
	for _, h := range []http.Handler{public, admin} {
		if a, text := rpctest.Page(h, "GET", "/v1/nothing", ""); a.StatusCode != 404 ||
			strings.Contains(text, elsewhere) {
			t.Errorf("%d %s", a.StatusCode, text)
		}
	}
	if a, _ := rpctest.Page(public, "POST", "/v1/reset",
		`{"limit":"demo","key":"k"}`); a.StatusCode != 404 {
		t.Errorf("the public door resets: %d", a.StatusCode)
	}
}

func TestHTTPToken(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.Specs...), AuthToken: "s3cret", Admin: true})
	for _, c := range []struct {
		path, authorization string
		want                int
	}{
		{"/v1/check?limit=demo&key=k", "", 401},
		{"/v1/check?limit=demo&key=k", "Bearer wrong", 401},
		{"/v1/check?limit=demo&key=k", "s3cret", 401},
		{"/v1/check?limit=demo&key=k", "Bearer s3cret", 200},
		{"/metrics", "", 401},
		{"/debug/pprof/", "", 401},
		{"/nothing", "", 401},
		{"/healthz", "", 200},
		{"/readyz", "", 200},
		{"/ui/", "", 200},
		{"/ui/page.js", "", 200},
		{"/", "", 302}, // to the page
		{"/ui/../v1/top", "", 401},
		{"/v1/top", "", 401},
	} {
		if a, _ := rpctest.Page(h, "GET", c.path, "", "Authorization",
			c.authorization); a.StatusCode != c.want {
			t.Errorf("%s with %q: %d, want %d", c.path, c.authorization, a.StatusCode, c.want)
		}
	}
}

// Promise: slow clients time out. A door that waited for ever could be filled by anybody.
func TestHTTPCutsOffSlowAndLargeHeaders(t *testing.T) {
	s := NewServer(New(Config{Node: rpctest.Alone(t, rpctest.Specs...)}))
	s.ReadHeaderTimeout = 50 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() { s.Close(); <-served }()

	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if b, err := io.ReadAll(conn); err != nil {
		t.Errorf("a slow header was not cut off: %v (%q)", err, b)
	}

	conn, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Large: %s\r\n\r\n",
		strings.Repeat("x", 2*maxHeader))
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 431 ") {
		t.Errorf("a large header: %q, %v", answer, err)
	}
	conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
	for err == nil { // the server lingers for half a second, and is gone then
		_, err = conn.Write(make([]byte, 1<<16))
	}
}

func FuzzHTTPBody(f *testing.F) {
	f.Add(`{"items":[{"limit":"demo","key":"alice","cost":1}],"atomic":true}`)
	f.Add(`{"key":"d","inline":{"algorithm":"gcra","limit":10,"per":"1m","burst":3}}`)
	f.Add(`{"items":[{"inline":{"name":"\u0000","per":"1d1d"}}]}`)
	f.Add(`{"limit":"demo","key":"d","cost":9,"report":true,"drain":true,"strict":true,"at_ms":-1}`)
	h := New(Config{Node: rpctest.Alone(f, rpctest.Specs...)})
	f.Fuzz(func(t *testing.T, body string) {
		answer, text := rpctest.Page(h, "POST", "/v1/check", body)
		if !json.Valid([]byte(text)) {
			t.Fatalf("%q: %d, no JSON: %s", body, answer.StatusCode, text)
		}
		switch answer.StatusCode {
		case 200, 400, 404, 413:
		default:
			t.Fatalf("%q: status %d: %s", body, answer.StatusCode, text)
		}
	})
}

func FuzzKeyTemplate(f *testing.F) {
	f.Add("{header:X-User}:{ip}{method}{path}", "bo", "/a%zz?b")
	f.Add("}{", "", "")
	w := newWeb(Config{Node: rpctest.Alone(f)})
	f.Fuzz(func(t *testing.T, template, user, uri string) {
		r := httptest.NewRequest("GET", "/v1/auth", nil)
		r.Header["X-User"], r.Header["X-Forwarded-Uri"] = []string{user}, []string{uri}
		key, err := w.proxies.fill(template, r)
		if err == nil && strings.ContainsAny(template, "{}") && key == template {
			t.Fatalf("%q was taken as it is", template)
		}
	})
}
