package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"penstock/limiter"
	"penstock/rpc/fair"
	"penstock/rpc/rpctest"
)

// BenchmarkHTTP is the HTTP door and the node, without the wire.
func BenchmarkHTTP(b *testing.B) {
	h := New(Config{Node: rpctest.Alone(b,
		limiter.Spec{Name: "big", Algorithm: limiter.GCRA, Limit: 1 << 30, Per: time.Hour})})
	for _, way := range []struct{ name, method, target, body string }{
		{"get", http.MethodGet, "/v1/check?limit=big&key=alice", ""},
		{
			"post", http.MethodPost, "/v1/check",
			`{"items":[{"limit":"big","key":"alice","cost":1}]}`,
		},
		{"auth", http.MethodGet, "/v1/auth?limit=big&key=alice", ""},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(way.method, way.target, strings.NewReader(way.body))
				if way.body != "" {
					r.Header.Set("Content-Type", "application/json")
				}
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}

// BenchmarkRefused is what it takes to refuse a request at the HTTP door, and to let one in.
func BenchmarkRefused(b *testing.B) {
	node := rpctest.Alone(b,
		limiter.Spec{Name: "big", Algorithm: limiter.GCRA, Limit: 1 << 30, Per: time.Hour})
	standing := func() time.Duration { return 0 }
	for _, way := range []struct {
		name string
		gate *fair.Gate
		code int
	}{
		{"let in", fair.New(), http.StatusOK},
		{"refused", fair.Strained(1e-9, standing), http.StatusTooManyRequests},
	} {
		h := New(Config{Node: node, Gate: way.gate})
		ask := func() int {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/v1/check?limit=big&key=alice", nil)
			h.ServeHTTP(w, r)
			return w.Code
		}
		ask() // the first one is let in
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if code := ask(); code != way.code {
					b.Fatal(code)
				}
			}
		})
	}
}
