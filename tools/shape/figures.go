package main

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"sort"
	"strings"
	"unicode/utf8"
)

// The bounds of what is easily read.
const (
	fileLines  = 400
	funcLines  = 60
	branches   = 15 // of a function: cyclomatic complexity
	typeFields = 20
	typeMethod = 40
	columns    = 100
)

func (t *tree) productLines(room, name string) figure {
	f := figure{name: name, size: true}
	for _, s := range t.sources {
		if room == "" || path.Dir(s.name) == room {
			f.value += len(s.lines)
		}
	}
	return f
}

func (t *tree) longFiles() figure {
	f := figure{name: fmt.Sprintf("files over %d lines", fileLines)}
	for _, s := range t.sources {
		if len(s.lines) > fileLines {
			f.count("%s: %d lines", s.name, len(s.lines))
		}
	}
	return f
}

func (t *tree) longFunctions() figure {
	f := figure{name: fmt.Sprintf("functions over %d lines", funcLines)}
	t.functions(func(s source, fn *ast.FuncDecl) {
		if n := t.linesOf(fn); n > funcLines {
			f.count("%s: %s has %d lines", t.position(fn), fn.Name.Name, n)
		}
	})
	return f
}

func (t *tree) branchyFunctions() figure {
	f := figure{name: fmt.Sprintf("functions of a complexity over %d", branches)}
	t.functions(func(s source, fn *ast.FuncDecl) {
		if n := complexity(fn); n > branches {
			f.count("%s: %s has %d", t.position(fn), fn.Name.Name, n)
		}
	})
	return f
}

// complexity is McCabe's: one, and one more for each way to branch.
func complexity(fn *ast.FuncDecl) int {
	n := 1
	ast.Inspect(fn, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if op := x.Op.String(); op == "&&" || op == "||" {
				n++
			}
		}
		return true
	})
	return n
}

// methods counts the methods of each type, by "directory.Type".
func (t *tree) methods() map[string]int {
	methods := make(map[string]int)
	t.functions(func(s source, fn *ast.FuncDecl) {
		if r := receiver(s, fn); r != "" {
			methods[r]++
		}
	})
	return methods
}

// fields counts the named and embedded fields of each struct, by "directory.Type".
func (t *tree) fields() map[string]int {
	fields := make(map[string]int)
	for _, s := range t.sources {
		ast.Inspect(s.file, func(x ast.Node) bool {
			spec, ok := x.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if st, ok := spec.Type.(*ast.StructType); ok {
				fields[path.Dir(s.name)+"."+spec.Name.Name] = st.Fields.NumFields()
			}
			return true
		})
	}
	return fields
}

func (t *tree) largeTypes() figure {
	f := figure{name: fmt.Sprintf("types of over %d fields or %d methods", typeFields, typeMethod)}
	fields, methods := t.fields(), t.methods()
	names := make(map[string]bool)
	for name := range fields {
		names[name] = true
	}
	for name := range methods {
		names[name] = true
	}
	for _, name := range sorted(names) {
		if fields[name] > typeFields || methods[name] > typeMethod {
			f.count("%s: %d fields, %d methods", name, fields[name], methods[name])
		}
	}
	return f
}

func (t *tree) fieldsOf(room, name string) figure {
	return figure{name: "fields of " + room + "." + name, value: t.fields()[room+"."+name]}
}

func (t *tree) methodsOf(room, name string) figure {
	return figure{name: "methods of " + room + "." + name, value: t.methods()[room+"."+name]}
}

var who = regexp.MustCompile(`\b([Ww]ho|[Ww]hom|[Ww]hose|[Ww]hoever)\b`)

// hangingWho counts the pronouns of the pattern above in prose: most of them hide the noun.
func (t *tree) hangingWho() figure {
	f := figure{name: "words of prose that are who, whom, whose or whoever"}
	for _, p := range t.pages {
		for i := range p.lines {
			for range who.FindAllString(p.prose[i+1], -1) {
				f.count("%s:%d: %s", p.name, i+1, strings.TrimSpace(p.prose[i+1]))
			}
		}
	}
	return f
}

// wideLines counts the lines of Go that are wider than a page, and could be broken.
func (t *tree) wideLines() figure {
	return t.linesOver(fmt.Sprintf("lines of Go over %d columns", columns), false)
}

// wideTags counts the wide lines that cannot be broken.
func (t *tree) wideTags() figure {
	return t.linesOver(fmt.Sprintf("struct tags and imports over %d columns", columns), true)
}

func (t *tree) linesOver(name string, whole bool) figure {
	f := figure{name: name}
	for _, p := range t.pages {
		if !strings.HasSuffix(p.name, ".go") {
			continue
		}
		for i, line := range p.lines {
			tabs := strings.Count(line, "\t")
			if p.whole[i+1] == whole && utf8.RuneCountInString(line)+3*tabs > columns {
				f.count("%s:%d", p.name, i+1)
			}
		}
	}
	return f
}

func (f *figure) count(format string, args ...any) {
	f.value++
	f.places = append(f.places, fmt.Sprintf(format, args...))
}

func sorted(set map[string]bool) (names []string) {
	for name := range set {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
