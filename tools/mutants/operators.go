package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A mutant is one edit of one file that should make a test fail.
type mutant struct {
	room     *room
	file     string // from the root of the tree
	line     int
	function string
	operator string // or, of a hand-written one, its name
	before   string // the source that the edit replaces, on one line
	nth      int    // of the same edits in this function
	breaks   string // of a hand-written one: the promise
	stale    error  // of a hand-written one: its lines are not in the tree any more

	source     []byte // of the file, as it was when the mutant was made
	start, end int    // the bytes that are replaced
	text       string
}

// fingerprint names a mutant without its line, so that edits elsewhere do not rename it.
func (m *mutant) fingerprint() string {
	if m.breaks != "" {
		return m.room.name + ": " + m.operator
	}
	s := fmt.Sprintf("%s %s: %s: %s", m.room.name, m.function, m.operator, m.before)
	if m.nth > 0 {
		s += fmt.Sprintf(" #%d", m.nth+1)
	}
	return s
}

// rank is where a mutant stands in the order of a seed. It follows from the fingerprint alone, so a
// change of one function does not change which mutants of the others are in a sample.
func (m *mutant) rank(seed uint64) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, seed, m.fingerprint())
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// apply is the mutated source. What follows the edit keeps its place, so two sources that mean the
// same compile to the same bytes.
func (m *mutant) apply() []byte {
	source, rest := m.source, m.end
	line := 1 + strings.Count(string(source[:rest]), "\n")
	column := rest - strings.LastIndexByte(string(source[:rest]), '\n')
	mark := fmt.Sprintf("/*line :%d:%d*/", line, column)
	return slices.Concat(source[:m.start], []byte(m.text+mark), source[rest:])
}

// swaps are the operators of a binary expression, each with what takes its place.
var swaps = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD,
}

const breaks = "break instead of continue"

// garden makes the mutants of one file.
type garden struct {
	room     *room
	file     string
	source   []byte
	set      *token.FileSet
	function string
	made     []*mutant
	whole    map[ast.Expr]bool // conditions that are negated as a whole
}

// mutantsOf are all edits that the operators know in one file.
func mutantsOf(r *room, file string, source []byte) ([]*mutant, error) {
	g := &garden{room: r, file: file, source: source}
	g.set, g.whole = token.NewFileSet(), map[ast.Expr]bool{}
	tree, err := parser.ParseFile(g.set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range tree.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || f.Name.Name == "String" {
			continue
		}
		g.function = nameOf(f)
		g.early(f)
		ast.Inspect(f.Body, g.visit)
	}
	return g.made, nil
}

// nameOf is Type.method or the function's name.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

func (g *garden) visit(n ast.Node) bool {
	switch x := n.(type) {
	case *ast.IfStmt:
		g.whole[x.Cond] = true
		g.put("negate the condition", x.Cond, "!("+g.text(x.Cond)+")")
	case *ast.BinaryExpr:
		g.binary(x)
	case *ast.BasicLit:
		if x.Kind == token.INT {
			if v, err := strconv.ParseInt(x.Value, 0, 62); err == nil {
				g.put("one more", x, strconv.FormatInt(v+1, 10))
			}
		}
	case *ast.CallExpr:
		g.call(x)
	case *ast.ExprStmt:
		if c, ok := x.X.(*ast.CallExpr); ok && !locks(c) {
			g.put("drop the call", x, "")
		}
	case *ast.IncDecStmt:
		g.put("drop the statement", x, "")
	case *ast.AssignStmt:
		if x.Tok != token.DEFINE && !blank(x) {
			g.put("drop the statement", x, "")
		}
	case *ast.BranchStmt:
		if x.Label == nil && x.Tok == token.CONTINUE {
			g.put(breaks, x, "break")
		}
	}
	return true
}

func (g *garden) binary(x *ast.BinaryExpr) {
	other, ok := swaps[x.Op]
	if !ok || g.whole[x] && (x.Op == token.EQL || x.Op == token.NEQ) {
		return // that is the negated condition
	}
	name := fmt.Sprintf("%s instead of %s", other, x.Op)
	g.put(name, x, g.text(x.X)+" "+other.String()+" "+g.text(x.Y))
}

func (g *garden) call(x *ast.CallExpr) {
	switch name := g.text(x.Fun); {
	case (name == "min" || name == "max") && len(x.Args) == 2:
		other := map[string]string{"min": "max", "max": "min"}[name]
		g.put(other+" instead of "+name, x, other+strings.TrimPrefix(g.text(x), name))
	case strings.HasSuffix(name, "Compare") && len(x.Args) == 2:
		g.put("swap the arguments", x, name+"("+g.text(x.Args[1])+", "+g.text(x.Args[0])+")")
	}
}

// early has a function return before it has done anything: zero values, or false and true.
func (g *garden) early(f *ast.FuncDecl) {
	if len(f.Body.List) == 0 {
		return // it does nothing as it is
	}
	var types []string
	if f.Type.Results != nil {
		for _, field := range f.Type.Results.List {
			for range max(1, len(field.Names)) {
				types = append(types, g.text(field.Type))
			}
		}
	}
	zeros := make([]string, len(types))
	for i, t := range types {
		zeros[i] = "*new(" + t + ")"
	}
	at := g.set.Position(f.Body.Lbrace).Offset + 1
	zero := " return " + strings.Join(zeros, ", ") + "; "
	g.add("return at once", strings.Join(types, ", "), at, at, zero)
	if slices.Equal(types, []string{"bool"}) {
		g.add("return true at once", "bool", at, at, " return true; ")
	}
}

// locks reports whether a call takes or returns a lock: without one, tests mostly hang.
func locks(c *ast.CallExpr) bool {
	s, ok := c.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock"}, s.Sel.Name)
}

// blank reports whether an assignment only says that something is used.
func blank(x *ast.AssignStmt) bool {
	return !slices.ContainsFunc(x.Lhs, func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		return !ok || id.Name != "_"
	})
}

func (g *garden) text(n ast.Node) string {
	return string(g.source[g.set.Position(n.Pos()).Offset:g.set.Position(n.End()).Offset])
}

func (g *garden) put(operator string, n ast.Node, text string) {
	g.add(operator, g.text(n), g.set.Position(n.Pos()).Offset, g.set.Position(n.End()).Offset, text)
}

func (g *garden) add(operator, before string, start, end int, text string) {
	m := &mutant{
		room: g.room, file: g.file, function: g.function, operator: operator,
		source: g.source, start: start, end: end, text: text,
		line:   1 + strings.Count(string(g.source[:start]), "\n"),
		before: strings.Join(strings.Fields(before), " "),
	}
	for _, o := range g.made {
		if o.function == m.function && o.operator == m.operator && o.before == m.before {
			m.nth++
		}
	}
	g.made = append(g.made, m)
}

// place is where a reader finds it.
func (m *mutant) place() string { return path.Base(m.file) + ":" + strconv.Itoa(m.line) }
