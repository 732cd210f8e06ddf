package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// HTTPMiddleware is middleware for net/http: it asks a limiter before each request, and passes
// admitted ones on. Limiter and Limit are required.
type HTTPMiddleware struct {
	Limiter Limiter
	// Limit is the name of the limit that a request falls under; empty: none, and the request is
	// passed on.
	Limit func(*http.Request) string
	// Key is the key that a request counts for. Default: the remote address of the connection, IPv6
	// by /64. Behind a proxy that is the proxy's.
	Key func(*http.Request) string
	// Cost is the cost of a request. Default: 1.
	Cost func(*http.Request) int64
	// Denied answers a request that is not admitted; the RateLimit fields are set. Default: the
	// status and body of the limit, and where it has none, 429 with problem+json.
	Denied func(http.ResponseWriter, *http.Request, Decision)
	// Failed answers a request that could not be decided. Default: 503 with problem+json. To pass
	// such requests on instead, configure the Client to fail open.
	Failed func(http.ResponseWriter, *http.Request, error)
}

// FixedLimit is a Limit that is the same for all requests.
func FixedLimit(limit string) func(*http.Request) string {
	return func(*http.Request) string { return limit }
}

// Wrap puts the limiter before next. It has the form that routers take as middleware. If a limit
// admits with a delay, it waits before it passes the request on; a delay beyond the deadline of the
// request's context is a denial, which charges nothing. If the context ends meanwhile, Failed
// answers, and the cost is given back when its turn has come. Handlers find the decision by
// DecisionOf, with the mark of a request that goes on beyond its limit.
func (h HTTPMiddleware) Wrap(next http.Handler) http.Handler {
	if h.Limiter == nil || h.Limit == nil {
		panic("client: HTTPMiddleware needs a Limiter and a Limit")
	}
	if h.Key == nil {
		h.Key = func(r *http.Request) string { return household(r.RemoteAddr) }
	}
	if h.Denied == nil {
		h.Denied = denied
	}
	if h.Failed == nil {
		h.Failed = failed
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		limit, cost := h.Limit(r), int64(1)
		if limit == "" {
			next.ServeHTTP(rw, r)
			return
		}
		if h.Cost != nil {
			cost = h.Cost(r)
		}
		asked := Request{Limit: limit, Key: h.Key(r), Cost: cost}
		d, err := takeInTime(r.Context(), h.Limiter, asked)
		if err != nil {
			h.Failed(rw, r, err)
			return
		}
		setRateLimit(rw.Header(), d)
		if !d.Allowed {
			h.Denied(rw, r, d)
			return
		}
		next.ServeHTTP(rw, r.WithContext(withDecision(r.Context(), d)))
	})
}

type decisionKey struct{}

func withDecision(ctx context.Context, d Decision) context.Context {
	return context.WithValue(ctx, decisionKey{}, d)
}

// DecisionOf is the decision by which HTTPMiddleware or Interceptors have let a request in, for its
// handler: a Tag or a Tier says that it is beyond its limit. ok is false if there was none.
func DecisionOf(ctx context.Context) (d Decision, ok bool) {
	d, ok = ctx.Value(decisionKey{}).(Decision)
	return d, ok
}

// household is the address without the port. Of an IPv6 address it is the network /64, as one
// household has.
func household(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a = a.Unmap().WithZone(""); a.Is6() {
		network, _ := a.Prefix(64)
		return network.String()
	}
	return a.String()
}

// setRateLimit writes the fields of draft-ietf-httpapi-ratelimit-headers-10. It adds Retry-After to
// a denial that ends by waiting. It writes nothing for a decision that no node took.
func setRateLimit(h http.Header, d Decision) {
	name := strconv.QuoteToASCII(d.LimitName)
	if d.Limit > 0 && !strings.Contains(name, `\u`) && !strings.Contains(name, `\x`) {
		until := d.ResetAfter
		if wait := again(&d); !d.Allowed && wait >= 0 {
			until = wait
		}
		// Not by Set, which would write them as Ratelimit.
		h["RateLimit-Policy"] = []string{fmt.Sprintf("%s;q=%d", name, d.Limit)}
		h["RateLimit"] = []string{fmt.Sprintf("%s;r=%d;t=%d", name, d.Remaining, seconds(until))}
	}
	if wait := again(&d); !d.Allowed && wait >= 0 {
		h.Set("Retry-After", strconv.FormatInt(max(1, seconds(wait)), 10))
	}
}

// seconds is d in seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func denied(rw http.ResponseWriter, _ *http.Request, d Decision) {
	status := cmp.Or(d.Denial.Status, http.StatusTooManyRequests)
	if d.Denial.Body != "" {
		rw.Header().Set("Content-Type", cmp.Or(d.Denial.ContentType, "text/plain; charset=utf-8"))
		rw.Header().Set("X-Content-Type-Options", "nosniff")
		rw.WriteHeader(status)
		io.WriteString(rw, d.Denial.Body)
		return
	}
	detail := fmt.Sprintf("limit %q never admits that much at once", d.LimitName)
	switch wait := again(&d); {
	case d.Source == fallbackSource:
		detail = fmt.Sprintf("limit %q can be asked again in %v", d.LimitName, wait)
	case wait >= 0:
		detail = fmt.Sprintf("limit %q admits this again in %v", d.LimitName, wait)
	}
	problem(rw, status, "https://iana.org/assignments/http-problem-types#quota-exceeded",
		"Request cannot be satisfied as assigned quota has been exceeded", detail)
}

// failed tells the client nothing about the services behind this program.
func failed(rw http.ResponseWriter, _ *http.Request, _ error) {
	problem(rw, http.StatusServiceUnavailable, "about:blank", "Service Unavailable",
		"the limits of this service cannot be checked at the moment")
}

func problem(rw http.ResponseWriter, status int, kind, title, detail string) {
	b, err := json.Marshal(map[string]any{
		"type": kind, "status": status, "title": title,
		"detail": detail,
	})
	if err != nil {
		panic(err) // strings and a number
	}
	rw.Header().Set("Content-Type", "application/problem+json")
	rw.WriteHeader(status)
	rw.Write(append(b, '\n'))
}
