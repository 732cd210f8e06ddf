package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A sleeper is a package that holds all drawn mutants of a room at once. They sleep: the code is
// that of the tree until the environment names the number of one. So the tests are built once, and
// not once for each mutant.
type sleeper struct {
	room    *room
	overlay string         // for `go build -overlay`
	number  map[string]int // of each mutant, by its fingerprint; from 1
	all     int            // numbers
}

// Names of what the package gets in addition.
const (
	isAwake  = "mutantIsAwake"
	whoWakes = "MUTANT_AWAKE" // the number of the mutant that is awake
	whoIsMet = "MUTANT_MET"   // a file of one byte for each mutant: 1 if the tests came by
)

const wakes = `package %s

import (
	"os"
	"strconv"
	"syscall"
)

var mutantAwake, mutantsMet = mutantsBegin()

func mutantsBegin() (awake int, met []byte) {
	awake, _ = strconv.Atoi(os.Getenv("` + whoWakes + `"))
	if f, err := os.OpenFile(os.Getenv("` + whoIsMet + `"), os.O_RDWR, 0); err == nil {
		met, _ = syscall.Mmap(int(f.Fd()), 0, %d, syscall.PROT_WRITE, syscall.MAP_SHARED)
		f.Close()
	}
	return awake, met
}

func ` + isAwake + `(number int) bool {
	if mutantsMet != nil {
		mutantsMet[number] = 1
	}
	return mutantAwake == number
}
`

// putToSleep writes the package of a room with all its mutants. Those that cannot sleep (a constant
// that would be none, a type without a name) are left out: they are built one by one.
func putToSleep(root, dir string, r *room, list []*mutant) (*sleeper, error) {
	s := &sleeper{room: r, number: map[string]int{}, all: len(list)}
	for i, m := range list {
		s.number[m.fingerprint()] = i + 1
	}
	p, err := load(root, r.dir)
	if err != nil {
		return nil, err
	}
	byFile := map[string][]*mutant{}
	for _, m := range list {
		byFile[m.file] = append(byFile[m.file], m)
	}
	replace := map[string]string{}
	for file, mutants := range byFile {
		if !slices.Contains(p.files, filepath.Base(file)) {
			s.forget(mutants...)
			continue
		}
		replace[filepath.Base(file)] = ""
	}
	sources := map[string]string{}
	for {
		var beds []*bed
		for file := range replace {
			b := p.bed(s, file, byFile[filepath.Join(r.dir, file)])
			sources[file] = b.out.String()
			beds = append(beds, b)
		}
		bad, err := p.restless(beds, sources)
		if err != nil {
			return nil, err
		}
		if len(bad) == 0 {
			break
		}
		s.forget(bad...)
	}
	sources["mutants_awake.go"] = fmt.Sprintf(wakes, p.types.Name(), len(list)+1)
	for file, source := range sources {
		to := filepath.Join(dir, "asleep-"+r.name+"-"+file)
		replace[filepath.Join(root, r.dir, file)] = to
		delete(replace, file)
		if err := os.WriteFile(to, []byte(source), 0o666); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	s.overlay = filepath.Join(dir, "asleep-"+r.name+".json")
	return s, os.WriteFile(s.overlay, text, 0o666)
}

func (s *sleeper) forget(list ...*mutant) {
	for _, m := range list {
		delete(s.number, m.fingerprint())
	}
}

// loaded is a package with the types of its expressions.
type loaded struct {
	root, dir string
	files     []string
	set       *token.FileSet
	trees     map[string]*ast.File
	exports   types.Importer
	types     *types.Package
	info      *types.Info
}

func load(root, dir string) (*loaded, error) {
	w := workshop{}
	out, err := w.command(10*time.Minute, root, "go", "list", "-export", "-deps",
		"-json=ImportPath,Export,GoFiles,DepOnly", "./"+dir)
	if err != nil {
		return nil, fmt.Errorf("%s does not compile: %w: %s", dir, err, out)
	}
	p := &loaded{root: root, dir: dir, set: token.NewFileSet(), trees: map[string]*ast.File{}}
	exports := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var one struct {
			ImportPath, Export string
			GoFiles            []string
			DepOnly            bool
		}
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[one.ImportPath] = one.Export
		if !one.DepOnly {
			p.files = one.GoFiles
		}
	}
	p.exports = importer.ForCompiler(p.set, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, name := range p.files {
		tree, err := parser.ParseFile(p.set, filepath.Join(root, dir, name), nil, 0)
		if err != nil {
			return nil, err
		}
		p.trees[name] = tree
	}
	p.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	c := types.Config{Importer: p.exports}
	list := slices.Collect(maps.Values(p.trees))
	p.types, err = c.Check(dir, p.set, list, p.info)
	return p, err
}

// A bed is a file with its sleeping mutants.
type bed struct {
	p      *loaded
	s      *sleeper
	file   string
	source []byte
	out    strings.Builder
	lie    map[*mutant][2]int  // the bytes of out that are a mutant's
	exprs  map[[2]int]ast.Expr // by their bytes in source
	lists  map[[2]int]bool     // statements that stand in a list of statements
	names  map[string]string   // of the packages that the file imports
}

func (p *loaded) bed(s *sleeper, file string, list []*mutant) *bed {
	b := &bed{
		p: p, s: s, file: file, lie: map[*mutant][2]int{}, exprs: map[[2]int]ast.Expr{},
		lists: map[[2]int]bool{}, names: map[string]string{},
	}
	tree := p.trees[file]
	for _, i := range tree.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		for _, imported := range p.types.Imports() {
			if imported.Path() == path {
				b.names[path] = imported.Name()
			}
		}
		if i.Name != nil {
			b.names[path] = i.Name.Name
		}
	}
	ast.Inspect(tree, b.look)
	list = slices.DeleteFunc(slices.Clone(list), func(m *mutant) bool {
		return s.number[m.fingerprint()] == 0
	})
	slices.SortStableFunc(list, func(x, y *mutant) int {
		if x.start != y.start {
			return x.start - y.start
		}
		if x.end != y.end {
			return y.end - x.end
		}
		return order(y) - order(x)
	})
	if len(list) > 0 {
		b.source = list[0].source
	} else {
		b.source, _ = os.ReadFile(filepath.Join(p.root, p.dir, file))
	}
	b.write(0, len(b.source), list)
	return b
}

// order has a statement outside of the expression of the same bytes.
func order(m *mutant) int {
	if strings.HasPrefix(m.operator, "drop the") || m.operator == breaks {
		return 1
	}
	return 0
}

func (b *bed) bytes(n ast.Node) [2]int {
	return [2]int{b.p.set.Position(n.Pos()).Offset, b.p.set.Position(n.End()).Offset}
}

// look notes expressions, and the statements of lists.
func (b *bed) look(n ast.Node) bool {
	var list []ast.Stmt
	switch x := n.(type) {
	case *ast.BlockStmt:
		list = x.List
	case *ast.CaseClause:
		list = x.Body
	case *ast.CommClause:
		list = x.Body
	case ast.Expr:
		if at := b.bytes(x); b.exprs[at] == nil {
			b.exprs[at] = x
		}
	}
	for _, s := range list {
		b.lists[b.bytes(s)] = true
	}
	return true
}

// write writes the source between two bytes, with the mutants in between.
func (b *bed) write(from, to int, list []*mutant) {
	for len(list) > 0 {
		m, n := list[0], 1
		for n < len(list) && list[n].start < m.end {
			n++
		}
		b.out.Write(b.source[from:m.start])
		begin := b.out.Len()
		before, after := b.around(m)
		b.out.WriteString(before)
		b.write(m.start, m.end, list[1:n])
		b.out.WriteString(after)
		b.lie[m] = [2]int{begin, b.out.Len()}
		from, list = m.end, list[n:]
	}
	b.out.Write(b.source[from:to])
}

// around is what stands before and after the source that a mutant replaces when it is awake.
func (b *bed) around(m *mutant) (before, after string) {
	at := [2]int{m.start, m.end}
	awake := isAwake + "(" + strconv.Itoa(b.s.number[m.fingerprint()]) + ")"
	switch {
	case m.start == m.end:
		return " if " + awake + " { " + m.text + " }; ", ""
	case m.operator == breaks:
		return "if " + awake + " { break }; ", ""
	case order(m) == 1 && b.lists[at]:
		return "if !" + awake + " { ", " }"
	case order(m) == 1: // of the head of a loop or an if
		return "func() { if !" + awake + " { ", " } }()"
	}
	t := b.p.info.Types[b.exprs[at]].Type
	if t == nil {
		b.s.forget(m)
		return "", ""
	}
	if basic, ok := types.Default(t).(*types.Basic); ok && basic.Kind() == types.Bool {
		return "(" + awake + " && (" + m.text + ") || !" + awake + " && (", "))"
	}
	unnamed := false
	name := types.TypeString(types.Default(t), func(other *types.Package) string {
		if other == b.p.types {
			return ""
		}
		unnamed = unnamed || b.names[other.Path()] == ""
		return b.names[other.Path()]
	})
	if unnamed {
		b.s.forget(m)
		return "", ""
	}
	return "(func() " + name + " { if " + awake + " { return " + m.text + " }; return ", " }())"
}

// restless are the mutants with which the package does not compile.
func (p *loaded) restless(beds []*bed, sources map[string]string) (bad []*mutant, err error) {
	set := token.NewFileSet()
	found := func(at token.Position) {
		for _, b := range beds {
			if b.file == filepath.Base(at.Filename) {
				bad = append(bad, b.at(at.Offset)...)
			}
		}
	}
	var list []*ast.File
	helper := "package " + p.types.Name() + "\nfunc " + isAwake +
		"(number int) bool { return false }\n"
	for _, name := range append(slices.Clone(p.files), "mutants_awake.go") {
		source := any(nil)
		if text, ok := sources[name]; ok {
			source = text
		}
		if name == "mutants_awake.go" {
			source = helper
		}
		tree, err := parser.ParseFile(set, filepath.Join(p.root, p.dir, name), source, 0)
		if err != nil {
			return nil, err
		}
		list = append(list, tree)
	}
	var last error
	c := types.Config{Importer: p.exports, Error: func(err error) {
		last = err
		var e types.Error
		if errors.As(err, &e) {
			found(set.Position(e.Pos))
		}
	}}
	c.Check(p.dir, set, list, nil)
	if last != nil && len(bad) == 0 {
		return nil, last
	}
	return bad, nil
}

// at are the mutants that may be why there is an error at a byte of the file as it is written: the
// innermost one there, or those of the line, or the statements of the function.
func (b *bed) at(offset int) (found []*mutant) {
	least := len(b.out.String())
	for m, lies := range b.lie {
		if n := lies[1] - lies[0]; lies[0] <= offset && offset < lies[1] && n < least {
			found, least = []*mutant{m}, n
		}
	}
	if len(found) > 0 {
		return found
	}
	text := b.out.String()
	begin := strings.LastIndexByte(text[:offset], '\n') + 1
	end := offset + strings.IndexByte(text[offset:], '\n')
	for m, lies := range b.lie {
		if lies[0] < end && lies[1] > begin {
			found = append(found, m)
		}
	}
	if len(found) > 0 {
		return found
	}
	// At the end of a function: it returns always, but for a statement that may be dropped.
	var last *mutant
	for m, lies := range b.lie {
		if lies[0] < offset && (last == nil || lies[0] > b.lie[last][0]) {
			last = m
		}
	}
	for m := range b.lie {
		if last != nil && m.function == last.function && order(m) == 1 {
			found = append(found, m)
		}
	}
	return found
}
