package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"penstock/sim"
)

// simVerb runs imagined clusters.
type simVerb struct {
	World simWorldVerb `cmd:"" default:"withargs" help:"Run the world that --seed draws (also without the word world)."`
	Run   simRunVerb   `cmd:"" help:"Run the world that a file describes, and report on it."`
	Check simCheckVerb `cmd:"" help:"Run many seeds. Exits 0 only if every promise held in all of them."`
}

// AfterApply lets worlds make much garbage before it is collected, unless somebody has said
// otherwise: they hold little, and allocate much.
func (v *simVerb) AfterApply() error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage(1))
	}
	return nil
}

// garbage is how much a world of so many nodes may make of it, in percent of what it holds: which
// is little of small ones.
func garbage(nodes int) int { return min(400, max(50, 40_000/nodes)) }

// simWorldVerb runs one world. It prints the same bytes for the same seed, everywhere and always.
type simWorldVerb struct {
	Seed uint64 `default:"1" help:"What the world is drawn from."`
	output
}

func (v *simWorldVerb) Run(sh shell) error {
	report := sim.Run(v.Seed)
	if err := v.write(sh.out, report); err != nil {
		return err
	}
	if !report.OK() {
		return errors.New("a promise was broken")
	}
	return nil
}

// simRunVerb runs one world that somebody wrote down. It prints the same bytes for the same file,
// everywhere and always.
type simRunVerb struct {
	Scenario string `arg:"" type:"path" help:"A YAML file; examples/scenarios has some."`
	HTML     string `name:"html" type:"path" placeholder:"FILE" help:"Write the report as a page as well, with plots."`
	SVG      string `name:"svg" type:"path" placeholder:"FILE" help:"Write the plots alone as well."`
	output
}

func (v *simRunVerb) Run(sh shell) error {
	scenario, err := loadScenario(v.Scenario)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage(scenario.Nodes()))
	}
	report := scenario.Run()
	for path, write := range map[string]func(io.Writer) error{
		v.HTML: report.WriteHTML,
		v.SVG:  report.WriteSVG,
	} {
		if err := writeFile(path, write); err != nil {
			return err
		}
	}
	if err := v.write(sh.out, report); err != nil {
		return err
	}
	if !report.OK() {
		return exitCode(1) // the report's last line says it
	}
	return nil
}

// writeFile has write fill the file of a path; an empty path is none.
func writeFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// loadScenario reads a file; the logs that it names lie beside it.
func loadScenario(path string) (*sim.Scenario, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return sim.ReadScenario(path, text, func(name string) (io.ReadCloser, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		return os.Open(name)
	})
}

// printable is what package sim reports.
type printable interface {
	WriteJSON(io.Writer) error
	WriteText(io.Writer) error
}

func (o output) write(w io.Writer, p printable) error {
	if o.Output == "json" {
		return p.WriteJSON(w)
	}
	return p.WriteText(w)
}

// simCheckVerb runs many worlds, one per processor at a time.
type simCheckVerb struct {
	Seeds   int     `default:"100" help:"Number of seeds, 10000000 at most."`
	Kept    bool    `default:"true" negatable:"" help:"Play the worlds before them that broke a promise once. With --no-kept new worlds alone."`
	From    *uint64 `placeholder:"N" help:"The first seed. Default: 1; of --kinds 0."`
	Kinds   bool    `help:"Play that many worlds of each kind instead: long ones, cuts and replacements. Counts which promises break."`
	Workers int     `placeholder:"N" help:"Worlds at a time. Default: one per processor."`
	Save    string  `type:"path" placeholder:"FILE" help:"Write the first world that fails, made smaller, as a scenario for sim run."`
	output
}

func (v *simCheckVerb) Run(sh shell) error {
	if v.Seeds < 1 || v.Seeds > 10_000_000 {
		return fmt.Errorf("--seeds %d: give 1 to 10000000", v.Seeds)
	}
	if v.Workers < 0 || v.Workers > 1024 {
		return fmt.Errorf("--workers %d: give 1 to 1024", v.Workers)
	}
	if v.Workers == 0 {
		v.Workers = runtime.GOMAXPROCS(0)
	}
	if v.Kinds {
		return v.runKinds(sh)
	}
	progress, done := v.progress(sh.err)
	from := uint64(1)
	if v.From != nil {
		from = *v.From
	}
	var kept []uint64
	if v.Kept {
		kept = sim.KeptSeeds()
	}
	summary := sim.Check(kept, from, v.Seeds, v.Workers, progress)
	summary.Shrink()
	done()
	if summary.Smallest != nil {
		if err := writeFile(v.Save, func(w io.Writer) error {
			_, err := io.WriteString(w, summary.Smallest.Scenario)
			return err
		}); err != nil {
			return err
		}
	}
	return v.printSummary(sh, summary)
}

func (v *simCheckVerb) printSummary(sh shell, s interface {
	WriteText(io.Writer) error
	OK() bool
},
) error {
	err := v.print(sh.out, s, s.WriteText)
	if err == nil && !s.OK() {
		err = exitCode(1) // the summary's last line says it
	}
	return err
}

func (v *simCheckVerb) runKinds(sh shell) error {
	from := uint64(0)
	if v.From != nil {
		from = *v.From
	}
	if from > sim.MostKindSeeds-uint64(v.Seeds) {
		return fmt.Errorf("--from %d --seeds %d: each kind has %d seeds", from, v.Seeds,
			sim.MostKindSeeds)
	}
	return v.printSummary(sh, sim.Kinds(from, v.Seeds, v.Workers))
}

// progress shows on a terminal how far it is, ten times a second.
func (v *simCheckVerb) progress(w io.Writer) (show func(*sim.Summary), done func()) {
	if !isTerminal(w) {
		return nil, func() {}
	}
	began := time.Now()
	bottom, last := &screen{out: w}, began
	show = func(s *sim.Summary) {
		now := time.Now()
		if now.Sub(last) < 100*time.Millisecond && s.Seeds < s.Total {
			return
		}
		last = now
		text := fmt.Sprintf("%s of %s seeds, %s a second; %s decisions, %s a second; %d failed\n",
			thousands(int64(s.Seeds)), thousands(int64(s.Total)), rate(s.Seeds, now.Sub(began)),
			thousands(int64(s.Decisions)), rate(s.Decisions, now.Sub(began)), len(s.Failed))
		if s.Seeds == s.Total && !s.OK() {
			text += "making the first that failed smaller …\n"
		}
		bottom.show(text)
	}
	return show, func() { bottom.show("") }
}

// rate is how many there are in a second.
func rate(n int, in time.Duration) string {
	return thousands(int64(float64(n) / max(in.Seconds(), 1e-3)))
}
