package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"

	"penstock/rpc/fair"
	"penstock/rpc/rpctest"
)

// Promise: while a client sends requests without waiting for answers, each of them lets others have
// the processor. One time in 61 the scheduler goes on with the goroutine that gives way, so the
// next request may be needed.
func TestPipelinesLetOthersRun(t *testing.T) {
	open := New(Config{Node: rpctest.Alone(t), Gate: fair.New(), Admin: true})
	closed := New(Config{Node: rpctest.Alone(t), Gate: fair.New(), AuthToken: "a-token-of-a-test"})
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	pipelined(t, open, "/v1/check?limit=none&key=k")
	for _, target := range []string{"/healthz", "/ui/", "/metrics"} {
		pipelined(t, open, target)
	}
	pipelined(t, closed, "/v1/check?limit=none&key=k")
}

// pipelined sends requests for target without waiting for answers.
func pipelined(t *testing.T, h http.Handler, target string) {
	t.Helper()
	line := new(fair.Line)
	line.Got(1, 1)
	ctx := context.WithValue(context.Background(), lineKey{}, line)
	for i := range 10 {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		var ran atomic.Bool
		go ran.Store(true)
		for range 2 {
			h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		}
		if !ran.Load() {
			t.Fatalf("%s: requests %d and %d have not let another goroutine run", target, 2*i,
				2*i+1)
		}
	}
}

// Promise: the answers of a node that is about to stop say that their connection ends with them, so
// no client sends its next request into a connection that is being closed.
func TestADrainingNodeEndsConnections(t *testing.T) {
	draining := false
	h := New(Config{Node: rpctest.Alone(t), Draining: func() bool { return draining }})
	s := httptest.NewServer(h)
	defer s.Close()
	for _, path := range []string{"/v1/check?limit=none&key=k", "/readyz", "/nothing"} {
		for _, draining = range []bool{false, true} {
			answer, err := s.Client().Get(s.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.Close != draining {
				t.Errorf("%s, draining %t: the answer ends its connection: %t", path, draining,
					answer.Close)
			}
		}
	}
}
