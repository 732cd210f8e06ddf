package main

import (
	"fmt"
	"regexp"
	"strings"
)

// directive is one of a configuration of nginx, with those of its block.
type directive struct {
	line  int
	words []string
	block []directive
}

var (
	nginxBlank = regexp.MustCompile(`^(?:\s|#[^\n]*(?:\n|$))+`)
	nginxWord  = regexp.MustCompile(`^(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|` +
		`(?:[^\s;{}"']|\$\{)(?:[^\s;{]|\$\{)*)`)
)

// nginxReader takes directives from a configuration.
type nginxReader struct {
	file, rest string
	line       int
}

// take returns what the next len(s) bytes are, and goes on behind them.
func (r *nginxReader) take(s string) string {
	r.line += strings.Count(s, "\n")
	r.rest = r.rest[len(s):]
	return s
}

// block reads directives up to the end of their block, or of the file. opened is the line where
// the block begins, 0 for the file itself; depth is how many blocks are around them.
func (r *nginxReader) block(opened, depth int) (all []directive, err error) {
	d := directive{}
	for {
		r.take(nginxBlank.FindString(r.rest))
		begun := len(d.words) > 0
		switch {
		case r.rest == "" && (opened > 0 || begun):
			return nil, fmt.Errorf("%s:%d: the file ends within a block or a directive",
				r.file, max(opened, d.line))
		case r.rest == "":
			return all, nil
		case r.rest[0] == '}' && opened > 0 && !begun:
			r.take("}")
			return all, nil
		case r.rest[0] == ';' && begun:
			r.take(";")
			all, d = append(all, d), directive{}
		case r.rest[0] == '{' && begun:
			r.take("{")
			if d.block, err = r.within(d.line, depth+1); err != nil {
				return nil, err
			}
			all, d = append(all, d), directive{}
		default:
			if err := r.word(&d); err != nil {
				return nil, err
			}
		}
	}
}

// within is block for a block within others.
func (r *nginxReader) within(opened, depth int) ([]directive, error) {
	if depth > deepest {
		return nil, fmt.Errorf("%s:%d: more than %d blocks are open here", r.file, opened, deepest)
	}
	return r.block(opened, depth)
}

// word reads the next word of d.
func (r *nginxReader) word(d *directive) error {
	word := nginxWord.FindString(r.rest)
	if word == "" {
		return fmt.Errorf("%s:%d: %.20q is not expected here", r.file, r.line, r.rest)
	}
	if len(d.words) == 0 {
		d.line = r.line
	}
	d.words = append(d.words, strings.Trim(r.take(word), `"'`))
	return nil
}
