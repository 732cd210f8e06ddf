package door

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/cluster"
)

// nodeCollector reads a node's numbers when it is asked for them.
type nodeCollector struct {
	node *cluster.Node
	// how many nodes it has lost lately; nil: nobody counts them
	failed *atomic.Pointer[func() (failed, inView int)]
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("penstock_"+name, help, labels, nil)
}

// Describe says nothing: what Collect sends is described there.
func (c *nodeCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends every number.
func (c *nodeCollector) Collect(to chan<- prometheus.Metric) {
	for _, x := range slices.Concat(NodeCounters(c.node.Stats()), tableCounters(c.node)) {
		to <- prometheus.MustNewConstMetric(desc(x.Name+"_total", x.help), prometheus.CounterValue,
			float64(x.Value))
	}
	to <- prometheus.MustNewConstMetric(prometheus.NewDesc("penstock_config_info", "The limits "+
		"and rules in files: nodes with the same hash have the same.",
		[]string{"hash"}, nil), prometheus.GaugeValue, 1, fmt.Sprintf("%016x", c.node.LimitsHash()))
	copies := c.node.Copies()
	for _, x := range slices.Concat(gaugesOf(c.node), copyGauges(copies)) {
		to <- prometheus.MustNewConstMetric(desc(x.name, x.help), prometheus.GaugeValue, x.value)
	}
	for _, x := range []struct {
		state string
		n     int
	}{{"held", copies.Held}, {"giving", copies.Giving}, {"copy", copies.Kept}} {
		to <- prometheus.MustNewConstMetric(partitionsDesc, prometheus.GaugeValue, float64(x.n),
			x.state)
	}
	c.collectMoves(to)
}

func copyGauges(c cluster.Copies) []gauge {
	return []gauge{
		{
			"unreplicated_partitions", "Partitions held here of which no other node that answers " +
				"has a whole copy: a crash forgets their counters.", float64(c.Unreplicated),
		},
		{
			"underreplicated_partitions", "Partitions held here of which fewer nodes have a " +
				"whole copy than --copies asks for, or than there are others.", float64(c.Short),
		},
		{
			"replication_lag_seconds", "Age of the oldest change that a copy does not have yet; " +
				"0 if none waits.", c.Lag.Seconds(),
		},
	}
}
