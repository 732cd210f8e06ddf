// Package contest measures several contestants so that their figures may be compared. A machine's
// speed drifts by a third within minutes, so contestants take turns: round by round each is
// measured once at every point, in an order that turns with the round. What is compared are figures
// of one round, and what is reported is the median over the rounds.
//
// It knows nothing of what is measured: a contestant has a name, a point is where on the horizontal
// axis it stands (a number of keys, of callers), and a measurement is a set of named numbers.
package contest

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// Job is what is measured at once: one contestant at one point.
type Job struct {
	Contestant string `json:"contestant"`
	Point      string `json:"point"`
}

// Sample is what a job measured in a round, counted from 0.
type Sample struct {
	Job
	Round   int                `json:"round"`
	Figures map[string]float64 `json:"figures"`
}

// Run has every job measured in each of the rounds, one after the other, and says on progress what
// it does. A job that fails ends it.
func Run(
	rounds int, jobs []Job, measure func(Job) (map[string]float64, error), progress io.Writer,
) ([]Sample, error) {
	var samples []Sample
	for round := range rounds {
		for i := range jobs {
			job := jobs[(i+round)%len(jobs)]
			fmt.Fprintf(progress, "round %d of %d: %s, %s\n", round+1, rounds, job.Contestant,
				job.Point)
			yardstick := MeasureYardstick()
			figures, err := measure(job)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", job.Contestant, job.Point, err)
			}
			figures[Yardstick] = yardstick
			samples = append(samples, Sample{job, round, figures})
		}
	}
	return samples, nil
}

// Yardstick is the figure of how long this process takes for work that is always the same, measured
// before each job. How it changes says how the machine's speed does.
const Yardstick = "yardstick"

// MeasureYardstick is the work's time in ns, the least of a few tries, so that a thread that had to
// wait for its core does not count: half a millisecond each, within the first cache.
func MeasureYardstick() float64 {
	best := math.Inf(1)
	for range 5 {
		began, x := time.Now(), uint64(1)
		for range 200_000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
		if took := float64(time.Since(began).Nanoseconds()); x != 0 {
			best = min(best, took)
		}
	}
	return best
}

// Results are samples, and what they say together.
type Results []Sample

// Median is that of a figure over the rounds, NaN where it was not measured.
func (r Results) Median(job Job, figure string) float64 {
	return median(slices.Collect(values(r.byRound(job, figure))))
}

// Ratio is how many times the figure of job is that of base: the median of the rounds' ratios.
func (r Results) Ratio(job, base Job, figure string) float64 {
	bases := r.byRound(base, figure)
	var ratios []float64
	for round, x := range r.byRound(job, figure) {
		if b, found := bases[round]; found {
			ratios = append(ratios, x/b)
		}
	}
	return median(ratios)
}

// Spread is (largest − smallest) / median of a figure over the rounds.
func (r Results) Spread(job Job, figure string) float64 {
	xs := slices.Collect(values(r.byRound(job, figure)))
	if len(xs) == 0 {
		return math.NaN()
	}
	return (slices.Max(xs) - slices.Min(xs)) / median(xs)
}

func (r Results) byRound(job Job, figure string) map[int]float64 {
	found := map[int]float64{}
	for _, s := range r {
		if x, measured := s.Figures[figure]; measured && s.Job == job {
			found[s.Round] = x
		}
	}
	return found
}

func (r Results) only(keep func(Job) bool) (some Results) {
	for _, s := range r {
		if keep(s.Job) {
			some = append(some, s)
		}
	}
	return some
}

// all are what the samples say of a figure.
func (r Results) all(figure string) (xs []float64) {
	for _, s := range r {
		if x, measured := s.Figures[figure]; measured {
			xs = append(xs, x)
		}
	}
	return xs
}

// names are those that get picks, in the order in which they first come.
func (r Results) names(get func(Job) string) (names []string) {
	ordered := slices.Clone(r)
	slices.SortStableFunc(ordered, func(a, b Sample) int { return cmp.Compare(a.Round, b.Round) })
	for _, s := range ordered {
		if name := get(s.Job); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func values(m map[int]float64) func(func(float64) bool) {
	return func(yield func(float64) bool) {
		for _, x := range m {
			if !yield(x) {
				return
			}
		}
	}
}

// Median is that of xs, which it sorts; NaN of none.
func Median(xs []float64) float64 { return median(xs) }

func median(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	slices.Sort(xs)
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}
