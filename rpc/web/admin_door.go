package web

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	penstockv1 "penstock/proto/penstock/v1"
	"penstock/rpc/access"
	"penstock/rpc/admin"
	"penstock/rpc/door"
)

// maxAdminRequest is the most that a call of penstock.v1.Admin may send, in bytes. The largest is
// PutLimit with the YAML of one limit.
const maxAdminRequest = 256 << 10

// NewAdmin makes the admin listener: metrics, profiles, status, reset, and penstock.v1.Admin over
// gRPC. Its server must be made by NewAdminServer, which speaks HTTP/2 without TLS as well.
func NewAdmin(c Config) http.Handler {
	w := newWeb(c)
	m := w.mux()
	w.adminPages(m)
	pages := w.guarded(w.bodies.bounded(m))
	calls := w.adminCalls()
	return w.screened(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if isGRPC(r) {
			calls.ServeHTTP(rw, r)
			return
		}
		pages.ServeHTTP(rw, r)
	}))
}

// NewAdminServer is NewServer for a handler of NewAdmin.
func NewAdminServer(h http.Handler) *http.Server {
	s := NewServer(h)
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

func isGRPC(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// adminCalls serves penstock.v1.Admin and reflection. gRPC's own doors ask for rights in
// admit.handle, which grpc.Server.ServeHTTP does not call, so this handler asks for them.
func (w *web) adminCalls() http.Handler {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(maxAdminRequest))
	c := admin.Config{
		Node: w.Node, Drain: w.Drain, Audit: w.Audit, Roster: w.Roster, Catalog: w.Catalog,
	}
	if w.Overview != nil {
		c.Recorder = w.Overview.Recorder
	}
	penstockv1.RegisterAdminServer(s, admin.New(c))
	reflection.Register(s)
	bounded := w.bodies.bounded(s)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.clients != nil {
			ticket := w.clients.Identify(r.Header.Get("Authorization"), r.TLS)
			err := error(access.ErrUnknown)
			if ticket != nil {
				err = admin.MayCall(ticket, r.URL.Path)
			}
			if err != nil {
				refuseCall(rw, err)
				return
			}
			r = r.WithContext(access.With(r.Context(), ticket))
		}
		if r.URL.Path == penstockv1.Admin_Drain_FullMethodName {
			// A drain may take as long as its client likes.
			if err := withoutDeadlines(rw); err != nil {
				refuseCall(rw, err)
				return
			}
		}
		bounded.ServeHTTP(rw, r)
	})
}

// withoutDeadlines takes the deadlines off a request.
func withoutDeadlines(rw http.ResponseWriter) error {
	c := http.NewResponseController(rw)
	return errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}))
}

// refuseCall answers a call with the status of err, and with headers alone, as gRPC has it.
func refuseCall(rw http.ResponseWriter, err error) {
	s := status.Convert(door.StatusError(err))
	answer := rw.Header()
	answer.Set("Content-Type", "application/grpc")
	answer.Set("Grpc-Status", strconv.Itoa(int(s.Code())))
	answer.Set("Grpc-Message", url.PathEscape(s.Message()))
	rw.WriteHeader(http.StatusOK)
}
