package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFigures: each figure counts what a small tree has of it, and nothing of tests and generated
// code.
func TestFigures(t *testing.T) {
	root := t.TempDir()
	wide := strings.Repeat("w", 100)
	write(t, root, "cluster/node.go", strings.ReplaceAll(`package cluster

import "errors"

// Node is asked by whoever comes.
type Node struct {
	a, b int
	c    string "WIDE"
}

func (n *Node) Check(a, b bool) error {
	if a && b {
		for range n.a {
			n.b++
		}
	}
	return errors.New("no WIDE")
}

func (n Node) ID() string { return n.c }
`, "WIDE", wide))
	write(t, root, "cluster/node_test.go", "package cluster\n\n// A test that anybody who likes "+
		"may run.\nfunc (n *Node) helper() { _ = n }\n")
	write(t, root, "proto/x.pb.go", "package proto\n\n// Whose code is this?\n")
	write(t, root, "README.md", "The one who reads.\n```\nwho | grep root\n```\n")

	got := make(map[string]int)
	figures, err := measure(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		got[f.name] = f.value
	}
	for name, want := range map[string]int{
		"lines of product code":                               20,
		"fields of cluster.Node":                              3,
		"methods of cluster.Node":                             2,
		"functions of a complexity over 15":                   0,
		"words of prose that are who, whom, whose or whoever": 3,
		"types of over 20 fields or 40 methods":               0,
		"pairs of files that share 6 lines of one shape":      0,
		"lines of Go over 100 columns":                        1,
		"struct tags and imports over 100 columns":            1,
	} {
		if got[name] != want {
			t.Errorf("%s: %d, want %d", name, got[name], want)
		}
	}
}

// TestRepetitions: six lines that differ in names and values only are one repetition.
func TestRepetitions(t *testing.T) {
	root := t.TempDir()
	body := func(name, n string) string {
		s := "package p\n\nfunc " + name + "(x int) int {\n"
		for range repeatedLines {
			s += "\tx = x*" + n + " + min(x, " + n + ") - max(x, " + n + ")\n"
		}
		return s + "\treturn x\n}\n"
	}
	write(t, root, "p/a.go", body("one", "1"))
	write(t, root, "p/b.go", body("two", "22"))
	tree, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	if f := tree.repetitions(); f.value != 1 {
		t.Errorf("%d repetitions, want 1: %v", f.value, f.places)
	}
}

// TestWorse: a figure above the recorded one is reported, unless it is a size.
func TestWorse(t *testing.T) {
	before := map[string]int{"lines": 10, "files": 10, "size": 10}
	today := []figure{
		{name: "lines", value: 11},
		{name: "files", value: 9},
		{name: "new", value: 5},
		{name: "size", value: 20, size: true},
	}
	if n := show(today, before, false); n != 1 {
		t.Errorf("%d figures are worse, want 1", n)
	}
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
