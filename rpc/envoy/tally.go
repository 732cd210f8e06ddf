package envoy

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/limiter/policy"
)

// series is what a tally is shown as: a domain, and keys and values as the files have them. Only
// where a file says so (detailed_metric, value_to_metric) it has values that a client sent; there
// may be maxDetailed of those, and what comes after them is counted where it would be without.
type series struct{ domain, descriptor string }

const maxDetailed = 1000

// overridden is the descriptor of those that bring their limit along.
const overridden = "(limit of the request)"

// tally counts hits as envoyproxy/ratelimit does.
type tally struct {
	// its series is of what clients sent: a reload does not end it while the domain is there
	lasting bool

	total, within, near, over, shadow atomic.Uint64
}

// renewTallies makes the tallies of limits. Those with a series that stays go on counting.
func (d *Door) renewTallies(limits *policy.Envoy) []*tally {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := map[series]*tally{}
	for s, t := range d.tallies {
		if t.lasting && limits.Domain(s.domain) != nil {
			kept[s] = t
		}
	}
	tallies := make([]*tally, len(limits.Rules()))
	for i, r := range limits.Rules() {
		s := series{r.Domain, r.Path}
		tallies[i] = d.tallies[s]
		if tallies[i] == nil {
			tallies[i] = new(tally)
		}
		kept[s] = tallies[i]
	}
	d.tallies = kept
	return tallies
}

// count adds up a question that has been decided.
func (d *Door) count(limits *inForce, domain *policy.Domain, q *question) {
	if q.Rule == nil && q.current == nil || q.hits <= 0 {
		return
	}
	hits := uint64(q.hits)
	t := d.tallyOf(limits, domain, q)
	t.total.Add(hits)
	switch {
	case !q.over():
		t.within.Add(hits)
		if q.current != nil {
			t.near.Add(uint64(near(int64(q.current.RequestsPerUnit), q.decision.Remaining, q.hits)))
		}
	case q.Rule != nil && q.Rule.Shadow:
		t.over.Add(hits)
		t.shadow.Add(hits)
	default:
		t.over.Add(hits)
	}
}

// near is how many of the hits that have just been admitted were beyond four fifths of the limit.
func near(limit, remaining, hits int64) int64 {
	return min(hits, max(0, limit-remaining-limit*4/5))
}

func (d *Door) tallyOf(limits *inForce, domain *policy.Domain, q *question) *tally {
	s := series{domain.Name, overridden}
	if q.Rule != nil {
		if q.Metric == q.Rule.Path {
			return limits.tallies[q.Rule.Number]
		}
		s.descriptor = q.Metric
	}
	d.mu.RLock()
	t := d.tallies[s]
	d.mu.RUnlock()
	if t != nil {
		return t
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.tallies[s] != nil:
	case q.Rule != nil && len(d.tallies) >= len(limits.tallies)+maxDetailed:
		return limits.tallies[q.Rule.Number]
	default:
		d.tallies[s] = &tally{lasting: true}
	}
	return d.tallies[s]
}

var (
	hitsDesc   = desc("hits_total", "Hits that met a limit.", "domain", "descriptor")
	withinDesc = desc("within_limit_total", "Hits that were admitted.", "domain", "descriptor")
	nearDesc   = desc("near_limit_total",
		"Hits that were admitted beyond four fifths of the limit.", "domain", "descriptor")
	overDesc = desc("over_limit_total",
		"Hits that the limit refused, also if nobody was told.", "domain", "descriptor")
	shadowDesc = desc("shadow_mode_total",
		"Hits that were refused and let pass by shadow_mode.", "domain", "descriptor")
	strangersDesc = desc("domain_not_found_total",
		"Requests of a domain that no file has: all pass.")
	failedDesc = desc("errors_total", "Requests that were answered with an error.")
	leasesDesc = desc("leases_total",
		"Leases to Envoys that decide by themselves (rate limit quota service).")
	rulesDesc = desc("limits", "Limits of the files in force.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("penstock_envoy_"+name, help, labels, nil)
}

// Describe says nothing: what Collect sends is described there.
func (d *Door) Describe(chan<- *prometheus.Desc) {}

// Collect sends every number.
func (d *Door) Collect(to chan<- prometheus.Metric) {
	count := func(desc *prometheus.Desc, n *atomic.Uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n.Load()),
			labels...)
	}
	count(strangersDesc, &d.strangers)
	count(failedDesc, &d.failed)
	count(leasesDesc, &d.leases)
	limits := d.inForce.Load()
	if limits == nil {
		return
	}
	to <- prometheus.MustNewConstMetric(rulesDesc, prometheus.GaugeValue,
		float64(len(limits.Rules())))
	d.mu.RLock()
	defer d.mu.RUnlock()
	for s, t := range d.tallies {
		count(hitsDesc, &t.total, s.domain, s.descriptor)
		count(withinDesc, &t.within, s.domain, s.descriptor)
		count(nearDesc, &t.near, s.domain, s.descriptor)
		count(overDesc, &t.over, s.domain, s.descriptor)
		count(shadowDesc, &t.shadow, s.domain, s.descriptor)
	}
}
