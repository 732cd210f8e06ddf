package native

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/rpc/door"
)

// showIn shows what the gRPC door for clients refuses.
func (d *intake) showIn(m *door.Metrics) {
	m.Register(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "penstock_grpc_unfinished_bytes",
			Help: "Memory of calls whose requests are not complete.",
		},
			func() float64 { return float64(d.used.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "penstock_grpc_overweight_total",
			Help: "Connections closed because unfinished calls took more memory than there is " +
				"for them.",
		},
			func() float64 { return float64(d.closed.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "penstock_grpc_overdue_total",
			Help: "Connections closed because a message did not come to its end.",
		},
			func() float64 { return float64(d.slow.Load()) }))
}
