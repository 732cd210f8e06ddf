package policy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"penstock/limiter"
)

// value is a node where one value is expected.
type value struct{ node ast.Node }

// text reads a string. What YAML takes for a number or a truth value has to be quoted to be one.
func (v value) text() (string, error) {
	switch n := v.node.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return "", fmt.Errorf("must be a text, not %s; put it in quotes", describe(n))
	}
	return "", fmt.Errorf("must be a text, not %s", describe(v.node))
}

// number reads a whole number in decimal digits. 010 is none: it is 8 to some readers of YAML and
// 10 to others.
func (v value) number() (int64, error) {
	digits := v.node.GetToken().Value
	n, err := strconv.ParseInt(digits, 10, 64)
	switch _, whole := v.node.(*ast.IntegerNode); {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("is %s; 1 to %d are accepted", shorten(digits),
			int64(limiter.MaxLimit))
	case !whole:
		return 0, fmt.Errorf("must be a whole number, not %s", describe(v.node))
	case err != nil || strconv.FormatInt(n, 10) != digits:
		return 0, fmt.Errorf("must be a whole number in decimal digits, not %s", shorten(digits))
	}
	return n, nil
}

// positive is number where 0 would mean that the field is not there.
func (v value) positive() (int64, error) {
	n, err := v.number()
	if err == nil && n < 1 {
		err = fmt.Errorf("is %d; 1 to %d are accepted, or leave it out to have the limit's", n,
			int64(limiter.MaxLimit))
	}
	return n, err
}

// small is number where only those from least to most mean something.
func (v value) small(least, most int) (int, error) {
	n, err := v.number()
	if err == nil && (n < int64(least) || n > int64(most)) {
		err = fmt.Errorf("is %d; %d to %d are accepted", n, least, most)
	}
	return int(n), err
}

// filled reads a text that must not be empty; instead says what to do about one that is.
func (v value) filled(to *string, instead string) (err error) {
	if *to, err = v.text(); err == nil && *to == "" {
		err = errors.New("is empty; " + instead)
	}
	return err
}

// percent reads a share: "10%".
func (v value) percent() (int, error) {
	if _, bare := v.node.(*ast.IntegerNode); bare {
		return 0, errors.New("has no unit; " + limiter.SpreadForms)
	}
	text, err := v.text()
	if err != nil {
		return 0, err
	}
	return limiter.ParseSpread(text)
}

func (v value) flag() (bool, error) {
	if n, ok := v.node.(*ast.BoolNode); ok {
		return n.Value, nil
	}
	return false, fmt.Errorf("must be true or false, not %s", describe(v.node))
}

// onlyTrue is flag where false is what is left out.
func (v value) onlyTrue() (bool, error) {
	yes, err := v.flag()
	if err == nil && !yes {
		err = errors.New("is false; leave it out")
	}
	return yes, err
}

// word reads one of several words, and returns its place among them.
func (v value) word(words []string) (int, error) {
	text, err := v.text()
	if err != nil {
		return 0, err
	}
	i := slices.Index(words, text)
	if i < 0 {
		return 0, fmt.Errorf("%q is unknown; there is: %s", shorten(text),
			strings.Join(words, ", "))
	}
	return i, nil
}

// describe says what a node is.
func describe(n ast.Node) string {
	switch n.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.IntegerNode:
		return "a number"
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number with a fraction"
	case *ast.BoolNode:
		return "true or false"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias, which are not read here: write the value out"
	case *ast.TagNode:
		return "a tag, which is not read here: write the value alone"
	}
	return "this"
}

// shorten makes s fit into a line of an error.
func shorten(s string) string {
	const most = 40
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}
