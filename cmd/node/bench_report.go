package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"penstock/rpc/client"
)

// benchReport is the result of a run.
type benchReport struct {
	Targets   []string `json:"targets"`
	Limit     string   `json:"limit"`
	Seconds   float64  `json:"seconds"`
	Workers   int      `json:"workers"`
	Batch     int      `json:"batch"`
	Keys      int      `json:"keys"`
	Dist      string   `json:"dist"`
	Wanted    float64  `json:"requests_per_second_wanted"` // 0: as fast as possible
	Requests  int64    `json:"requests"`
	PerSecond float64  `json:"requests_per_second"`
	Checks    int64    `json:"checks"`
	ChecksPS  float64  `json:"checks_per_second"`
	benchCounts
	Unsent   int64       `json:"requests_unsent"`
	FirstErr string      `json:"first_error,omitempty"`
	Latency  percentiles `json:"latency_us"`
	Lag      percentiles `json:"send_lag_us"`
	Verdict  *verdict    `json:"admitted,omitempty"` // nil: not judged
}

// benchCounts are the checks by their answers.
type benchCounts struct {
	Allowed  int64 `json:"allowed"`
	Denied   int64 `json:"denied"`
	Degraded int64 `json:"degraded"`
	Failed   int64 `json:"errors"`
}

// percentiles are µs.
type percentiles struct {
	P50  int64 `json:"p50"`
	P90  int64 `json:"p90"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
	Max  int64 `json:"max"`
}

func percentilesOf(h *hdrhistogram.Histogram) percentiles {
	q := h.ValueAtQuantile
	return percentiles{P50: q(50), P90: q(90), P99: q(99), P999: q(99.9), Max: h.Max()}
}

func (v *benchVerb) report(t *target, c *tally, m measured) *benchReport {
	seconds := m.last.Sub(m.first).Seconds()
	b := &benchReport{
		Targets: v.Addr, Limit: t.rule, Seconds: round(seconds), Workers: v.Workers, Batch: v.Batch,
		Keys: v.Keys, Dist: v.Dist,
		Wanted: v.Rate, Requests: c.requests.Load(), Unsent: m.unsent,
		benchCounts: benchCounts{
			Allowed: c.allowed.Load(), Denied: c.denied.Load(), Degraded: c.degraded.Load(),
			Failed: c.failed.Load(),
		},
		Latency: percentilesOf(m.latency), Lag: percentilesOf(m.lag),
	}
	b.PerSecond = round(float64(b.Requests) / seconds)
	b.Checks = b.Allowed + b.Denied + b.Failed
	b.ChecksPS = round(float64(b.Checks) / seconds)
	if err := c.firstErr.Load(); err != nil {
		b.FirstErr = client.Explain(*err, b.Targets).Error()
	}
	if t.oracle != nil {
		verdict := t.oracle.judge(m.first, m.last, b.Failed)
		b.Verdict = &verdict
	}
	return b
}

func round(x float64) float64 { return math.Round(x*10) / 10 }

// write prints the report for people, in 80 columns.
func (b *benchReport) write(w io.Writer) error {
	us := func(n int64) string { return brief(time.Duration(n) * time.Microsecond) }
	wanted := "as fast as the answers come: latency counts from the real send time"
	if b.Wanted > 0 {
		wanted = fmt.Sprintf("%s/s wanted; latency counts from the intended send time",
			thousands(int64(b.Wanted)))
	}
	rows := [][]string{
		{"targets", strings.Join(b.Targets, " ")},
		{"limit", b.Limit},
		{"load", fmt.Sprintf("%s keys, %s; %d per request; %d workers", thousands(int64(b.Keys)),
			b.Dist, b.Batch, b.Workers)},
		{"requests", fmt.Sprintf("%s in %.1fs, %s/s", thousands(b.Requests), b.Seconds,
			thousands(int64(b.PerSecond)))},
		{"", wanted},
		{"checks", fmt.Sprintf("%s, %s/s", thousands(b.Checks), thousands(int64(b.ChecksPS)))},
		{"allowed", thousands(b.Allowed)},
		{"denied", thousands(b.Denied)},
		{"errors", thousands(b.Failed)},
		{"degraded", thousands(b.Degraded)},
		{"latency", fmt.Sprintf("p50 %s  p90 %s  p99 %s  p99.9 %s  max %s",
			us(b.Latency.P50), us(b.Latency.P90), us(b.Latency.P99), us(b.Latency.P999),
			us(b.Latency.Max))},
	}
	if b.Wanted > 0 {
		rows = append(rows, []string{
			"of it lag",
			fmt.Sprintf("p50 %s  p99 %s  max %s, before a worker sent the request",
				us(b.Lag.P50), us(b.Lag.P99), us(b.Lag.Max)),
		})
	}
	if b.Unsent > 0 {
		rows = append(rows, []string{
			"unsent",
			fmt.Sprintf("%s requests were due but found no worker: the rate is beyond reach",
				thousands(b.Unsent)),
		})
	}
	if b.FirstErr != "" {
		rows = append(rows, []string{"first error", b.FirstErr})
	}
	rows = append(rows, b.verdictRows()...)
	return columns(w, rows)
}

func (b *benchReport) verdictRows() [][]string {
	v := b.Verdict
	if v == nil {
		return [][]string{{"exact", "not judged: the window of a named limit is not known here"}}
	}
	word := "yes"
	switch {
	case v.Extra > 0:
		word = fmt.Sprintf("NO: %s units too many, on %s of %s keys", thousands(v.Extra),
			thousands(int64(v.Over)), thousands(int64(v.Keys)))
	case v.Missing > 0:
		word = fmt.Sprintf("no: %s units refused that one limiter would have admitted",
			thousands(v.Missing))
	}
	return [][]string{
		{"admitted", fmt.Sprintf("%s units of %s keys; one limiter alone: at most %s",
			thousands(v.Admitted), thousands(int64(v.Keys)), thousands(v.Bound))},
		{"", v.Rule},
		{"exact", word},
	}
}

// failure is what makes a bench exit 1: nobody answered, or too much was admitted.
func (b *benchReport) failure(c *tally) error {
	switch {
	case b.Allowed+b.Denied == 0:
		if err := c.firstErr.Load(); err != nil {
			return fmt.Errorf("no check was answered: %w", client.Explain(*err, b.Targets))
		}
		return errors.New("no check was answered")
	case b.Verdict != nil && b.Verdict.Extra > 0:
		return fmt.Errorf("the cluster admitted %d units more than the limit", b.Verdict.Extra)
	}
	return nil
}
