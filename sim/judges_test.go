package sim

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// speakers are the files that may call a node, with the reason. All other files of this package
// are judges, or help them: they read what a process has written down (statement.go).
var speakers = map[string]string{
	"disk.go":      "a process writes its file and starts with one, as the program does",
	"gossip.go":    "a process is given Views",
	"machine.go":   "a process makes its node",
	"members.go":   "a node is ACTIVE when it decides, and leaves when it holds nothing any more",
	"network.go":   "a process hands messages to its node",
	"operator.go":  "an operator asks a node, and has it recover",
	"statement.go": "a process writes down what its node says of itself",
	"visit.go":     "a client comes to the door of a node",
	"world.go":     "a world stops its nodes, and looks for one that is ACTIVE",
}

// Promise: the judges of a world see its trace and nothing else. They ask no node.
func TestJudgesAskNoNode(t *testing.T) {
	asks := findAsking(t, "")
	for name, places := range asks {
		if speakers[name] == "" {
			t.Errorf("%s asks a node; judges read what processes write down (statement.go):\n%s",
				name, strings.Join(places, "\n"))
		}
	}
	for name := range speakers {
		if len(asks[name]) == 0 {
			t.Errorf("%s calls no node; take it off the list of those that may", name)
		}
	}
}

func TestAJudgeThatAsksANodeIsFound(t *testing.T) {
	for _, body := range []string{
		"_ = p.node.Holds(1)",
		"n := p.node; _ = n.View()",
		"_ = p.machine.process.node.Book().Len()",
		"f := p.node.Agreed; f()",
		"_ = p.door",
	} {
		source := "package sim\nfunc (j *judge) asks(p *process) { " + body + " }\n"
		if len(findAsking(t, source)["more.go"]) == 0 {
			t.Errorf("nothing is found in %q", body)
		}
	}
}

// findAsking finds where files name a node, or the door of one, or a table or a ledger: by file.
// more is the text of one file more.
func findAsking(t *testing.T, more string) map[string][]string {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	parse := func(name string, source any) {
		file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			parse(name, nil)
		}
	}
	if more != "" {
		parse("more.go", more)
	}
	info := types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	check := types.Config{Importer: importer.ForCompiler(set, "gc", compiled(t))}
	if _, err := check.Check("penstock/sim", set, files, &info); err != nil {
		t.Fatal(err)
	}
	asks := make(map[string][]string)
	for e, x := range info.Types {
		if !x.IsValue() {
			continue
		}
		switch types.TypeString(x.Type, nil) {
		case "*penstock/cluster.Node", "penstock/cluster.Membership", "*penstock/limiter.Table",
			"*penstock/limiter.Ledger", "penstock/sim.door":
			at := set.Position(e.Pos())
			asks[at.Filename] = append(asks[at.Filename],
				fmt.Sprintf("\t%v: %s", at, types.ExprString(e)))
		}
	}
	return asks
}

// compiled opens the compiled form of a package that this one imports.
func compiled(t *testing.T) importer.Lookup {
	t.Helper()
	at, err := exports()
	if err != nil {
		t.Fatal(err)
	}
	return func(name string) (io.ReadCloser, error) { return os.Open(at[name]) }
}

// exports are the files of these forms, by package.
var exports = sync.OnceValues(func() (map[string]string, error) {
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w", list, err)
	}
	at := make(map[string]string)
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		name, file, _ := strings.Cut(lines.Text(), " ")
		at[name] = file
	}
	return at, nil
})
