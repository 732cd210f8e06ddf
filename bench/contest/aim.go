package contest

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// Aim is what a figure should be: so many times that of others in the same round, or so much by
// itself.
type Aim struct {
	Work string `json:"work"` // what is measured, as people say it
	Job  Job    `json:"job"`  // the contestant and point
	// the best of them; none: Want is a figure, not a ratio
	Against []Job   `json:"against,omitempty"`
	Figure  string  `json:"figure"`
	Better  Side    `json:"better"` // More: at least Want. Less: at most
	Want    float64 `json:"want"`
	Unit    string  `json:"unit,omitempty"` // of Want, where it is no ratio
}

// measured are what the rounds say of the aim, sorted; none if it was not measured.
func (a *Aim) measured(r Results) (xs []float64) {
	against := make([]map[int]float64, len(a.Against))
	for i, job := range a.Against {
		against[i] = r.byRound(job, a.Figure)
	}
	for round, x := range r.byRound(a.Job, a.Figure) {
		best := math.NaN()
		for _, other := range against {
			if b, found := other[round]; found &&
				(math.IsNaN(best) || (b > best) == (a.Better == More)) {
				best = b
			}
		}
		if len(against) > 0 {
			x /= best
		}
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			xs = append(xs, x)
		}
	}
	slices.Sort(xs)
	return xs
}

// line is the aim's line of a table; empty if it was not measured.
func (a *Aim) line(r Results) string {
	xs := a.measured(r)
	if len(xs) == 0 {
		return ""
	}
	got, unit, sign, verdict := median(slices.Clone(xs)), a.Unit, "≥", "**missed**"
	if len(a.Against) > 0 {
		unit = "×"
	}
	if a.Better == Less {
		sign = "≤"
	}
	if a.Better == More && got >= a.Want || a.Better == Less && got <= a.Want {
		verdict = "reached"
	}
	return fmt.Sprintf("| %s | %s | %s %s %s | %s %s | %s – %s | %s |\n",
		a.Work, a.rivals(), sign, short(a.Want), unit, short(got), unit, short(xs[0]),
		short(xs[len(xs)-1]), verdict)
}

// rivals names the contestants that the aim compares with.
func (a *Aim) rivals() string {
	if len(a.Against) == 0 {
		return "itself"
	}
	names, points := map[string]bool{}, map[string]bool{}
	for _, job := range a.Against {
		names[job.Contestant], points[job.Point] = true, true
	}
	join := func(m map[string]bool) string {
		return strings.Join(slices.Sorted(maps.Keys(m)), " or ")
	}
	return join(names) + ", " + join(points)
}

// short writes x with two digits behind those that say how large it is.
func short(x float64) string {
	switch size := math.Abs(x); {
	case size >= 100:
		return fmt.Sprintf("%.0f", x)
	case size >= 10:
		return fmt.Sprintf("%.3g", x)
	}
	return fmt.Sprintf("%.2g", x)
}

// Judge writes a table of the aims of all reports, those that were measured. The error is w's.
func Judge(w io.Writer, reports ...*Report) error {
	var b strings.Builder
	for _, r := range reports {
		for _, a := range r.Aims {
			b.WriteString(a.line(r.Samples))
		}
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n## Aims\n\n| work | against | aim | median of the rounds | "+
		"lowest – highest | |\n|---|---|--:|--:|--:|---|\n%s", b.String())
	return err
}
