package limiter_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestProofIsThere: every test that PROOF.md names exists.
func TestProofIsThere(t *testing.T) {
	page, err := os.ReadFile("PROOF.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	sources, _ := filepath.Glob("*_test.go")
	for _, name := range sources {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				declared[f.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile("`((Test|Fuzz|Example|Benchmark)\\w+)`").FindAllSubmatch(page, -1)
	if len(named) < 50 {
		t.Errorf("only %d tests are named: has the page another form?", len(named))
	}
	for _, n := range named {
		if name := string(n[1]); !declared[name] {
			t.Errorf("PROOF.md names %s, which does not exist: name what proves that promise now",
				name)
		}
	}
}
