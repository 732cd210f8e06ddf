package web

import (
	"cmp"
	"net/http"

	"penstock/rpc/door"
	"penstock/rpc/page"
)

// refusals are the requests that a listener has refused for want of a credential or a right, by the
// door that its page is of.
type refusals struct{ own, envoy, gubernator *door.Unauthorized }

func (w *web) countRefusals(name string) {
	m := w.Metrics
	w.refusals = refusals{
		m.Unauthorized(name), m.Unauthorized("envoy"), m.Unauthorized("gubernator"),
	}
}

// note counts r if header, that of its answer, says that its client is unknown or lacks a right.
func (w *web) note(header http.Header, r *http.Request) {
	if header[page.Challenged] == nil {
		return
	}
	u := w.refusals.own
	switch r.URL.Path {
	case "/json":
		u = w.refusals.envoy
	case "/v1/GetRateLimits", "/v1/HealthCheck", "/v1/LiveCheck":
		u = w.refusals.gubernator
	}
	from := r.RemoteAddr
	if len(w.proxies) > 0 {
		said, _ := w.proxies.clientAddress(r)
		from = cmp.Or(said, from)
	}
	if page.IsUnknown(header) {
		u.Unknown(from)
	} else {
		u.Forbidden(from)
	}
}
