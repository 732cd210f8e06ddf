// Command count reads the output of `go test -json`, prints what a person wants to see of it (a
// line per package, all of what fails, the name of what is skipped) and writes "passed failed
// skipped" to the file it is given. A case is a test, a subtest, a fuzz target's seed or an
// example.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// event is one line of test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

type tally struct {
	passed, failed, skipped int
	busy                    int                         // of the skipped: they say that this machine is too busy for what they time
	output                  map[string]*strings.Builder // of tests under way, by package and test
	failedIn                map[string]int              // cases, by package
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ./... | count FILE")
		os.Exit(2)
	}
	t := tally{output: map[string]*strings.Builder{}, failedIn: map[string]int{}}
	if err := t.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(2)
	}
	counts := fmt.Sprintln(t.passed, t.failed, t.skipped, t.busy)
	if err := os.WriteFile(os.Args[1], []byte(counts), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(2)
	}
	if t.failed > 0 {
		os.Exit(1)
	}
}

func (t *tally) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) > 0 && json.Unmarshal(line, &e) == nil:
			t.add(e)
		case len(line) > 0:
			os.Stdout.Write(line) // what the go command itself has to say
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (t *tally) add(e event) {
	name := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		if t.output[name] == nil {
			t.output[name] = &strings.Builder{}
		}
		t.output[name].WriteString(e.Output)
	case "build-output":
		fmt.Print(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			t.addPackage(e, name)
		} else {
			t.addCase(e, name)
		}
		delete(t.output, name)
	}
}

func (t *tally) addCase(e event, name string) {
	switch e.Action {
	case "pass":
		t.passed++
	case "skip":
		t.skipped++
		if o := t.output[name]; o != nil && strings.Contains(o.String(), "too busy") {
			t.busy++
		}
		fmt.Print("skipped ", name, "\n", t.output[name])
	case "fail":
		t.failed++
		t.failedIn[e.Package]++
		fmt.Print("FAILED ", name, "\n", t.output[name])
	}
}

// addPackage counts a package that fails although none of its cases does (it does not build,
// panics, hangs) as one.
func (t *tally) addPackage(e event, name string) {
	elapsed := time.Duration(e.Elapsed * float64(time.Second)).Round(10 * time.Millisecond)
	fmt.Printf("%-4s %s %v\n", e.Action, e.Package, elapsed)
	if e.Action != "fail" {
		return
	}
	if t.failedIn[e.Package] == 0 {
		t.failed++
	}
	fmt.Print(t.output[name])
	for other, output := range t.output { // of tests that a panic or a timeout cut off
		if strings.HasPrefix(other, e.Package+" ") && other != name {
			fmt.Print("CUT OFF ", other, "\n", output)
		}
	}
}
