package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// tree is what was read: every Go file, and of those the product's parsed.
type tree struct {
	fset    *token.FileSet
	sources []source
	pages   []page
}

// source is a Go file of the product.
type source struct {
	name  string // path below the root, with slashes
	lines []string
	file  *ast.File
}

// page is a text in which prose is counted: the comments of a Go file, or a Markdown file.
type page struct {
	name  string
	lines []string
	prose map[int]string // by line number from 1
	whole map[int]bool   // lines that cannot be broken, by number: struct tags and imports
}

func readTree(root string) (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	files, err := filesBelow(root, ".go", ".md")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		if isGenerated(name, string(text)) {
			continue
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if strings.HasSuffix(name, ".md") {
			t.pages = append(t.pages, page{name: name, lines: lines, prose: proseOf(lines)})
			continue
		}
		file, err := parser.ParseFile(t.fset, name, text,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		t.pages = append(t.pages, page{
			name: name, lines: lines, prose: t.commentsOf(file), whole: t.unbreakable(file),
		})
		if isProduct(name) {
			t.sources = append(t.sources, source{name: name, lines: lines, file: file})
		}
	}
	return t, nil
}

func isGenerated(name, text string) bool {
	head, _, _ := strings.Cut(text, "\npackage ")
	return strings.HasSuffix(name, ".pb.go") || strings.Contains(head, "// Code generated ")
}

func isProduct(name string) bool {
	for _, aside := range []string{"bench/", "examples/", "tools/"} {
		if strings.HasPrefix(name, aside) {
			return false
		}
	}
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}

// proseOf is a Markdown file without its blocks of code.
func proseOf(lines []string) map[int]string {
	prose, fenced := make(map[int]string), false
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		} else if !fenced {
			prose[i+1] = line
		}
	}
	return prose
}

func (t *tree) commentsOf(file *ast.File) map[int]string {
	prose := make(map[int]string)
	for _, group := range file.Comments {
		for _, c := range group.List {
			for i, line := range strings.Split(c.Text, "\n") {
				prose[t.fset.Position(c.Pos()).Line+i] = line
			}
		}
	}
	return prose
}

// unbreakable are the lines with a struct tag or the path of an import. Go wants each of these in one
// literal, and what reads tags takes a line break for a fault.
func (t *tree) unbreakable(file *ast.File) map[int]bool {
	whole := make(map[int]bool)
	ast.Inspect(file, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.ImportSpec:
			whole[t.fset.Position(x.Pos()).Line] = true
		case *ast.Field:
			if x.Tag != nil {
				whole[t.fset.Position(x.Tag.Pos()).Line] = true
			}
		}
		return true
	})
	return whole
}

// position is a place that a reader can open.
func (t *tree) position(n ast.Node) string {
	p := t.fset.Position(n.Pos())
	return p.String()
}

// linesOf is how many lines a node takes.
func (t *tree) linesOf(n ast.Node) int {
	return t.fset.Position(n.End()).Line - t.fset.Position(n.Pos()).Line + 1
}

// functions calls do with every function that has a body.
func (t *tree) functions(do func(source, *ast.FuncDecl)) {
	for _, s := range t.sources {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				do(s, f)
			}
		}
	}
}

// receiver is the package's directory and the name of the type that f is a method of, or "".
func receiver(s source, f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	x := f.Recv.List[0].Type
	if star, ok := x.(*ast.StarExpr); ok {
		x = star.X
	}
	if generic, ok := x.(*ast.IndexExpr); ok {
		x = generic.X
	}
	name, ok := x.(*ast.Ident)
	if !ok {
		return ""
	}
	return path.Dir(s.name) + "." + name.Name
}
