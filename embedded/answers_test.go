package embedded_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"penstock/embedded"
	"penstock/limiter"
	"penstock/rpc/client"
)

// Promise: middleware before handlers denies in the words of the limit, and tells handlers of a
// request that goes on beyond its limit.
func TestMiddlewareInTheWordsOfTheLimit(t *testing.T) {
	spec := limiter.Spec{
		Name: "words", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 1, Per: time.Hour,
		Answers: limiter.Answers{
			Status:      503,
			Body:        "<p>later",
			ContentType: "text/html",
			Spread:      50,
		},
	}
	tag := limiter.Spec{
		Name: "tag", Algorithm: limiter.FixedWindow, Anchor: limiter.FirstHit,
		Limit: 1, Per: time.Hour,
		OnDeny: limiter.DenyTag, Answers: limiter.Answers{Tag: "bot"},
	}
	n := start(t, embedded.Config{Limits: []limiter.Spec{spec, tag}, Memory: 1 << 20})
	defer n.Close(patience(t))
	for _, row := range []struct {
		limit         string
		status        int
		body, content string
	}{
		{"words", 503, "<p>later", "text/html"},
		{"tag", 200, "tag bot", "text/plain; charset=utf-8"},
	} {
		h := client.HTTPMiddleware{Limiter: n, Limit: client.FixedLimit(row.limit)}.Wrap(
			http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				d, ok := client.DecisionOf(r.Context())
				if !ok {
					t.Error("the handler finds no decision")
				}
				io.WriteString(rw, "tag "+d.Tag)
			}))
		ask := func() (int, string, http.Header) {
			rw := httptest.NewRecorder()
			h.ServeHTTP(rw, httptest.NewRequest(http.MethodGet, "/", nil))
			return rw.Code, rw.Body.String(), rw.Result().Header
		}
		if status, body, _ := ask(); status != 200 || body != "tag " {
			t.Errorf("%s: within the limit: %d %s", row.limit, status, body)
		}
		status, body, header := ask()
		if status != row.status || body != row.body ||
			header.Get("Content-Type") != row.content ||
			(header.Get("Retry-After") == "") != (row.status == 200) {
			t.Errorf("%s: beyond the limit: %d %s %v", row.limit, status, body, header)
		}
	}
}
