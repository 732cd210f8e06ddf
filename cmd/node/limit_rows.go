package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// definitionRows are the fields of a limit as files have them, from its definition as JSON, by
// name. Each override is a field of its own, and so is each field of a candidate.
func definitionRows(definition []byte) [][]string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(definition, &fields) != nil {
		return [][]string{{"definition", string(definition)}}
	}
	rows := [][]string{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch value := fields[name]; name {
		case "overrides":
			rows = append(rows, overrideRows(value)...)
		case "candidate":
			for _, r := range definitionRows(value) {
				rows = append(rows, []string{"candidate." + r[0], r[1]})
			}
		default:
			rows = append(rows, []string{name, plainJSON(value)})
		}
	}
	return rows
}

// overrideRows are the overrides of a limit, and their order: the first one that matches counts.
func overrideRows(list json.RawMessage) (rows [][]string) {
	var overrides []map[string]json.RawMessage
	if json.Unmarshal(list, &overrides) != nil {
		return [][]string{{"overrides", string(list)}}
	}
	order := []string{}
	for _, o := range overrides {
		of, fields := "", []string{}
		for _, name := range slices.Sorted(maps.Keys(o)) {
			switch text := plainJSON(o[name]); name {
			case "key", "plan":
				of = name + " " + shown(text)
			default:
				fields = append(fields, name+" "+text)
			}
		}
		rows = append(rows, []string{"override of " + of, strings.Join(fields, ", ")})
		order = append(order, of)
	}
	if len(order) > 1 {
		rows = append(rows, []string{"order of overrides", strings.Join(order, ", ")})
	}
	return rows
}

// plainJSON is a value without the quotes of a text.
func plainJSON(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(bytes.TrimSpace(value))
}

// changedRows says what differs between two lists of fields, each as "name: was → will".
func changedRows(was, will [][]string) (changes []string) {
	a, b := map[string]string{}, map[string]string{}
	for _, r := range was {
		a[r[0]] = r[1]
	}
	for _, r := range will {
		b[r[0]] = r[1]
	}
	for _, r := range slices.Concat(was, will) {
		name := r[0]
		line := fmt.Sprintf("%s: %s → %s", name, cmp.Or(a[name], "–"), cmp.Or(b[name], "–"))
		if name == "order of overrides" && (a[name] == "" || b[name] == "") {
			continue // of one override or none: the others are listed as new
		}
		if a[name] != b[name] && !slices.Contains(changes, line) {
			changes = append(changes, line)
		}
	}
	return changes
}
