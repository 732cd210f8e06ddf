package servers

import (
	"fmt"
	"io"
	"time"

	"penstock/bench/contest"
)

const (
	ofTheirs = "70 % of Gubernator's highest rate"
	ofOwn    = "70 % of its own highest rate"
	left     = "calls a second"
)

// rate is how long a call takes while calls come on time, whatever the answers: at the rate that
// Gubernator bears for long.
var rate = Row{
	Name: "rate", Title: "Latency at a rate, Gubernator's API, one node",
	contestants: []contestant{
		{name: Base, start: ownDoor(1)},
		{name: gubernatorName, builds: gubernatorSource, start: theirs(1)},
	},
	points: []Point{
		{Name: ofTheirs, Callers: rateCallers, Items: 1},
		{Name: ofOwn, Callers: rateCallers, Items: 1},
	},
	times: 2,
	prepare: func(all map[string]*running, _ []Point, each time.Duration,
		progress io.Writer,
	) error {
		theirs := 0.0
		for _, name := range []string{gubernatorName, Base} {
			r := all[name]
			if r == nil { // the rival is not there
				continue
			}
			highest, err := highestRate(r, each)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fmt.Fprintf(progress, "%s bears %.0f calls a second\n", name, highest)
			if theirs == 0 {
				theirs = highest
			}
			r.rates = map[string]float64{ofTheirs: 0.7 * theirs, ofOwn: 0.7 * highest}
		}
		return nil
	},
	measure: func(r *running, p Point, d time.Duration, progress io.Writer) (map[string]float64,
		error,
	) {
		p.Rate = r.rates[p.Name]
		figures, err := ask(r, p, d, progress)
		if err == nil {
			figures[left] = p.Rate
		}
		return figures, err
	},
	Tables: append([]contest.Table{{
		Title: "Calls a second that leave on time", Short: "calls/s",
		Figure: left,
	}}, Tables...),
	Aims: []contest.Aim{
		{
			Work:    "p99 at 70 % of the highest rate, from intended send times",
			Job:     contest.Job{Contestant: Base, Point: ofTheirs},
			Against: jobs(ofTheirs, gubernatorName), Figure: p99, Better: contest.Less, Want: 0.5,
		},
	},
}

const (
	rateCallers = 256
	borne       = 100 * time.Millisecond // of the p99, at the highest rate
)

// highestRate is the highest rate at which all calls are sent and answered, and 99 of 100 within
// 100 ms from when they should have left, to 3 %. One bad moment of the machine is forgiven.
func highestRate(r *running, d time.Duration) (float64, error) {
	got := load(r, Point{Callers: rateCallers, Items: 1}, d)
	if len(got.took) == got.failed {
		return 0, fmt.Errorf("all calls failed, the last with: %w", got.fault)
	}
	most := float64(len(got.took)-got.failed) / d.Seconds()
	bears := func(rate float64) bool {
		for range 2 {
			got := load(r, Point{Callers: rateCallers, Items: 1, Rate: rate}, d)
			if len(got.unsent) == 0 && got.failed == 0 && len(got.took) > 0 &&
				got.quantile(0.99) <= float64(borne.Microseconds()) {
				return true
			}
		}
		return false
	}
	low, high := 0.1*most, 1.3*most
	for high > 1.03*low {
		if middle := (low + high) / 2; bears(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}
