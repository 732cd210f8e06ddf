package rules

import (
	"fmt"
	"slices"
	"strings"
)

// Template is the text of a key with placeholders: "{tenant}/{ip}".
//
// What a client chooses must not end one value and begin the next, or it could take the key of
// somebody else. So in a template with several placeholders, % and every byte of its text is
// written as %XX in the values.
type Template struct {
	texts  []string // before, between and after the placeholders
	names  []string // of the placeholders: one less
	escape string
}

// ParseTemplate reads a template.
func ParseTemplate(text string) (t Template, err error) {
	for rest := text; ; {
		before, from, found := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return t, fmt.Errorf("%.100q has a } without a {", text)
		}
		if before == "" && len(t.names) > 0 && found {
			return t, fmt.Errorf("%.100q has two placeholders side by side; put text between them",
				text)
		}
		t.texts = append(t.texts, before)
		if !found {
			break
		}
		name, after, closed := strings.Cut(from, "}")
		if !closed || strings.Contains(name, "{") {
			return t, fmt.Errorf("%.100q has a { without a }", text)
		}
		t.names, rest = append(t.names, name), after
	}
	if len(t.names) > 1 {
		t.escape = "%" + strings.Join(t.texts, "")
	}
	return t, nil
}

// Names are what stands in braces, each once, in order.
func (t *Template) Names() (names []string) {
	for _, name := range t.names {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Fill writes the template with its placeholders replaced by what value says of them.
func (t *Template) Fill(value func(name string) (string, error)) (string, error) {
	if len(t.names) == 1 && t.texts[0] == "" && t.texts[1] == "" {
		return value(t.names[0])
	}
	var key strings.Builder
	for i, text := range t.texts {
		key.WriteString(text)
		if i == len(t.names) {
			break
		}
		v, err := value(t.names[i])
		if err != nil {
			return "", err
		}
		for _, c := range []byte(v) {
			if strings.IndexByte(t.escape, c) >= 0 {
				fmt.Fprintf(&key, "%%%02X", c)
			} else {
				key.WriteByte(c)
			}
		}
	}
	return key.String(), nil
}
