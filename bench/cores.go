package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/bench/contest"
	"penstock/bench/cores"
)

// The figures of the row cores.
const (
	coresSpeed  = "decisions a second"
	coresLinear = "of linear"
	coresUSL    = "of linear, USL"
	coresLock   = "largest lock"
)

// coresVerb is how the program calls itself: measure-cores CONTESTANT TIME, and JSON comes back.
const coresVerb = "measure-cores"

// coresKeys is how many keys there are.
var coresKeys = 1_000_000

// coresRow measures how penstock grows with the machine's cores, and what a model says of more.
func coresRow(rounds int, each time.Duration, progress io.Writer) (*contest.Report, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	measured := map[contest.Job][]cores.Point{} // by contestant and round
	jobs := make([]contest.Job, len(cores.Contestants))
	for i, c := range cores.Contestants {
		jobs[i] = contest.Job{Contestant: c.Name, Point: "all"}
	}
	taken := map[string]int{}
	samples, err := contest.Run(rounds, jobs, func(j contest.Job) (map[string]float64, error) {
		points, others, err := coresElsewhere(self, j.Contestant, each/2)
		if err != nil {
			return nil, err
		}
		round := taken[j.Contestant]
		taken[j.Contestant]++
		measured[contest.Job{Contestant: j.Contestant, Point: strconv.Itoa(round)}] = points
		figures := map[string]float64{}
		if others >= 0 {
			figures[contest.Others] = others
		}
		return figures, nil
	}, progress)
	if err != nil {
		return nil, err
	}
	all := map[string][][]cores.Point{}
	var spread contest.Results
	for _, s := range samples {
		points := measured[contest.Job{Contestant: s.Contestant, Point: strconv.Itoa(s.Round)}]
		all[s.Contestant] = append(all[s.Contestant], points)
		spread = append(spread, atEachPoint(s, points)...)
	}
	return &contest.Report{
		Name: "cores", Title: "More cores, a million keys, in one process", Axis: "cores",
		Base: cores.Apart, Machine: contest.ThisMachine(), Rounds: rounds, Samples: spread,
		Tables: coresTables(), Aims: coresAims(), Notes: coresNotes(all),
	}, nil
}

func coresElsewhere(
	self, contestant string, each time.Duration,
) (points []cores.Point, others float64, err error) {
	var out, said strings.Builder
	cmd := exec.Command(self, coresVerb, contestant, each.String(), strconv.Itoa(coresKeys))
	cmd.Stdout, cmd.Stderr = &out, &said
	if others, err = contest.Watch(cmd); err != nil {
		return nil, 0, fmt.Errorf("%w: %s", err, said.String())
	}
	if err := json.Unmarshal([]byte(out.String()), &points); err != nil {
		return nil, 0, fmt.Errorf("it answered %q: %w", out.String(), err)
	}
	return points, others, nil
}

func measureCores(args []string, out io.Writer) error {
	if len(args) != 3 {
		return fmt.Errorf("%s wants a contestant, a time and a number of keys", coresVerb)
	}
	i := slices.IndexFunc(cores.Contestants, func(c cores.Contestant) bool {
		return c.Name == args[0]
	})
	if i < 0 {
		return fmt.Errorf("there is no contestant %q", args[0])
	}
	each, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	keys, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	points, err := cores.Measure(cores.Contestants[i], keys, each)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(points)
}

// atEachPoint are the samples of s by number of cores. Where the machine has not so many, the model
// of what it has stands in.
func atEachPoint(s contest.Sample, points []cores.Point) (all contest.Results) {
	fit, one := cores.Model(points), points[0].Speed
	for _, p := range points {
		x := contest.Sample{
			Job:   contest.Job{Contestant: s.Contestant, Point: strconv.Itoa(p.Cores)},
			Round: s.Round, Figures: maps.Clone(s.Figures),
		}
		linear := p.Speed / (one * float64(p.Cores))
		if p.Speed <= 0 {
			linear = fit.Linear(p.Cores)
			x.Figures[coresUSL] = fit.USL(p.Cores)
		}
		x.Figures[coresLinear], x.Figures[coresSpeed] = linear, linear*one*float64(p.Cores)
		x.Figures[coresLock] = 0
		for _, share := range p.Locks {
			x.Figures[coresLock] = math.Max(x.Figures[coresLock], share)
		}
		all = append(all, x)
	}
	return all
}

func coresTables() []contest.Table {
	said := fmt.Sprintf("measured up to %d cores, more by the model", runtime.NumCPU())
	return []contest.Table{
		{
			Title: "Decisions a second; " + said, Short: "decisions/s", Figure: coresSpeed,
			Better: contest.More,
		},
		{
			Title: "Of so many times one core's; " + said, Short: "of linear", Figure: coresLinear,
			Digits: 2,
		},
		{
			Title: "The same by the universal scalability law", Short: "of linear, USL",
			Figure: coresUSL, Digits: 2,
		},
		{
			Title: "Part of their time that callers wait for the lock that costs most, %",
			Short: "largest lock, %", Figure: coresLock, Digits: 2,
		},
	}
}

// coresAims judge what is measured at two cores, what the model says of sixteen, and the locks.
func coresAims() (aims []contest.Aim) {
	for _, c := range cores.Contestants {
		if c.Name == cores.Apart {
			continue
		}
		add := func(work, figure, point string, better contest.Side, want float64, unit string) {
			aims = append(aims, contest.Aim{
				Work: work, Job: contest.Job{Contestant: c.Name, Point: point},
				Figure: figure, Better: better, Want: want, Unit: unit,
			})
		}
		add(c.Name+": 2 cores, of linear", coresLinear, "2", contest.More, 0.85, "")
		add("… 16 cores", coresLinear, "16", contest.More, 0.85, "")
		add("… time that 2 callers wait for one lock", coresLock, "2", contest.Less, 3, "%")
	}
	return aims
}

// coresNotes are the fits, and every lock with its share of the callers' time: the medians of the
// rounds.
func coresNotes(all map[string][][]cores.Point) []string {
	var fits, locks strings.Builder
	fits.WriteString("The model: a decision with n cores takes 1 + queue × (n − 1) + moved × " +
		"(n − 1) / n times as long as with one. Queue is waiting for locks, by the runtime's " +
		"profile of mutexes; moved is the rest of the loss, lines of memory that another core " +
		"has written last. USL is the universal scalability law with the same queue, and kappa × " +
		"n × (n − 1) for the rest.\n\n| | queue | moved | kappa |\n|---|--:|--:|--:|\n")
	locks.WriteString("Time that callers wait for a lock, % by the function that held it. More " +
		"callers than the machine has cores also wait while a holder has lost its core.\n\n" +
		"| | lock |")
	for _, n := range cores.Wanted {
		fmt.Fprintf(&locks, " %d |", n)
	}
	locks.WriteString("\n|---|---|" + strings.Repeat("--:|", len(cores.Wanted)) + "\n")
	for _, c := range cores.Contestants {
		rounds := all[c.Name]
		var queue, moved, kappa []float64
		names := map[string]bool{}
		for _, points := range rounds {
			f := cores.Model(points)
			queue, moved, kappa = append(queue, f.Queue), append(moved, f.Moved), append(kappa,
				f.Kappa)
			for _, p := range points {
				for lock := range p.Locks {
					names[lock] = true
				}
			}
		}
		fmt.Fprintf(&fits, "| %s | %.4f | %.4f | %.4f |\n", c.Name, contest.Median(queue),
			contest.Median(moved), contest.Median(kappa))
		for _, lock := range slices.Sorted(maps.Keys(names)) {
			lockLine(&locks, c.Name, lock, rounds)
		}
	}
	return []string{strings.TrimSpace(fits.String()), strings.TrimSpace(locks.String())}
}

// lockLine writes the shares of a lock, unless all are smaller than what is shown.
func lockLine(b *strings.Builder, contestant, lock string, rounds [][]cores.Point) {
	const shown = 0.005
	shares, most := make([]float64, len(cores.Wanted)), 0.0
	for i := range cores.Wanted {
		var xs []float64
		for _, points := range rounds {
			xs = append(xs, points[i].Locks[lock])
		}
		shares[i] = contest.Median(xs)
		most = max(most, shares[i])
	}
	if most < shown {
		return
	}
	fmt.Fprintf(b, "| %s | `%s` |", contestant, lock)
	for _, share := range shares {
		fmt.Fprintf(b, " %.2f |", share)
	}
	b.WriteString("\n")
}
