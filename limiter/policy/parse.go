package policy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"penstock/limiter"
)

// page is one file while it is read.
type page struct {
	*book
	file  string
	lines []string
}

// parse reads one file into b.
func (b *book) parse(file string, data []byte) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	p := &page{book: b, file: file}
	for line := range strings.Lines(string(data[:min(len(data), MaxFile)])) {
		p.lines = append(p.lines, strings.TrimRight(line, "\r\n"))
	}
	if !p.readable(data) {
		return
	}
	file1, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		p.syntaxFault(err)
		return
	}
	var body ast.Node
	for _, d := range file1.Docs {
		switch {
		case d.Body == nil:
		case body != nil:
			p.fault(d.Body, "", "a second document begins; write one to a file")
			return
		default:
			body = d.Body
		}
	}
	if body == nil {
		// An editor that is about to write a file may leave it empty for a moment.
		p.faultAt(1, 1, "", fmt.Sprintf("the file is empty; for no limits at all, write %q", noLimits))
		return
	}
	p.top(body)
}

// readable refuses what is not text, and what the YAML library would take minutes to refuse.
func (p *page) readable(data []byte) bool {
	if len(data) > MaxFile {
		p.faultAt(1, 1, "", fmt.Sprintf("the file is larger than %d bytes; spread the limits over several files of a directory", MaxFile))
		return false
	}
	depth := 0
	for i, line := range p.lines {
		switch {
		case len(line) > maxLine:
			p.faultAt(i+1, 1, "", fmt.Sprintf("the line has %d bytes; at most %d are accepted", len(line), maxLine))
			return false
		case !utf8.ValidString(line):
			valid := strings.ToValidUTF8(line, "\ufffd")
			p.lines[i] = valid
			column := utf8.RuneCountInString(line[:strings.IndexRune(valid, utf8.RuneError)])
			p.faultAt(i+1, column+1, "", "the file is not UTF-8 text")
			return false
		}
		for k, c := range line {
			switch c {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(0, depth-1)
			}
			if depth > maxDepth {
				p.faultAt(i+1, utf8.RuneCountInString(line[:k])+1, "", fmt.Sprintf("more than %d brackets are open here", maxDepth))
				return false
			}
		}
	}
	return true
}

// syntaxFault reports what the YAML library has to say.
func (p *page) syntaxFault(err error) {
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil {
		p.faultAt(1, 1, "", "this is not YAML: "+err.Error())
		return
	}
	pos := at.GetToken().Position
	p.faultAt(pos.Line, pos.Column, "", "this is not YAML: "+at.GetMessage())
}

// fault reports what is wrong with n.
func (p *page) fault(n ast.Node, field, reason string) {
	pos := n.GetToken().Position
	if _, isMap := n.(*ast.MappingNode); isMap {
		pos = firstOf(n).GetToken().Position // a mapping's own token is its first colon
	}
	p.faultAt(pos.Line, pos.Column, field, reason)
}

// firstOf is the first key of a mapping, or n.
func firstOf(n ast.Node) ast.Node {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return m.Values[0].Key
	}
	return n
}

func (p *page) faultAt(line, column int, field, reason string) {
	if len(p.faults) == maxFaults {
		p.hidden++
		return
	}
	f := &Fault{File: p.file, Line: max(line, 1), Column: max(column, 1), Field: field, Reason: reason}
	if f.Line <= len(p.lines) {
		f.source = p.lines[f.Line-1]
	}
	p.faults = append(p.faults, f)
}

// top reads the whole document.
func (p *page) top(n ast.Node) {
	fields, ok := p.mapping(n, "", "limits and rules")
	if !ok {
		return
	}
	found := false
	for _, f := range fields {
		switch f.name {
		case "limits":
			found = true
			p.limitList(f)
		case "rules":
			if err := emptyList(f.node, "rules that match requests to limits"); err != nil {
				p.fault(f.node, "rules", err.Error())
			}
		default:
			p.fault(f.key, f.name, "is no field of this file; limits and rules are")
		}
	}
	if !found {
		p.fault(n, "limits", fmt.Sprintf("is missing; for no limits at all, write %q", noLimits))
	}
}

func (p *page) limitList(f field) {
	list, ok := f.node.(*ast.SequenceNode)
	if !ok {
		p.fault(f.node, "limits", fmt.Sprintf("is %s; it accepts a list, each item with name, algorithm, limit and per", describe(f.node)))
		return
	}
	for i, item := range list.Values {
		p.limit(fmt.Sprintf("limits[%d]", i), item)
	}
}

// limit reads one limit.
func (p *page) limit(at string, n ast.Node) {
	before := len(p.faults) + p.hidden
	fields, ok := p.mapping(n, at, limitFieldNames())
	if !ok {
		return
	}
	var d draft
	places := map[string]ast.Node{}
	for _, f := range fields {
		read, known := limitFields[f.name]
		if !known {
			p.fault(f.key, at+"."+f.name, "is no field of a limit; it has "+limitFieldNames())
			continue
		}
		places[f.name] = f.node
		if err := read(value{f.node}, &d); err != nil {
			p.fault(f.node, at+"."+f.name, err.Error())
		}
	}
	for _, name := range []string{"name", "algorithm", "limit", "per"} {
		if places[name] == nil {
			p.fault(n, at+"."+name, "is missing")
		}
	}
	if len(p.faults)+p.hidden > before {
		return
	}
	place := func(name string) ast.Node {
		if places[name] != nil {
			return places[name]
		}
		return n
	}
	if err := d.check(); err != nil {
		p.fault(place("per"), at+".per", err.Error())
		return
	}
	l, err := limiter.New(d.spec)
	if err != nil {
		var spec *limiter.SpecError
		if !errors.As(err, &spec) {
			spec = &limiter.SpecError{Reason: err.Error()}
		}
		p.fault(place(spec.Field), strings.TrimSuffix(at+"."+spec.Field, "."), spec.Reason)
		return
	}
	p.file1(place("name"), at+".name", l)
}

// file1 puts l where the others are.
func (p *page) file1(n ast.Node, at string, l *limiter.Limit) {
	switch first := p.where[l.Name]; {
	case first != "":
		p.fault(n, at, fmt.Sprintf("%q is already the name of the limit at %s", l.Name, first))
	case len(p.limits) == MaxLimits:
		p.fault(n, at, fmt.Sprintf("this is one limit too many; %d are accepted", MaxLimits))
	default:
		p.limits[l.Name] = l
		p.where[l.Name] = fmt.Sprintf("%s:%d", p.file, n.GetToken().Position.Line)
	}
}

// field is one entry of a mapping.
type field struct {
	name      string
	key, node ast.Node
}

// mapping returns the fields of n, or reports what it is instead. A field that is there twice, or that no text names,
// is reported and left out.
func (p *page) mapping(n ast.Node, at, accepts string) (fields []field, ok bool) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		p.fault(n, at, fmt.Sprintf("this is %s; a mapping is accepted here, with the fields %s", describe(n), accepts))
		return nil, false
	}
	lines := map[string]int{}
	for _, v := range m.Values {
		name, err := value{v.Key}.text()
		if err != nil {
			p.fault(v.Key, at, "a name of a field "+err.Error())
			continue
		}
		if line := lines[name]; line != 0 {
			p.fault(v.Key, strings.TrimPrefix(at+"."+name, "."), fmt.Sprintf("is already given in line %d", line))
			continue
		}
		lines[name] = v.Key.GetToken().Position.Line
		fields = append(fields, field{name, v.Key, v.Value})
	}
	return fields, true
}
