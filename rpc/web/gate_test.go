package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"penstock/rpc/access"
	"penstock/rpc/door"
	"penstock/rpc/fair"
	"penstock/rpc/rpctest"
)

// strained is a gate of a node where each client may ask once.
func strained() *fair.Gate {
	return fair.Strained(1e-6, func() time.Duration { return 0 })
}

// clerk is a list of one client, that may look and nothing else.
func clerk(t *testing.T) *access.Clients {
	set, err := access.Parse([]byte(`clients:
- {name: clerk, token: clerk-0123456789abcdef, admin: read}
`))
	if err != nil {
		t.Fatal(err)
	}
	return access.New(set)
}

// answerTo is how h answers a client at an address: its status, and whether it is OVERLOADED.
func answerTo(h http.Handler, address, target, token string) (status int, refused bool) {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.RemoteAddr = address + ":1000"
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	refused = w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "1" &&
		strings.Contains(w.Body.String(), `"type":"`+door.Overloaded+`"`)
	return w.Code, refused
}

// Promise: whatever a door answers is paid for, also before it knows the client: a client that has
// had its share hears OVERLOADED and nothing else, and another one is answered as ever.
func TestWhatIsRefusedIsPaidFor(t *testing.T) {
	const known, wrong = "clerk-0123456789abcdef", "nobody-0123456789abcdef"
	open := func(c Config) http.Handler { return New(c) }
	for _, c := range []struct {
		what, target, token string
		listed              bool // the node has a list of its clients
		status              int
		open                func(Config) http.Handler
	}{
		{"no token", "/v1/check?limit=demo&key=k", "", true, 401, open},
		{"another token", "/v1/check?limit=demo&key=k", wrong, true, 401, open},
		{"no right", "/v1/limits/promote", known, true, 403, open},
		{"metrics without a token", "/metrics", "", true, 401, open},
		{"no page", "/nothing", "", false, 404, open},
		{"another host", "http://evil.example/v1/check", "", false, 421, open},
		{"health", "/healthz", "", true, 200, open},
		{"readiness", "/readyz", "", true, 200, open},
		{"Envoy's health", "/healthcheck", "", true, 200, open},
		{"the page", "/ui/", "", true, 200, open},
		{"the way to the page", "/", "", true, 302, open},
		{"metrics", "/metrics", "", false, 200, open},
		{"status", "/v1/status", known, true, 200, open},
		{"profiles", "/debug/pprof/cmdline", "", false, 200, open},
		{"no token at --admin", "/v1/members", "", true, 401, NewAdmin},
		{"health at --admin", "/healthz", "", true, 200, NewAdmin},
		{"limits at --admin", "/v1/limits", known, true, 200, NewAdmin},
	} {
		t.Run(c.what, func(t *testing.T) {
			conf := Config{
				Node: rpctest.Alone(t, rpctest.Specs...), Gate: strained(), Admin: true,
				Hosts: NewHosts(),
			}
			target := c.target
			if strings.HasPrefix(target, "/") {
				target = "http://localhost" + target
			}
			if c.listed {
				conf.Clients = clerk(t)
			}
			h := c.open(conf)
			if status, _ := answerTo(h, "192.0.2.1", target, c.token); status != c.status {
				t.Errorf("the first answer is %d, not %d", status, c.status)
			}
			if status, refused := answerTo(h, "192.0.2.1", target, c.token); !refused {
				t.Errorf("a client that has had its share hears %d", status)
			}
			status, _ := answerTo(h, "192.0.2.2", target, c.token)
			if named := c.token == known; named != (status == http.StatusTooManyRequests) ||
				!named && status != c.status {
				t.Errorf("at another address the answer is %d", status)
			}
			if n := conf.Gate.Figures().Used; n != 0 {
				t.Errorf("%d requests have not left", n)
			}
		})
	}
}

// Promise: a node that a client floods says to a probe that it lives, also at the address of that
// client, and to an operator what it is busy with. A client that floods health is refused that, and
// only that.
func TestProbesAreAnsweredBesideAFlood(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t, rpctest.Specs...), Gate: strained(), Admin: true})
	check := "/v1/check?limit=demo&key=k"
	for range 3 {
		answerTo(h, "192.0.2.1", check, "")
	}
	for _, page := range []string{"/healthz", "/metrics"} {
		if status, _ := answerTo(h, "192.0.2.1", page, ""); status != http.StatusOK {
			t.Errorf("%s beside a flood of checks: %d", page, status)
		}
	}
	for range 3 {
		answerTo(h, "192.0.2.2", "/healthz", "")
	}
	if status, refused := answerTo(h, "192.0.2.2", "/readyz", ""); !refused {
		t.Errorf("a flood of questions about health is answered: %d", status)
	}
	for _, page := range []string{check, "/metrics"} {
		if status, _ := answerTo(h, "192.0.2.2", page, ""); status != http.StatusOK {
			t.Errorf("%s beside a flood of questions about health: %d", page, status)
		}
	}
}

// Promise: a client without a token does not use up what one with the node's only token may have,
// which has no name, at the same address.
func TestStrangersPayForThemselves(t *testing.T) {
	const token = "a-token-of-a-test"
	h := New(Config{
		Node: rpctest.Alone(t, rpctest.Specs...), Gate: strained(), AuthToken: token, Admin: true,
	})
	check := "/v1/check?limit=demo&key=k"
	for range 3 {
		answerTo(h, "192.0.2.1", check, "")
		answerTo(h, "192.0.2.1", "/metrics", "")
	}
	if _, refused := answerTo(h, "192.0.2.1", check, ""); !refused {
		t.Error("a client without a token is not refused")
	}
	for _, page := range []string{check, "/metrics"} {
		if status, _ := answerTo(h, "192.0.2.1", page, token); status != http.StatusOK {
			t.Errorf("%s with the token, at the address of that client: %d", page, status)
		}
	}
}

// Promise: net/http answers no request that nobody has paid for.
func TestOptionsOfTheServerArePaidFor(t *testing.T) {
	s, l := NewServer(New(Config{Node: rpctest.Alone(t), Gate: strained()})), make(pipes)
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	for i, want := range []int{http.StatusBadRequest, http.StatusTooManyRequests} {
		client, server := net.Pipe()
		l <- server
		const ask = "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n"
		if _, err := io.WriteString(client, ask); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != want {
			t.Errorf("answer %d is %d, not %d", i+1, answer.StatusCode, want)
		}
		client.Close()
	}
	s.Close()
	<-done
}
