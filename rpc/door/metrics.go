package door

import (
	"slices"
	"sync"
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
	failed   *atomic.Pointer[func() (failed, inView int)]

	mu           sync.Mutex // guards unauthorized
	unauthorized map[string]*Unauthorized
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
	r, failed := prometheus.NewRegistry(), new(atomic.Pointer[func() (failed, inView int)])
	r.MustRegister(&nodeCollector{n, failed}, seconds, checks, &limitCollector{n},
		collectors.NewGoCollector(), collectors.NewProcessCollector(
			collectors.ProcessCollectorOpts{}))
	return &Metrics{
		Registry: r, Seconds: seconds, checks: checks, failed: failed,
		unauthorized: make(map[string]*Unauthorized),
	}
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

// Gauge shows a number that goes up and down. Names stand behind penstock_.
func (m *Metrics) Gauge(name, help string, labels prometheus.Labels, read func() float64) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "penstock_" + name, Help: help, ConstLabels: labels,
	}, read))
}

// Counter shows a number that only grows. Names stand between penstock_ and _total.
func (m *Metrics) Counter(name, help string, labels prometheus.Labels, read func() uint64) {
	m.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "penstock_" + name + "_total", Help: help, ConstLabels: labels,
	}, func() float64 { return float64(read()) }))
}

// AddGate shows the requests under way at the doors for clients.
func (m *Metrics) AddGate(g *fair.Gate) {
	m.Gauge("requests_under_way", "Requests of clients that are not answered yet.", nil,
		func() float64 { return float64(g.Figures().Used) })
	m.Gauge("requests_room",
		"Requests that may be under way; less while goroutines wait for a processor.", nil,
		func() float64 { return float64(g.Figures().Room) })
	m.Counter("overloaded", "Requests refused as OVERLOADED, before anything was charged.", nil,
		func() uint64 { return uint64(g.Figures().Refused) })
}

// AddDoor shows the connections of a door.
func (m *Metrics) AddDoor(k *Keeper) {
	labels := prometheus.Labels{"door": k.config.Name}
	m.Gauge("connections", "Connections that are open, by door.", labels,
		func() float64 { return float64(k.Open()) })
	m.Counter("connections_refused",
		"Connections closed at once because the door had as many as it may have.", labels,
		func() uint64 { return uint64(k.Refused()) })
}

// SecondsBuckets are the bounds of the histograms of doors.
var SecondsBuckets = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1,
}

// SetReloads says how the last reading of the files of limits is found out: whether it succeeded,
// and when one last did.
func (m *Metrics) SetReloads(last func() (ok bool, at time.Time)) {
	m.Gauge("config_last_reload_successful", "1 if the files of limits, "+
		"clients, keys and certificates were taken over when they were last read; 0: one was "+
		"not, and what was there before is in force.", nil, func() float64 {
		ok, _ := last()
		return oneIf(ok)
	})
	m.Gauge("config_last_reload_success_timestamp_seconds", "When the files of "+
		"limits were last read and taken over.", nil, func() float64 {
		_, at := last()
		return float64(at.UnixMilli()) / 1e3
	})
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// Register adds collectors of a door.
func (m *Metrics) Register(c ...prometheus.Collector) { m.Registry.MustRegister(c...) }

// Counter is one number of cluster.Stats.
type Counter struct {
	Name, help string
	Value      uint64
}

// NodeCounters are the numbers of s.
func NodeCounters(s *cluster.Stats) []Counter {
	return slices.Concat(answerCounters(s), peerCounters(s))
}

// answerCounters are about what clients ask.
func answerCounters(s *cluster.Stats) []Counter {
	return []Counter{
		{"allowed", "Items answered yes at this node's doors.", s.Allowed()},
		{"denied", "Items answered no at this node's doors.", s.Denied()},
		{
			"peeks", "Items that asked for a state and charged nothing: neither allowed nor " +
				"denied.", s.Peeks(),
		},
		{"shadowed", "Items answered yes although the limit refuses.", s.Shadowed()},
		{"refused", "Requests in error: nothing decided, nothing charged.", s.Refused.Load()},
		{"fallback", "Items answered by on_error.", s.Fallback.Load()},
		{
			"settled", "Items admitted by on_error that their owner was told to charge afterwards.",
			s.Settled.Load(),
		},
		{
			"forgiven", "Items admitted by on_error that nobody could be told to charge.",
			s.Forgiven.Load(),
		},
		{"expired", "Items dropped uncharged because their deadline had passed.", s.Expired.Load()},
		{"leased", "Items admitted from a lease.", s.Leased.Load()},
		{
			"cached", "Items denied without asking their owner, because it had said no and until " +
				"when.", s.Cached.Load(),
		},
		{"ran_out", "Holds whose deadline came before they were settled.", s.RanOut.Load()},
		{
			"unmatched", "Requests with attributes that no rule matches: admitted, and nothing " +
				"counted.", s.Unmatched.Load(),
		},
		{
			"inline_refused", "Limits that requests brought along, refused at this node's doors " +
				"because their client, or all clients, had brought too many.",
			s.InlineRefused.Load(),
		},
		{
			"holds_refused", "Holds that this node refused because their client, holder or " +
				"limit, or all together, had too many open.", s.HoldsRefused.Load(),
		},
	}
}

// peerCounters are about other nodes.
func peerCounters(s *cluster.Stats) []Counter {
	return []Counter{
		{"forwarded", "Items sent to their owners.", s.Forwarded.Load()},
		{"retried", "Items sent a second time.", s.Retried.Load()},
		{"unsent", "Calls that never reached their peer.", s.Unsent.Load()},
		{"lost", "Calls whose fate is unknown.", s.Lost.Load()},
		{"not_owner", "Items refused by a peer that does not own the key.", s.NotOwner.Load()},
		{
			"relayed", "Items sent on to their owners for nodes that do not reach them.",
			s.Relayed.Load(),
		},
		{
			"detours", "Messages to members that this node does not reach, brought by another one.",
			s.Detours.Load(),
		},
		{"delivered", "Items asked of this node by peers.", s.Delivered.Load()},
		{
			"disowned", "Items refused to a peer because this node does not own the key.",
			s.Disowned.Load(),
		},
		{"repeated", "Items delivered twice and charged once.", s.Repeated.Load()},
		{"copied", "Entries and charges taken over from other nodes.", s.Copied.Load()},
		{
			"fenced", "Times that this node stopped deciding, because it was stopped or cut off.",
			s.Fenced.Load(),
		},
		{
			"strangers", "Messages about partitions from nodes that no view has named: not " +
				"believed.", s.Strangers.Load(),
		},
		{
			"implausible", "Messages about partitions that no member can have sent: not believed.",
			s.Implausible.Load(),
		},
		{"loops", "Asks dropped because they had been sent on too often.", s.Loops.Load()},
	}
}

// gauge is one number of a node that goes up and down.
type gauge struct {
	name, help string
	value      float64
}

func gaugesOf(n *cluster.Node) []gauge {
	active, t := 0, n.Table().Stats()
	if v := n.View(); v != nil {
		active = v.Active()
	}
	return []gauge{
		{"ready", "1 if the node can answer checks.", oneIf(n.Ready())},
		{"active_members", "Members in the ring.", float64(active)},
		{
			"unreachable_members", "Members that calls are kept away from.",
			float64(len(n.Unreachable())),
		},
		{
			"limits_disagreeing_members", "Members whose limits in files are not those of this " +
				"node.",
			float64(len(n.Disagreeing())),
		},
		{"limits", "Named limits in force.", float64(len(n.Limits()))},
		{"table_keys", "Keys in the table.", float64(t.Keys)},
		{"table_bytes", "Memory of the table.", float64(t.Bytes)},
		{"table_budget_bytes", "Most memory that the table takes.", float64(t.Budget)},
	}
}

// tableCounters are the counters of the table.
func tableCounters(n *cluster.Node) []Counter {
	t := n.Table().Stats()
	return []Counter{
		{"table_swept", "Entries removed because they were as good as never seen.", t.Swept},
		{
			"table_evicted", "Entries that made room for others and live on in shared cells.",
			t.Evicted,
		},
		{"table_overflowed", "Charges to shared cells for want of room.", t.Overflowed},
		{
			"table_refused", "Requests refused because not even a shared cell had room, or their " +
				"limit had none.", t.Refused + n.Stats().InlineRefused.Load(),
		},
	}
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

var partitionsDesc = desc("partitions",
	"Partitions that this node decides for (held), is handing to another node (giving), or has a "+
		"whole copy of for another node (copy).", "state")
