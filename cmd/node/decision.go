package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	penstockv1 "penstock/proto/penstock/v1"
)

// decision is an answer as check, peek and reset print it; the names are those of the HTTP door.
type decision struct {
	Allowed    bool   `json:"allowed"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after_ms"`
	ResetAfter int64  `json:"reset_after_ms"`
	Delay      int64  `json:"delay_ms"`
	Name       string `json:"name"`
	Key        string `json:"key"`
	Owner      string `json:"owner"`
	Source     string `json:"source"`
	Degraded   bool   `json:"degraded"`
	Bound      int64  `json:"bound"`
	Shadow     bool   `json:"shadow"`
	Restarted  bool   `json:"restarted,omitempty"`
	Override   string `json:"override,omitempty"`
	Tag        string `json:"tag,omitempty"`
	Tier       int32  `json:"tier,omitempty"`

	cost int64  // that was asked for
	done string // what was done, where that is not a verdict
}

func decisionOf(key string, d *penstockv1.Decision) decision {
	return decision{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining, RetryAfter: d.RetryAfterMs,
		ResetAfter: d.ResetAfterMs, Delay: d.DelayMs, Name: d.LimitName, Key: key, Owner: d.Owner,
		Source:   strings.ToLower(strings.TrimPrefix(d.Source.String(), "SOURCE_")),
		Degraded: d.Degraded, Bound: d.Bound, Shadow: d.Shadow, Restarted: d.Restarted,
		Override: d.Override,
		Tag:      d.Tag, Tier: d.Tier,
	}
}

func (d decision) print(w io.Writer, o output) error {
	return o.print(w, d, func(w io.Writer) error {
		return colouredColumns(w, d.rows(), func(row, _ int) string {
			switch {
			case row > 0 || d.done != "":
				return ""
			case d.Allowed:
				return green
			}
			return red
		})
	})
}

func (d decision) rows() [][]string {
	word := "denied"
	switch {
	case d.done != "":
		word = d.done
	case d.Allowed && d.Delay > 0:
		word = "allowed, after a wait of " + wait(d.Delay)
	case d.Allowed:
		word = "allowed"
	case d.RetryAfter < 0 && d.cost > d.Limit:
		word = fmt.Sprintf("denied: the cost of %d is above the limit of %d, so it can never be "+
			"admitted", d.cost, d.Limit)
	}
	if d.Shadow {
		word += ", although the limit refuses (dry run)"
	}
	if d.Tag != "" {
		word += ", although the limit refuses: tagged " + d.Tag
	}
	if d.Tier > 0 {
		word += fmt.Sprintf(", although the limit refuses: in tier %d", d.Tier)
	}
	rows := [][]string{
		{word},
		{"limit", fmt.Sprintf("%s, %d at once", d.Name, d.Limit)},
		{"remaining", fmt.Sprint(d.Remaining)},
	}
	if d.Override != "" {
		rows[1][1] += ", by the override " + d.Override
	}
	if d.Restarted {
		rows = append(rows, []string{"restarted", "the limit was another before; what it had " +
			"counted does not count"})
	}
	if !d.Allowed {
		rows = append(rows, []string{"retry after", wait(d.RetryAfter)})
	}
	rows = append(rows, []string{"full again in", wait(d.ResetAfter)}, []string{"owner", d.Owner},
		[]string{"source", d.Source})
	if d.Degraded {
		rows = append(rows, []string{"degraded", degradation(d.Bound)})
	}
	return rows
}

// wait writes milliseconds of the wire.
func wait(ms int64) string {
	if ms < 0 {
		return "never"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

// degradation says what a bound means.
func degradation(bound int64) string {
	if bound < 0 {
		return "the owner did not answer; admitted without counting"
	}
	return fmt.Sprintf("the owner did not answer; the cluster may admit up to %d more "+
		"meanwhile", bound)
}
