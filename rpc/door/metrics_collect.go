package door

import (
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/cluster"
)

// nodeCollector reads a node's numbers when it is asked for them.
type nodeCollector struct {
	node   *cluster.Node
	failed *atomic.Pointer[func() int] // how many nodes it has lost lately; nil: nobody counts them
}

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("penstock_"+name, help, nil, nil)
}

// Describe says nothing: what Collect sends is described there.
func (c *nodeCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends every number.
func (c *nodeCollector) Collect(to chan<- prometheus.Metric) {
	for _, x := range NodeCounters {
		to <- prometheus.MustNewConstMetric(
			desc(x.Name+"_total", x.help), prometheus.CounterValue, float64(x.Read(c.node.Stats())),
		)
	}
	for _, x := range tableCounters {
		to <- prometheus.MustNewConstMetric(
			desc(x.name+"_total", x.help), prometheus.CounterValue, float64(x.read(c.node)),
		)
	}
	to <- prometheus.MustNewConstMetric(prometheus.NewDesc("penstock_config_info", "The limits "+
		"and rules in files: nodes with the same hash have the same.",
		[]string{"hash"}, nil), prometheus.GaugeValue, 1, fmt.Sprintf("%016x", c.node.LimitsHash()))
	for _, x := range nodeGauges {
		to <- prometheus.MustNewConstMetric(
			desc(x.name, x.help), prometheus.GaugeValue, x.read(c.node),
		)
	}
	c.collectCopies(to)
	c.collectMoves(to)
}

func (c *nodeCollector) collectCopies(to chan<- prometheus.Metric) {
	copies := c.node.Copies()
	to <- prometheus.MustNewConstMetric(
		partitionsDesc, prometheus.GaugeValue, float64(copies.Held), "held",
	)
	to <- prometheus.MustNewConstMetric(
		partitionsDesc, prometheus.GaugeValue, float64(copies.Giving), "giving",
	)
	to <- prometheus.MustNewConstMetric(
		partitionsDesc, prometheus.GaugeValue, float64(copies.Kept), "copy",
	)
	to <- prometheus.MustNewConstMetric(desc("unreplicated_partitions", "Partitions held here of "+
		"which no other node that answers has a whole copy: a crash forgets their counters."),
		prometheus.GaugeValue, float64(copies.Unreplicated))
	to <- prometheus.MustNewConstMetric(
		desc("underreplicated_partitions",
			"Partitions held here of which fewer nodes have a whole copy than --copies asks for, "+
				"or than there are others."),
		prometheus.GaugeValue, float64(copies.Short))
	to <- prometheus.MustNewConstMetric(desc("replication_lag_seconds", "Age of the oldest "+
		"change that a copy does not have yet; 0 if none waits."),
		prometheus.GaugeValue, copies.Lag.Seconds())
}
