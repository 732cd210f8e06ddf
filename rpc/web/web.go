package web

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"penstock/cluster"
	"penstock/rpc/access"
	"penstock/rpc/admin"
	"penstock/rpc/audit"
	"penstock/rpc/catalog"
	"penstock/rpc/door"
	"penstock/rpc/fair"
	"penstock/rpc/gubernator"
	"penstock/rpc/overview"
	"penstock/rpc/page"
	"penstock/rpc/trace"
	"penstock/rpc/ui"
)

// Config makes the HTTP door and the pages of the admin listener. Node is required.
type Config struct {
	Node *cluster.Node
	// clients must send it as bearer token, except for /healthz, /readyz and /ui/; empty: anyone
	// may ask
	AuthToken string
	Admin     bool      // New serves the admin pages too
	Version   string    // of the program
	Started   time.Time // of the node
	Draining  func() bool
	// takes the node out of its cluster while it goes on running; nil: it cannot
	Drain func(context.Context) error
	// TrustedProxies are networks of proxies: their X-Forwarded-For names the client in key
	// templates ({ip}). Default: none, and {ip} is the address of the connection.
	TrustedProxies []netip.Prefix
	// Metrics are shared by the listeners of a node, so that --admin shows what --http measured.
	// Default: each has its own.
	Metrics *door.Metrics
	// Hosts are the names by which a listener may be asked. Where neither a token nor TLS keeps
	// strangers out, they keep out the pages that a browser on this machine shows. nil: any.
	Hosts *Hosts
	// Inlines are the limits that requests bring along, shared by the doors of a node. Default:
	// each door has its own.
	Inlines *door.Inlines
	// Doors are further pages of New, by "METHOD /path".
	Doors map[string]http.Handler
	// Clients are those that may ask, with their rights. nil: AuthToken alone decides.
	Clients *access.Clients
	// Audit records changes; nil: nothing does.
	Audit *audit.Log
	// Roster knows the versions of members, and those that have failed; nil: nothing does.
	Roster admin.Roster
	// Catalog keeps the limits that are put into the whole cluster, shared by the doors of a node;
	// nil: they are this door's alone.
	Catalog *catalog.Catalog
	// Gate refuses requests while there are too many, shared by the doors of a node. nil: it lets
	// in all.
	Gate *fair.Gate
	// Overview is the whole cluster as this node's page shows it. nil: there is no page for that.
	Overview *overview.Overview
	// Trace makes spans of checks. nil: there are none.
	Trace *trace.Tracer
}

// Bounds of the door. Slower clients and larger requests are cut off.
const (
	maxHeader = 16 << 10
	// the largest request that is not in error, 1000 items with keys of 1 KiB, has 1.3 MiB
	maxBody        = 2 << 20
	headerTimeout  = 2 * time.Second
	requestTimeout = 5 * time.Second
	idleTimeout    = 60 * time.Second
	// answerTimeout bounds how slowly a client may read. Profiles add to it what they take
	// (net/http/pprof does).
	answerTimeout = 10 * time.Second
)

// NewServer makes a server for h that cuts off slow and large requests. It speaks HTTP/1.1 alone,
// with TLS as well: there a connection has one request under way, so what connections take bounds
// what requests take. With HTTP/2 a connection has hundreds, of which none has room for its answer.
func NewServer(h http.Handler) *http.Server {
	one := new(http.Protocols)
	one.SetHTTP1(true)
	return &http.Server{
		Protocols:         one,
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       withLine,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),

		DisableGeneralOptionsHandler: true, // nobody pays for what net/http answers itself
	}
}

// web is the HTTP door: its rooms, each with some of the pages, and what a request passes on its
// way to them.
type web struct {
	Config
	clients *access.Clients // nil: anybody may ask
	proxies proxies
	bodies  bodies
	// operators are the only ones that ask here: no page is of the account for checks
	operators bool

	refusals refusals

	checks  checks
	limits  limitPages
	cluster clusterPages
	self    nodePages

	operating, lists, profiles *operating
}

func newWeb(c Config) *web {
	if c.Metrics == nil {
		c.Metrics = door.NewMetrics(c.Node)
	}
	if c.Draining == nil {
		c.Draining = func() bool { return false }
	}
	w := &web{
		Config: c, clients: door.ClientsOf(c.Clients, c.AuthToken), proxies: c.TrustedProxies,
		bodies: bodies{room: maxBodies},
	}
	client := func(r *http.Request) string { return w.proxies.caller(r).Name() }
	w.operating = newOperating(mostOperating, client)
	w.lists, w.profiles = newOperating(mostLists, client), newOperating(mostProfiles, client)
	w.Catalog = catalog.OrAlone(c.Catalog, c.Node)
	w.checks = checks{c.Node, door.OrNew(c.Inlines, c.Node), w.proxies, c.Trace, c.Audit}
	w.limits = limitPages{c.Node, w.Catalog, c.Audit}
	w.cluster = clusterPages{
		node: c.Node, overview: c.Overview, limits: &w.limits, proxies: w.proxies,
		draining: c.Draining, version: c.Version,
	}
	w.self = nodePages{
		node: c.Node, roster: c.Roster, audit: c.Audit, version: c.Version, started: c.Started,
		proxied: len(w.proxies) > 0, draining: c.Draining, drain: c.Drain,
	}
	return w
}

// New makes the HTTP door: checks, forward-auth, health, and the members of the cluster.
func New(c Config) http.Handler {
	w := newWeb(c)
	w.countRefusals("http")
	m := w.mux()
	w.checkPages(m)
	m.handle("GET /v1/members", answered(w.self.members))
	m.handle("GET /v1/ring", answered(w.self.ring))
	if c.Admin {
		w.adminPages(m)
	} else {
		m.elsewhere = newMux()
		w.adminPages(m.elsewhere)
	}
	return w.gated(w.screened(w.guarded(w.bodies.bounded(m))))
}

func (w *web) checkPages(m *mux) {
	c := &w.checks
	m.handleCharge("GET /v1/check", w.timedCheck("check", c.checkQuery))
	m.handle("POST /v1/check", w.timedCheck("check", answeredBody(c.checkBody)))
	m.handle("GET /v1/peek", answered(c.peekQuery))
	m.handle("POST /v1/reserve", w.timed("reserve", answeredBody(c.reserveBody)))
	m.handle("POST /v1/settle", w.timed("settle", answeredBody(c.settleBody)))
	m.handle("POST /v1/extend", answeredBody(c.extendBody))
	m.Handle("/v1/auth", w.timedCheck("auth", c.auth)) // proxies pass the client's method on
	g := &gubernator.Door{
		Node: w.Node, Inlines: c.inlines, Draining: w.Draining, Audit: w.Audit,
		Seconds: w.Metrics.Checks("gubernator"),
	}
	m.handle("POST /v1/GetRateLimits", w.timed("GetRateLimits", g.RateLimitsPage(w.proxies.caller)))
	m.handle("GET /v1/HealthCheck", g.HealthPage)
	m.handle("GET /v1/LiveCheck", g.LivePage)
	for pattern, door := range w.Doors {
		_, path, _ := strings.Cut(pattern, " /")
		m.handle(pattern, w.timed(path, door.ServeHTTP))
	}
}

func (w *web) adminPages(m *mux) {
	m.handle("POST /v1/reset", answeredBody(w.checks.resetBody))
	m.handle("GET /v1/status", w.operating.bounded(answered(w.self.status)))
	m.handle("GET /v1/top", w.lists.answered(w.self.top))
	m.handle("GET /v1/holds", w.lists.answered(w.self.holds))
	m.handle("POST /v1/drain", answered(w.self.drains))
	m.handle("POST /v1/recover", answered(w.self.recovers))
	m.handle("GET /v1/audit", w.lists.answered(w.self.changes))
	w.limits.addTo(m, w.lists)
	w.cluster.addTo(m, w.lists)
	m.handle("GET /ui/", ui.Handler("/ui/").ServeHTTP)
	m.HandleFunc("GET /{$}", http.RedirectHandler("/ui/", http.StatusFound).ServeHTTP)
	m.handle("GET /metrics", w.operating.bounded(promhttp.HandlerFor(w.Metrics.Registry,
		promhttp.HandlerOpts{}).ServeHTTP))
	m.HandleFunc("GET /debug/pprof/", w.profiles.bounded(pprof.Index))
	m.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	m.HandleFunc("GET /debug/pprof/profile", w.profiles.bounded(pprof.Profile))
	m.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	m.HandleFunc("GET /debug/pprof/trace", w.profiles.bounded(pprof.Trace))
}

// mux makes one with what every listener has.
func (w *web) mux() *mux {
	m := newMux()
	m.handle("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(rw, "ok")
	})
	m.handle("GET /readyz", w.self.ready)
	m.handle("GET /healthcheck", w.self.healthcheck)
	m.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		page.WriteProblem(rw, &page.Problem{
			Status: http.StatusNotFound, Title: "Not Found",
			Detail: fmt.Sprintf("path: there is nothing at %.100q%s", r.URL.Path, m.hint(r)),
		})
	})
	return m
}

// healthPath reports whether a page only says whether the node is alive, or ready.
func healthPath(path string) bool {
	return path == "/healthz" || path == "/readyz" || path == "/healthcheck"
}

// unguarded reports whether anyone may see a page: health, and the static page that asks its reader
// for the token.
func unguarded(path string) bool {
	return path == "/" || healthPath(path) || strings.HasPrefix(path,
		"/ui/") && !strings.Contains(path, "..")
}

// guarded lets in clients that are known, if the node has a list of them, and have the right to the
// page.
func (w *web) guarded(next http.Handler) http.Handler {
	if w.clients == nil {
		return next
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if unguarded(r.URL.Path) {
			next.ServeHTTP(rw, r)
			return
		}
		defer w.note(rw.Header(), r)
		ticket := access.Of(r.Context())
		if ticket == nil {
			page.Fault(rw, door.Explain(access.ErrUnknown))
			return
		}
		if err := mayOpen(ticket, r); err != nil {
			page.Fault(rw, door.Explain(err))
			return
		}
		next.ServeHTTP(rw, r)
	})
}

// timed measures h as path.
func (w *web) timed(path string, h http.HandlerFunc) http.HandlerFunc {
	seconds := w.Metrics.Seconds.WithLabelValues(path)
	return func(rw http.ResponseWriter, r *http.Request) {
		began := time.Now()
		h(rw, r)
		door.Took(seconds, began)
	}
}

// timedCheck is timed for a page with requests that are checks.
func (w *web) timedCheck(path string, h http.HandlerFunc) http.HandlerFunc {
	seconds := w.Metrics.Checks("http")
	return w.timed(path, func(rw http.ResponseWriter, r *http.Request) {
		began := time.Now()
		h(rw, r)
		door.Took(seconds, began)
	})
}
