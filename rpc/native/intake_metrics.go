package native

import (
	"penstock/rpc/door"
)

// showIn shows what the gRPC door for clients refuses.
func (d *intake) showIn(m *door.Metrics) {
	m.Gauge("grpc_unfinished_bytes", "Memory of calls whose requests are not complete.", nil,
		func() float64 { return float64(d.used.Load()) })
	m.Counter("grpc_overweight", "Connections closed because unfinished calls took more memory "+
		"than there is for them.", nil, d.closed.Load)
	m.Counter("grpc_overdue", "Connections closed because a message did not come to its end.", nil,
		d.slow.Load)
}
