// Module publishes the tree under another module path: it rewrites go.mod files, imports, the
// go_package of .proto files, and what pages of documentation import.
//
//	go run -C tools ./module -path github.com/acme/penstock
//
// It may be run again, with the old path too: then the tree is as it was before. Generated code
// also holds the path within its descriptors; make generate (which needs protoc) renews it, and
// the tree builds without.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	root := flag.String("root", "..", "the tree that is rewritten")
	path := flag.String("path", "", "the new module path, for example github.com/acme/penstock")
	flag.Parse()
	before, changed, err := rewrite(*root, *path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "module:", err)
		os.Exit(2)
	}
	fmt.Printf("%d files: %s is %s now\n", changed, before, *path)
}

// words of a module path are those of an import path, so that no other tool has to quote it.
var words = regexp.MustCompile(`^[a-z0-9][a-z0-9._~-]*(/[A-Za-z0-9][A-Za-z0-9._~-]*)*$`)

// rewrite returns the path before, and how many files are others now.
func rewrite(root, path string) (before string, changed int, err error) {
	if !words.MatchString(path) || strings.HasSuffix(path, ".") {
		return "", 0, fmt.Errorf("-path %q: give a module path, as github.com/acme/penstock", path)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", 0, err
	}
	first, _, _ := strings.Cut(string(mod), "\n")
	before, found := strings.CutPrefix(first, "module ")
	if !found {
		return "", 0, errors.New("the first line of go.mod is not that of its module")
	}
	change := newChange(before, path)
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != root && (d.Name() == ".git" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}
		was, err := change.file(name)
		if was {
			changed++
		}
		return err
	})
	return before, changed, err
}

// change is what is replaced in the files of each kind; the first group stays before the path, and
// the last one behind it.
type change struct {
	path                          string
	goFile, imports, mod, message *regexp.Regexp
}

func newChange(before, path string) *change {
	b := regexp.QuoteMeta(before)
	return &change{
		path: path,
		// A line of an import block, an import in one line (also one in a text of a test), and the
		// path that the test of the tree's shape knows.
		goFile: regexp.MustCompile(`(?m)(^\t(?:[\w.]+ )?"|import (?:[\w.]+ )?"|` +
			`^const modulePath = ")` + b + `([/"])`),
		imports: regexp.MustCompile(`(?m)(^\s*(?:[\w.]+ )?"|import (?:[\w.]+ )?")` + b + `([/"])`),
		mod:     regexp.MustCompile(`(?m)(^(?:module |replace |require |\t))` + b + `([/\s])`),
		message: regexp.MustCompile(`(?m)(^option go_package = ")` + b + `(/)`),
	}
}

// file rewrites one file, and reports whether that changed it.
func (c *change) file(name string) (changed bool, err error) {
	var pattern *regexp.Regexp
	switch {
	case strings.HasSuffix(name, ".go"):
		pattern = c.goFile
	case strings.HasSuffix(name, ".md"):
		pattern = c.imports
	case strings.HasSuffix(name, ".proto"):
		pattern = c.message
	case filepath.Base(name) == "go.mod":
		pattern = c.mod
	default:
		return false, nil
	}
	before, err := os.ReadFile(name)
	if err != nil {
		return false, err
	}
	after := pattern.ReplaceAll(before, []byte("${1}"+c.path+"${2}"))
	if bytes.Equal(before, after) {
		return false, nil
	}
	if strings.HasSuffix(name, ".go") { // imports are in the order of their paths
		if after, err = format.Source(after); err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
	}
	return true, os.WriteFile(name, after, 0o644)
}
