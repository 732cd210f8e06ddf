package policy

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
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

// parse reads one file into b; its document, nil if there is none, is read by top.
func (b *book) parse(file string, data []byte, top func(*page, ast.Node)) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	p := &page{book: b, file: file}
	for line := range strings.Lines(string(data)) {
		p.lines = append(p.lines, strings.TrimRight(line, "\r\n"))
	}
	if len(data) > MaxFile {
		p.faultAt(
			1,
			1,
			"",
			fmt.Sprintf(
				"the file is larger than %d bytes; spread the limits over several files of a "+
					"directory",
				MaxFile,
			),
		)
		return
	}
	if !p.readable() {
		return
	}
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		p.syntaxFault(err)
		return
	}
	var body ast.Node
	for _, d := range tree.Docs {
		switch {
		case d.Body == nil:
		case body != nil:
			p.fault(d.Body, "", "a second document begins here; write one to a file")
			return
		default:
			body = d.Body
		}
	}
	top(p, body)
}

// readable refuses what is no text, and what the YAML library would take minutes over: its time
// grows with the square of how deep brackets and list marks lie within one another.
func (p *page) readable() bool {
	depth := 0
	for i, line := range p.lines {
		if len(line) > maxLine {
			p.faultAt(i+1, 1, "",
				fmt.Sprintf("the line has %d bytes; at most %d are accepted", len(line), maxLine))
			return false
		}
		if !utf8.ValidString(line) {
			p.lines[i] = strings.ToValidUTF8(line, "\ufffd")
			p.faultAt(i+1, 1, "", "the line is not UTF-8 text")
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
				p.faultAt(i+1, utf8.RuneCountInString(line[:k])+1, "",
					fmt.Sprintf("more than %d brackets are open here", maxDepth))
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
		p.faultAt(1, 1, "", "is not YAML: "+err.Error())
		return
	}
	pos := at.GetToken().Position
	p.faultAt(pos.Line, pos.Column, "", "is not YAML: "+at.GetMessage())
}

// fault reports what is wrong with n.
func (p *page) fault(n ast.Node, field, reason string) {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key // the mapping's own token is its first colon
	}
	pos := n.GetToken().Position
	p.faultAt(pos.Line, pos.Column, field, reason)
}

func (p *page) faultAt(line, column int, field, reason string) {
	if len(p.faults) == maxFaults {
		p.hidden++
		return
	}
	f := &Fault{
		File:   p.file,
		Line:   max(line, 1),
		Column: max(column, 1),
		Field:  field,
		Reason: reason,
	}
	if f.Line <= len(p.lines) {
		f.source = p.lines[f.Line-1]
	}
	p.faults = append(p.faults, f)
}

// count is how many faults there are so far.
func (p *page) count() int { return len(p.faults) + p.hidden }

// emptyFile is what is wrong with a file that says nothing. An editor or a failed copy leaves such
// files behind, and to read one as "no limits" would lift all of them.
const emptyFile = "the file says nothing about limits; write \"limits: []\" if it is to have none"

// top reads the whole document.
func (p *page) top(n ast.Node) {
	if n == nil {
		p.faultAt(1, 1, "", emptyFile)
		return
	}
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) == 0 {
		p.fault(n, "", emptyFile)
	}
	p.fields(n, "", "the file ", "the file has: limits, rules",
		func(name string, v ast.Node) (known bool, err error) {
			switch name {
			case "limits":
				p.limitList(v)
			case "rules":
				p.ruleList(v)
			default:
				return false, nil
			}
			return true, nil
		})
}

// fields reads a mapping, field by field. what is how errors call it; at is the field with it as
// value, or empty. read says whether there is a field of that name, and what is wrong with its
// value; has says which fields there are. It reports whether n is a mapping.
func (p *page) fields(
	n ast.Node, at, what, has string, read func(name string, v ast.Node) (known bool, err error),
) bool {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		p.fault(n, at, what+"must be a mapping of fields, not "+describe(n))
		return false
	}
	if at != "" {
		at += "."
	}
	for _, v := range m.Values {
		name := fieldName(v.Key)
		if known, err := read(name, v.Value); !known {
			p.fault(v.Key, at+shorten(name), "is unknown; "+has)
		} else if err != nil {
			p.fault(v.Value, at+name, err.Error())
		}
	}
	return true
}

// limitAlone reads a document that is one limit.
func (p *page) limitAlone(n ast.Node) {
	if n == nil {
		p.faultAt(1, 1, "", "the definition of the limit is empty")
		return
	}
	p.limit(n)
}

func (p *page) limitList(n ast.Node) {
	for _, item := range p.section(n, "limits") {
		p.limit(item)
	}
}

// section is the list of a file's field, limits or rules, which must not be left empty.
func (p *page) section(n ast.Node, name string) []ast.Node {
	if _, empty := n.(*ast.NullNode); empty {
		p.fault(n, name, fmt.Sprintf("is empty; write \"%s: []\" if there are to be none", name))
		return nil
	}
	return p.list(n, name)
}

func (p *page) list(n ast.Node, name string) []ast.Node {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		p.fault(n, name, "must be a list, not "+describe(n))
		return nil
	}
	return list.Values
}

// limit reads one limit. What its fields say by themselves is checked first; what they say
// together, limiter.New knows.
func (p *page) limit(n ast.Node) {
	before := p.count()
	var d draft
	places := map[string]ast.Node{}
	if !p.fields(n, "", "a limit ", "a limit has: "+limitFieldNames(),
		func(name string, v ast.Node) (known bool, err error) {
			field := fieldNamed(name)
			if field == nil {
				return false, nil
			}
			places[name] = v
			switch name {
			case "candidate": // see below: it needs all the other fields
			case "overrides":
				p.overrides(v, &d, places, name)
			default:
				err = field.read(value{v}, &d)
			}
			return true, err
		}) {
		return
	}
	var tried *draft
	if at := places["candidate"]; at != nil {
		tried = p.candidate(at, d, places)
	}
	if p.count() > before {
		return
	}
	place := func(name string) ast.Node {
		if places[name] != nil {
			return places[name]
		}
		// what an override does not give
		if at, _, found := strings.Cut(name, "."); found && places[at] != nil {
			return places[at]
		}
		return n
	}
	l, err := d.finishWith(tried)
	if err != nil {
		spec := refusal(err, places)
		p.fault(place(spec.Field), spec.Field, spec.Reason)
		return
	}
	p.keep(place("name"), l)
	if l.Parent != "" {
		p.below = append(p.below, draftChild{p, place("parent"), l})
	}
}

// required are the fields that each limit has, and what to write there.
var required = map[string]string{
	"name":      "give the limit a name",
	"algorithm": "there is: " + limiter.AlgorithmNames(),
	"limit":     "write how many units each per has, 1 or more",
	"per":       limiter.PerForms,
}

// refusal is the field that err is about, and what is wrong with it. places are those that the file
// gives.
func refusal(err error, places map[string]ast.Node) limiter.SpecError {
	var spec *limiter.SpecError
	if !errors.As(err, &spec) {
		return limiter.SpecError{Reason: err.Error()}
	}
	if form := required[spec.Field]; form != "" && places[spec.Field] == nil {
		return limiter.SpecError{Field: spec.Field, Reason: "is missing; " + form}
	}
	return *spec
}

// overrides reads the exceptions from a limit. places gets the nodes of each by the name that
// limiter.New has for it: "overrides[2]", "overrides[2].key".
func (p *page) overrides(n ast.Node, d *draft, places map[string]ast.Node, field string) {
	if _, empty := n.(*ast.NullNode); empty {
		return
	}
	for i, item := range p.list(n, field) {
		at := fmt.Sprintf("%s[%d]", field, i)
		places[at] = item
		var o limiter.Override
		if p.fields(item, at, "", "an override has: key, plan, limit, burst, refill, unlimited; "+
			"all else is the limit's", func(name string, v ast.Node) (known bool, err error) {
			k := slices.IndexFunc(overrideFields,
				func(f overrideField) bool { return f.name == name })
			if k < 0 {
				return false, nil
			}
			places[at+"."+name] = v
			return true, overrideFields[k].read(value{v}, &o)
		}) {
			d.overrides = append(d.overrides, o)
		}
	}
}

// keep puts l among the limits.
func (p *page) keep(n ast.Node, l *limiter.Limit) {
	switch file := p.files[l.Name]; {
	case file == p.file:
		p.fault(n, "name", fmt.Sprintf("%q is the name of another limit of this file", l.Name))
	case file != "":
		p.fault(n, "name", fmt.Sprintf("%q is also a limit of %s", l.Name, file))
	case limiter.Taken(l.Name) != "":
		p.fault(n, "name", limiter.Taken(l.Name))
	case p.size+sizeOf(l) > MaxLimits:
		p.fault(n, "",
			fmt.Sprintf("this is one limit or override too many; %d are accepted", MaxLimits))
	default:
		p.limits[l.Name], p.files[l.Name] = l, p.file
		p.size += sizeOf(l)
	}
}

// sizeOf is how many limits and overrides l stands for.
func sizeOf(l *limiter.Limit) int {
	if c := l.Candidate(); c != nil {
		return 1 + len(l.Overrides()) + sizeOf(c)
	}
	return 1 + len(l.Overrides())
}

// fieldName is the name of a field, which may be quoted, as JSON has it.
func fieldName(n ast.MapKeyNode) string {
	if s, quoted := n.(*ast.StringNode); quoted {
		return s.Value
	}
	return n.String()
}
