package door

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"penstock/cluster"
	"penstock/rpc/fair"
)

// Metrics are what /metrics shows of a node: its counters, read when somebody asks and not before,
// and how long the HTTP door takes. Nothing has a key in a label. Each node has a registry of its
// own, so that two fit in a process.
type Metrics struct {
	Registry *prometheus.Registry
	Seconds  *prometheus.HistogramVec // of the pages that decide
	checks   *prometheus.HistogramVec // of checks, by door
	failed   *atomic.Pointer[func() int]
}

// NewMetrics makes the metrics of n.
func NewMetrics(n *cluster.Node) *Metrics {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:                           "penstock_http_request_seconds",
		Help:                           "Time from a request's header to its answer, by path.",
		Buckets:                        SecondsBuckets,
		NativeHistogramBucketFactor:    1.1,
		NativeHistogramMaxBucketNumber: 100,
	}, []string{"path"})
	checks := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "penstock_check_duration_seconds",
		Help: "Time that a request with checks takes between its decoding and its answer; at " +
			"the Redis door, a batch of commands.",
		Buckets: SecondsBuckets,
	}, []string{"door"})
	r, failed := prometheus.NewRegistry(), new(atomic.Pointer[func() int])
	r.MustRegister(&nodeCollector{n, failed}, seconds, checks, &limitCollector{n},
		collectors.NewGoCollector(), collectors.NewProcessCollector(
			collectors.ProcessCollectorOpts{}))
	return &Metrics{r, seconds, checks, failed}
}

// Checks is where a door says how long a request with checks took, in seconds. Without metrics it
// is nil.
func (m *Metrics) Checks(door string) prometheus.Observer {
	if m == nil {
		return nil
	}
	return m.checks.WithLabelValues(door)
}

// Took tells o how long it is since began. o may be nil.
func Took(o prometheus.Observer, began time.Time) {
	if o != nil {
		o.Observe(time.Since(began).Seconds())
	}
}

// AddGate shows the requests under way at the doors for clients.
func (m *Metrics) AddGate(g *fair.Gate) {
	m.Registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "penstock_requests_under_way",
			Help: "Requests of clients that are not answered yet.",
		},
			func() float64 { return float64(g.Figures().Used) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "penstock_requests_room",
			Help: "Requests that may be under way; less while goroutines wait for a processor.",
		},
			func() float64 { return float64(g.Figures().Room) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "penstock_overloaded_total",
			Help: "Requests refused as OVERLOADED, before anything was charged.",
		},
			func() float64 { return float64(g.Figures().Refused) }))
}

// AddDoor shows the connections of a door.
func (m *Metrics) AddDoor(k *Keeper) {
	labels := prometheus.Labels{"door": k.config.Name}
	m.Registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "penstock_connections",
			Help: "Connections that are open, by door.", ConstLabels: labels,
		},
			func() float64 { return float64(k.Open()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "penstock_connections_refused_total",
			Help:        "Connections closed at once because the door had as many as it may have.",
			ConstLabels: labels,
		},
			func() float64 { return float64(k.Refused()) }))
}

// SecondsBuckets are the bounds of the histograms of doors.
var SecondsBuckets = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1,
}

// SetReloads says how the last reading of the files of limits is found out: whether it succeeded,
// and when one last did.
func (m *Metrics) SetReloads(last func() (ok bool, at time.Time)) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "penstock_config_last_reload_successful", Help: "1 if the files of limits, " +
			"clients, keys and certificates were taken over when they were last read; 0: one was " +
			"not, and what was there before is in force.",
	}, func() float64 {
		if ok, _ := last(); ok {
			return 1
		}
		return 0
	}), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "penstock_config_last_reload_success_timestamp_seconds", Help: "When the files of " +
			"limits were last read and taken over.",
	}, func() float64 {
		_, at := last()
		return float64(at.UnixMilli()) / 1e3
	}))
}

// Count is a number that only grows. Its Name is written between penstock_ and _total.
type Count struct {
	Name, Help string
	Read       func() uint64
}

// Count shows what a door counts.
func (m *Metrics) Count(list ...Count) {
	for _, c := range list {
		m.Register(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: "penstock_" + c.Name + "_total", Help: c.Help},
			func() float64 { return float64(c.Read()) }))
	}
}

// Register adds collectors of a door.
func (m *Metrics) Register(c ...prometheus.Collector) { m.Registry.MustRegister(c...) }

// counter is one number of cluster.Stats.
type counter struct {
	Name, help string
	Read       func(*cluster.Stats) uint64
}

var NodeCounters = []counter{
	{
		"allowed", "Items answered yes at this node's doors.",
		func(s *cluster.Stats) uint64 { return s.Allowed() },
	},
	{
		"denied", "Items answered no at this node's doors.",
		func(s *cluster.Stats) uint64 { return s.Denied() },
	},
	{
		"peeks", "Items that asked for a state and charged nothing: neither allowed nor denied.",
		func(s *cluster.Stats) uint64 { return s.Peeks() },
	},
	{
		"shadowed", "Items answered yes although the limit refuses.",
		func(s *cluster.Stats) uint64 { return s.Shadowed() },
	},
	{
		"refused", "Requests in error: nothing decided, nothing charged.",
		func(s *cluster.Stats) uint64 { return s.Refused.Load() },
	},
	{
		"fallback", "Items answered by on_error.",
		func(s *cluster.Stats) uint64 { return s.Fallback.Load() },
	},
	{
		"settled", "Items admitted by on_error that their owner was told to charge afterwards.",
		func(s *cluster.Stats) uint64 { return s.Settled.Load() },
	},
	{
		"forgiven", "Items admitted by on_error that nobody could be told to charge.",
		func(s *cluster.Stats) uint64 { return s.Forgiven.Load() },
	},
	{
		"forwarded", "Items sent to their owners.",
		func(s *cluster.Stats) uint64 { return s.Forwarded.Load() },
	},
	{
		"retried", "Items sent a second time.",
		func(s *cluster.Stats) uint64 { return s.Retried.Load() },
	},
	{
		"unsent", "Calls that never reached their peer.",
		func(s *cluster.Stats) uint64 { return s.Unsent.Load() },
	},
	{
		"lost", "Calls whose fate is unknown.",
		func(s *cluster.Stats) uint64 { return s.Lost.Load() },
	},
	{
		"not_owner", "Items refused by a peer that does not own the key.",
		func(s *cluster.Stats) uint64 { return s.NotOwner.Load() },
	},
	{
		"relayed", "Items sent on to their owners for nodes that do not reach them.",
		func(s *cluster.Stats) uint64 { return s.Relayed.Load() },
	},
	{
		"detours", "Messages to members that this node does not reach, brought by another one.",
		func(s *cluster.Stats) uint64 { return s.Detours.Load() },
	},
	{
		"delivered", "Items asked of this node by peers.",
		func(s *cluster.Stats) uint64 { return s.Delivered.Load() },
	},
	{
		"disowned", "Items refused to a peer because this node does not own the key.",
		func(s *cluster.Stats) uint64 { return s.Disowned.Load() },
	},
	{
		"expired", "Items dropped uncharged because their deadline had passed.",
		func(s *cluster.Stats) uint64 { return s.Expired.Load() },
	},
	{
		"repeated", "Items delivered twice and charged once.",
		func(s *cluster.Stats) uint64 { return s.Repeated.Load() },
	},
	{
		"copied", "Entries and charges taken over from other nodes.",
		func(s *cluster.Stats) uint64 { return s.Copied.Load() },
	},
	{
		"leased", "Items admitted from a lease.",
		func(s *cluster.Stats) uint64 { return s.Leased.Load() },
	},
	{
		"cached", "Items denied without asking their owner, because it had said no and until when.",
		func(s *cluster.Stats) uint64 { return s.Cached.Load() },
	},
	{
		"ran_out", "Holds whose deadline came before they were settled.",
		func(s *cluster.Stats) uint64 { return s.RanOut.Load() },
	},
	{
		"unmatched",
		"Requests with attributes that no rule matches: admitted, and nothing counted.",
		func(s *cluster.Stats) uint64 { return s.Unmatched.Load() },
	},
	{
		"inline_refused",
		"Limits that requests brought along, refused at this node's doors because their client, " +
			"or all clients, had brought too many.",
		func(s *cluster.Stats) uint64 { return s.InlineRefused.Load() },
	},
	{
		"holds_refused",
		"Holds that this node refused because their client, holder or limit, or all together, " +
			"had too many open.",
		func(s *cluster.Stats) uint64 { return s.HoldsRefused.Load() },
	},
	{
		"fenced", "Times that this node stopped deciding, because it was stopped or cut off.",
		func(s *cluster.Stats) uint64 { return s.Fenced.Load() },
	},
	{
		"strangers", "Messages about partitions from nodes that no view has named: not believed.",
		func(s *cluster.Stats) uint64 { return s.Strangers.Load() },
	},
	{
		"implausible", "Messages about partitions that no member can have sent: not believed.",
		func(s *cluster.Stats) uint64 { return s.Implausible.Load() },
	},
	{
		"loops", "Asks dropped because they had been sent on too often.",
		func(s *cluster.Stats) uint64 { return s.Loops.Load() },
	},
}

// gauge is one number of a node that goes up and down.
type gauge struct {
	name, help string
	read       func(*cluster.Node) float64
}

var nodeGauges = []gauge{
	{"ready", "1 if the node can answer checks.", func(n *cluster.Node) float64 {
		if n.Ready() {
			return 1
		}
		return 0
	}},
	{"active_members", "Members in the ring.", func(n *cluster.Node) float64 {
		if v := n.View(); v != nil {
			return float64(v.Active())
		}
		return 0
	}},
	{
		"unreachable_members", "Members that calls are kept away from.",
		func(n *cluster.Node) float64 { return float64(len(n.Unreachable())) },
	},
	{
		"limits_disagreeing_members", "Members whose limits in files are not those of this node.",
		func(n *cluster.Node) float64 { return float64(len(n.Disagreeing())) },
	},
	{
		"limits", "Named limits in force.",
		func(n *cluster.Node) float64 { return float64(len(n.Limits())) },
	},
	{
		"table_keys", "Keys in the table.",
		func(n *cluster.Node) float64 { return float64(n.Table().Stats().Keys) },
	},
	{
		"table_bytes", "Memory of the table.",
		func(n *cluster.Node) float64 { return float64(n.Table().Stats().Bytes) },
	},
	{
		"table_budget_bytes", "Most memory that the table takes.",
		func(n *cluster.Node) float64 { return float64(n.Table().Stats().Budget) },
	},
}

// tableCounters are the counters of the table.
var tableCounters = []struct {
	name, help string
	read       func(*cluster.Node) uint64
}{
	{
		"table_swept", "Entries removed because they were as good as never seen.",
		func(n *cluster.Node) uint64 { return n.Table().Stats().Swept },
	},
	{
		"table_evicted", "Entries that made room for others and live on in shared cells.",
		func(n *cluster.Node) uint64 { return n.Table().Stats().Evicted },
	},
	{
		"table_overflowed", "Charges to shared cells for want of room.",
		func(n *cluster.Node) uint64 { return n.Table().Stats().Overflowed },
	},
	{"table_refused", "Requests refused because not even a shared cell had room, or their limit " +
		"had none.", func(n *cluster.Node) uint64 {
		return n.Table().Stats().Refused + n.Stats().InlineRefused.Load()
	}},
}

// TableStatus is the table as /v1/status shows it.
func TableStatus(n *cluster.Node) map[string]any {
	s := n.Table().Stats()
	return map[string]any{
		"keys": s.Keys, "cells": s.Cells, "slots": s.Slots, "limits": s.Limits, "bytes": s.Bytes,
		"budget_bytes": s.Budget, "swept": s.Swept, "evicted": s.Evicted,
		"overflowed": s.Overflowed, "refused": s.Refused, "inline_limits": s.Inline,
		"refused_limits":        s.RefusedLimits,
		"refused_inline_limits": s.RefusedInline + n.Stats().InlineRefused.Load(),
	}
}

var partitionsDesc = prometheus.NewDesc("penstock_partitions",
	"Partitions that this node decides for (held), is handing to another node (giving), or has a "+
		"whole copy of for another node (copy).",
	[]string{"state"}, nil)
