package rpc

import (
	"github.com/prometheus/client_golang/prometheus"
	"penstock/rpc/door"
)

// peerCounters are the counters of the lines to peers.
var peerCounters = []struct {
	name, help string
	read       func(*PeersStats) uint64
}{
	{"peer_asks", "Asks written to peers.", func(s *PeersStats) uint64 { return s.Asks.Load() }},
	{"peer_frames", "Frames that carried them: asks per frame say how well they join.", func(s *PeersStats) uint64 { return s.Frames.Load() }},
	{"peer_streams", "Streams opened to peers.", func(s *PeersStats) uint64 { return s.Streams.Load() }},
	{"peer_expired", "Asks dropped unsent because their deadline came first.", func(s *PeersStats) uint64 { return s.Expired.Load() }},
	{"peer_overflow", "Asks refused because too much waited for the peer.", func(s *PeersStats) uint64 { return s.Overflow.Load() }},
}

// Describe says nothing but the histogram: what Collect sends besides is described there.
func (p *Peers) Describe(to chan<- *prometheus.Desc) { p.seconds.Describe(to) }

// Collect sends every number of the lines to peers.
func (p *Peers) Collect(to chan<- prometheus.Metric) {
	for _, x := range peerCounters {
		to <- prometheus.MustNewConstMetric(door.Desc(x.name+"_total", x.help), prometheus.CounterValue,
			float64(x.read(p.Stats())))
	}
	p.seconds.Collect(to)
}
