// Package policy reads limits that people write down as YAML. Follow one file:
//
//	limits:
//	  - name: login
//	    algorithm: sliding_window
//	    limit: 10
//	    per: 1m
//
//  1. Load finds the file, or the files of a directory, and Parse walks through each. What is wrong is a Fault with
//     file, line, column, the field and what it accepts; all faults of all files are reported together.
//  2. Each entry becomes a limiter.Spec, and limiter.New has the last word on it. The result is a Set: all limits by
//     their names, of all files at once. There is no half of a Set.
//  3. Watch goes on looking at the files and hands over a new Set when they change. A bad file never replaces a good
//     one: its faults are logged, and the Set before stays in force.
//
// The language is YAML with one meaning for each text: unknown and repeated fields are faults, words are not numbers,
// and anchors, aliases, tags and merge keys are not read. What the language has a field for but this release cannot do
// is a fault that says "not built yet", never a silence; where such a field has a default, the default may be written.
package policy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"penstock/limiter"
)

// Set is the limits of one file or directory. It is immutable.
type Set struct {
	Limits map[string]*limiter.Limit // by name
}

// Bounds of what is read. A table of counters knows at most 4095 limits at once and may need two for each named one:
// itself, and its share while an owner is away.
const (
	MaxLimits = 2000      // in all files together
	MaxFile   = 1 << 20   // bytes of one file
	maxLine   = 4 << 10   // bytes of one line
	maxDepth  = 64        // brackets within brackets
	maxFaults = 20        // that are shown; the rest is counted
	dataLink  = "..data"  // the link by which Kubernetes swaps all files of a ConfigMap at once
	tries     = 3         // how often a directory is read again that changes meanwhile
	noLimits  = "limits: []"
)

// Load reads the limits of a file, or of all *.yaml and *.yml in a directory, in the order of their names. A
// directory that Kubernetes mounts is read as it stood at one time. What is wrong with the content is Faults.
func Load(path string) (*Set, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	if !info.IsDir() {
		b := newBook()
		if err := b.readFile(path, path); err != nil {
			return nil, fmt.Errorf("limits: %w", err)
		}
		return b.set()
	}
	for try := 1; ; try++ {
		b := newBook()
		err := b.readDir(path)
		switch {
		case err == nil:
			return b.set()
		case try == tries || !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("limits: %w", err)
		}
	}
}

// Parse reads the limits of one file that is in memory. name is what faults call it.
func Parse(name string, data []byte) (*Set, error) {
	b := newBook()
	b.parse(name, data)
	return b.set()
}

// book gathers what several files say.
type book struct {
	limits map[string]*limiter.Limit
	where  map[string]string // name of a limit → file and line
	faults Faults
	hidden int // faults beyond maxFaults
}

func newBook() *book {
	return &book{limits: map[string]*limiter.Limit{}, where: map[string]string{}}
}

func (b *book) set() (*Set, error) {
	if len(b.faults) == 0 {
		return &Set{Limits: b.limits}, nil
	}
	if b.hidden > 0 {
		last := *b.faults[len(b.faults)-1]
		last.more = b.hidden
		b.faults[len(b.faults)-1] = &last
	}
	return nil, b.faults
}

// readDir reads the files of dir. An fs.ErrNotExist means that it changed meanwhile.
func (b *book) readDir(dir string) error {
	// All names of a ConfigMap lead through one link. Followed once, they lead to files that belong together.
	real := dir
	if target, err := filepath.EvalSymlinks(filepath.Join(dir, dataLink)); err == nil {
		real = target
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return err
	}
	read := 0
	for _, e := range entries { // sorted by name
		name := e.Name()
		if !slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name)) || name[0] == '.' {
			continue
		}
		info, err := os.Stat(filepath.Join(real, name))
		if err != nil {
			return err
		}
		if info.IsDir() {
			continue
		}
		if err := b.readFile(filepath.Join(real, name), filepath.Join(dir, name)); err != nil {
			return err
		}
		read++
	}
	if read == 0 {
		return fmt.Errorf("%s: has no file *.yaml or *.yml; for no limits at all, write one that says %q", dir, noLimits)
	}
	return nil
}

// readFile reads the file at path, which faults call name.
func (b *book) readFile(path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return err
	}
	b.parse(name, data)
	return nil
}
