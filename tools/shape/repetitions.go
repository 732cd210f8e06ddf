package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"strings"
)

// repeatedLines is how many lines in a row two places must share to be counted as a repetition.
const repeatedLines = 6

// place is where a run of lines begins.
type place struct {
	source int
	line   int // index in shapes
}

// repetitions counts the pairs of files that share six lines in a row of the same shape: alike but
// for names and values.
func (t *tree) repetitions() figure {
	f := figure{name: fmt.Sprintf("pairs of files that share %d lines of one shape", repeatedLines)}
	shapes := make([][]shape, len(t.sources))
	seen := make(map[string][]place)
	for i, s := range t.sources {
		shapes[i] = shapesOf(s)
		for k := 0; k+repeatedLines <= len(shapes[i]); k++ {
			run := runOf(shapes[i][k : k+repeatedLines])
			if run != "" {
				seen[run] = append(seen[run], place{i, k})
			}
		}
	}
	pairs := make(map[string]bool)
	for _, places := range seen {
		for a := range places {
			for _, b := range places[a+1:] {
				if places[a].source != b.source {
					pairs[t.sources[places[a].source].name+" ~ "+t.sources[b.source].name] = true
				}
			}
		}
	}
	for _, pair := range sorted(pairs) {
		f.count("%s", pair)
	}
	return f
}

// shape is a line of code with every name and every value replaced.
type shape struct {
	text   string
	tokens int
}

// runOf joins the shapes of a run, or is "" for one that says too little to be a repetition.
func runOf(run []shape) string {
	var b strings.Builder
	tokens := 0
	for _, s := range run {
		b.WriteString(s.text)
		b.WriteByte('\n')
		tokens += s.tokens
	}
	if tokens < 10*repeatedLines {
		return ""
	}
	return b.String()
}

// shapesOf reads the lines of code below the imports. Comments and lone punctuation are passed
// over.
func shapesOf(s source) (shapes []shape) {
	var lines scanner.Scanner
	text := []byte(strings.Join(s.lines, "\n"))
	fset := token.NewFileSet()
	lines.Init(fset.AddFile(s.name, -1, len(text)), text, nil, 0)
	var now shape
	line, start := 0, 0
	flush := func() {
		if now.tokens > 2 && line > start {
			shapes = append(shapes, now)
		}
		now = shape{}
	}
	for _, d := range s.file.Imports {
		start = max(start, strings.Count(string(text[:int(d.End())-int(s.file.FileStart)]), "\n")+1)
	}
	for {
		pos, tok, _ := lines.Scan()
		if at := fset.Position(pos).Line; at != line || tok == token.EOF {
			flush()
			line = at
		}
		switch {
		case tok == token.EOF:
			return shapes
		case tok == token.IDENT:
			now.text += "n "
		case tok.IsLiteral():
			now.text += "v "
		default:
			now.text += tok.String() + " "
		}
		now.tokens++
	}
}
