package ownership

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write what scenarios print into their files")

// TestScenarios plays the files of testdata. A block is some commands, a line "----", and what came
// of them up to the next empty line.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if got == string(text) {
				return
			}
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s prints something else; look at the difference with -update:\n%s", name,
				got)
		})
	}
}

// play runs a scenario and writes it down again with what came of it.
func play(t *testing.T, text string) string {
	var b strings.Builder
	w := newWorld(1, 3)
	skip := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "----":
			fmt.Fprintln(&b, line)
			for _, l := range w.log {
				fmt.Fprintln(&b, l)
			}
			fmt.Fprintln(&b)
			w.log, skip = nil, true
		case line == "":
			if !skip {
				fmt.Fprintln(&b)
			}
			skip = false
		case skip:
		default:
			fmt.Fprintln(&b, line)
			if !strings.HasPrefix(line, "#") {
				w.command(t, strings.Fields(line))
			}
		}
		if w.wrong != "" {
			t.Fatalf("%s\n%s", w.wrong, b.String())
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// command does what one line of a scenario says.
func (w *world) command(t *testing.T, f []string) {
	switch verb, args := f[0], f[1:]; verb {
	case "start": // NAME ELECTORATE…
		if w.node(args[0]) != nil && w.node(args[0]).up {
			t.Fatalf("%s is up", args[0])
		}
		w.start(args[0], args[1:]...)
	case "twin": // NAME: a second process of that name
		w.twin(args[0])
	case "run":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			t.Fatal(err)
		}
		if d >= time.Hour { // nobody looks so closely
			w.every = 150 * ms
		}
		w.run(d)
		w.every = 25 * ms
	case "kill":
		for _, id := range args {
			w.kill(id)
		}
	case "power-off": // the machine falls silent for good
		for _, id := range args {
			w.say("%s loses power", id)
			w.node(id).up = false
			w.lossy = true
		}
	case "stop":
		w.lossy = true
		w.freeze(args[0])
	case "go-on":
		w.thaw(args[0])
	case "leave":
		w.say("%s leaves", args[0])
		w.step(w.node(args[0]), Leave{})
	case "recover":
		w.say("recover on %s", args[0])
		w.step(w.node(args[0]), Recover{})
	case "cut", "heal": // A,B from C,D
		w.lossy = true
		w.sever(strings.ReplaceAll(args[0], ",", " "), strings.ReplaceAll(args[1], ",", " "),
			verb == "cut")
	case "unreached": // NAME is not reached by the others named
		for _, id := range args[1:] {
			w.step(w.node(id), Unreached{w.node(args[0]).s.me.Boot})
		}
	case "state":
		w.status()
	default:
		t.Fatalf("no command %q", verb)
	}
}

// status says which nodes decide, and for which partitions.
func (w *world) status() {
	for _, n := range w.nodes {
		var held []int
		for i := range w.truth {
			if n.up && n.s.Holds(n.clock(w.now), i) {
				held = append(held, i)
			}
		}
		switch s := n.s; {
		case !n.up:
			w.say("%s is down", n.id)
		case s.stage != StageJoined:
			w.say("%s:%d is %v", n.id, s.me.Boot, s.stage)
		case s.Marked():
			w.say("%s:%d in %v decides for %v, marked", n.id, s.me.Boot, s.config, held)
		default:
			w.say("%s:%d in %v decides for %v", n.id, s.me.Boot, s.config, held)
		}
	}
}

// twin starts another process with the name of one that lives, at an address of its own.
func (w *world) twin(id string) {
	n := &node{id: id + "'", rate: 1000}
	w.nodes = append(w.nodes, n)
	var known []string
	for _, o := range w.nodes {
		if o != n && o.id != id {
			known = append(known, o.id)
		}
	}
	w.next++
	w.boot(n, w.keep(Member{ID: id, Boot: w.next}, append(slices.Clone(known), id)))
}
