package redis

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/rpc/door"
)

// showIn shows what d counts, and returns the histogram of how long a batch takes.
func (d *Server) showIn(m *door.Metrics) prometheus.Observer {
	s := &d.stats
	m.Count(
		door.Count{
			Name: "redis_connections", Help: "Connections accepted.", Read: s.connections.Load,
		},
		door.Count{
			Name: "redis_turned_away", Help: "Connections closed because there were too many.",
			Read: s.turnedAway.Load,
		},
		door.Count{
			Name: "redis_broken",
			Help: "Connections closed for what their clients sent, or did not send in time.",
			Read: s.broken.Load,
		},
		door.Count{Name: "redis_commands", Help: "Commands replied to.", Read: s.commands.Load},
		door.Count{
			Name: "redis_batches",
			Help: "Rounds in which they arrived: commands per batch say how deep clients pipeline.",
			Read: s.batches.Load,
		},
		door.Count{Name: "redis_errors", Help: "Replies that are errors.", Read: s.errors.Load},
	)
	m.Register(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "penstock_redis_clients", Help: "Connections that are open."},
		func() float64 { return float64(d.clients()) }))
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
