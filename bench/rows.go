package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/bench/contest"
	"penstock/bench/limiters"
	"penstock/bench/servers"
)

// row is something that can be measured, and gives a report.
type row struct {
	name    string
	measure func(rounds int, each time.Duration, progress io.Writer) (*contest.Report, error)
}

// everything measures row after row, and says at the end which aims are reached.
func everything(args []string, out, progress io.Writer) error {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(progress)
	rounds := f.Int("rounds", 5, "how often each is measured")
	each := f.Duration("time", 500*time.Millisecond, "for each measurement; some take a multiple")
	only := f.String("only", "", "rows by name, with commas; default all: "+strings.Join(names(),
		","))
	join := f.String("join", "1e6", "numbers of keys, with commas, of the nodes in the row join")
	dir := f.String("o", "", "directory for ROW.md, .json and .svg of each row; default none")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is no verb: give flags only, or limiters, docs or guard; -h lists "+
			"the flags", f.Arg(0))
	}
	if *rounds < 1 || *each < 10*time.Millisecond {
		return fmt.Errorf("-rounds is %d and -time %v; at least 1 and 10ms are accepted", *rounds,
			*each)
	}
	if err := joining(*join); err != nil {
		return err
	}
	chosen := names()
	if *only != "" {
		chosen = strings.Split(*only, ",")
	}
	for _, name := range chosen {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("-only: %q is no row; there are %s", name,
				strings.Join(names(), ", "))
		}
	}
	command := []string{"go run ."} // without where the figures go
	f.Visit(func(g *flag.Flag) {
		if g.Name != "o" {
			command = append(command, "-"+g.Name, g.Value.String())
		}
	})
	began := time.Now()
	rows, done, err := prepare(chosen, progress)
	if err != nil {
		return err
	}
	defer done()
	var reports []*contest.Report
	for i, r := range rows {
		fmt.Fprintf(progress, "%v: row %s, %d of %d\n", time.Since(began).Round(time.Second),
			r.name, i+1, len(rows))
		report, err := r.measure(*rounds, *each, progress)
		if err != nil {
			return fmt.Errorf("row %s: %w", r.name, err)
		}
		report.Command = strings.Join(command, " ")
		if err := write(report, out, *dir); err != nil {
			return err
		}
		reports = append(reports, report)
	}
	if err := contest.Judge(out, reports...); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\n%s It took %v.\n", contest.Quiet(reports...),
		time.Since(began).Round(time.Second))
	return err
}

// joining sets the points of the row join.
func joining(keys string) error {
	var all []int
	for _, text := range strings.Split(keys, ",") {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n < 1000 || n > 2e7 {
			return fmt.Errorf("-join: %q is no number of keys from 1000 to 2e7", text)
		}
		all = append(all, int(n))
	}
	for i, r := range servers.Rows {
		if r.Name == "join" {
			servers.Rows[i] = servers.Join(all...)
		}
	}
	return nil
}

// names are those of all rows.
func names() (all []string) {
	for _, r := range servers.Rows {
		all = append(all, r.Name)
	}
	return append(all, "limiters", "keys", "cores", "build")
}

// prepare builds what the rows need. The caller must call done.
func prepare(chosen []string, progress io.Writer) (rows []row, done func(), err error) {
	ours := slices.DeleteFunc(slices.Clone(servers.Rows),
		func(r servers.Row) bool { return !slices.Contains(chosen, r.Name) })
	done = func() {}
	var programs *servers.Programs
	if len(ours) > 0 {
		work, err := os.MkdirTemp("", "bench-")
		if err != nil {
			return nil, nil, err
		}
		done = func() { _ = os.RemoveAll(work) }
		if programs, err = servers.Build(".", work, ours, progress); err != nil {
			done()
			return nil, nil, err
		}
	}
	for _, r := range ours {
		rows = append(rows, row{r.Name, func(rounds int, each time.Duration,
			progress io.Writer,
		) (*contest.Report, error) {
			samples, err := servers.Measure(programs, r, rounds, each, progress)
			if err != nil {
				return nil, err
			}
			tables := r.Tables
			if tables == nil {
				tables = servers.Tables
			}
			return &contest.Report{
				Name: r.Name, Title: r.Title, Axis: r.Axis, Tables: tables, Aims: r.Aims,
				Base:    servers.Base,
				Machine: contest.ThisMachine(), Rounds: rounds, Samples: samples,
			}, nil
		}})
	}
	for _, r := range []row{
		{"limiters", rivals},
		{"keys", keys},
		{"cores", coresRow},
		{"build", buildRow},
	} {
		if slices.Contains(chosen, r.name) {
			rows = append(rows, r)
		}
	}
	return rows, done, nil
}

// rivals has all limiters that work within one process decide on a million keys.
func rivals(rounds int, each time.Duration, progress io.Writer) (*contest.Report, error) {
	samples, err := measureLimiters(rounds, "1e6", 1e6, 1e9, "", each/2, progress)
	r := limitersReport(rounds, samples)
	r.Aims = limiters.Aims
	return r, err
}

// keys has penstock's table decide on more and more keys.
func keys(rounds int, each time.Duration, progress io.Writer) (*contest.Report, error) {
	samples, err := measureLimiters(rounds, "1e3,1e4,1e5,1e6,1e7", 0, 1e7, limiters.Base, each/2,
		progress)
	r := limitersReport(rounds, samples)
	r.Name, r.Title, r.Axis, r.Aims = "keys",
		"How the cost grows with the number of keys, in one process", "keys", limiters.GrowthAims
	return r, err
}

// write prints the report, and keeps it in dir if there is one.
func write(r *contest.Report, out io.Writer, dir string) error {
	if err := r.Markdown(out); err != nil || dir == "" {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for suffix, print := range map[string]func(io.Writer) error{
		".md": r.Markdown, ".json": r.JSON,
		".svg": r.Plot,
	} {
		if err := create(filepath.Join(dir, r.Name+suffix), print); err != nil {
			return err
		}
	}
	return nil
}

func create(file string, print func(io.Writer) error) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(print(f), f.Close())
}

// read is write's other half.
func read(file string) (*contest.Report, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(contest.Report)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}
