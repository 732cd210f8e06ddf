package native

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/rpc/door"
)

// showIn shows what gRPC refuses at a door.
func (d *intake) showIn(m *door.Metrics, name string) {
	at := prometheus.Labels{"door": name}
	m.Gauge("grpc_unfinished_bytes", "Memory of calls whose requests are not complete.", at,
		func() float64 { return float64(d.used.Load()) })
	m.Counter("grpc_overweight", "Connections closed because unfinished calls took more memory "+
		"than there is for them.", at, d.closed.Load)
	m.Counter("grpc_overdue", "Connections closed because a message did not come to its end.", at,
		d.slow.Load)
	m.Counter("grpc_flooded", "Connections closed because they sent more pings, settings and "+
		"windows than belong to calls.", at, d.flooded.Load)
}
