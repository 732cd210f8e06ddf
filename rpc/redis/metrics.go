package redis

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/rpc/door"
)

// showIn shows what d counts, and returns the histogram of how long a batch takes.
func (d *Server) showIn(m *door.Metrics) prometheus.Observer {
	s := &d.stats
	m.Counter("redis_connections", "Connections accepted.", nil, s.connections.Load)
	m.Counter("redis_turned_away", "Connections closed because there were too many.", nil,
		s.turnedAway.Load)
	m.Counter("redis_broken",
		"Connections closed for what their clients sent, or did not send in time.", nil,
		s.broken.Load)
	m.Counter("redis_commands", "Commands replied to.", nil, s.commands.Load)
	m.Counter("redis_batches",
		"Rounds in which they arrived: commands per batch say how deep clients pipeline.", nil,
		s.batches.Load)
	m.Counter("redis_errors", "Replies that are errors.", nil, s.errors.Load)
	m.Gauge("redis_clients", "Connections that are open.", nil,
		func() float64 { return float64(d.clients()) })
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "penstock_redis_batch_seconds",
		Help:    "Time from having read a batch of commands to having written the replies.",
		Buckets: door.SecondsBuckets,

		NativeHistogramBucketFactor:    1.1,
		NativeHistogramMaxBucketNumber: 100,
	})
	m.Register(seconds)
	return seconds
}
