package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/bench/contest"
	"penstock/bench/limiters"
)

// contestOfLimiters has each contestant measured at each number of keys, in a process of its own:
// so none inherits memory, or a collector's habits, from another.
func contestOfLimiters(args []string, out, progress io.Writer) error {
	f := flag.NewFlagSet("limiters", flag.ContinueOnError)
	f.SetOutput(progress)
	rounds := f.Int("rounds", 5, "how often each is measured")
	keys := f.String("keys", "1e3,1e4,1e5,1e6,1e7", "numbers of keys")
	most := f.Float64("most", 1e7, "number of keys that the other limiters get at most")
	each := f.Duration("time", 500*time.Millisecond, "for each figure of speed")
	collector := f.Float64("collector", 1e7, "number of keys from which on the collector is "+
		"watched too, for up to 20 s")
	only := f.String("only", "", "contestants whose names contain this; default all")
	dir := f.String("o", "", "directory for limiters.md, .json and .svg; default none")
	if err := f.Parse(args); err != nil {
		return err
	}
	samples, err := measureLimiters(*rounds, *keys, *most, *collector, *only, *each, progress)
	if err != nil {
		return err
	}
	report := limitersReport(*rounds, samples)
	report.Command = strings.Join(append([]string{"go run . limiters"}, args...), " ")
	return write(report, out, *dir)
}

func limitersReport(rounds int, samples []contest.Sample) *contest.Report {
	return &contest.Report{
		Name: "limiters", Title: "Limiters within one process",
		Machine: contest.ThisMachine(), Rounds: rounds, Samples: samples, Tables: limiters.Tables,
		Base: limiters.Base,
	}
}

// measureLimiters measures the contestants with only in their names: ours with all of keys, others
// with at most most of them.
func measureLimiters(
	rounds int, keys string, most, collector float64, only string, each time.Duration,
	progress io.Writer,
) ([]contest.Sample, error) {
	var jobs []contest.Job
	for _, text := range strings.Split(keys, ",") {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n < 1 || n > 1e8 {
			return nil, fmt.Errorf("-keys: %q is not a number of keys from 1 to 1e8", text)
		}
		for _, c := range limiters.Contestants {
			ours := strings.HasPrefix(c.Name, limiters.Base)
			if (ours || n <= most) && strings.Contains(c.Name, only) {
				jobs = append(jobs, contest.Job{Contestant: c.Name, Point: text})
			}
		}
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("-only: no contestant's name contains %q", only)
	}
	if rounds < 1 || each <= 0 {
		return nil, fmt.Errorf("-rounds is %d and -time %v; at least 1 and above 0 are accepted",
			rounds, each)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return contest.Run(rounds, jobs, func(j contest.Job) (map[string]float64, error) {
		n, _ := strconv.ParseFloat(j.Point, 64)
		plan := limiters.Plan{Keys: int(n), Time: each}
		if n >= collector {
			plan.Collector = 20 * time.Second
		}
		return measureElsewhere(self, j.Contestant, plan)
	}, progress)
}

// measureVerb is how the program calls itself: measure CONTESTANT PLAN, and JSON comes back.
const measureVerb = "measure"

func measureElsewhere(self, contestant string, plan limiters.Plan) (map[string]float64, error) {
	asked, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	var out, errs strings.Builder
	cmd := exec.Command(self, measureVerb, contestant, string(asked))
	cmd.Stdout, cmd.Stderr = &out, &errs
	others, err := contest.Watch(cmd)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, errs.String())
	}
	var figures map[string]float64
	if err := json.Unmarshal([]byte(out.String()), &figures); err != nil {
		return nil, fmt.Errorf("it answered %q: %w", out.String(), err)
	}
	if others >= 0 {
		figures[contest.Others] = others
	}
	return figures, nil
}

func measure(args []string, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("%s wants a contestant and a plan", measureVerb)
	}
	var plan limiters.Plan
	if err := json.Unmarshal([]byte(args[1]), &plan); err != nil {
		return err
	}
	i := slices.IndexFunc(limiters.Contestants, func(c limiters.Contestant) bool {
		return c.Name == args[0]
	})
	if i < 0 {
		return fmt.Errorf("there is no contestant %q", args[0])
	}
	figures, err := limiters.Measure(limiters.Contestants[i], plan)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(figures)
}
