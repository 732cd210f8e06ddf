package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"penstock/limiter"
)

// pattern is a text with names of fields in braces: "{user}:{path}".
type pattern struct {
	texts []string // one more than names: what stands before, between and after
	names []string
}

// parsePattern reads a pattern; it may only name the fields given, or any if there are none given.
func parsePattern(text string, known []string) (*pattern, error) {
	t := &pattern{}
	rest := text
	for {
		before, after, opened := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return nil, fmt.Errorf("%.40q: a } without a { before it", text)
		}
		t.texts = append(t.texts, before)
		if !opened {
			return t, nil
		}
		name, left, closed := strings.Cut(after, "}")
		switch {
		case !closed:
			return nil, fmt.Errorf("%.40q: a { without a }", text)
		case name == "" || strings.Contains(name, "{"):
			return nil, fmt.Errorf("%.40q: between { and } stands the name of a field", text)
		case known != nil && !slices.Contains(known, name):
			return nil, fmt.Errorf("there is no field {%.40s}; there are: %s", name,
				strings.Join(known, ", "))
		}
		t.names = append(t.names, name)
		rest = left
	}
}

// fill appends the text to buf, with the fields of a line in the places of their names.
func (t *pattern) fill(buf []byte, line logLine) ([]byte, error) {
	for i, text := range t.texts {
		buf = append(buf, text...)
		if i < len(t.names) {
			value, err := line.field(t.names[i])
			if err != nil {
				return buf, err
			}
			buf = append(buf, value...)
		}
	}
	return buf, nil
}

// number is the cost that a pattern without names says, if it is one.
func (t *pattern) number() (n int64, ok bool) {
	if len(t.names) > 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(t.texts[0], 10, 64)
	return n, err == nil && n >= 0 && n <= limiter.MaxLimit
}
