// Attack lets hostile clients loose on a node, one kind after the other, while a client that
// behaves goes on asking from an address of its own, and prints a table: what the node takes
// before, at the peak and after, how long the client that behaves waits, and what the node has
// refused.
//
//	go run ./attack                        all of them, 5 s each
//	go run ./attack -only rapid-reset -for 30s
//	go run ./attack -docs ../docs/security.md   also puts the table into the page
//
// It ends with an error if an attack took more memory than -memory and 96 MiB, if the node did not
// survive it, or if the client that behaves was not answered.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

// budget is the node's --memory, in MiB; slack is what it may take beside.
const (
	budget = 64
	slack  = 96
)

func run() error {
	only := flag.String("only", "", "names of attacks, with commas; default: all")
	length := flag.Duration("for", 5*time.Second, "how long an attack lasts")
	page := flag.String(
		"docs",
		"",
		"page with a line <!-- attacks --> and one <!-- attacks: end --> around the table",
	)
	built := flag.String("node", "",
		"programs of nodes, with commas, that are attacked in turns; default: that of this tree; "+
			"empty: a server that only answers")
	rounds := flag.Int("rounds", 1, "how often each attack is tried")
	others := flag.Int("others", 0, "programs that are busy beside, each for one processor")
	well := flag.String("behave", "",
		"only be the client that behaves, of the node at this address")
	door := flag.String("door", "http", "of the node, for the client that behaves")
	empty := flag.String("empty", "", "only be a server that does nothing, at this address")
	flag.IntVar(&offer, "offer", 0,
		"requests a second of the attack overload; default: 3 times what the node can answer")
	flag.BoolVar(&full, "full", false, "fill the table of counters before each attack")
	flag.Parse()
	if *empty != "" {
		return serveEmpty(*empty)
	}
	if *well != "" {
		return ask(*door, *well, *length)
	}
	for range *others {
		end, err := busy()
		if err != nil {
			return err
		}
		defer end()
	}
	dir, err := os.MkdirTemp("", "attack")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := series{dir: dir, programs: strings.Split(*built, ","), rounds: *rounds, length: *length}
	if *built == "" {
		s.programs[0] = filepath.Join(dir, "penstock")
		build := exec.Command("go", "build", "-o", s.programs[0], "./cmd/node")
		build.Dir, build.Stderr = "..", os.Stderr
		if err := build.Run(); err != nil {
			return err
		}
	}
	if *only != "" {
		s.only = strings.Split(*only, ",")
	}
	table, failed := s.run()
	if *page != "" {
		if err := fill(*page, table, *length); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// series is which attacks are tried on which nodes.
type series struct {
	dir      string   // for files of the nodes
	programs []string // of the nodes, which are attacked in turns
	only     []string // names of attacks; empty: all
	rounds   int      // how often each attack is tried
	length   time.Duration
}

// run tries all attacks, and returns their table and those that failed.
func (s *series) run() (table string, failed []error) {
	table = head
	for i, a := range slices.Concat(overloads, attacks, forged, linked, secured, administered) {
		if len(s.only) > 0 && !slices.Contains(s.only, a.name) {
			continue
		}
		processors := runtime.NumCPU()
		if i < len(overloads) {
			processors = 1
		}
		for turn := range s.rounds * len(s.programs) {
			program := s.programs[turn%len(s.programs)]
			if len(s.programs) > 1 {
				fmt.Print(filepath.Base(program), " ")
			}
			row, err := try(program, s.dir, a, processors, s.length)
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", a.name, err))
			}
			fmt.Println(row)
			table += row + "\n"
		}
	}
	return table, failed
}

const head = "| attack | resident MiB: before, peak, after | descriptors | goroutines | p99 ms " +
	"of a client that behaves: before, during | its failures | sent | refused " +
	"|\n|---|---|---|---|---|---|---|---|\n"

// try runs one attack against a fresh node.
func try(
	program, dir string, a attack, processors int, length time.Duration,
) (row string, err error) {
	length += a.onset()
	v, err := start(program, dir, processors, a)
	if err != nil {
		return "", err
	}
	defer v.stop()
	if full {
		v.fill()
	}
	calm := behave(v.door(a.door), v.address(a.door), 2*time.Second)
	before, err := v.figures()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var during latencies
	watched := make(chan figures)
	go func() { watched <- v.watch(ctx) }()
	asked := make(chan struct{})
	v.began = time.Now()
	go func() {
		time.Sleep(a.onset())
		during = behave(v.door(a.door), v.address(a.door), length-a.onset())
		close(asked)
	}()
	said := make(chan string, 1)
	go func() { said <- aside(program, dir, a, length) }()
	sent := a.loose(ctx, v)
	v.said += <-said
	peak := <-watched
	<-asked
	after, err := v.settle(before)
	if err != nil {
		return "", fmt.Errorf("the node did not survive it: %w", err)
	}
	row = fmt.Sprintf(
		"| %s: %s | %d, %d, %d | %d, %d, %d | %d, %d, %d | %.1f, %.1f | %d of %d | %d | %s |",
		a.name,
		a.what+v.said,
		before.resident,
		after.most,
		after.resident,
		before.files,
		peak.files,
		after.files,
		before.goroutines,
		peak.goroutines,
		after.goroutines,
		calm.p99(),
		during.p99(),
		during.Failed,
		during.Asked,
		sent,
		refusals(before.counters, after.counters),
	)
	switch {
	case after.most > budget+slack:
		err = fmt.Errorf("%d MiB resident; the budget is %d", after.most, budget)
	case during.Asked == during.Failed:
		err = fmt.Errorf("the client that behaves was not answered")
	case after.goroutines > before.goroutines+200 || after.files > before.files+200:
		err = fmt.Errorf("goroutines or descriptors stay: %+v, then %+v", before, after)
	}
	return row, err
}

// aside is what a node without an attack says of the machine, for an attack with an onset.
func aside(program, dir string, a attack, length time.Duration) string {
	onset := a.onset()
	if onset == 0 {
		return ""
	}
	dir, err := os.MkdirTemp(dir, "aside") // or both would write the same files
	if err != nil {
		return ""
	}
	v, err := start(program, dir, runtime.NumCPU(), attack{})
	if err != nil {
		return ""
	}
	defer v.stop()
	time.Sleep(onset - time.Since(v.began))
	l := behave(a.door, v.address(a.door), length-onset)
	return fmt.Sprintf("; a node beside, which is not attacked, gives %d answers at a p99 of "+
		"%.1f ms", l.Asked-l.Failed, l.p99())
}

var between = regexp.MustCompile(`(?s)(<!-- attacks -->\n).*(<!-- attacks: end -->)`)

// fill puts the table into the page.
func fill(page, table string, length time.Duration) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	if !between.Match(text) {
		return fmt.Errorf("%s has no lines <!-- attacks --> and <!-- attacks: end -->", page)
	}
	said := fmt.Sprintf(
		"%d processors, shared by node, attacker and client; each attack %v; `--memory %dMiB`.\n\n",
		runtime.NumCPU(),
		length,
		budget,
	)
	return os.WriteFile(page, between.ReplaceAll(text, []byte("${1}"+said+table+"${2}")), 0o644)
}
