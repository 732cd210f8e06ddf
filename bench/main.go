// Bench measures penstock beside what else there is, all in one run, and prints tables with ratios. It ends by itself.
//
//	go run . limiters          limiters that work within one process
//	go run . servers           servers on loopback: penstock, Gubernator, a gRPC service that does nothing
//	go run . guard             whether the hot paths allocate more than they did
//
// README.md says what is compared, and keeps the figures.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/bench/contest"
	"penstock/bench/guard"
	"penstock/bench/limiters"
	"penstock/bench/servers"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, out, progress io.Writer) error {
	verb := ""
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	switch verb {
	case "limiters":
		return contestOfLimiters(args, out, progress)
	case "servers":
		return contestOfServers(args, out, progress)
	case "guard":
		return guardFigures(args, out)
	case servers.EmptyVerb:
		if len(args) != 1 {
			return fmt.Errorf("%s wants an address", servers.EmptyVerb)
		}
		l, err := net.Listen("tcp", args[0])
		if err != nil {
			return err
		}
		return servers.ServeEmpty(l)
	case measureVerb:
		return measure(args, out)
	}
	return errors.New("say what to measure: go run . limiters [flags], servers or guard; -h lists them")
}

// contestOfLimiters has each contestant measured at each number of keys, in a process of its own: so none inherits
// memory, or a collector's habits, from another.
func contestOfLimiters(args []string, out, progress io.Writer) error {
	f := flag.NewFlagSet("limiters", flag.ContinueOnError)
	f.SetOutput(progress)
	rounds := f.Int("rounds", 5, "how often each is measured")
	keys := f.String("keys", "1e3,1e4,1e5,1e6,1e7", "numbers of keys")
	most := f.Float64("most", 1e7, "number of keys that the other limiters get at most")
	each := f.Duration("time", 500*time.Millisecond, "for each figure of speed")
	collector := f.Float64("collector", 1e7, "number of keys from which on the collector is watched too, for up to a minute")
	only := f.String("only", "", "contestants whose names contain this; default all")
	dir := f.String("o", "", "directory for limiters.md, .json and .svg; default none")
	if err := f.Parse(args); err != nil {
		return err
	}
	var jobs []contest.Job
	for _, text := range strings.Split(*keys, ",") {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n < 1 || n > 1e8 {
			return fmt.Errorf("-keys: %q is no number of keys from 1 to 1e8", text)
		}
		for _, c := range limiters.Contestants {
			ours := strings.HasPrefix(c.Name, limiters.Base)
			if (ours || n <= *most) && strings.Contains(c.Name, *only) {
				jobs = append(jobs, contest.Job{Contestant: c.Name, Point: text + " keys"})
			}
		}
	}
	if len(jobs) == 0 {
		return fmt.Errorf("-only: no contestant's name contains %q", *only)
	}
	if *rounds < 1 || *each <= 0 {
		return fmt.Errorf("-rounds is %d and -time %v; at least 1 and above 0 are accepted", *rounds, *each)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	samples, err := contest.Run(*rounds, jobs, func(j contest.Job) (map[string]float64, error) {
		n, _ := strconv.ParseFloat(strings.TrimSuffix(j.Point, " keys"), 64)
		plan := limiters.Plan{Keys: int(n), Time: *each}
		if n >= *collector {
			plan.Collector = time.Minute
		}
		return measureElsewhere(self, j.Contestant, plan)
	}, progress)
	if err != nil {
		return err
	}
	report := contest.Report{
		Title:   "Limiters within one process",
		Command: strings.Join(append([]string{"go run . limiters"}, args...), " "),
		Machine: contest.ThisMachine(), Rounds: *rounds, Samples: samples, Tables: limiters.Tables, Base: limiters.Base,
	}
	return write(&report, out, *dir, "limiters")
}

// guardFigures compares with the figures that are kept, or keeps those that it measures.
func guardFigures(args []string, out io.Writer) error {
	f := flag.NewFlagSet("guard", flag.ContinueOnError)
	f.SetOutput(out)
	record := f.Bool("record", false, "write the figures instead of comparing with them")
	if err := f.Parse(args); err != nil {
		return err
	}
	return guard.Check("..", filepath.Join("guard", "figures"), *record, out)
}

// contestOfServers builds the servers, and measures row after row.
func contestOfServers(args []string, out, progress io.Writer) error {
	f := flag.NewFlagSet("servers", flag.ContinueOnError)
	f.SetOutput(progress)
	rounds := f.Int("rounds", 5, "how often each is measured")
	rows := f.String("rows", "", "rows by name, with commas; default all")
	each := f.Duration("time", time.Second, "for each measurement")
	dir := f.String("o", "", "directory for ROW.md, ROW.json and ROW.svg; default none")
	if err := f.Parse(args); err != nil {
		return err
	}
	chosen := slices.DeleteFunc(slices.Clone(servers.Rows), func(r servers.Row) bool {
		return *rows != "" && !slices.Contains(strings.Split(*rows, ","), r.Name)
	})
	if len(chosen) == 0 {
		return fmt.Errorf("-rows: %q names none of the rows", *rows)
	}
	if *rounds < 1 || *each < 10*time.Millisecond {
		return fmt.Errorf("-rounds is %d and -time %v; at least 1 and 10ms are accepted", *rounds, *each)
	}
	work, err := os.MkdirTemp("", "bench-servers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	programs, err := servers.Build(".", work)
	if err != nil {
		return err
	}
	for _, row := range chosen {
		samples, err := servers.Measure(programs, row, *rounds, *each, progress)
		if err != nil {
			return fmt.Errorf("row %s: %w", row.Name, err)
		}
		report := contest.Report{
			Title:   row.Title,
			Command: strings.Join(append([]string{"go run . servers"}, args...), " "),
			Machine: contest.ThisMachine(), Rounds: *rounds, Samples: samples, Tables: servers.Tables, Base: servers.Base,
		}
		if err := write(&report, out, *dir, row.Name); err != nil {
			return err
		}
	}
	return nil
}

// write prints the report, and keeps it in dir if there is one.
func write(r *contest.Report, out io.Writer, dir, name string) error {
	if err := r.Markdown(out); err != nil || dir == "" {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for suffix, print := range map[string]func(io.Writer) error{".md": r.Markdown, ".json": r.JSON, ".svg": r.Plot} {
		f, err := os.Create(filepath.Join(dir, name+suffix))
		if err != nil {
			return err
		}
		if err := errors.Join(print(f), f.Close()); err != nil {
			return err
		}
	}
	return nil
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
	i := slices.IndexFunc(limiters.Contestants, func(c limiters.Contestant) bool { return c.Name == args[0] })
	if i < 0 {
		return fmt.Errorf("there is no contestant %q", args[0])
	}
	figures, err := limiters.Measure(limiters.Contestants[i], plan)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(figures)
}
