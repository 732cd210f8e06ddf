package main

import (
	"cmp"
	"strings"

	"github.com/alecthomas/kong"
)

// command is one verb of the grammar, as completion, man pages and the reference of flags read it.
type command struct {
	path string // "policy replay"; empty for the program itself
	node *kong.Node
}

// commandsOf lists the program, then every verb below it, parents first.
func commandsOf(k *kong.Kong) (all []command) {
	var add func(path string, n *kong.Node)
	add = func(path string, n *kong.Node) {
		all = append(all, command{path, n})
		for _, child := range n.Children {
			if !child.Hidden {
				add(strings.TrimSpace(path+" "+child.Name), child)
			}
		}
	}
	add("", k.Model.Node)
	return all
}

// verbs are the words that may follow.
func (c command) verbs() (all []*kong.Node) {
	for _, n := range c.node.Children {
		if !n.Hidden {
			all = append(all, n)
		}
	}
	return all
}

// flags are those of c itself and of all above it, the nearest first.
func (c command) flags() (all []*kong.Flag) {
	nodes := []*kong.Node{c.node}
	if c.node.DefaultCmd != nil { // its flags may stand behind the shorter name too
		nodes = append(nodes, c.node.DefaultCmd)
	}
	for n := c.node.Parent; n != nil; n = n.Parent {
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		for _, f := range n.Flags {
			if !f.Hidden {
				all = append(all, f)
			}
		}
	}
	return all
}

// takesValue reports whether a word must follow f.
func takesValue(f *kong.Flag) bool { return !f.IsBool() && !f.IsCounter() }

// defaultOf is the value that f has when nothing gives it, or "" if its help says that in words.
func defaultOf(f *kong.Flag) string {
	if strings.Contains(f.Help, "Default:") {
		return ""
	}
	return f.Default
}

// suggestion is what a shell offers where a value is expected.
type suggestion struct {
	words   []string // these alone
	files   bool     // or names of files
	folders bool     // or names of directories
}

func suggestionFor(v *kong.Value) (s suggestion) {
	placeholder := ""
	if v.Flag != nil {
		placeholder = v.Flag.PlaceHolder
	}
	switch kind := cmp.Or(v.Tag.Get("complete"), v.Tag.Type); {
	case v.Enum != "":
		s.words = strings.Split(v.Enum, ",")
	case kind == "dir", kind == "path" && placeholder == "DIR":
		s.folders = true
	case kind == "file", kind == "path":
		s.files = true
	}
	return s
}
