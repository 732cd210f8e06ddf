package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// ScenarioReport says what happened in a world that somebody wrote down. The same scenario gives
// the same report, to the byte.
type ScenarioReport struct {
	Name   string         `json:"name"`
	About  string         `json:"about"`
	StepMS float64        `json:"step_ms"` // of the time axis
	Limits []*LimitCourse `json:"courses"` // units, by limit
	Ticks  []Tick         `json:"ticks"`   // of all limits together
	Marks  []MarkReport   `json:"events"`  // what was done to the world; the first is its beginning
	Logs   []LogReport    `json:"logs,omitempty"`
	*Report
}

// LogReport says what was read of a log.
type LogReport struct {
	File     string  `json:"file"`
	Requests int     `json:"requests"`
	Skipped  int     `json:"skipped"` // lines that could not be read
	Speed    float64 `json:"speed"`
}

func newScenarioReport(s *Scenario, w *world) *ScenarioReport {
	c := w.course
	c.finish()
	r := &ScenarioReport{
		Name: s.Name, About: s.About, StepMS: millis(c.step), Limits: c.limits, Ticks: c.ticks,
		Marks: c.marks, Report: w.report(),
	}
	for i := range s.plan.replays {
		l := &s.plan.replays[i]
		r.Logs = append(r.Logs, LogReport{
			File: l.file, Requests: len(l.logged), Skipped: l.skipped,
			Speed: l.speed,
		})
	}
	if r.Failure != nil {
		r.Failure.Replay = "penstock sim run, with the same file"
	}
	return r
}

// WriteJSON writes r as one JSON object.
func (r *ScenarioReport) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// total is all of the ticks together.
func (r *ScenarioReport) total() (t Tick) {
	for _, x := range r.Ticks {
		t.Answers += x.Answers
		t.Messages += x.Messages
		t.Bytes += x.Bytes
		t.MostMS = max(t.MostMS, x.MostMS)
	}
	return t
}

// WriteText writes r for people, 80 columns wide. Only what a failure quotes may be wider.
func (r *ScenarioReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Name)
	if r.About != "" {
		b.WriteString("\n" + fold(r.About, 80) + "\n")
	}
	fmt.Fprintf(&b, "\n%d nodes, %s of virtual time, seed %d, trace %s\n", len(r.World.Clocks),
		spanText(r.World.LengthMS), r.Seed, r.TraceHash)

	for _, l := range r.Logs {
		fmt.Fprintf(&b, "%s: %d requests, %d bad lines skipped, %g times as fast\n",
			clip(l.File, 30), l.Requests, l.Skipped, l.Speed)
	}

	fmt.Fprintf(&b, "\nunits of%13s%10s%10s%10s%9s%8s%8s\n", "asked", "ideal", "admitted", "denied",
		"degraded", "failed", "extra")
	for _, l := range r.Limits {
		s := &l.Sum
		fmt.Fprintf(&b, "%-12s%9d%10d%10d%10d%9d%8d%8d\n", clip(l.Limit, 12), s.Asked, s.Ideal,
			s.Admitted, s.Denied, s.Degraded, s.Failed, s.Extra)
	}

	r.writeLines(&b)

	if len(r.Marks) > 1 {
		fmt.Fprintf(&b, "\n%7s   %-32s%7s%9s%7s%8s%7s\n", "at", "event", "extra", "degraded",
			"failed", "settled", "p99")
		for i, m := range r.Marks {
			settled := "at once"
			if m.Settled > 0 {
				settled = spanText(m.Settled)
			}
			if i == 0 {
				settled = ""
			}
			fmt.Fprintf(&b, "%7s %c %-32s%7d%9d%7d%8s%7s\n", spanText(m.AtMS), sign(i),
				clip(m.What, 32), m.Extra, m.Degraded, m.Failed, settled, spanText(m.P99MS))
		}
	}

	t, all := r.total(), r.waits()
	fmt.Fprintf(&b, "\nanswers     %d, p50 %s, p99 %s, at most %s\n", t.Answers, spanText(all[0]),
		spanText(all[1]), spanText(all[2]))
	fmt.Fprintf(&b, "messages    %d between nodes, %.2f and about %.0f bytes an answer\n",
		t.Messages, per(t.Messages, t.Answers), per(t.Bytes, t.Answers))
	checked := uint64(0)
	for _, p := range r.Promises {
		checked += p.Checked
	}
	if r.Failure == nil {
		fmt.Fprintf(&b, "ok: every promise held, looked at %d times\n", checked)
	} else {
		r.Failure.write(&b)
		fmt.Fprintf(&b, "FAILED: a promise was broken at %s\n", spanText(r.Failure.AtMS))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// waits are how long clients waited: median, 99th percentile, longest.
func (r *ScenarioReport) waits() [3]float64 {
	var all waits
	for i := range r.Marks {
		all.addAll(&r.Marks[i].waits)
	}
	p50, p99, most := all.quantiles()
	return [3]float64{p50, p99, most}
}

// writeLines draws what happened over time in blocks: a line for what each limit admits, and the
// marks below.
func (r *ScenarioReport) writeLines(b *strings.Builder) {
	const width = 56
	ticks := len(r.Ticks)
	n := min(width, ticks)
	fmt.Fprintf(b, "\n%-12s0%*s\n", "over time", n-1, spanText(float64(ticks)*r.StepMS))
	for _, l := range r.Limits {
		admitted, ideal := make([]float64, n), make([]float64, n)
		for i, t := range l.Ticks {
			admitted[i*n/ticks] += float64(t.Admitted)
			ideal[i*n/ticks] += float64(t.Ideal)
		}
		scale(admitted, ticks, r.StepMS)
		scale(ideal, ticks, r.StepMS)
		most := max(most(admitted), most(ideal))
		fmt.Fprintf(b, "%-12s%s %s/s\n", clip(l.Limit, 12), blocks(admitted, most), brief(most))
		fmt.Fprintf(b, "%-12s%s\n", "  ideal", blocks(ideal, most))
	}
	line := []byte(strings.Repeat(" ", n))
	for i, m := range r.Marks[1:] {
		at := min(n-1, int(m.AtMS/r.StepMS)*n/ticks)
		line[at] = sign(i + 1)
	}
	if len(r.Marks) > 1 {
		fmt.Fprintf(b, "%-12s%s\n", "events", strings.TrimRight(string(line), " "))
	}
}

// sign stands for the i-th event on the time axis.
func sign(i int) byte { return " 123456789abcdefghijklmnopqrstuvwxyz+"[min(i, 36)] }

// scale makes sums over columns, to which so many ticks were spread, into sums per second.
func scale(xs []float64, ticks int, stepMS float64) {
	n := len(xs)
	for i := range xs {
		count := 0
		for t := range ticks { // as many ticks as fell into this column
			if t*n/ticks == i {
				count++
			}
		}
		xs[i] /= float64(count) * stepMS / 1000
	}
}

// blocks draws values from 0 to most as columns of eight heights.
func blocks(xs []float64, most float64) string {
	heights := []rune(" ▁▂▃▄▅▆▇█")
	out := make([]rune, len(xs))
	for i, x := range xs {
		h := 0
		if most > 0 && x > 0 {
			h = max(1, int(x/most*8+0.5))
		}
		out[i] = heights[h]
	}
	return string(out)
}

func most(xs []float64) (top float64) {
	for _, x := range xs {
		top = max(top, x)
	}
	return top
}

func per(a, b int) float64 { return float64(a) / float64(max(1, b)) }

// spanText is a span of ms in at most six characters.
func spanText(ms float64) string {
	switch d := time.Duration(ms * 1e6); {
	case d == 0:
		return "0"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2gms", ms)
	case d < time.Second:
		return fmt.Sprintf("%.0fms", ms)
	case d < 100*time.Second:
		return fmt.Sprintf("%.3gs", ms/1e3)
	case d < 200*time.Minute:
		return fmt.Sprintf("%.3gm", ms/60e3)
	case d < 48*time.Hour:
		return fmt.Sprintf("%.3gh", ms/3600e3)
	default:
		return fmt.Sprintf("%.3gd", ms/86400e3)
	}
}

// brief is a number in at most five characters.
func brief(x float64) string {
	switch {
	case x >= 1e9:
		return fmt.Sprintf("%.3gG", x/1e9)
	case x >= 1e6:
		return fmt.Sprintf("%.3gM", x/1e6)
	case x >= 1e3:
		return fmt.Sprintf("%.3gk", x/1e3)
	}
	return fmt.Sprintf("%.3g", x)
}

// clip shortens s to n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// fold breaks a text into lines of at most width characters, keeping its paragraphs.
func fold(text string, width int) string {
	var b strings.Builder
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		column := 0
		for _, word := range strings.Fields(paragraph) {
			n := utf8.RuneCountInString(word)
			switch {
			case column == 0:
			case column+1+n > width:
				b.WriteByte('\n')
				column = 0
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += n
		}
	}
	return b.String()
}
