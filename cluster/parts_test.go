package cluster

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// partArrows are all arrows between the parts of a Node. "a -> b": a knows b, because …
// Beside these each part knows self, and most know right.
var partArrows = map[string]string{
	"agreement -> right": "it says how the node stands",
	"agreement -> views": "nodes that gossip names are greeted",
	"agreement -> parts": "a boot leaves when it holds nothing; an evicted one " +
		"has no whole copy",
	"agreement -> claims":   "a node that is not cut off any more claims at once",
	"agreement -> contacts": "words that are not answered count as silence",
	"agreement -> pulse":    "an event after which something is to be done ends an idle time",

	"views -> agreed": "a member that gossip does not name is where it was heard",

	"pulse -> agreed": "an idle node polls it when it is due; a request looks at it first",
	"pulse -> parts":  "they share a lock",

	"contacts -> right":    "a member without its right reports no other",
	"contacts -> agreed":   "it is told which members are gone, or not reached",
	"contacts -> parts":    "they share a lock",
	"contacts -> copier":   "a silent member gets no copies",
	"contacts -> claims":   "the heir of a member that is gone claims at once",
	"contacts -> restorer": "a member that has been up for longer than a file makes it old",
	"contacts -> pulse":    "an idle node asks less often",

	"partitions -> right": "a leaving node waits for its end",

	"copier -> right":    "the configuration says how many heirs there are",
	"copier -> parts":    "it copies and gives them",
	"copier -> claims":   "what was given with an unknown fate is claimed again",
	"copier -> contacts": "an answer is a sign of life",
	"copier -> holder":   "the table and the ledger say what has changed",

	"claimer -> right":    "a claim is asked and answered within one configuration",
	"claimer -> parts":    "what is free is held",
	"claimer -> copier":   "what is held is copied, and copies are lent to claimers",
	"claimer -> contacts": "a holder that another one claims from is looked at",
	"claimer -> intake":   "it says how new copies are",
	"claimer -> awaits":   "nothing is free while a member of a file is awaited",
	"claimer -> restorer": "nothing is free before a file has been looked at",

	"intake -> right":  "senders and gifts belong to a configuration",
	"intake -> parts":  "copies and gifts change how the node stands to partitions",
	"intake -> copier": "what is given is copied on, and what is lent is copied again",
	"intake -> claims": "it answers claims",
	"intake -> holder": "entries, holds and answers are kept there",

	"awaits -> right":  "a member is there if the configuration has it",
	"awaits -> parts":  "they share a lock",
	"awaits -> claims": "what was not free before the wait is claimed after it",

	"restorer -> parts":    "what a file has is a copy",
	"restorer -> contacts": "an answer is a sign of life",
	"restorer -> holder":   "the table and the ledger take the file in",

	"holder -> right": "it decides as long as it has the right",
	"holder -> parts": "it decides on what is held",

	"local -> right":     "a node that is cut off repeats no denial",
	"local -> catalog":   "a lease of a changed limit is given back",
	"local -> parts":     "a repeat names the node that decided first",
	"local -> holder":    "a repeat is answered as before",
	"local -> forwarder": "leases are asked for as all else",
	"local -> confirms":  "so are leases of keys that this node has got meanwhile",

	"notices -> parts":    "keys that are not held any more are told of",
	"notices -> copier":   "a partition is given when the notices are heard",
	"notices -> contacts": "an answer is a sign of life",

	"shares -> right":  "they depend on how many members there are, and on being cut off",
	"shares -> holder": "a share is a limit, decided from memory",

	"forwarder -> right":    "a node that is cut off asks no other",
	"forwarder -> parts":    "they say which node was named as the holder",
	"forwarder -> awaits":   "while a member of a file is awaited no node decides",
	"forwarder -> contacts": "calls are signs of life, or silence",
	"forwarder -> holder":   "it decides on what is held here",
	"forwarder -> local":    "… and on what was lent or denied",
	"forwarder -> debts":    "… and on what was promised",
	"forwarder -> shares":   "… and on what no holder answers for",

	"debtor -> right":     "a node that is cut off pays nothing",
	"debtor -> parts":     "they share a lock",
	"debtor -> holder":    "a key that is held here by now is charged here",
	"debtor -> forwarder": "reports are requests as all others",
	"debtor -> shares":    "a promise is answered from the share",
	"debtor -> notices":   "what is given back ends denials",

	"confirmer -> parts":  "they say where copies are",
	"confirmer -> copier": "a copy may be freer for what was given back",
	"confirmer -> holder": "the table says what a copy has",

	"multiOwner -> forwarder": "each owner is asked",
	"multiOwner -> holder":    "replicated limits are charged here",
	"multiOwner -> shares":    "a silent owner's part is decided from the share",
	"multiOwner -> debts":     "what was reserved is settled after the answer",
	"multiOwner -> confirms":  "what was reserved here waits for its copy",
}

// TestPartsOfANode keeps the shape of a node: its parts know each other by partArrows only, and
// none knows Node. A new arrow needs a reason; an arrow that is gone is taken out.
func TestPartsOfANode(t *testing.T) {
	structs, methods := partsOfNode(t)
	parts := map[string]string{} // type → name of the field of Node
	for name, typ := range fieldsOf(structs["Node"]) {
		parts[typ] = name
	}
	found := map[string]bool{}
	for typ := range parts {
		if structs[typ] == nil {
			t.Fatalf("Node has a %s, which is not a struct of this package", typ)
		}
		for name, of := range fieldsOf(structs[typ]) {
			if parts[of] == "" || of == "self" {
				continue
			}
			arrow := typ + " -> " + name
			if found[arrow] = true; partArrows[arrow] == "" {
				t.Errorf("%s: a new arrow between parts of a node; give a reason in partArrows",
					arrow)
			}
		}
		for _, m := range methods[typ] {
			ast.Inspect(m, func(x ast.Node) bool {
				if id, is := x.(*ast.Ident); is && id.Name == "Node" {
					t.Errorf("%s.%s knows Node", typ, m.Name.Name)
				}
				return true
			})
		}
	}
	for arrow := range partArrows {
		if !found[arrow] {
			t.Errorf("%s: no such arrow any more", arrow)
		}
	}
}

// partsOfNode reads the structs of this package, and the methods of each type.
func partsOfNode(t *testing.T) (map[string]*ast.StructType, map[string][]*ast.FuncDecl) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	structs, methods := map[string]*ast.StructType{}, map[string][]*ast.FuncDecl{}
	read := func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.TypeSpec:
			if s, is := x.Type.(*ast.StructType); is {
				structs[x.Name.Name] = s
			}
		case *ast.FuncDecl:
			if x.Recv != nil {
				of := typeName(x.Recv.List[0].Type)
				methods[of] = append(methods[of], x)
			}
		}
		return true
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, read)
	}
	return structs, methods
}

// fieldsOf are the names of a struct's fields and the names of their types, without the star. A
// field without a name has that of its type.
func fieldsOf(s *ast.StructType) map[string]string {
	fields := map[string]string{}
	for _, f := range s.Fields.List {
		typ := typeName(f.Type)
		if len(f.Names) == 0 {
			fields[typ] = typ
		}
		for _, name := range f.Names {
			fields[name.Name] = typ
		}
	}
	return fields
}

func typeName(x ast.Expr) string {
	if star, is := x.(*ast.StarExpr); is {
		x = star.X
	}
	if id, is := x.(*ast.Ident); is {
		return id.Name
	}
	return ""
}
