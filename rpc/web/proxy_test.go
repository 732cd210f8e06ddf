package web

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/rpc/rpctest"
)

// forwardAuth does what Traefik's ForwardAuth middleware does with a request: it asks with GET,
// without a body, with all headers of the client and its own X-Forwarded- ones in place of theirs;
// an answer of 2xx lets the request pass, any other is handed to the client as it is: status,
// headers and body.
func forwardAuth(t *testing.T, ask http.Handler, question string, next http.Handler) http.Handler {
	node := httptest.NewServer(ask)
	t.Cleanup(node.Close)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		q, err := http.NewRequest(http.MethodGet, node.URL+question, nil)
		if err != nil {
			t.Error(err)
			return
		}
		q.Header = r.Header.Clone()
		for _, name := range []string{
			"Connection", "Keep-Alive", "Te", "Trailer",
			"Transfer-Encoding", "Upgrade",
		} {
			q.Header.Del(name)
		}
		client, _, _ := net.SplitHostPort(r.RemoteAddr)
		q.Header.Set("X-Forwarded-For", client)
		q.Header.Set("X-Forwarded-Method", r.Method)
		q.Header.Set("X-Forwarded-Proto", "http")
		q.Header.Set("X-Forwarded-Port", "80")
		q.Header.Set("X-Forwarded-Host", r.Host)
		q.Header.Set("X-Forwarded-Uri", r.URL.RequestURI())
		answer, err := node.Client().Do(q)
		if err != nil {
			t.Error(err)
			return
		}
		defer answer.Body.Close()
		if answer.StatusCode/100 == 2 {
			next.ServeHTTP(rw, r)
			return
		}
		for name, values := range answer.Header {
			rw.Header()[name] = values
		}
		rw.WriteHeader(answer.StatusCode)
		io.Copy(rw, answer.Body)
	})
}

// Promise: Traefik's contract. Clients are told apart by what Traefik says of them, and not by what
// they say themselves.
func TestTraefik(t *testing.T) {
	node := rpctest.Alone(t, rpctest.Specs...)
	h := New(Config{
		Node: node,
		TrustedProxies: []netip.Prefix{
			netip.MustParsePrefix("127.0.0.0/8"),
			netip.MustParsePrefix("::1/128"),
		},
	})
	question := "/v1/auth?limit=demo&key=" + url.QueryEscape("{ip} {method} {path}") +
		"&headers=ietf,x&deny_status=503&deny_body=" + url.QueryEscape("Come\nback later.\n")
	served := 0
	proxy := forwardAuth(t, h, question,
		http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			served++
			rw.WriteHeader(http.StatusTeapot)
		}))
	ask := func(address, method, target string) *http.Response {
		r := httptest.NewRequest(method, target, strings.NewReader("a body that nobody waits for"))
		r.RemoteAddr = address
		r.Header.Set("X-Forwarded-For", "198.51.100.99") // the client's inventions
		r.Header.Set("X-Forwarded-Uri", "/free")
		r.Header.Set("X-Forwarded-Method", "OPTIONS")
		rw := httptest.NewRecorder()
		proxy.ServeHTTP(rw, r)
		return rw.Result()
	}
	for range 5 {
		if got := ask("192.0.2.1:5", "POST",
			"/api//a/../b?c=d"); got.StatusCode != http.StatusTeapot {
			t.Fatalf("status %d", got.StatusCode)
		}
	}
	got := ask("192.0.2.1:6", "POST", "/api/b")
	body, _ := io.ReadAll(got.Body)
	if got.StatusCode != 503 || string(body) != "Come\nback later.\n" ||
		got.Header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		got.Header.Get("Retry-After") != "3600" || got.Header.Get("X-Ratelimit-Remaining") != "0" ||
		served != 5 {
		t.Errorf("the sixth: %d %q %v, %d served", got.StatusCode, body, got.Header, served)
	}
	for _, other := range [][3]string{
		{"192.0.2.2:5", "POST", "/api/b"},
		{"192.0.2.1:5", "GET", "/api/b"},
		{"192.0.2.1:5", "POST", "/api/c"},
	} {
		if got := ask(other[0], other[1], other[2]); got.StatusCode != http.StatusTeapot {
			t.Errorf("%v: status %d", other, got.StatusCode)
		}
	}
	if n := node.Table().Stats().Keys; n != 4 {
		t.Errorf("%d keys, want 4", n)
	}
}

func TestHTTPHeaderForms(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.Specs...)})
	all := []string{
		"RateLimit", "RateLimit-Policy", "RateLimit-Limit", "RateLimit-Remaining",
		"RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
	}
	for _, path := range []string{"/v1/check", "/v1/auth", "/v1/peek"} {
		for forms, want := range map[string]string{
			"":              `"demo";r=5;t=0|"demo";q=5;w=3600||||||`,
			"ietf":          `"demo";r=5;t=0|"demo";q=5;w=3600||||||`,
			"none":          `|||||||`,
			"triple":        `||5|5|0|||`,
			"x":             `|||||5|5|0`,
			"ietf,triple,x": `"demo";r=5;t=0|"demo";q=5;w=3600|5|5|0|5|5|0`,
		} {
			target := path + "?limit=demo&cost=0&key=k-" + forms
			if forms != "" {
				target += "&headers=" + forms
			}
			answer, body := rpctest.Page(h, "GET", target, "")
			var got []string
			for _, name := range all {
				got = append(got, strings.Join(rpctest.Written(answer, name), ","))
			}
			if text := strings.Join(got, "|"); answer.StatusCode != 200 || text != want {
				t.Errorf("%s: %d, %s\nwant %s (%s)", target, answer.StatusCode, text, want, body)
			}
		}
	}
	rpctest.Page(h, "GET", "/v1/check?limit=demo&key=used&cost=2", "")
	answer, _ := rpctest.Page(h, "GET", "/v1/check?limit=demo&key=used&cost=4&headers=triple", "")
	if got := rpctest.Written(answer, "RateLimit-Remaining"); answer.StatusCode != 429 ||
		len(got) != 1 ||
		got[0] != "3" || answer.Header.Get("Retry-After") != "3600" ||
		rpctest.Written(answer, "RateLimit-Reset")[0] != "3600" {
		t.Errorf("a denial: %d %v", answer.StatusCode, answer.Header)
	}
}

// Promise: of several limits the header has the largest bound, and of one without any
// that there is none.
func TestDegradedTogether(t *testing.T) {
	rule, err := limiter.New(rpctest.Specs[0])
	if err != nil {
		t.Fatal(err)
	}
	for want, bounds := range map[string][]int64{
		"": {}, "0": {0}, "10": {10, 3, 0}, "-1": {10, -1, 3},
	} {
		out := []cluster.Decision{{Rule: rule}} // not degraded
		for _, bound := range bounds {
			out = append(out, cluster.Decision{Rule: rule, Degraded: true, Bound: bound})
		}
		h := http.Header{}
		setRateLimits(h, out, formIETF)
		if got := h.Get("Penstock-Degraded"); got != want {
			t.Errorf("%v: got %q, want %q", bounds, got, want)
		}
	}
}

// Promise: what a limit says besides yes and no is told to proxies too, by headers.
func TestHTTPDelayAndShadow(t *testing.T) {
	queue := limiter.Spec{
		Name: "queue", Algorithm: limiter.LeakyBucket, Limit: 1, Per: time.Hour,
		Burst: 2,
	}
	h := New(Config{Node: rpctest.Alone(t, queue, rpctest.Shadowed)})
	for i, most := range []int64{0, 3_600_000, 7_200_000, 0} {
		answer, body := rpctest.Page(h, "GET", "/v1/auth?limit=queue&key=k", "")
		text := answer.Header.Get("Penstock-Delay-Ms")
		delay, err := strconv.ParseInt(text, 10, 64)
		if (i < 3) != (answer.StatusCode == 200) || (most == 0) != (text == "") || most > 0 &&
			(err != nil || delay > most || delay < most-600_000) {
			t.Errorf("%d: status %d, delay %q of at most %d: %s", i, answer.StatusCode, text, most,
				body)
		}
	}
	for i, want := range []string{"", "1"} {
		answer, _ := rpctest.Page(h, "GET", "/v1/auth?limit=shadow&key=k&deny_body=never+seen", "")
		if answer.StatusCode != 200 || answer.Header.Get("Penstock-Shadow") != want {
			t.Errorf("%d: %d, Penstock-Shadow %q", i, answer.StatusCode,
				answer.Header.Get("Penstock-Shadow"))
		}
	}
}
