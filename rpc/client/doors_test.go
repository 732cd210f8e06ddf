package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"penstock/rpc/client"
)

// written is a header field as it is written on the wire, to the letter.
func written(answer *http.Response, name string) []string { return answer.Header[name] }

// Promise: what is admitted is handed on, what is not is answered 429, and both say how much there
// is.
func TestHTTP(t *testing.T) {
	_, addr := serveNode(t, "n1")
	h := client.HTTPMiddleware{
		Limiter: newClient(t, addr),
		Limit:   client.FixedLimit("five"),
	}.Wrap(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, "page")
	}))
	get := func(h http.Handler, remote string) *http.Response {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = remote
		rw := httptest.NewRecorder()
		h.ServeHTTP(rw, r)
		return rw.Result()
	}
	for i := range 6 {
		answer := get(h, "192.0.2.1:1234")
		body, _ := io.ReadAll(answer.Body)
		limits := written(answer, "RateLimit")
		if len(limits) != 1 || !strings.HasPrefix(limits[0],
			`"five";r=`+string(rune('0'+max(0, 4-i)))+`;t=`) ||
			written(answer, "RateLimit-Policy")[0] != `"five";q=5` {
			t.Errorf("request %d: %v", i+1, answer.Header)
		}
		if i < 5 {
			if answer.StatusCode != 200 || string(body) != "page" ||
				answer.Header.Get("Retry-After") != "" {
				t.Errorf("request %d: %d %s", i+1, answer.StatusCode, body)
			}
			continue
		}
		var problem struct {
			Type   string
			Status int
			Detail string
		}
		if err := json.Unmarshal(body, &problem); err != nil || answer.StatusCode != 429 ||
			problem.Status != 429 || !strings.Contains(problem.Detail, "five") ||
			answer.Header.Get("Content-Type") != "application/problem+json" ||
			answer.Header.Get("Retry-After") == "" {
			t.Errorf("denied: %d %v %s", answer.StatusCode, answer.Header, body)
		}
	}
	for _, remote := range []string{"192.0.2.2:1", "[2001:db8:1:2::1]:1"} {
		if answer := get(h, remote); answer.StatusCode != 200 {
			t.Errorf("%s: %d", remote, answer.StatusCode)
		}
	}
	if answer := get(h, "[2001:db8:1:2:ffff::1]:99"); written(answer,
		"RateLimit")[0][:9] != `"five";r=` ||
		!strings.Contains(written(answer, "RateLimit")[0], "r=3;") {
		t.Errorf("a neighbour in the same network: %v", answer.Header)
	}
}

func TestHTTPHandlers(t *testing.T) {
	f := new(client.Fake)
	reached := 0
	h := client.HTTPMiddleware{
		Limiter: f,
		Limit:   func(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") },
		Key:     func(r *http.Request) string { return r.Header.Get("X-User") },
		Cost:    func(r *http.Request) int64 { return r.ContentLength },
		Denied: func(rw http.ResponseWriter, r *http.Request, d client.Decision) {
			rw.WriteHeader(http.StatusForbidden)
		},
		Failed: func(rw http.ResponseWriter, r *http.Request, err error) {
			http.Error(rw, err.Error(), http.StatusTeapot)
		},
	}
	wrapped := h.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	post := func(h http.Handler, path string) *http.Response {
		r := httptest.NewRequest("POST", path, strings.NewReader("1234567"))
		r.Header.Set("X-User", "alice")
		rw := httptest.NewRecorder()
		h.ServeHTTP(rw, r)
		return rw.Result()
	}
	if post(wrapped, "/"); reached != 1 || len(f.Calls()) != 0 {
		t.Errorf("a request without a limit: reached %d, asked %v", reached, f.Calls())
	}
	if post(wrapped, "/upload"); reached != 2 ||
		f.Calls()[0] != (client.FakeCall{Request: client.Request{
			Limit: "upload", Key: "alice",
			Cost: 7,
		}}) {
		t.Errorf("reached %d, asked %v", reached, f.Calls())
	}
	f.Answer = func(string, string,
		int64,
	) (client.Decision, error) {
		return client.Decision{RetryAfter: -1}, nil
	}
	if answer := post(wrapped, "/upload"); answer.StatusCode != 403 || reached != 2 ||
		answer.Header.Get("Retry-After") != "" {
		t.Errorf("denied: %d %v, reached %d", answer.StatusCode, answer.Header, reached)
	}
	f.Answer = func(string, string, int64) (client.Decision, error) {
		return client.Decision{},
			errors.New("secret")
	}
	if answer := post(wrapped, "/upload"); answer.StatusCode != http.StatusTeapot || reached != 2 {
		t.Errorf("failed: %d, reached %d", answer.StatusCode, reached)
	}
	h.Failed = nil
	answer := post(h.Wrap(http.NotFoundHandler()), "/upload")
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != 503 ||
		strings.Contains(string(body), "secret") {
		t.Errorf("failed, by default: %d %s", answer.StatusCode, body)
	}
	defer func() {
		if recover() == nil {
			t.Error("middleware without a limit is accepted")
		}
	}()
	client.HTTPMiddleware{Limiter: f}.Wrap(http.NotFoundHandler())
}

// Promise: a limit that shapes delays the request, as long as it says.
func TestHTTPWaitsForAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &client.Fake{Answer: func(string, string, int64) (client.Decision, error) {
			return client.Decision{Allowed: true, Delay: time.Second}, nil
		}}
		began := time.Now()
		h := client.HTTPMiddleware{
			Limiter: f,
			Limit:   client.FixedLimit("queue"),
		}.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if time.Since(began) != time.Second {
				t.Errorf("handed on after %v", time.Since(began))
			}
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	})
}

// Promise: calls that are not admitted end with RESOURCE_EXHAUSTED and say when to come again.
func TestGRPC(t *testing.T) {
	left := int64(2)
	f := &client.Fake{Answer: func(limit, key string, cost int64) (client.Decision, error) {
		switch left -= cost; {
		case key == "broken":
			return client.Decision{}, errors.New("secret")
		case left < 0:
			return client.Decision{LimitName: limit, RetryAfter: 1500 * time.Millisecond}, nil
		}
		return client.Decision{Allowed: true, LimitName: limit}, nil
	}}
	key := "alice"
	g := client.Interceptors{
		Limiter: f,
		Limit: func(_ context.Context, method string) string {
			return strings.TrimPrefix(method, "/grpc.health.v1.Health/")
		},
		Key: func(context.Context, string) string { return key },
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(g.Unary()),
		grpc.ChainStreamInterceptor(g.Stream()))
	healthv1.RegisterHealthServer(s, health.NewServer())
	go s.Serve(l)
	defer s.Stop()
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := healthv1.NewHealthClient(conn)
	check := func() error {
		_, err := c.Check(patience(t), &healthv1.HealthCheckRequest{})
		return err
	}
	watch := func() error {
		ctx, cancel := context.WithCancel(patience(t))
		defer cancel()
		stream, err := c.Watch(ctx, &healthv1.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	for i, call := range []func() error{check, watch} {
		if err := call(); err != nil {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
	for i, call := range []func() error{check, watch} {
		s := status.Convert(call())
		if s.Code() != codes.ResourceExhausted || len(s.Details()) != 1 ||
			s.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration() !=
				1500*time.Millisecond {
			t.Errorf("call %d too many: %v, %v", i+1, s, s.Details())
		}
	}
	key = "broken"
	if s := status.Convert(check()); s.Code() != codes.Unavailable ||
		strings.Contains(s.Message(), "secret") {
		t.Errorf("undecided: %v", s)
	}
	asked := f.Calls()
	if d := asked[0].MaxDelay; d <= 0 || d > time.Minute {
		t.Errorf("a call with a deadline bears a delay of %v", d)
	}
	asked[0].MaxDelay = 0
	if len(asked) != 5 || asked[0] != (client.FakeCall{Request: client.Request{
		Limit: "Check",
		Key:   "alice", Cost: 1,
	}}) || asked[1].Limit != "Watch" {
		t.Errorf("asked %v", asked)
	}
}

// replies answers with one status after the other.
type replies struct {
	t      *testing.T
	status []int
	after  string // Retry-After
	bodies []string
}

func (s *replies) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		b, _ := io.ReadAll(r.Body)
		body = string(b)
	}
	s.bodies = append(s.bodies, body)
	rw := httptest.NewRecorder()
	if s.after != "" {
		rw.Header().Set("Retry-After", s.after)
	}
	rw.WriteHeader(s.status[0])
	s.status = s.status[1:]
	return rw.Result(), nil
}

// Promise: a Retry-After is honoured, if there is time for it and the request can be sent again.
func TestTransport(t *testing.T) {
	plain := func() *http.Request {
		r, _ := http.NewRequest("POST", "http://a/", strings.NewReader("body"))
		return r
	}
	// a bubble begins with that year
	date := time.Date(2000, 1, 1, 0, 0, 7, 0, time.UTC).Format(http.TimeFormat)
	for _, c := range []struct {
		name    string
		status  []int
		after   string
		request func(*http.Request) *http.Request
		want    int
		sent    int
		waited  time.Duration
	}{
		{"admitted", []int{200}, "", nil, 200, 1, 0},
		{"denied once", []int{429, 200}, "2", nil, 200, 2, 2 * time.Second},
		{"overloaded twice", []int{503, 503, 200}, "2", nil, 200, 3, 4 * time.Second},
		{"a date", []int{429, 200}, date, nil, 200, 2, 7 * time.Second},
		{"a date that is over", []int{429, 200}, "Fri, 31 Dec 1999 23:59:59 GMT", nil, 200, 2, 0},
		{"denied for ever", []int{429, 429, 429, 429}, "1", nil, 429, 4, 3 * time.Second},
		{"no Retry-After", []int{429}, "", nil, 429, 1, 0},
		{"nonsense", []int{429}, "-1", nil, 429, 1, 0},
		{"another error", []int{500}, "1", nil, 500, 1, 0},
		{"longer than MaxWait", []int{429}, "61", nil, 429, 1, 0},
		{"the deadline is too near", []int{429}, "6", func(r *http.Request) *http.Request {
			ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
			context.AfterFunc(ctx, cancel)
			return r.WithContext(ctx)
		}, 429, 1, 0},
		{"a body that can be sent once", []int{429}, "1", func(r *http.Request) *http.Request {
			r.GetBody = nil
			return r
		}, 429, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, r, began := &replies{t: t, status: c.status, after: c.after}, plain(),
					time.Now()
				if c.request != nil {
					r = c.request(r)
				}
				answer, err := (&client.Transport{Base: server}).RoundTrip(r)
				if err != nil || answer.StatusCode != c.want || len(server.bodies) != c.sent ||
					time.Since(began) != c.waited {
					t.Errorf("%v, %v: sent %d times, after %v; want %d, %d times, after %v", answer,
						err, len(server.bodies), time.Since(began), c.want, c.sent, c.waited)
				}
				for _, body := range server.bodies {
					if body != "body" {
						t.Errorf("sent %q", body)
					}
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := (&client.Transport{Base: &replies{
			t: t, status: []int{429},
			after: "10",
		}}).RoundTrip(plain().WithContext(ctx))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a caller who goes: %v", err)
		}
	})
}

// Promise: what a node denies because it does not reach the owner of the key may be asked for again
// soon, also if its share never admits it.
func TestHTTPDeniedByAShare(t *testing.T) {
	h := client.HTTPMiddleware{
		Limiter: &client.Fake{Answer: func(string, string, int64) (client.Decision, error) {
			return client.Decision{
				Limit: 3, LimitName: "login", RetryAfter: -1, Source: "fallback", Degraded: true,
			}, nil
		}},
		Limit: client.FixedLimit("login"),
	}
	rw := httptest.NewRecorder()
	h.Wrap(http.NotFoundHandler()).ServeHTTP(rw, httptest.NewRequest("GET", "/", nil))
	if body := rw.Body.String(); rw.Code != 429 || rw.Header().Get("Retry-After") != "1" ||
		!strings.Contains(body, "can be asked again in 1s") {
		t.Errorf("%d, %v: %s", rw.Code, rw.Header(), body)
	}
}

// spent notes whether a body is closed.
type spent struct {
	io.Reader
	closed *int
}

func (b spent) Close() error {
	*b.closed++
	return nil
}

// Promise: Retries below zero is never, and no body stays open.
func TestTransportWithoutRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &replies{t: t, status: []int{429, 200}, after: "1"}
		r, _ := http.NewRequest("POST", "http://a/", strings.NewReader("body"))
		answer, err := (&client.Transport{Base: server, Retries: -1}).RoundTrip(r)
		if err != nil || answer.StatusCode != 429 || len(server.bodies) != 1 {
			t.Errorf("%v, %v: sent %d times", answer, err, len(server.bodies))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		made, closed := 0, 0
		r = r.WithContext(ctx)
		r.GetBody = func() (io.ReadCloser, error) {
			made++
			return spent{strings.NewReader("body"), &closed}, nil
		}
		server = &replies{t: t, status: []int{429}, after: "10"}
		if _, err := (&client.Transport{Base: server}).RoundTrip(r); err == nil || made != closed {
			t.Errorf("a caller who goes: %v; %d bodies were made, %d closed", err, made, closed)
		}
	})
}
