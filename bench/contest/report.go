package contest

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Report is a contest that is over: what was measured, where, and by which command.
type Report struct {
	Title   string   `json:"title"`
	Command string   `json:"command"`
	Machine Machine  `json:"machine"`
	Rounds  int      `json:"rounds"`
	Samples Results  `json:"samples"`
	Tables  []Table  `json:"-"`
	Base    string   `json:"-"` // the contestant that the others are compared with
	Notes   []string `json:"-"` // paragraphs that end the report
}

// Table shows one figure of all contestants at all points.
type Table struct {
	Title  string
	Figure string
	Digits int  // behind the point
	Better Side // what the ratio says: how many times better the base is
}

// Side is the better side of a figure.
type Side int

const (
	Neither Side = iota // no ratio is shown
	Less                // costs
	More                // speeds
)

// Noisy is how many cores other programs may use before a report says that its figures are not to be believed.
const Noisy = 0.1

// Others is the figure of how many cores other programs used meanwhile, where somebody measures it.
const Others = "cores used by others"

// Markdown writes the report as tables that people read.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n`%s`\n\n%s. Medians of %d rounds in which all take turns; in brackets how many times better "+
		"%s is, the median of the rounds' ratios.\n", r.Title, r.Command, r.Machine, r.Rounds, r.Base)
	for _, t := range r.Tables {
		r.table(&b, t)
	}
	fmt.Fprintf(&b, "\n%s\n", r.noise())
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) table(b *strings.Builder, t Table) {
	points := r.points(t.Figure)
	if len(points) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n| | %s |\n|---|%s\n", t.Title, strings.Join(points, " | "), strings.Repeat("--:|", len(points)))
	for _, contestant := range r.Samples.names(func(j Job) string { return j.Contestant }) {
		cells := make([]string, len(points))
		for i, point := range points {
			cells[i] = r.cell(t, Job{contestant, point})
		}
		fmt.Fprintf(b, "| %s | %s |\n", contestant, strings.Join(cells, " | "))
	}
}

// points are those at which somebody measured the figure.
func (r *Report) points(figure string) []string {
	return slices.DeleteFunc(r.Samples.names(func(j Job) string { return j.Point }), func(point string) bool {
		return !slices.ContainsFunc(r.Samples, func(s Sample) bool {
			_, measured := s.Figures[figure]
			return measured && s.Point == point
		})
	})
}

func (r *Report) cell(t Table, job Job) string {
	x := r.Samples.Median(job, t.Figure)
	if math.IsNaN(x) {
		return ""
	}
	cell := fmt.Sprintf("%.*f", t.Digits, x)
	ratio := r.Samples.Ratio(job, Job{r.Base, job.Point}, t.Figure)
	if t.Better == More {
		ratio = 1 / ratio
	}
	if t.Better == Neither || job.Contestant == r.Base || math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return cell
	}
	return fmt.Sprintf("%s (%.2g ×)", cell, ratio)
}

// noise says how far the rounds differ, and whether other programs ran beside.
func (r *Report) noise() string {
	var spreads []float64
	for _, t := range r.Tables {
		if t.Better == Neither {
			continue
		}
		for _, contestant := range r.Samples.names(func(j Job) string { return j.Contestant }) {
			for _, point := range r.points(t.Figure) {
				if s := r.Samples.Spread(Job{contestant, point}, t.Figure); !math.IsNaN(s) {
					spreads = append(spreads, s)
				}
			}
		}
	}
	var others []float64
	for _, s := range r.Samples {
		if x, measured := s.Figures[Others]; measured {
			others = append(others, x)
		}
	}
	said := fmt.Sprintf("From the lowest to the highest round a figure differs by %.0f %% of its median (the median of all figures).", 100*median(spreads))
	switch x := median(others); {
	case x > Noisy:
		return said + fmt.Sprintf(" **Not a quiet machine**: beside a measurement, other programs used %.2f cores (median). "+
			"Believe ratios, and differences larger than that spread; measure absolute figures again.", x)
	case x >= 0:
		return said + fmt.Sprintf(" Other programs used %.2f cores beside (median).", x)
	}
	return said
}

// JSON writes every sample.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}
