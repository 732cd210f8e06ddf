package web

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"penstock/rpc/access"
	"penstock/rpc/door"
	"penstock/rpc/fair"
	"penstock/rpc/page"
)

// gated is what every request passes first: it finds its client, has that one pay, and refuses the
// request while there are too many. What is refused later, for its Host or for want of a token or a
// right, has been paid for as well: else a client without a token could have the node say no
// without an end. Where no client is known, the address pays.
func (w *web) gated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.Draining() {
			// the client asks another node before this one closes a connection under a request
			rw.Header().Set("Connection", "close")
		}
		if w.clients != nil {
			ticket := w.clients.Identify(r.Header.Get("Authorization"), r.TLS)
			if ticket != nil {
				r = r.WithContext(access.With(r.Context(), ticket))
			}
		}
		if w.Gate == nil {
			next.ServeHTTP(rw, r)
			return
		}
		client, work := w.payer(r), workOf(r)
		work.Line.Yield() // the requests of a pipeline are read at once
		if err := w.Gate.Enter(client, work); err != nil {
			overloaded(rw, r)
			return
		}
		defer w.Gate.Leave(client)
		next.ServeHTTP(rw, r)
	})
}

// payer is the account that a request is paid from. Health and the pages of the operator have
// others than checks: so a probe, and an operator that finds out what a node is busy with, are
// answered also if what floods the node is at the same address. A client that floods these pages is
// refused them like others.
func (w *web) payer(r *http.Request) string {
	client := w.proxies.caller(r).Name()
	switch path := r.URL.Path; {
	case healthPath(path):
		return fair.Health(client)
	case w.clients != nil && access.Of(r.Context()) == nil:
		return fair.Stranger(client)
	case w.operators || operatorPath(path):
		return fair.Operator(client)
	}
	return client
}

// overloaded is the answer to a request that is refused. Most of them come when there is no time.
var overloaded = page.Prepared(door.Explain(fair.ErrOverloaded))

// lineKey is of a connection's line in the context of its requests.
type lineKey struct{}

// withLine is ctx for requests that come on conn.
func withLine(ctx context.Context, conn net.Conn) context.Context {
	if line := door.LineOf(conn); line != nil {
		return context.WithValue(ctx, lineKey{}, line)
	}
	return ctx
}

const (
	// requestCost is about what a check by HTTP takes of a processor, or a page of /ui/, or to say
	// that a client is unknown.
	requestCost = 75 * time.Microsecond
	// metricsCost is that of metrics: they are collected and written anew for each request.
	metricsCost = time.Millisecond
)

// workOf is what a request takes.
func workOf(r *http.Request) fair.Work {
	line, _ := r.Context().Value(lineKey{}).(*fair.Line)
	w := fair.Work{Cost: requestCost, Line: line, Shared: r.ProtoMajor > 1}
	if r.URL.Path == "/metrics" {
		w.Cost = metricsCost
	}
	return w
}

// operatorPath reports whether a page is for finding out what a node is busy with.
func operatorPath(path string) bool {
	return path == "/metrics" || path == "/v1/status" || strings.HasPrefix(path, "/debug/")
}
