package redis

import (
	"github.com/prometheus/client_golang/prometheus"
	"penstock/rpc/door"
)

// counters are the counters of the door for the Server protocol.
var counters = []struct {
	name, help string
	read       func(*stats) uint64
}{
	{"redis_connections", "Connections accepted.", func(s *stats) uint64 { return s.connections.Load() }},
	{"redis_turned_away", "Connections closed because there were too many.", func(s *stats) uint64 { return s.turnedAway.Load() }},
	{"redis_broken", "Connections closed for what their clients sent, or did not send in time.", func(s *stats) uint64 { return s.broken.Load() }},
	{"redis_commands", "Commands replied to.", func(s *stats) uint64 { return s.commands.Load() }},
	{"redis_batches", "Rounds in which they arrived: commands per batch say how deep clients pipeline.", func(s *stats) uint64 { return s.batches.Load() }},
	{"redis_errors", "Replies that are errors.", func(s *stats) uint64 { return s.errors.Load() }},
}

// showIn shows what d counts, and returns where it is to say how long a batch takes.
func (d *Server) showIn(m *door.Metrics) prometheus.Observer {
	for _, x := range counters {
		m.Register(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: "penstock_" + x.name + "_total", Help: x.help},
			func() float64 { return float64(x.read(&d.stats)) }))
	}
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
