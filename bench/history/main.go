// History asks a cluster of real processes through all doors at once, while a seed draws what
// happens to it, and has package judge decide whether the answers keep what docs/promises.md
// promises. `make history` and `make chaos` run it from the root of the repository:
//
//	make history SECONDS=60 SEED=7                  faults of one node at a time, joins and leaves
//	make chaos SECONDS=60 SEED=7                    of two nodes at once too
//	cd bench && go run ./history -faults kill,stop  some kinds
//	cd bench && go run ./history -judge FILE        judges a recorded history again
//
// An interrupt, or a cluster that cannot be brought together again, ends the faults; what was heard
// until then is judged. The exit code is 1 if the history contradicts a promise, or if a node has
// leaked. The requests that contradict each other are printed and written to a file, with the
// command that draws the same faults again.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"penstock/bench/history/judge"
)

// options are the flags.
type options struct {
	seconds  int
	seed     uint64
	nodes    int
	rate     int
	faults   string
	chaos    bool
	loopback bool
	patience float64
	overlay  string
	out      string
	judge    string
	keep     bool
	previous string
	disks    bool
	copies   int
	zones    int
	agents   int
}

var errContradicted = errors.New("the history contradicts a promise")

func main() {
	if err := history(os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "history:", err)
		}
		os.Exit(1)
	}
}

func history(args []string, out io.Writer) error {
	var o options
	f := flag.NewFlagSet("history", flag.ContinueOnError)
	f.IntVar(&o.seconds, "seconds", 60, "how long faults are drawn")
	f.Uint64Var(&o.seed, "seed", 0, "of the faults and the requests; 0 draws one")
	f.IntVar(&o.nodes, "nodes", 0, "nodes at the beginning, 3 to 7; 0: drawn")
	f.IntVar(&o.rate, "rate", 400, "requests a second")
	f.StringVar(
		&o.faults,
		"faults",
		"",
		"kinds of faults, with commas; empty: those that -chaos says",
	)
	f.BoolVar(&o.chaos, "chaos", false, "draw all kinds of faults, also of two nodes at once")
	f.BoolVar(&o.loopback, "loopback", false, "no network namespaces, so no cuts and no loss")
	f.Float64Var(
		&o.patience,
		"patience",
		1,
		"multiplies the times after which answers must be right again",
	)
	f.StringVar(
		&o.overlay,
		"overlay",
		"",
		"file for go build -overlay: a node with a planted fault",
	)
	f.StringVar(
		&o.previous,
		"previous",
		"",
		"commit of the build that nodes begin with: they are upgraded one by one, and back",
	)
	f.BoolVar(
		&o.disks,
		"disks",
		false,
		"nodes save their counters, on disks that get full and slow (root)",
	)
	f.IntVar(&o.copies, "copies", 1, "copies of each partition, 0 to 2")
	f.IntVar(&o.zones, "zones", 0, "zones that the nodes lie in, by turns; 0: none")
	f.IntVar(&o.agents, "agents", 0, "agents that are asked too, 0 to 2")
	f.StringVar(&o.out, "o", "", "file for the whole history, as JSON")
	f.StringVar(&o.judge, "judge", "", "judge the history in this file, and run nothing")
	f.BoolVar(&o.keep, "keep", false, "keep the directory with the nodes' logs")
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.judge != "" {
		return judgeFile(o.judge, out)
	}
	if o.nodes != 0 && (o.nodes < 3 || o.nodes > maxNodes) {
		return fmt.Errorf("-nodes is %d; 3 to %d are possible, 0 draws", o.nodes, maxNodes)
	}
	if o.copies < 0 || o.copies > 2 {
		return fmt.Errorf("-copies is %d; 0 to 2 are possible", o.copies)
	}
	if o.zones < 0 || o.zones > maxNodes {
		return fmt.Errorf("-zones is %d; 0 to %d are possible", o.zones, maxNodes)
	}
	if o.agents < 0 || o.agents > maxAgents {
		return fmt.Errorf("-agents is %d; 0 to %d are possible", o.agents, maxAgents)
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano() % 1_000_000)
	}
	return o.play(out)
}

// play runs nodes, asks, and judges.
func (o *options) play(out io.Writer) error {
	dir, err := os.MkdirTemp("", "history-")
	if err != nil {
		return err
	}
	if o.keep {
		fmt.Fprintf(out, "logs are in %s\n", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	r, err := newRun(o, dir, out)
	if err != nil {
		return err
	}
	defer r.close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(stop)
	go func() {
		<-stop
		fmt.Fprintln(out, "no more faults: what was heard so far is judged; once more ends at once")
		r.enough.Store(true)
		<-stop
		r.close()
		os.Exit(130)
	}()
	played := r.play()
	history := r.recorder.history(o)
	if len(history.Ops) == 0 {
		return played
	}
	if o.out != "" {
		if err := writeJSON(o.out, history); err != nil {
			return errors.Join(played, err)
		}
	}
	return errors.Join(played, report(out, o, history, history.Judge(), r.leaks))
}

func judgeFile(name string, out io.Writer) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var h judge.History
	if err := json.Unmarshal(text, &h); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return report(out, &options{seed: h.Seed, judge: name}, &h, h.Judge(), nil)
}

func writeJSON(name string, what any) error {
	text, err := json.MarshalIndent(what, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

// again is the command that draws the same faults.
func (o *options) again() string {
	words := []string{
		"cd bench && go run ./history",
		fmt.Sprintf("-seed %d -seconds %d -rate %d", o.seed, o.seconds, o.rate),
	}
	if o.nodes != 0 {
		words = append(words, fmt.Sprintf("-nodes %d", o.nodes))
	}
	if o.faults != "" {
		words = append(words, "-faults "+o.faults)
	}
	if o.chaos {
		words = append(words, "-chaos")
	}
	if o.loopback {
		words = append(words, "-loopback")
	}
	if o.overlay != "" {
		words = append(words, "-overlay "+o.overlay)
	}
	if o.disks {
		words = append(words, "-disks")
	}
	if o.copies != 1 {
		words = append(words, fmt.Sprintf("-copies %d", o.copies))
	}
	if o.zones != 0 {
		words = append(words, fmt.Sprintf("-zones %d", o.zones))
	}
	if o.agents != 0 {
		words = append(words, fmt.Sprintf("-agents %d", o.agents))
	}
	if o.previous != "" {
		words = append(words, "-previous "+o.previous)
	}
	return strings.Join(words, " ")
}

// root is the directory of the repository: above the current one, or above this source.
func root() (string, error) {
	_, source, _, _ := runtime.Caller(0)
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(source); err == nil {
		dir = filepath.Dir(source)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "node", "main.go")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("run this inside the repository: no cmd/node above the current directory")
}
