package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// fields reads a mapping: each of its fields that has a value, and those that it merges in.
func (t *tree) fields(
	n ast.Node, what string, known []string, read func(field string, v ast.Node),
) {
	seen := map[string]bool{}
	var merged []ast.Node
	for m, depth := t.resolve(n), 0; ; depth++ {
		mapping, ok := m.(*ast.MappingNode)
		if !ok {
			t.fault(n, "", fmt.Sprintf("%s must be a mapping of fields, not %s", what, describe(m)))
			return
		}
		for _, f := range mapping.Values {
			if _, merge := f.Key.(*ast.MergeKeyNode); merge {
				merged = append(merged, t.mergedInto(f.Value)...)
				continue
			}
			name := f.Key.GetToken().Value
			v := t.resolve(f.Value)
			_, empty := v.(*ast.NullNode)
			switch {
			case !slices.Contains(known, name):
				t.fault(f.Key, shorten(name),
					fmt.Sprintf("is unknown; %s has: %s", what, strings.Join(known, ", ")))
			case !empty && !seen[name]:
				read(name, v)
			}
			seen[name] = true
		}
		if len(merged) == 0 || depth == maxNesting {
			return
		}
		m, merged = merged[0], merged[1:]
	}
}

// mergedInto are the mappings that << names: one, or a list of them.
func (t *tree) mergedInto(n ast.Node) (mappings []ast.Node) {
	n = t.resolve(n)
	if list, ok := n.(*ast.SequenceNode); ok {
		for _, item := range list.Values {
			mappings = append(mappings, t.resolve(item))
		}
		return mappings
	}
	return []ast.Node{n}
}

// items are those of a list.
func (t *tree) items(n ast.Node, field string) ([]ast.Node, bool) {
	if n == nil {
		return nil, false
	}
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		t.fault(n, field, "must be a list, not "+describe(n))
		return nil, false
	}
	return list.Values, true
}

// resolve is the value that n stands for: what an alias names, what has an anchor or a tag. It
// counts what it is asked for, since a few lines of aliases to aliases are as much as one likes.
func (t *tree) resolve(n ast.Node) ast.Node {
	if t.nodes++; t.nodes > maxNodes {
		if t.nodes == maxNodes+1 {
			t.fault(n, "", fmt.Sprintf("the files have more than %d values", maxNodes))
		}
		return &ast.NullNode{BaseNode: &ast.BaseNode{}, Token: n.GetToken()}
	}
	for range maxNesting {
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
			t.anchors[x.Name.GetToken().Value] = n
		case *ast.TagNode:
			n = x.Value
		case *ast.AliasNode:
			name := x.Value.GetToken().Value
			if t.anchors[name] == nil {
				t.fault(x, "", fmt.Sprintf("no anchor is named %q before this", shorten(name)))
				return &ast.NullNode{BaseNode: &ast.BaseNode{}, Token: x.Start}
			}
			n = t.anchors[name]
		default:
			return n
		}
	}
	return n
}

// text reads a text, or what can stand for one: the value 404 is the text "404".
func (t *tree) text(n ast.Node, field string) string {
	switch x := n.(type) {
	case *ast.StringNode:
		return x.Value
	case *ast.LiteralNode:
		return x.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value
	}
	t.fault(n, field, "must be a text, not "+describe(n))
	return ""
}

// flag reads true or false, in any of the words that YAML 1.1 has for them.
func (t *tree) flag(n ast.Node, field string) bool {
	switch x := n.(type) {
	case *ast.BoolNode:
		return x.Value
	case *ast.StringNode:
		if x.Token.Type == token.StringType { // and not in quotes
			switch strings.ToLower(x.Value) {
			case "y", "yes", "on":
				return true
			case "n", "no", "off":
				return false
			}
		}
	}
	t.fault(n, field, "must be true or false, not "+describe(n))
	return false
}

// number reads a whole number of 32 bits as Go writes it: 0x10 is 16, and so is 020.
func (t *tree) number(n ast.Node, field string) uint32 {
	if _, ok := n.(*ast.IntegerNode); !ok {
		t.fault(n, field, "must be a whole number, not "+describe(n))
		return 0
	}
	digits := n.GetToken().Value
	x, err := strconv.ParseUint(digits, 0, 32)
	if err != nil {
		t.fault(n, field, fmt.Sprintf("is %s; 0 to 4294967295 are accepted", shorten(digits)))
	}
	return uint32(x)
}

// object reads a mapping of anything, as JSON has it.
func (t *tree) object(n ast.Node) map[string]any {
	if _, ok := n.(*ast.MappingNode); !ok {
		t.fault(n, "metadata", "must be a mapping, not "+describe(n))
		return nil
	}
	object, _ := t.any(n, 0).(map[string]any)
	return object
}

// any reads a value of metadata.
func (t *tree) any(n ast.Node, depth int) any {
	if depth == maxNesting {
		t.fault(n, "metadata", fmt.Sprintf("goes deeper than %d", maxNesting))
		return nil
	}
	switch x := n.(type) {
	case *ast.MappingNode:
		object := map[string]any{}
		for _, f := range x.Values {
			if _, merge := f.Key.(*ast.MergeKeyNode); merge {
				for _, m := range t.mergedInto(f.Value) {
					more, _ := t.any(m, depth+1).(map[string]any)
					for name, v := range more {
						if _, given := object[name]; !given {
							object[name] = v
						}
					}
				}
				continue
			}
			object[t.text(t.resolve(f.Key), "metadata")] = t.any(t.resolve(f.Value), depth+1)
		}
		return object
	case *ast.SequenceNode:
		list := make([]any, len(x.Values))
		for i, v := range x.Values {
			list[i] = t.any(t.resolve(v), depth+1)
		}
		return list
	case *ast.NullNode:
		return nil
	case *ast.BoolNode:
		return x.Value
	case *ast.IntegerNode, *ast.FloatNode:
		digits := n.GetToken().Value
		if i, err := strconv.ParseInt(digits, 0, 64); err == nil {
			return float64(i) // numbers of JSON, and of a google.protobuf.Struct
		}
		if f, err := strconv.ParseFloat(digits, 64); err == nil {
			return f
		}
	}
	return t.text(n, "metadata")
}
