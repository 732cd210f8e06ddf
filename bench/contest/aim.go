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
	// Saves turns the ratio of a cost over: it says how many times less than the best of Against,
	// and Better is More.
	Saves bool `json:"saves,omitempty"`
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
				(math.IsNaN(best) || (b > best) == (a.Better == More && !a.Saves)) {
				best = b
			}
		}
		if len(against) > 0 {
			x /= best
		}
		if a.Saves {
			x = 1 / x
		}
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			xs = append(xs, x)
		}
	}
	slices.Sort(xs)
	return xs
}

const verdictMissed = "**missed**"

// line is the aim's line of a table; empty if it was not measured.
func (a *Aim) line(r Results) string {
	xs := a.measured(r)
	if len(xs) == 0 {
		return ""
	}
	got, unit, sign, verdict := median(slices.Clone(xs)), a.Unit, "≥", verdictMissed
	if len(a.Against) > 0 {
		unit = "×"
	}
	if a.Saves {
		unit = "× less"
	}
	if a.Better == Less {
		sign = "≤"
	}
	if a.Better == More && got >= a.Want || a.Better == Less && got <= a.Want {
		verdict = "reached"
	}
	return fmt.Sprintf("| %s | %s | %s %s %s | %s %s | %s – %s | %s | %s |\n",
		a.Work, a.rivals(), sign, short(a.Want), unit, short(got), unit, short(xs[0]),
		short(xs[len(xs)-1]), a.noise(r), verdict)
}

// noise is what the machine did while the aim's figures were measured: how many cores others used,
// and by how much the same work of this process took longer at one time than at another.
func (a *Aim) noise(r Results) string {
	jobs := append(slices.Clone(a.Against), a.Job)
	return r.only(func(j Job) bool { return slices.Contains(jobs, j) }).Noise()
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
	case size >= 10, size > 1 && size < 1.1: // aims of a hundredth stand there
		return fmt.Sprintf("%.3g", x)
	}
	return fmt.Sprintf("%.2g", x)
}

// Judge writes a table of the aims of all reports, those that were measured. The error is w's.
func Judge(w io.Writer, reports ...*Report) error {
	var b strings.Builder
	judged, missed := 0, 0
	for _, r := range reports {
		for _, a := range r.Aims {
			line := a.line(r.Samples)
			if line == "" {
				continue
			}
			judged++
			if strings.Contains(line, verdictMissed) {
				missed++
			}
			b.WriteString(line)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n## Aims\n\n| work | against | aim | median of the rounds | "+
		"lowest – highest | noise | |\n|---|---|--:|--:|--:|---|---|\n%s"+
		"\n%d of %d aims are reached.\n", b.String(), judged-missed, judged)
	return err
}
