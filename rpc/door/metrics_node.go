package door

import (
	"crypto/tls"
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/cluster"
)

// SetBuild shows which program runs.
func (m *Metrics) SetBuild(version string) {
	m.Gauge("build_info", "1, labelled by the version of the program and of the Go that built it.",
		prometheus.Labels{"version": version, "go": runtime.Version()},
		func() float64 { return 1 })
}

// SetSaveErrors shows how often the counters could not be saved to --data-dir.
func (m *Metrics) SetSaveErrors(n func() uint64) {
	m.Counter("save_errors", "Times that the counters, or the limits that "+
		"were put, could not be written to --data-dir: the file from before stays.", nil, n)
}

// SetAuditErrors shows how many entries of the audit log could not be written.
func (m *Metrics) SetAuditErrors(n func() uint64) {
	m.Counter("audit_errors", "Entries that could not be written to "+
		"--audit-log. GET /v1/audit shows them while they are among the last 1000.", nil, n)
}

// SetGossipRefused shows how much of what came to the gossip address was not read, for a reason.
func (m *Metrics) SetGossipRefused(reason string, n func() uint64) {
	m.Counter("gossip_refused", "Packets and connections at the gossip address that were not "+
		"read: from a network outside of --gossip-allow (network), with a message that no node "+
		"sends (message), or beyond the memory for connections there (room).",
		prometheus.Labels{"reason": reason}, n)
}

// SetFailed says how many nodes the node has lost lately without a goodbye, and how many of them
// are still in its View, as if they were to join.
func (m *Metrics) SetFailed(n func() (failed, inView int)) { m.failed.Store(&n) }

// AddCertificate shows when the certificate ends that a door shows at the moment.
func (m *Metrics) AddCertificate(door string, t *tls.Config) {
	m.Gauge("certificate_expiry_timestamp_seconds", "When the certificate ends that a door shows.",
		prometheus.Labels{"door": door}, func() float64 {
			c, err := t.GetCertificate(nil)
			if err != nil || c.Leaf == nil {
				return 0
			}
			return float64(c.Leaf.NotAfter.Unix())
		})
}

// limitCollector shows how the checks under each limit were answered. A limit has a name there if
// it comes from a file or from Admin, so that clients cannot make series.
type limitCollector struct{ node *cluster.Node }

var (
	checksDesc = desc("checks_total",
		"Checks answered at this node's doors, by limit (other: brought along by requests), "+
			"answer, and how it was decided.", "limit", "decision", "source")
	degradedDesc = desc("degraded_total",
		"Items answered under less than the full promise, by limit and reason.", "limit", "reason")
)

// Describe sends what Collect may send.
func (c *limitCollector) Describe(to chan<- *prometheus.Desc) {
	to <- checksDesc
	to <- degradedDesc
	to <- candidateDesc
}

// Collect leaves out what is 0, except of other: thousands of limits have few series until they are
// used.
func (c *limitCollector) Collect(to chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, limit string, n uint64, labels ...string) {
		if n > 0 || limit == cluster.OtherLimits {
			to <- prometheus.MustNewConstMetric(
				d, prometheus.CounterValue, float64(n), append([]string{limit}, labels...)...,
			)
		}
	}
	for limit, t := range c.node.LimitTallies() {
		for outcome := range t.Checks {
			for source, n := range t.Checks[outcome] {
				count(checksDesc, limit, n, cluster.Outcome(outcome).String(),
					cluster.Source(source).String())
			}
		}
		for reason, n := range t.Degraded {
			count(degradedDesc, limit, n, cluster.Reason(reason).String())
		}
	}
	collectCandidates(c.node, to)
}

var (
	membersDesc = desc("members",
		"Nodes known, by state; failed: gone without a goodbye within ten minutes.", "state")
	epochDesc = desc("epoch",
		"Number of the list of members that the node goes by; absent while it is no member, or "+
			"alone.")
	handoversDesc = desc("handovers_total",
		"Partitions handed over while both nodes ran: given by this node, or received.", "result")
	failoversDesc = desc("failovers_total",
		"Partitions that this node took over from its copy, because their holder was gone.",
		"cause")
	holdsDesc = desc("holds",
		"Open holds on keys of this node: reservation, permit, lease (of a node), take (from "+
			"several owners, on its way).", "kind")
)

// collectMoves sends what is known of other nodes, of partitions that came and went, and of holds.
func (c *nodeCollector) collectMoves(to chan<- prometheus.Metric) {
	var states [cluster.StateLeaving + 1]int
	if v := c.node.View(); v != nil {
		for _, m := range v.Members {
			states[m.State]++
		}
	}
	send := func(d *prometheus.Desc, kind prometheus.ValueType, label string, n float64) {
		to <- prometheus.MustNewConstMetric(d, kind, n, label)
	}
	if count := c.failed.Load(); count != nil {
		failed, inView := (*count)()
		states[cluster.StateJoining] -= min(inView, states[cluster.StateJoining])
		send(membersDesc, prometheus.GaugeValue, "failed", float64(failed))
	}
	for state, n := range states {
		send(membersDesc, prometheus.GaugeValue, cluster.State(state).String(), float64(n))
	}
	if agreed := c.node.Agreed(); agreed != nil {
		to <- prometheus.MustNewConstMetric(epochDesc, prometheus.GaugeValue,
			float64(agreed.Epoch.Number))
	}
	s, holds := c.node.Stats(), c.node.HoldCounts()
	send(handoversDesc, prometheus.CounterValue, "given", float64(s.Given.Load()))
	send(handoversDesc, prometheus.CounterValue, "received", float64(s.Received.Load()))
	send(failoversDesc, prometheus.CounterValue, "owner_gone", float64(s.TakenOver.Load()))
	send(holdsDesc, prometheus.GaugeValue, "reservation", float64(holds.Reservations))
	send(holdsDesc, prometheus.GaugeValue, "permit", float64(holds.Permits))
	send(holdsDesc, prometheus.GaugeValue, "lease", float64(holds.Leases))
	send(holdsDesc, prometheus.GaugeValue, "take", float64(holds.Takes))
}

var candidateDesc = desc("candidate_checks_total",
	"Checks shown to the candidate of a limit at this node's doors: by the limit's decision and "+
		"the candidate's (unknown: no answer).", "limit", "decision", "candidate")

// collectCandidates sends five series for each limit with a candidate.
func collectCandidates(n *cluster.Node, to chan<- prometheus.Metric) {
	for limit, t := range n.Stats().Candidates() {
		send := func(decision, candidate string, n uint64) {
			to <- prometheus.MustNewConstMetric(candidateDesc, prometheus.CounterValue, float64(n),
				strings.ToValidUTF8(limit, "\uFFFD"), decision, candidate)
		}
		send("allowed", "allowed", t.Allowed-min(t.Allowed, t.NewlyAllowed))
		send("denied", "allowed", t.NewlyAllowed)
		send("denied", "denied", t.Denied-min(t.Denied, t.NewlyDenied))
		send("allowed", "denied", t.NewlyDenied)
		send("any", "unknown", t.Unknown)
	}
}
