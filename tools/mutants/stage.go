package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A stage is the built tests of a package, with the sleeping mutants of a room.
type stage struct {
	once   sync.Once
	err    error
	step   step
	binary string
	tests  []*actor // the quickest first
	aside  []string // tests that fail with mutants that sleep: those that count allocations
}

// An actor is one test of a stage.
type actor struct {
	name string
	took time.Duration
	met  []byte // by mutant: 1 if the test comes by
}

// aPart is how long the tests of one run take together, the first one apart.
const aPart = 500 * time.Millisecond

// stage builds the tests of a step with the mutants of a room, and has each test run once.
func (w *workshop) stage(s *sleeper, st step) (*stage, error) {
	key := s.room.name + " in " + st.pkg + " " + st.run
	w.mu.Lock()
	g := w.stages[key]
	if g == nil {
		g = &stage{step: st, binary: filepath.Join(w.dir, strings.ReplaceAll(key, "/", "-"))}
		w.stages[key] = g
	}
	w.mu.Unlock()
	g.once.Do(func() { g.err = w.rehearse(g, s) })
	return g, g.err
}

func (w *workshop) rehearse(g *stage, s *sleeper) error {
	if out, err := w.build(g.binary, s.overlay, g.step); err != nil {
		return fmt.Errorf("the tests of %s do not build with sleeping mutants: %s", g.step.pkg,
			out)
	}
	list, err := w.command(time.Minute, filepath.Join(w.root, g.step.pkg), g.binary,
		"-test.list", cmp.Or(g.step.run, "."))
	if err != nil {
		return fmt.Errorf("the tests of %s cannot be listed: %w: %s", g.step.pkg, err, list)
	}
	for name := range strings.Lines(list) {
		name = strings.TrimSpace(name)
		if strings.HasPrefix(name, "Benchmark") {
			continue
		}
		a := &actor{name: name}
		met := g.binary + ".met"
		if err := os.WriteFile(met, make([]byte, s.all+1), 0o666); err != nil {
			return err
		}
		began := time.Now()
		out, err := w.act(g, []*actor{a}, 5*time.Minute, whoIsMet+"="+met)
		if err != nil {
			fmt.Printf("# %s of %s is asked last: it fails with mutants that sleep: %s\n", name,
				g.step.pkg, culprit(out, err))
			g.aside = append(g.aside, name)
			continue
		}
		a.took = time.Since(began)
		if a.met, err = os.ReadFile(met); err != nil {
			return err
		}
		if bytes.IndexByte(a.met, 1) >= 0 {
			g.tests = append(g.tests, a)
		}
	}
	slices.SortStableFunc(g.tests, func(a, b *actor) int { return cmp.Compare(a.took, b.took) })
	return nil
}

func (w *workshop) act(g *stage, tests []*actor, limit time.Duration, env string) (string, error) {
	names := make([]string, len(tests))
	for i, a := range tests {
		names[i] = a.name
	}
	return w.commandWith([]string{env}, limit, filepath.Join(w.root, g.step.pkg), g.binary,
		"-test.short", "-test.failfast", "-test.timeout="+limit.String(),
		"-test.run=^("+strings.Join(names, "|")+")$")
}

// wake runs the tests that come by a mutant while it is awake, the quickest first. It returns the
// one that failed, or nothing.
func (w *workshop) wake(s *sleeper, number int, st step) (by string, err error) {
	g, err := w.stage(s, st)
	if err != nil {
		return "", err
	}
	var part []*actor
	var took time.Duration
	run := func() bool {
		if len(part) == 0 {
			return false
		}
		limit := 15*time.Second + 8*took
		out, err := w.act(g, part, limit, whoWakes+"="+strconv.Itoa(number))
		if part, took = nil, 0; err != nil {
			by = st.pkg + " " + culprit(out, err)
		}
		return err != nil
	}
	for _, a := range g.tests {
		if a.met[number] == 0 {
			continue
		}
		if took+a.took > aPart && run() {
			return by, nil
		}
		part, took = append(part, a), took+a.took
	}
	run()
	return by, nil
}

// wakeIn wakes a mutant in each step. It returns the test that failed, or nothing.
func (w *workshop) wakeIn(s *sleeper, m *mutant, steps []step) (by string, err error) {
	for _, st := range steps {
		by, err := w.wake(s, s.number[m.fingerprint()], st)
		if err != nil || by != "" {
			return by, err
		}
	}
	return "", nil
}

// askedLast are the tests that do not bear sleeping mutants. They run with a mutant built alone.
func (w *workshop) askedLast(s *sleeper, steps []step) (last []step) {
	for _, st := range steps {
		if g, err := w.stage(s, st); err == nil && len(g.aside) > 0 {
			last = append(last, step{st.pkg, "^(" + strings.Join(g.aside, "|") + ")$"})
		}
	}
	return last
}
