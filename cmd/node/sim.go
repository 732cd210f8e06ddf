package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"penstock/sim"
)

// simVerb runs imagined clusters.
type simVerb struct {
	World simWorldVerb `cmd:"" default:"withargs" help:"Run the world that --seed draws (also without the word world)."`
	Check simCheckVerb `cmd:"" help:"Run many seeds. Exits 0 only if every promise held in all of them."`
}

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
	Seeds   int    `default:"100" help:"How many, 10000000 at most."`
	From    uint64 `default:"1" help:"The first of them."`
	Workers int    `placeholder:"N" help:"Worlds at a time. Default: one per processor."`
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
	progress, done := v.progress(sh.err)
	summary := sim.Check(v.From, v.Seeds, v.Workers, progress)
	done()
	err := v.print(sh.out, summary, summary.WriteText)
	if err == nil && !summary.OK() {
		err = exitCode(1) // the summary's last line says it
	}
	return err
}

// progress shows on a terminal how far it is, ten times a second.
func (v *simCheckVerb) progress(w io.Writer) (show func(*sim.Summary), done func()) {
	if !isTerminal(w) {
		return nil, func() {}
	}
	bottom, last := &screen{out: w}, time.Time{}
	show = func(s *sim.Summary) {
		if now := time.Now(); now.Sub(last) >= 100*time.Millisecond {
			last = now
			bottom.show(fmt.Sprintf("%s of %s seeds, %d failed\n", thousands(int64(s.Seeds)), thousands(int64(v.Seeds+s.Kept)), len(s.Failed)))
		}
	}
	return show, func() { bottom.show("") }
}
