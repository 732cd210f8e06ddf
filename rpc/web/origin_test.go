package web

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/rpc/door"
	"penstock/rpc/rpctest"
)

// sent asks h under a Host, and returns the status and the body.
func sent(h http.Handler, host, method, target, body string, header ...string) (int, string) {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = host
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rw := httptest.NewRecorder()
	h.ServeHTTP(rw, r)
	return rw.Code, rw.Body.String()
}

// Promise: a name that an attacker points at this machine reaches nothing of a node (DNS
// rebinding).
func TestHTTPHosts(t *testing.T) {
	node := rpctest.Alone(t, rpctest.PerHour)
	hosts := NewHosts("node-1", "Shop.Example.:443", "")
	h := New(Config{Node: node, Admin: true, Hosts: hosts})
	admin := NewAdmin(Config{Node: node, Hosts: hosts})
	for _, p := range []struct{ method, target, body string }{
		{"GET", "/v1/check?limit=demo&key=k", ""},
		{"POST", "/v1/check", `{"limit":"demo","key":"k"}`},
		{"POST", "/v1/reset", `{"limit":"demo","key":"k"}`},
		{"PUT", "/v1/limits", `{"name":"demo","limit":1,"per":"1m"}`},
		{"POST", "/v1/drain", ""},
		{"GET", "/debug/pprof/cmdline", ""},
		{"GET", "/metrics", ""},
		{"GET", "/v1/top", ""},
		{"GET", "/ui/", ""},
		{"GET", "/nothing", ""},
	} {
		for _, host := range []string{
			"evil.example", "evil.example:7949", "127.0.0.1.evil.example",
			"shop.example.evil", "xlocalhost",
		} {
			code, text := sent(h, host, p.method, p.target, p.body)
			name, _, _ := strings.Cut(host, ":")
			if code != 421 || !strings.Contains(text, "--http-host "+name) ||
				!strings.Contains(text, `"status":421`) {
				t.Errorf("%s %s of %s: %d %s", p.method, p.target, host, code, text)
			}
		}
	}
	if code, _ := sent(admin, "evil.example", "GET", "/debug/pprof/", ""); code != 421 {
		t.Errorf("the admin listener: %d", code)
	}
	for _, host := range []string{"evil.example", "localhost"} {
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, _ := sent(h, host, "GET", path, ""); code != 200 {
				t.Errorf("%s of %s: %d", path, host, code)
			}
		}
	}
	if n := node.Table().Stats().Keys; n != 0 {
		t.Fatalf("%d keys were charged", n)
	}
	for _, host := range []string{
		"", "localhost", "LOCALHOST:7949", "a.localhost",
		"127.0.0.1:7949", "[::1]:7949", "::1", "10.0.0.7", "node-1:7949", "shop.example",
		"shop.example.",
	} {
		if code, text := sent(h, host, "GET", "/v1/check?limit=demo&key=ok-"+host,
			""); code != 200 {
			t.Errorf("%q: %d %s", host, code, text)
		}
	}
	everybody := New(Config{Node: node, Hosts: NewHosts("*")})
	if code, _ := sent(everybody, "evil.example", "GET", "/v1/check?limit=demo&key=k",
		""); code != 200 {
		t.Errorf("--http-host *: %d", code)
	}
	r := httptest.NewRequest("GET", "/v1/check?limit=demo&key=k", nil)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey,
		&net.UnixAddr{Name: "/run/p", Net: "unix"}))
	rw := httptest.NewRecorder()
	if h.ServeHTTP(rw, r); rw.Code != 200 {
		t.Errorf("over a Unix socket: %d", rw.Code)
	}
}

// Promise: a page of another site charges nothing and changes nothing, whatever it has a browser
// send.
func TestHTTPCrossSite(t *testing.T) {
	node := rpctest.Alone(t, rpctest.PerHour)
	h := New(Config{Node: node, Admin: true, Hosts: NewHosts("shop.example")})
	const item = `{"limit":"demo","key":"k"}`
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Sec-Fetch-Site", "cross-site", "Origin", "http://localhost:7949"},
		{"Origin", "http://evil.example"},
		{"Origin", "null"},
		{"Origin", "http://localhost:3000"},
	} {
		for _, p := range []struct{ method, target, body string }{
			{"GET", "/v1/check?limit=demo&key=k", ""},
			{"HEAD", "/v1/check?limit=demo&key=k", ""},
			{"GET", "/v1/auth?limit=demo&key=k", ""},
			{"OPTIONS", "/v1/auth?limit=demo&key=k", ""},
			{"POST", "/v1/check", item},
			{"POST", "/v1/reset", item},
			{
				"POST", "/v1/GetRateLimits",
				`{"requests":[{"name":"demo","unique_key":"k","hits":1,"limit":5,` +
					`"duration":1000}]}`,
			},
			{"GET", "/debug/pprof/profile", ""},
		} {
			if code, text := sent(h, "localhost:7949", p.method, p.target, p.body,
				header...); code != 403 {
				t.Errorf("%s %s with %q: %d %s", p.method, p.target, header, code, text)
			}
		}
	}
	for _, kind := range []string{
		"text/plain", "text/plain; charset=utf-8",
		"multipart/form-data; boundary=x",
	} {
		if code, text := sent(h, "localhost", "POST", "/v1/check", item, "Content-Type",
			kind); code != 415 {
			t.Errorf("%s: %d %s", kind, code, text)
		}
	}
	for _, sign := range [][]string{
		{"Referer", "http://localhost/"},
		{"Sec-Fetch-Site", "same-origin"},
		{"Origin", "http://localhost"},
	} {
		for _, kind := range []string{"application/x-www-form-urlencoded", ""} {
			if code, text := sent(h, "localhost", "POST", "/v1/check", item,
				append(sign, "Content-Type", kind)...); code != 415 {
				t.Errorf("%q as %q: %d %s", sign, kind, code, text)
			}
		}
	}
	if n := node.Table().Stats().Keys; n != 0 {
		t.Errorf("%d keys were charged", n)
	}
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "none"},
		{"Sec-Fetch-Site", "same-origin", "Origin", "http://localhost:7949"},
		{"Origin", "http://localhost:7949"},
		{"Origin", "https://shop.example"},
		{},
	} {
		if code, text := sent(h, "localhost:7949", "POST", "/v1/check", item,
			append(header, "Content-Type", "application/json")...); code != 200 {
			t.Errorf("%q: %d %s", header, code, text)
		}
	}
	if code, _ := sent(h, "localhost", "POST", "/v1/check", item, "Content-Type",
		"application/x-www-form-urlencoded"); code != 200 {
		t.Errorf("curl -d: %d", code) // denied or not, it is decided
	}
}

// Promise: a proxy asks for clients that come from anywhere, and passes on the headers that they
// send.
func TestHTTPAuthOfForeignClients(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.Specs...), Hosts: NewHosts()})
	// of a link on another page
	followed := []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://elsewhere.example"}
	for _, c := range []struct {
		name, host string
		header     []string
	}{
		{"nginx with an upstream", "penstock", followed},
		{"nginx with X-Original-URI", "127.0.0.1:7949", append(followed, "X-Original-URI", "/")},
		{"nginx that forwards Host", "shop.example", followed},
		{"Caddy", "shop.example", append(followed, "X-Forwarded-Uri", "/", "X-Forwarded-Method",
			"GET")},
		{"Traefik", "127.0.0.1:7949", append(followed, "X-Forwarded-Uri", "/")},
		{"ingress-nginx", "127.0.0.1:7949", append(followed, "X-Original-URL",
			"http://a.example/")},
		{"a client without such headers", "127.0.0.1:7949", nil},
	} {
		if code, text := sent(h, c.host, "GET",
			"/v1/auth?limit=demo&key="+c.name[:1]+c.name[len(c.name)-1:], "",
			c.header...); code != 200 {
			t.Errorf("%s: %d %s", c.name, code, text)
		}
	}
	for range 2 {
		code, text := sent(h, "penstock", "GET", "/v1/auth?limit=demo&key={header:X-Api-Key}", "")
		if code != 400 || !strings.Contains(text, "{header:X-Api-Key|anonymous}") {
			t.Errorf("without the header: %d %s", code, text)
		}
	}
	for i := range 6 {
		code, text := sent(h, "penstock", "GET",
			"/v1/auth?limit=demo&key={header:X-Api-Key%7Canonymous}", "")
		if want := map[bool]int{true: 200, false: 429}[i < 5]; code != want {
			t.Errorf("without the header, with a default, %d: %d %s", i, code, text)
		}
	}
}

// Promise: a client cannot vary its key by repeating a header.
func TestHTTPAuthRepeatedHeader(t *testing.T) {
	node := rpctest.Alone(t, rpctest.Specs...)
	h := New(Config{Node: node})
	for _, template := range []string{
		"{header:X-User}", "{header:X-User%7Cnobody}",
		"{header:x-user}/{ip}",
	} {
		r := httptest.NewRequest("GET", "/v1/auth?limit=demo&key="+template, nil)
		r.Header["X-User"] = []string{"alice", "alice-2"}
		rw := httptest.NewRecorder()
		if h.ServeHTTP(rw, r); rw.Code != 403 || !strings.Contains(rw.Body.String(), "2 times") {
			t.Errorf("%s: %d %s", template, rw.Code, rw.Body)
		}
	}
	if n := node.Table().Stats().Keys; n != 0 {
		t.Errorf("%d keys were charged", n)
	}
}

func TestHTTPCodedBodies(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.PerHour), Admin: true})
	for _, target := range []string{"POST /v1/check", "POST /v1/GetRateLimits", "PUT /v1/limits"} {
		method, path, _ := strings.Cut(target, " ")
		code, text := sent(h, "localhost", method, path, "\x1f\x8b\x08", "Content-Encoding", "gzip",
			"Content-Type", "application/json")
		if code != 415 || !strings.Contains(text, "gzip") {
			t.Errorf("%s: %d %s", target, code, text)
		}
	}
	if code, text := sent(h, "localhost", "POST", "/v1/check", `{"limit":"demo","key":"k"}`,
		"Content-Encoding", "identity"); code != 200 {
		t.Errorf("identity: %d %s", code, text)
	}
}

func TestHTTPPolicyOfConcurrency(t *testing.T) {
	permits := limiter.Spec{
		Name: "permits", Algorithm: limiter.Concurrency, Limit: 3,
		Per: time.Minute,
	}
	h := New(Config{Node: rpctest.Alone(t, permits)})
	answer, body := rpctest.Page(h, "GET", "/v1/peek?limit=permits&key=k", "")
	if got := rpctest.Written(answer, "RateLimit-Policy"); len(got) != 1 ||
		got[0] != `"permits";q=3;qu="concurrent-requests"` {
		t.Errorf("%d %q %s", answer.StatusCode, got, body)
	}
}

// Promise: bodies that never end take a bounded memory in all, and those that do have room again.
func TestHTTPBodiesAreBounded(t *testing.T) {
	b := &bodies{room: 100}
	entered, leave := make(chan error), make(chan bool)
	h := b.bounded(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		entered <- err
		<-leave
	}))
	var replies sync.WaitGroup
	send := func(n int) error {
		replies.Go(func() {
			h.ServeHTTP(httptest.NewRecorder(),
				httptest.NewRequest("POST", "/", bytes.NewReader(make([]byte, n))))
		})
		return <-entered
	}
	for _, c := range []struct {
		bytes int
		want  error
	}{{60, nil}, {40, nil}, {1, door.ErrBodies}} {
		if err := send(c.bytes); err != c.want {
			t.Errorf("a body of %d bytes: %v, want %v", c.bytes, err, c.want)
		}
	}
	for range 3 {
		leave <- true
	}
	replies.Wait()
	if err := send(100); err != nil {
		t.Errorf("there is no room again: %v", err)
	}
	leave <- true
	replies.Wait()
	w := newWeb(Config{Node: rpctest.Alone(t, rpctest.PerHour)})
	w.bodies.room = 10
	m := w.mux()
	m.handle("POST /v1/check", answered(w.checks.checkBody))
	if answer, text := rpctest.Page(w.bodies.bounded(m), "POST", "/v1/check",
		`{"limit":"demo","key":"k"}`); answer.StatusCode != 503 {
		t.Errorf("%d %s", answer.StatusCode, text)
	}
}

// Promise: a client that sends a proxy's headers itself is refused, in a way that all proxies pass
// on. (Of a 400 nginx makes a 500, which is said to be the operator's fault.)
func TestHTTPAuthContradictedProxy(t *testing.T) {
	node := rpctest.Alone(t, rpctest.Specs...)
	h := New(Config{Node: node})
	for _, c := range []struct {
		placeholder string
		header      http.Header
	}{
		{"{path}", http.Header{"X-Forwarded-Uri": {"/a"}, "X-Original-Uri": {"/b"}}},
		{"{path}", http.Header{"X-Forwarded-Uri": {"/a", "/b"}}},
		{"{path}", http.Header{
			"X-Original-Uri": {"/b"}, "X-Original-Url": {"https://a.example/a"},
		}},
		{"{host}", http.Header{
			"X-Forwarded-Host": {"b.example"}, "X-Original-Url": {"https://a.example/a"},
		}},
		{"{method}", http.Header{"X-Forwarded-Method": {"GET"}, "X-Original-Method": {"PUT"}}},
		{"{host}", http.Header{"X-Forwarded-Host": {"a.example", "b.example"}}},
	} {
		r := httptest.NewRequest("GET", "/v1/auth?limit=demo&key="+c.placeholder, nil)
		r.Header = c.header
		rw := httptest.NewRecorder()
		if h.ServeHTTP(rw, r); rw.Code != 403 || !strings.Contains(rw.Body.String(), "differ") {
			t.Errorf("%s of %v: %d %s", c.placeholder, c.header, rw.Code, rw.Body)
		}
	}
	if n := node.Table().Stats().Keys; n != 0 {
		t.Errorf("%d keys were charged", n)
	}
}
