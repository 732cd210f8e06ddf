package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const other = "example.org/limits/penstock"

// copyTree copies what git knows of the tree, and returns the files' names.
func copyTree(t *testing.T, to string) (names []string) {
	t.Helper()
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = "../.."
	out, err := list.Output()
	if err != nil {
		t.Skip("the tree is not a clone of git's:", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if os.IsNotExist(err) {
			continue // removed, and not yet in a commit
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// Promise: the tree under another path builds, its tests and those of its modules too, and keeps
// its shape. Written back, it is the same bytes as before.
func TestAnotherModulePath(t *testing.T) {
	root := t.TempDir()
	names := copyTree(t, root)
	before, changed, err := rewrite(root, other)
	if err != nil || changed < 100 {
		t.Fatalf("%d files changed: %v", changed, err)
	}
	for _, row := range [][]string{
		{".", "go", "build", "./..."},
		{".", "go", "vet", "./embedded", "./rpc/client", "./cmd/node"},
		{".", "go", "test", "-count=1", "."},
		{".", "go", "list", "-deps", "./cmd/node"},
		{"bench", "go", "build", "./..."},
		{"examples/nethttp", "go", "build", "-o", os.DevNull, "."},
		{"examples/embedded", "go", "build", "-o", os.DevNull, "."},
		{"examples/llm", "go", "vet", "."},
	} {
		command := exec.Command(row[1], row[2:]...)
		command.Dir = filepath.Join(root, row[0])
		command.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
		out, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("in %s: %v: %v\n%s", row[0], row[1:], err, out)
		}
		if row[2] == "list" && (!strings.Contains(string(out), other+"/cluster\n") ||
			strings.Contains("\n"+string(out), "\n"+before+"/")) {
			t.Errorf("the program consists of\n%s", out)
		}
	}
	if _, _, err := rewrite(root, before); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		was, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			continue
		}
		is, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || !bytes.Equal(was, is) && !strings.HasSuffix(name, "go.sum") {
			t.Errorf("%s is not as it was before: %v", name, err)
		}
	}
}

// Promise: a path that no import can have is refused, and nothing is changed.
func TestNoModulePath(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "two words", `a"b`, "/a", "a/", "a//b", "A.org/b", "../a"} {
		if _, changed, err := rewrite(root, path); err == nil || changed != 0 ||
			!strings.Contains(err.Error(), "give a module path") {
			t.Errorf("%q: %d files, %v", path, changed, err)
		}
	}
}
