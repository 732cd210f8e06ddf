package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// valid says where v is not as a schema has it. It knows the words that Schema uses, and no others.
func valid(t *testing.T, s map[string]any, v any, at string) (faults []string) {
	say := func(ok bool, word string) {
		if !ok {
			faults = append(faults, fmt.Sprintf("%s: %s: %v", at, word, v))
		}
	}
	object, isObject := v.(map[string]any)
	list, isList := v.([]any)
	text, isText := v.(string)
	n, isNumber := v.(float64)
	_, isFlag := v.(bool)
	for word, want := range s {
		switch word {
		case "$schema", "title", "description":
		case "type":
			say(map[string]bool{
				"object": isObject, "array": isList, "string": isText, "boolean": isFlag,
				"integer": isNumber && n == float64(int64(n)),
			}[want.(string)], word)
		case "enum":
			say(slices.Contains(want.([]any), v), word)
		case "const":
			say(v == want, word)
		case "minimum":
			say(n >= want.(float64), word)
		case "maximum":
			say(n <= want.(float64), word)
		case "minLength":
			say(utf8.RuneCountInString(text) >= int(want.(float64)), word)
		case "maxLength":
			say(utf8.RuneCountInString(text) <= int(want.(float64)), word)
		case "pattern":
			say(regexp.MustCompile(want.(string)).MatchString(text), word)
		case "minProperties":
			say(len(object) >= int(want.(float64)), word)
		case "required":
			for _, name := range want.([]any) {
				_, has := object[name.(string)]
				say(has, "lacks "+name.(string))
			}
		case "items":
			for i, item := range list {
				faults = append(faults, valid(t, want.(map[string]any), item, fmt.Sprintf("%s[%d]",
					at, i))...)
			}
		case "properties":
			for name, own := range want.(map[string]any) {
				if value, has := object[name]; has {
					faults = append(faults, valid(t, own.(map[string]any), value, at+"."+name)...)
				}
			}
		case "additionalProperties":
			known, _ := s["properties"].(map[string]any)
			for name, value := range object {
				if own, any := want.(map[string]any); any {
					faults = append(faults, valid(t, own, value, at+"."+name)...)
				} else if known[name] == nil {
					say(false, "has "+name)
				}
			}
		case "anyOf":
			say(slices.ContainsFunc(want.([]any), func(one any) bool {
				return len(valid(t, one.(map[string]any), v, at)) == 0
			}), word)
		default:
			t.Fatalf("this test does not know %q", word)
		}
	}
	return faults
}

func schema(t *testing.T) (s map[string]any) {
	t.Helper()
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// check holds a file against parser and schema.
func check(t *testing.T, text string) (faults []string, parser error) {
	t.Helper()
	_, parser = Parse("f", []byte(text))
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	var v any
	if err == nil {
		err = json.Unmarshal(asJSON, &v)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return valid(t, schema(t), v, ""), parser
}

// Promise: the schema accepts each file that the parser accepts.
func TestSchemaAcceptsWhatIsRead(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.yaml")
	more, _ := filepath.Glob("../../examples/*.yaml")
	read := 0
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(file, text); err != nil {
			continue
		}
		read++
		if faults, _ := check(t, string(text)); faults != nil {
			t.Errorf("%s: %q", file, faults)
		}
	}
	if read < 2 {
		t.Errorf("only %d files were read", read)
	}
}

// Promise: a field is in the schema if and only if the parser knows it, each word of the schema is
// one that the parser takes, and what has another type is refused by both.
func TestSchemaKnowsTheFields(t *testing.T) {
	limit := limitShape()["properties"].(shape)
	var names []string
	for _, f := range limitFields {
		names = append(names, f.name)
	}
	if got := slices.Sorted(maps.Keys(limit)); !slices.Equal(got,
		slices.Sorted(slices.Values(names))) {
		t.Errorf("the schema has the fields %q, the parser %q", got, names)
	}
	for name, s := range limit {
		s := s.(shape)
		for _, bad := range []string{`{}`, `[[]]`, `"no such word"`, `1.5`, `-1`} {
			anyText := []string{"name", "time_zone", "body", "parent"}
			if strings.HasPrefix(bad, `"`) && slices.Contains(anyText, name) {
				continue
			}
			if name == "candidate" && bad == `{}` {
				continue
			}
			text := `{limits: [{` + fields(name, bad) + `}]}`
			faults, parser := check(t, text)
			if parser == nil || faults == nil {
				t.Errorf("%s: the parser says %v, the schema %q", text, parser, faults)
			}
		}
		list, _ := s["enum"].([]string)
		for _, word := range list {
			_, err := Parse("f", []byte(`{limits: [{`+fields(name, word)+`}]}`))
			if err != nil && strings.Contains(err.Error(), "accepted") &&
				strings.Contains(err.Error(), word+`"`) {
				t.Errorf("%s: the schema has the word %s: %v", name, word, err)
			}
		}
	}
}

// fields are those of a limit in which one has that value.
func fields(name, value string) string {
	all := map[string]string{"name": "x", "algorithm": "fixed_window", "limit": "3", "per": "1m"}
	all[name] = value
	var list []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+": "+all[name])
	}
	return strings.Join(list, ", ")
}

func TestSchemaRefuses(t *testing.T) {
	for _, text := range []string{
		`{}`, `{limit: []}`, `{limits: {}}`, `{limits: [{name: x}]}`, `{rules: [{nam: x}]}`,
		`{rules: [{match: {path: 3}}]}`, `{rules: [{unlimited: false}]}`,
		`{limits: [{` + fields("overrides", `[{limit: 3}]`) + `}]}`,
		`{limits: [{` + fields("candidate", `{on_deny: shadow}`) + `}]}`,
	} {
		if faults, parser := check(t, text); parser == nil || faults == nil {
			t.Errorf("%s: the parser says %v, the schema %q", text, parser, faults)
		}
	}
}
