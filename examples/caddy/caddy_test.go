// Package caddy_test runs the example in a real Caddy, before three nodes that share their counters
// as one would. It is a module of its own: Caddy has many dependencies.
package caddy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy/forwardauth"

	"penstock/cluster"
	"penstock/limiter"
	"penstock/limiter/policy"
	"penstock/rpc/clock"
	"penstock/rpc/peer"
	"penstock/rpc/web"
)

// node is a Penstock by itself, with the limits of the nginx example.
func node(t *testing.T) http.Handler {
	t.Helper()
	set, err := policy.Load("../nginx/limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	clock := clock.New()
	n, err := cluster.New(cluster.Config{
		ID: "n1", Boot: 1, Clock: clock, Network: peer.NewLines(peer.LinesConfig{
			ID: "n1", Boot: 1,
			Clock: clock,
		}),
		Table: limiter.NewTable(limiter.TableConfig{Bytes: 4 << 20}),
	})
	if err != nil {
		t.Fatal(err)
	}
	view, err := cluster.NewView("n1", []cluster.Member{{
		ID: "n1", Boot: 1,
		State: cluster.StateActive,
	}})
	if err != nil {
		t.Fatal(err)
	}
	n.SetView(view)
	n.SetLimits(set.Limits)
	return web.New(web.Config{
		Node:           n,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
}

func TestCaddyfile(t *testing.T) {
	text, err := os.ReadFile("Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	handler := node(t)
	var questions []*http.Request
	config := string(text)
	for _, address := range []string{"127.0.0.1:7949", "127.0.0.1:7959", "127.0.0.1:7969"} {
		s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			questions = append(questions, r) // one after the other: the test asks so
			handler.ServeHTTP(rw, r)
		}))
		defer s.Close()
		config = strings.Replace(config, " "+address, " "+s.Listener.Addr().String(), 1)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	site := l.Addr().String()
	l.Close()
	config = strings.Replace(config, "http://127.0.0.1:8080", "http://"+site, 1)
	config = strings.Replace(config, "admin off", "admin off\n\tlog {\n\t\tlevel ERROR\n\t}", 1)

	json, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config),
		map[string]any{"filename": "Caddyfile"})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		if !strings.Contains(w.Message, "not formatted") {
			t.Error(w)
		}
	}
	if err := caddy.Load(json, true); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	}()

	ask := func(method, path, user string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequest(method, "http://"+site+path, strings.NewReader("x=1"))
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			r.Header.Set("X-User", user)
		}
		r.Header.Set("X-Forwarded-Uri", "/free") // an invention of the client
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer, string(body)
	}
	for i := range 20 {
		answer, body := ask("POST", fmt.Sprint("/page?n=", i), "alice")
		if answer.StatusCode != 200 || body != "Behind the gate" ||
			answer.Header.Get("RateLimit") == "" {
			t.Fatalf("%d: %d %q %v", i, answer.StatusCode, body, answer.Header)
		}
	}
	answer, body := ask("POST", "/page", "alice")
	if answer.StatusCode != 429 || body != "Too many requests." ||
		answer.Header.Get("Retry-After") == "" ||
		answer.Header.Get("X-Ratelimit-Remaining") != "0" {
		t.Errorf("the next: %d %q %v", answer.StatusCode, body, answer.Header)
	}
	for _, other := range [][2]string{{"/page", "bob"}, {"/other", "alice"}} {
		if answer, _ := ask("GET", other[0], other[1]); answer.StatusCode != 200 {
			t.Errorf("%v: %d", other, answer.StatusCode)
		}
	}
	if answer, body := ask("GET", "/page", ""); answer.StatusCode != 400 ||
		!strings.Contains(body, "X-User") {
		t.Errorf("without a name: %d %s", answer.StatusCode, body)
	}
	// The contract, as this Caddy keeps it.
	if len(questions) != 24 {
		t.Errorf("%d questions", len(questions))
	}
	q := questions[0]
	if q.Method != http.MethodGet || q.Header.Get("X-Forwarded-Method") != "POST" ||
		q.Header.Get("X-Forwarded-Uri") != "/page?n=0" ||
		q.Header.Get("X-Forwarded-For") != "127.0.0.1" {
		t.Errorf("%s %s %v", q.Method, q.URL, q.Header)
	}
}
