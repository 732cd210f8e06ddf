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
	in                      map[string]*cases           // by package
	broken                  map[string]bool             // packages with which the race detector itself has failed
}

type cases struct{ passed, failed, skipped int }

// detectorFailed is what the race detector says of itself before it ends a process: an assertion in its own code has
// failed, and nothing is known of the program's races.
const detectorFailed = "ThreadSanitizer: CHECK failed"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ./... | count FILE")
		os.Exit(2)
	}
	t := tally{output: map[string]*strings.Builder{}, in: map[string]*cases{}, broken: map[string]bool{}}
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
	if t.in[e.Package] == nil {
		t.in[e.Package] = &cases{}
	}
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
		t.in[e.Package].passed++
	case "skip":
		t.skipped++
		t.in[e.Package].skipped++
		if o := t.output[name]; o != nil && strings.Contains(o.String(), "too busy") {
			t.busy++
		}
		fmt.Print("skipped ", name, "\n", t.output[name])
	case "fail":
		t.failed++
		t.in[e.Package].failed++
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
	in := t.in[e.Package]
	if in.failed == 0 && !t.broken[e.Package] && t.detectorFailed(e.Package) {
		fmt.Println("AGAIN", e.Package+": the race detector itself has failed, so the package is tested once more")
		t.broken[e.Package] = true // and if it fails once more, that counts
		t.passed, t.skipped = t.passed-in.passed, t.skipped-in.skipped
		delete(t.in, e.Package)
		for other := range t.output {
			if strings.HasPrefix(other, e.Package+" ") {
				delete(t.output, other)
			}
		}
		return
	}
	if in.failed == 0 {
		t.failed++
	}
	fmt.Print(t.output[name])
	for other, output := range t.output { // of tests that a panic or a timeout cut off
		if strings.HasPrefix(other, e.Package+" ") && other != name {
			fmt.Print("CUT OFF ", other, "\n", output)
		}
	}
}

// detectorFailed reports whether the race detector has ended a test of a package.
func (t *tally) detectorFailed(of string) bool {
	for name, output := range t.output {
		if strings.HasPrefix(name, of+" ") && strings.Contains(output.String(), detectorFailed) {
			return true
		}
	}
	return false
}
