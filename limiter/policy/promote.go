package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Promote is the text of a file in which the candidate of a limit has taken the limit's place. All
// other lines stay as they are. What the new text says is compared with what it should say, so a
// form of writing that is not understood here is an error, and never a wrong file.
func Promote(file string, data []byte, name string) ([]byte, error) {
	set, err := Parse(file, data)
	if err != nil {
		return nil, err
	}
	l := set.Limits[name]
	if l == nil {
		return nil, fmt.Errorf("%s has no limit named %q", file, name)
	}
	want, err := l.Promoted()
	if err != nil {
		return nil, err
	}
	if want == nil {
		return nil, fmt.Errorf("%s: the limit %q has no candidate to promote", file, name)
	}
	byHand := fmt.Errorf("%s: the limit %q is written in a form that is not rewritten here: "+
		"write each of its fields on a line of its own, or put the candidate's in their place by "+
		"hand", file, name)
	m := limitNode(data, name)
	if m == nil || m.IsFlowStyle {
		return nil, byHand
	}
	text := rewrite(strings.Split(string(data), "\n"), m, l.Algorithm != want.Algorithm)
	after, err := Parse(file, []byte(text))
	if err != nil || !want.SameAs(after.Limits[name]) {
		return nil, byHand
	}
	set.Limits[name] = want
	if !set.equal(after) {
		return nil, byHand
	}
	return []byte(text), nil
}

// limitNode is the limit of that name in a file without faults.
func limitNode(data []byte, name string) *ast.MappingNode {
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil
	}
	for _, d := range tree.Docs {
		top, ok := d.Body.(*ast.MappingNode)
		if !ok {
			continue
		}
		list, ok := valueOf(top, "limits").(*ast.SequenceNode)
		if !ok {
			continue
		}
		for _, item := range list.Values {
			m, ok := item.(*ast.MappingNode)
			if !ok {
				continue
			}
			if text, err := (value{valueOf(m, "name")}).text(); err == nil && text == name {
				return m
			}
		}
	}
	return nil
}

// valueOf is the value of a field, or nil.
func valueOf(m *ast.MappingNode, field string) ast.Node {
	for _, v := range m.Values {
		if fieldName(v.Key) == field {
			return v.Value
		}
	}
	return nil
}

// fieldPlace is a field of a mapping in a file, and its lines, the last one excluded.
type fieldPlace struct {
	name        string
	first, last int
	column      int // of its name, from 0
}

// fieldLines are the fields of m.
func fieldLines(lines []string, m *ast.MappingNode) (all []fieldPlace) {
	for _, v := range m.Values {
		pos := v.Key.GetToken().Position
		e := fieldPlace{fieldName(v.Key), pos.Line - 1, pos.Line, pos.Column - 1}
		for e.last < len(lines) {
			words := strings.TrimLeft(lines[e.last], " ")
			indent := len(lines[e.last]) - len(words)
			if words == "" || indent < e.column ||
				indent == e.column && !strings.HasPrefix(words, "- ") {
				break
			}
			e.last++
		}
		all = append(all, e)
	}
	return all
}

// rewrite is the file with the fields of m's candidate in the place of m's. With another algorithm,
// the fields of m that its candidate does not take over go.
func rewrite(lines []string, m *ast.MappingNode, otherAlgorithm bool) string {
	own, ok := valueOf(m, "candidate").(*ast.MappingNode)
	if !ok {
		return ""
	}
	column := m.Values[0].Key.GetToken().Position.Column - 1
	order, fresh := candidateLines(lines, own, strings.Repeat(" ", column))
	var out []string
	at := 0
	for _, e := range fieldLines(lines, m) {
		if e.first < at || e.first > len(lines) {
			return ""
		}
		out = append(out, lines[at:e.first]...)
		at = e.last
		kept := lines[e.first:e.last]
		switch {
		case e.name == "candidate":
			kept = nil
			for _, name := range order {
				if valueOf(m, name) == nil {
					kept = append(kept, fresh[name]...)
				}
			}
		case fresh[e.name] != nil:
			kept = slices.Clone(fresh[e.name])
			kept[0] = lines[e.first][:e.column] + kept[0][column:] // "- " stays
		case otherAlgorithm && goes(e.name):
			kept = nil
		}
		out = append(out, kept...)
	}
	return strings.Join(append(out, lines[at:]...), "\n")
}

// candidateLines are the fields of a candidate in their order, and the lines of each behind pad.
func candidateLines(
	lines []string, own *ast.MappingNode, pad string,
) (order []string, fresh map[string][]string) {
	fresh = map[string][]string{}
	for _, v := range own.Values {
		order = append(order, fieldName(v.Key))
		fresh[fieldName(v.Key)] = []string{
			pad + fieldName(v.Key) + ": " + strings.TrimSpace(v.Value.String()),
		}
	}
	if own.IsFlowStyle {
		return order, fresh
	}
	for _, e := range fieldLines(lines, own) {
		fresh[e.name] = nil
		for _, line := range lines[e.first:e.last] {
			fresh[e.name] = append(fresh[e.name], pad+line[min(e.column, len(line)):])
		}
	}
	return order, fresh
}

// goes reports whether a candidate with another algorithm does not take a field of its limit over.
func goes(field string) bool {
	return slices.Contains(candidateFields, field) &&
		!slices.Contains([]string{"algorithm", "limit", "per", "overrides"}, field)
}
