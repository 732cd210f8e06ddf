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
// the processor.
func TestPipelinesLetOthersRun(t *testing.T) {
	h := New(Config{Node: rpctest.Alone(t), Gate: fair.New()})
	line := new(fair.Line)
	line.Got(1, 1)
	ctx := context.WithValue(context.Background(), lineKey{}, line)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for i := range 10 {
		r := httptest.NewRequest(http.MethodGet, "/v1/check?limit=none&key=k", nil)
		var ran atomic.Bool
		go ran.Store(true)
		if h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx)); !ran.Load() {
			t.Fatalf("request %d has not let another goroutine run", i)
		}
	}
}
