package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A verdict says what became of a mutant.
type verdict struct {
	kind verdictKind
	by   string // the test that killed it
	took time.Duration
}

type verdictKind int

const (
	killed    verdictKind = iota
	survived              // no test failed
	invalid               // it does not compile
	identical             // it compiles to what the tree compiles to
)

// A workshop builds and tries mutants. The tree is never touched: each build reads the mutated file
// in place of the other by an overlay, and shares with all others what the mutant does not change.
type workshop struct {
	root, dir string
	simOnly   bool
	noSim     bool
	own       bool          // only the first step of a room
	leastTime time.Duration // that a run may take, whatever it takes without a mutant

	mu     sync.Mutex
	kills  map[string]map[string]int // by package, by test: how many it has killed
	limits map[string]*sync.Once     // by step
	took   map[string]time.Duration  // by step: without a mutant
	failed map[string]error          // by step: why it does not pass without a mutant
	built  map[string]string         // by package: what it compiles to
	stages map[string]*stage         // by room and step

	sleepers map[*room]*sleeper
}

func newWorkshop(root string) (*workshop, error) {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	root, err = filepath.Abs(root)
	return &workshop{
		root: root, dir: dir, leastTime: 60 * time.Second,
		kills: map[string]map[string]int{}, limits: map[string]*sync.Once{},
		took: map[string]time.Duration{}, failed: map[string]error{}, built: map[string]string{},
		stages: map[string]*stage{}, sleepers: map[*room]*sleeper{},
	}, err
}

func (w *workshop) close() { os.RemoveAll(w.dir) }

// try finds out what becomes of a mutant. An error says that the tests do not even pass without it.
func (w *workshop) try(m *mutant) (verdict, error) {
	began := time.Now()
	v, err := w.judge(m)
	v.took = time.Since(began)
	return v, err
}

func (w *workshop) judge(m *mutant) (verdict, error) {
	if m.stale != nil {
		return verdict{kind: invalid}, nil
	}
	steps := m.room.tests
	if w.own {
		steps = steps[:1]
	}
	if w.simOnly {
		steps = nil
	}
	s := w.sleepers[m.room]
	asleep := s != nil && s.number[m.fingerprint()] > 0
	if asleep {
		by, err := w.wakeIn(s, m, steps)
		if err != nil || by != "" {
			return verdict{kind: killed, by: by}, err
		}
	}
	dir, err := os.MkdirTemp(w.dir, "one-")
	if err != nil {
		return verdict{}, err
	}
	defer os.RemoveAll(dir)
	overlay, err := w.overlay(dir, m)
	if err != nil {
		return verdict{}, err
	}
	switch kind, err := w.compare(m, overlay); {
	case err != nil:
		return verdict{}, err
	case kind == invalid && asleep: // what it leaves unused was used while it slept
		return verdict{kind: survived}, nil
	case kind != survived:
		return verdict{kind: kind}, nil
	}
	if asleep {
		steps = w.askedLast(s, steps)
	}
	by, err := w.alone(m, dir, overlay, steps)
	if err != nil || by != "" {
		return verdict{kind: killed, by: by}, err
	}
	return verdict{kind: survived}, nil
}

// alone tries a mutant that is built alone.
func (w *workshop) alone(m *mutant, dir, overlay string, steps []step) (by string, err error) {
	for _, s := range steps {
		if by, err := w.run(dir, overlay, s); err != nil || by != "" {
			return by, err
		}
	}
	if m.room.seeds == 0 || w.noSim {
		return "", nil
	}
	return w.play(dir, overlay, m.room.seeds)
}

// overlay writes the mutated file beside the tree, and a list of it for `go build -overlay`.
func (w *workshop) overlay(dir string, m *mutant) (string, error) {
	name := filepath.Join(w.root, m.file)
	mutated := filepath.Join(dir, "mutated.go")
	if err := os.WriteFile(mutated, m.apply(), 0o666); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {name: mutated}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o666)
}

// compare compiles the mutated package alone.
func (w *workshop) compare(m *mutant, overlay string) (verdictKind, error) {
	same, err := w.original(m.room.dir)
	if err != nil {
		return invalid, fmt.Errorf("%s does not compile: %w", m.room.dir, err)
	}
	switch content, err := w.compile(m.room.dir, overlay); {
	case err != nil:
		return invalid, nil
	case content == same:
		return identical, nil
	}
	return survived, nil
}

// original is what a package compiles to in the tree.
func (w *workshop) original(pkg string) (content string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if content = w.built[pkg]; content == "" {
		content, err = w.compile(pkg, "")
		w.built[pkg] = content
	}
	return content, err
}

// compile returns the hash of what a package compiles to: the second half of its build ID. Without
// inlining, for the bodies that other packages may inline are kept as they are written.
func (w *workshop) compile(pkg, overlay string) (string, error) {
	args := []string{"list", "-export", "-gcflags=-l", "-f", "{{.BuildID}}"}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	out, err := w.command(10*time.Minute, w.root, "go", append(args, "./"+pkg)...)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	id := strings.TrimSpace(out)
	return id[strings.LastIndexByte(id, '/')+1:], nil
}

// run builds the tests of a step and runs them: first those that have killed most. It returns the
// test that failed, or nothing.
func (w *workshop) run(dir, overlay string, s step) (by string, err error) {
	limit, err := w.limit(s)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "mutated.test")
	if out, err := w.build(binary, overlay, s); err != nil {
		return "the build of the tests of " + s.pkg + ": " + firstLine(out), nil
	}
	parts := []string{"-test.run=" + s.run}
	if best := w.best(s.pkg); len(best) > 0 && s.run == "" {
		first := "^(" + strings.Join(best, "|") + ")$"
		parts = []string{"-test.run=" + first, "-test.skip=" + first}
	}
	for _, part := range parts {
		out, err := w.test(binary, s, limit, part)
		if err == nil {
			continue
		}
		by := culprit(out, err)
		w.mu.Lock()
		if w.kills[s.pkg] == nil {
			w.kills[s.pkg] = map[string]int{}
		}
		w.kills[s.pkg][by]++
		w.mu.Unlock()
		return s.pkg + " " + by, nil
	}
	return "", nil
}

func (w *workshop) build(binary, overlay string, s step) (string, error) {
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	return w.command(10*time.Minute, w.root, "go", append(args, "./"+s.pkg)...)
}

func (w *workshop) test(binary string, s step, limit time.Duration, part string) (string, error) {
	return w.command(limit, filepath.Join(w.root, s.pkg), binary,
		"-test.short", "-test.failfast", "-test.timeout="+(limit-time.Second).String(), part)
}

// best are the tests of a package that have killed most.
func (w *workshop) best(pkg string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	kills := w.kills[pkg]
	names := slices.SortedFunc(maps.Keys(kills), func(a, b string) int {
		return cmp.Or(cmp.Compare(kills[b], kills[a]), cmp.Compare(a, b))
	})
	names = slices.DeleteFunc(names, func(n string) bool { // a hang or a crash has no test's name
		return !strings.HasPrefix(n, "Test") && !strings.HasPrefix(n, "Fuzz")
	})
	return names[:min(len(names), 6)]
}

// limit is how long a step may take: some times as long as without a mutant. A hang is a kill.
func (w *workshop) limit(s step) (time.Duration, error) {
	key := s.pkg + " " + s.run
	w.mu.Lock()
	once := w.limits[key]
	if once == nil {
		once = new(sync.Once)
		w.limits[key] = once
	}
	w.mu.Unlock()
	once.Do(func() {
		binary := filepath.Join(w.dir, strings.ReplaceAll(s.pkg, "/", "-")+".test")
		out, err := w.build(binary, "", s)
		began := time.Now()
		if err == nil {
			out, err = w.test(binary, s, 20*time.Minute, "-test.run="+s.run)
		}
		if err != nil {
			err = fmt.Errorf("the tests of %s fail without any mutant: %w\n%s", s.pkg, err, out)
		}
		w.mu.Lock()
		w.took[key], w.failed[key] = time.Since(began), err
		w.mu.Unlock()
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leastTime + 5*w.took[key], w.failed[key]
}

// play has the mutant live in worlds of the simulator.
func (w *workshop) play(dir, overlay string, seeds int) (by string, err error) {
	binary := filepath.Join(dir, "mutated")
	out, err := w.command(10*time.Minute, w.root, "go", "build", "-buildvcs=false",
		"-ldflags=-s -w", "-overlay", overlay, "-o", binary, "./cmd/node")
	if err != nil {
		return "the build of the simulator: " + firstLine(out), nil
	}
	out, err = w.command(10*time.Minute, w.root, binary, "sim", "check", "--seeds",
		strconv.Itoa(seeds))
	switch {
	case err == nil:
		return "", nil
	case errors.Is(err, context.DeadlineExceeded):
		return "sim (no end)", nil
	}
	if found := brokenPromise.FindString(out); found != "" {
		return "sim: " + found, nil
	}
	return "sim: " + firstLine(out), nil
}

var brokenPromise = regexp.MustCompile(`(?m)^.*seed \d+.*$`)

// mostMemory is how much memory a run may have, in bytes: a mutant may fill it without end. What
// counts is what is resident, since tables reserve more addresses than they use.
const mostMemory = 3 << 30

var errMemory = errors.New("needs too much memory")

// command runs a program for a limited time, with limited memory, and ends all that it has started.
func (w *workshop) command(limit time.Duration, dir, name string, args ...string) (string, error) {
	return w.commandWith(nil, limit, dir, name, args...)
}

func (w *workshop) commandWith(
	env []string, limit time.Duration, dir, name string, args ...string,
) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "RAPID_SEED=1", "RAPID_NOFAILFILE=true", "RAPID_SHRINKTIME=0s")
	c.Env = append(c.Env, env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		return "", err
	}
	ended, large := make(chan struct{}), make(chan bool, 1)
	go func() { large <- outgrows(c.Process.Pid, ended, cancel) }()
	err := c.Wait()
	close(ended)
	switch {
	case <-large:
		err = errMemory
	case ctx.Err() != nil:
		err = ctx.Err()
	}
	return out.String(), err
}

// outgrows looks at the memory of a process until it has ended. It stops one that has too much.
func outgrows(pid int, ended <-chan struct{}, stop func()) bool {
	for {
		select {
		case <-ended:
			return false
		case <-time.After(200 * time.Millisecond):
		}
		var pages, resident int64
		statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err == nil {
			_, err = fmt.Sscan(string(statm), &pages, &resident)
		}
		if err == nil && resident*int64(os.Getpagesize()) > mostMemory {
			stop()
			return true
		}
	}
}

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// culprit is the test that failed, or how else the run ended.
func culprit(out string, err error) string {
	if found := failedTest.FindStringSubmatch(out); found != nil {
		return found[1]
	}
	switch {
	case errors.Is(err, errMemory):
		return "(too much memory)"
	case errors.Is(err, context.DeadlineExceeded), strings.Contains(out, "test timed out after"):
		return "(no end)"
	}
	return "(crash: " + firstLine(out) + ")"
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s[:min(len(s), 100)]
}
