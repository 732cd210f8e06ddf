package contest

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Report is a contest that is over: what was measured, where, and by which command. All of it is in
// its JSON, so that it can be shown again.
type Report struct {
	Name    string  `json:"name"`
	Title   string  `json:"title"`
	Command string  `json:"command"`
	Machine Machine `json:"machine"`
	Rounds  int     `json:"rounds"`
	Base    string  `json:"base"` // the contestant that the others are compared with
	// what the points count, if they are numbers: the plot has lines then, else bars
	Axis   string  `json:"axis,omitempty"`
	Tables []Table `json:"tables"`
	Aims   []Aim   `json:"aims,omitempty"`
	// Notes are paragraphs, or tables, of what is no figure of a contestant.
	Notes   []string `json:"notes,omitempty"`
	Samples Results  `json:"samples"`
}

// Table shows one figure of all contestants at all points.
type Table struct {
	Title string `json:"title"`
	// heads the figure's column in a brief table; without it there is none
	Short  string `json:"short,omitempty"`
	Figure string `json:"figure"`
	Digits int    `json:"digits"` // behind the point
	Better Side   `json:"better"` // what the ratio says: how many times better the base is
}

// Side is the better side of a figure.
type Side int

const (
	Neither Side = iota // no ratio is shown
	Less                // costs
	More                // speeds
)

// Noisy is how many cores other programs may use before a report says that its figures are not to
// be believed.
const Noisy = 0.1

// Others is the figure of how many cores other programs used meanwhile, where somebody measures it.
const Others = "cores used by others"

// Markdown writes the report as tables that people read.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n`%s`\n\n%s. Medians of %d rounds in which all take turns; in "+
		"brackets how many times better "+
		"%s is, the median of the rounds' ratios.\n", r.Title, r.Command, r.Machine, r.Rounds,
		r.Base)
	for _, t := range r.Tables {
		r.table(&b, t)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	_ = Judge(&b, r) // a Builder takes everything
	fmt.Fprintf(&b, "\n%s\n", r.noise())
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) table(b *strings.Builder, t Table) {
	points := r.points(t.Figure)
	if len(points) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n| | %s |\n|---|%s\n", t.Title, strings.Join(points, " | "),
		strings.Repeat("--:|", len(points)))
	for _, contestant := range r.Samples.names(func(j Job) string { return j.Contestant }) {
		cells := make([]string, len(points))
		for i, point := range points {
			cells[i] = r.cell(t, Job{contestant, point})
		}
		fmt.Fprintf(b, "| %s | %s |\n", contestant, strings.Join(cells, " | "))
	}
}

// Brief writes one table of the report: a line for each contestant at each point, a column for each
// figure that has a short title.
func (r *Report) Brief(w io.Writer) error {
	tables := slices.DeleteFunc(slices.Clone(r.Tables), func(t Table) bool {
		return t.Short == "" || len(r.points(t.Figure)) == 0
	})
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | |", r.Axis)
	for _, t := range tables {
		fmt.Fprintf(&b, " %s |", t.Short)
	}
	fmt.Fprintf(&b, "\n|---|---|%s\n", strings.Repeat("--:|", len(tables)))
	for _, point := range r.Samples.names(func(j Job) string { return j.Point }) {
		for _, contestant := range r.Samples.names(func(j Job) string { return j.Contestant }) {
			job, cells := Job{contestant, point}, make([]string, len(tables))
			for i, t := range tables {
				cells[i] = r.cell(t, job)
			}
			if strings.Join(cells, "") != "" {
				fmt.Fprintf(&b, "| %s | %s | %s |\n", point, contestant, strings.Join(cells, " | "))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// points are those at which somebody measured the figure.
func (r *Report) points(figure string) []string {
	return slices.DeleteFunc(r.Samples.names(func(j Job) string {
		return j.Point
	}), func(point string) bool {
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
	if t.Better == Neither || job.Contestant == r.Base || math.IsNaN(ratio) ||
		math.IsInf(ratio, 0) {
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
	if len(spreads) == 0 {
		return Quiet(r)
	}
	said := fmt.Sprintf("From the lowest to the highest round a figure differs by %.0f %% of its "+
		"median (the median of all figures).", 100*median(spreads))
	return said + " " + Quiet(r)
}

// Quiet says whether the machine had little else to do while all reports were made, so that their
// figures may be believed.
func Quiet(reports ...*Report) string {
	var all Results
	for _, r := range reports {
		all = append(all, r.Samples...)
	}
	steady := ""
	if drift := all.drift(); drift >= 0 {
		steady = fmt.Sprintf(" The same work took up to %.0f %% longer at one time than at "+
			"another.", drift)
	}
	switch x := median(all.all(Others)); {
	case x > Noisy:
		return fmt.Sprintf("**Not a quiet machine**: beside a measurement, other programs used "+
			"%.2f cores (median). "+
			"Believe ratios, and differences larger than the rounds' spread; measure absolute "+
			"figures again.%s", x, steady)
	case x >= 0:
		return fmt.Sprintf("Other programs used %.2f cores beside (median).%s", x, steady)
	}
	return "Nobody could tell how busy the machine was." + steady
}

// Noise is how quiet the machine was, in few words.
func (r Results) Noise() string {
	var said []string
	if others := median(r.all(Others)); others >= 0 {
		said = append(said, fmt.Sprintf("%.2f cores", others))
	}
	if drift := r.drift(); drift >= 0 {
		said = append(said, fmt.Sprintf("%.0f %%", drift))
	}
	return strings.Join(said, ", ")
}

// drift is how much longer, in %, the yardstick took when it was slow than when it was fast: of ten
// times the slowest and the fastest are left out. NaN if nobody has measured it twice.
func (r Results) drift() float64 {
	xs := r.all(Yardstick)
	slices.Sort(xs)
	if len(xs) == 0 || xs[0] == xs[len(xs)-1] { // measured once, and told of all
		return math.NaN()
	}
	return 100 * (xs[len(xs)*9/10]/xs[len(xs)/10] - 1)
}

// JSON writes every sample.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}
