// Package policy reads limits that people write down as YAML. Follow one file:
//
//		limits:
//		  - name: login
//		    algorithm: sliding_window
//		    limit: 10
//		    per: 1m
//
//	 1. Load finds the file, or the files of a directory, and walks through each. A mistake is a
//	    Fault with file, line, column, the field and the values that it accepts. All faults of all
//	    files are reported together.
//	 2. Each entry becomes a limiter.Spec, which limiter.New checks. The result is a Set: all
//	    limits by their names, of all files at once. There is no half of a Set.
//	 3. Watch keeps looking at the files and hands over a new Set when they change. A bad file
//	    never replaces a good one: its faults are logged, and the Set before stays in force.
//
// The language is YAML with one meaning for each text: unknown and repeated fields are faults,
// words are not numbers, and anchors, aliases, tags and merge keys are not read.
//
// The files of another limiter, envoyproxy/ratelimit, are read as that program reads them
// (LoadEnvoy): each is a tree in which Domain.Match finds the limit for what an Envoy says of a
// request.
package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"penstock/limiter"
	"penstock/limiter/rules"
	"penstock/textfile"
)

// Set is the limits and rules of one file or directory. It is immutable.
type Set struct {
	Limits map[string]*limiter.Limit // by name
	Rules  *rules.Set
}

func (s *Set) count() int { return len(s.Limits) }

func (s *Set) equal(other *Set) bool {
	return maps.EqualFunc(s.Limits, other.Limits, (*limiter.Limit).SameAs) &&
		reflect.DeepEqual(s.Rules.Rules(), other.Rules.Rules())
}

// Bounds of what is read.
const (
	// MaxLimits bounds the limits and overrides of all files together. A table of counters knows at
	// most 32767 at once and may need two for each: the limit, and its share while an owner is
	// away.
	MaxLimits = 10_000
	MaxFile   = 4 << 20 // bytes of one file

	maxLine   = 4 << 10 // bytes of one line
	maxDepth  = 64      // brackets within brackets
	maxFaults = 20      // that are shown; the rest is counted
)

// Load reads the limits of a file, or of all *.yaml and *.yml in a directory, in the order of their
// names. What is wrong with the content is Faults.
func Load(path string) (*Set, error) {
	b, err := load(path, (*page).top)
	if err != nil {
		return nil, err
	}
	return b.set()
}

// load reads the documents of all files of a path, each by top.
func load(path string, top func(*page, ast.Node)) (*book, error) {
	const tries = 3
	for try := 1; ; try++ {
		before := generation(path)
		b, err := loadOnce(path, top)
		changed := generation(path) != before
		switch {
		case try < tries && (changed || before != "" && errors.Is(err, fs.ErrNotExist)):
		case err != nil:
			return nil, err
		case changed:
			return nil, fmt.Errorf("%s: is being written: it changes while it is read; wait "+
				"until it is complete", path)
		default:
			return b, nil
		}
	}
}

// generation tells one content of a path from the next, by the sizes and times of its files. A file
// that was read while it was written may be half of one. In a Kubernetes ConfigMap all files lead
// through one link, which is swapped: files that were read around a swap may not belong together.
func generation(path string) string {
	var b strings.Builder
	if target, err := os.Readlink(filepath.Join(path, "..data")); err == nil {
		b.WriteString(target)
	}
	files, err := list(path)
	if err != nil {
		return b.String()
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			fmt.Fprintf(&b, "\n%s %d %d", file, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}

func loadOnce(path string, top func(*page, ast.Node)) (*book, error) {
	files, err := list(path)
	if err != nil {
		return nil, err
	}
	b := newBook()
	for _, file := range files {
		data, err := textfile.Read(file)
		if err != nil {
			return nil, err
		}
		b.parse(file, data, top)
	}
	return b, nil
}

// list names the files of a path, in the order in which they are read.
func list(path string) (files []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		ext := filepath.Ext(name)
		if ext != ".yaml" && ext != ".yml" || e.Name()[0] == '.' {
			continue
		}
		info, err := os.Stat(name) // what a link leads to
		if err != nil {
			return nil, err
		}
		switch {
		case info.IsDir():
		case !info.Mode().IsRegular(): // to read a pipe is to wait for another program
			return nil, fmt.Errorf("%s: is neither a file nor a directory; remove it, or give it "+
				"another ending", name)
		default:
			files = append(files, name)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: a directory without .yaml or .yml files", path)
	}
	return files, nil
}

// Parse reads the limits of one file that is in memory. name is what faults call it.
func Parse(name string, data []byte) (*Set, error) {
	b := newBook()
	b.parse(name, data, (*page).top)
	return b.set()
}

// book gathers what several files say.
type book struct {
	limits map[string]*limiter.Limit
	rules  []draftRule
	below  []draftChild

	ruleNames map[string]string // name of a rule → its file

	size   int               // limits and overrides
	files  map[string]string // name of a limit, or of an Envoy domain → its file
	envoy  *Envoy
	nodes  int // that were read of Envoy's files
	faults Faults
	hidden int // faults beyond maxFaults
}

func newBook() *book {
	return &book{
		limits: map[string]*limiter.Limit{}, files: map[string]string{},
		ruleNames: map[string]string{},
		envoy:     &Envoy{domains: map[string]*Domain{}},
	}
}

func (b *book) set() (*Set, error) {
	b.checkTrees()
	list := b.checkRules()
	if err := b.fault(); err != nil {
		return nil, err
	}
	all, err := rules.New(list, b.limits)
	if err != nil {
		return nil, err // what checkRules does not know of
	}
	return &Set{Limits: b.limits, Rules: all}, nil
}

// fault is all that is wrong, or nil.
func (b *book) fault() error {
	if len(b.faults) == 0 {
		return nil
	}
	b.faults[len(b.faults)-1].more = b.hidden
	return b.faults
}
