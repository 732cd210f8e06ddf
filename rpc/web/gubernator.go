package web

import (
	"penstock/rpc/gubernator"
)

// gubernatorPages are Gubernator's JSON.
func (w *web) gubernatorPages(m *mux) {
	g := &gubernator.Door{
		Node: w.Node, Inlines: w.inlines, Draining: w.Draining, Audit: w.Audit,
		Seconds: w.Metrics.Checks("gubernator"),
	}
	m.handle("POST /v1/GetRateLimits", w.timed("GetRateLimits", g.RateLimitsPage(w.caller)))
	m.handle("GET /v1/HealthCheck", g.HealthPage)
	m.handle("GET /v1/LiveCheck", g.LivePage)
}
