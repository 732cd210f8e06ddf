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
	"liar_says.go": "a liar makes counters up in a table of its own",
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

// rules are the functions of the product that judges may call, with the reason. For all others they
// have words of their own (placed.go), so that a wrong rule of the product is seen and not shared.
var rules = map[string]string{
	"(*penstock/cluster.Move).Clone":            "a liar keeps what it has heard",
	"(*penstock/limiter.Limit).Overrides":       "a scenario reads what its file says",
	"(penstock/cluster/ownership.Copies).Heirs": "a scenario writes what its file says",
	"(penstock/limiter.Algorithm).String":       "a name in a text",
	"(penstock/limiter.Calendar).Per":           "how long a month is at most",
	"(penstock/limiter.Instant).Add":            "a sum of two figures",
	"penstock/cluster.CheckZone":                "a scenario refuses what a node would",
	"penstock/cluster/ownership.CopiesOf":       "a scenario reads what its file says",
	"penstock/limiter.Hash":                     "a figure: XXH64 of the key",
	"penstock/limiter.New":                      "clients bring limits along",
	"penstock/ring.PartitionUnder":              "a figure, and tests of ring have golden ones",
}

// Promise: no judge goes by a rule of the product: a wrong rule would be wrong on both sides.
func TestJudgesCallNoRule(t *testing.T) {
	p := parse(t, "")
	called := make(map[string]bool)
	for id, of := range p.info.Uses {
		f, is := of.(*types.Func)
		at := p.set.Position(id.Pos())
		if !is || f.Pkg() == nil || speakers[at.Filename] != "" {
			continue
		}
		switch path := f.Pkg().Path(); {
		case !strings.HasPrefix(path, "penstock/"), path == "penstock/sim",
			path == "penstock/limiter/policy": // it reads the files of scenarios
		case rules[f.FullName()] == "":
			t.Errorf("%v calls %s, a rule of the product; state it in words of the judges "+
				"(placed.go)", at, f.FullName())
		default:
			called[f.FullName()] = true
		}
	}
	for name := range rules {
		if !called[name] {
			t.Errorf("no judge calls %s; take it off the list of those that they may call", name)
		}
	}
}

// findAsking finds where files name a node, or the door of one, or a table or a ledger: by file.
// more is the text of one file more.
func findAsking(t *testing.T, more string) map[string][]string {
	t.Helper()
	p := parse(t, more)
	asks := make(map[string][]string)
	for e, x := range p.info.Types {
		if !x.IsValue() {
			continue
		}
		switch types.TypeString(x.Type, nil) {
		case "*penstock/cluster.Node", "penstock/cluster.Membership", "*penstock/limiter.Table",
			"*penstock/limiter.Ledger", "penstock/sim.door":
			at := p.set.Position(e.Pos())
			asks[at.Filename] = append(asks[at.Filename],
				fmt.Sprintf("\t%v: %s", at, types.ExprString(e)))
		}
	}
	return asks
}

// ownCode is this package without its tests.
type ownCode struct {
	set   *token.FileSet
	files []*ast.File
	info  types.Info
}

// parse reads it, and the text of one file more.
func parse(t *testing.T, more string) *ownCode {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	p := &ownCode{set: token.NewFileSet(), info: types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object),
	}}
	add := func(name string, text any) {
		file, err := parser.ParseFile(p.set, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		p.files = append(p.files, file)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			add(name, nil)
		}
	}
	if more != "" {
		add("more.go", more)
	}
	check := types.Config{Importer: importer.ForCompiler(p.set, "gc", compiled(t))}
	if _, err := check.Check("penstock/sim", p.set, p.files, &p.info); err != nil {
		t.Fatal(err)
	}
	return p
}

// writers are the files that write to what nodes ask and answer, with the reason.
var writers = map[string]string{
	"draw_trees.go":        "a client asks",
	"frame.go":             "the network makes a copy for the other side",
	"holders.go":           "a client asks",
	"judge_clients.go":     "a hearing has items of its own (opened)",
	"liar.go":              "a liar forges what it says",
	"replay.go":            "a client asks",
	"reservations.go":      "a client goes on with what it was answered",
	"scenario.go":          "a client asks",
	"scenario_holds.go":    "a client asks",
	"scenario_requests.go": "a client asks",
	"traffic.go":           "a client asks",
}

// Promise: a judge leaves what nodes ask and answer as it is: it decides nothing by writing to it.
func TestJudgesWriteToNoMessage(t *testing.T) {
	wrote := make(map[string]bool)
	p := parse(t, "")
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			var written []ast.Expr
			switch n := n.(type) {
			case *ast.AssignStmt:
				written = n.Lhs
			case *ast.IncDecStmt:
				written = []ast.Expr{n.X}
			case *ast.CallExpr:
				switch types.ExprString(n.Fun) {
				case "clear", "copy", "delete", "slices.Delete", "slices.DeleteFunc", "slices.Sort",
					"slices.SortFunc", "append", "slices.Reverse":
					written = n.Args[:1]
				}
			}
			for _, e := range written {
				at := p.set.Position(e.Pos())
				switch {
				case speakers[at.Filename] != "" || !p.isMessage(e):
				case writers[at.Filename] == "":
					t.Errorf("%v writes to %s, which a node may hold", at, types.ExprString(e))
				default:
					wrote[at.Filename] = true
				}
			}
			return true
		})
	}
	for name := range writers {
		if !wrote[name] {
			t.Errorf("%s writes to no message; take it off the list of those that may", name)
		}
	}
}

// isMessage reports whether e lies in a value of package cluster, behind a pointer or in a slice.
func (p *ownCode) isMessage(e ast.Expr) bool {
	ours, behind := false, false
	see := func(x ast.Expr) {
		typ := p.info.Types[x].Type
		if typ == nil {
			return
		}
		switch u := typ.Underlying().(type) {
		case *types.Pointer:
			behind, typ = true, u.Elem()
		case *types.Slice:
			behind, typ = true, u.Elem()
		case *types.Map:
			behind, typ = true, u.Elem()
		}
		if named, is := types.Unalias(typ).(*types.Named); is && named.Obj().Pkg() != nil {
			ours = ours || strings.HasPrefix(named.Obj().Pkg().Path(), "penstock/cluster")
		}
	}
	for {
		switch x := e.(type) {
		case *ast.SelectorExpr:
			see(x.X)
			e = x.X
		case *ast.IndexExpr:
			see(x.X)
			e = x.X
		case *ast.SliceExpr:
			see(x.X)
			e = x.X
		case *ast.StarExpr:
			see(x.X)
			e = x.X
		default:
			return ours && behind
		}
	}
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
