package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Promise: each alert has a section of the runbook, under the name that its annotation links to. It
// says what to look at and what to do, and there is no section without an alert.
func TestRunbook(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	sections := map[string]string{}
	for _, text := range strings.Split(read("../../docs/runbook.md"), "\n## ")[1:] {
		name, body, _ := strings.Cut(text, "\n")
		sections[name] = body
	}
	rules := read("../../deploy/alerts/penstock.yml")
	tests := read("../../deploy/alerts/penstock_test.yml")
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatchIndex(rules, -1)
	var names []string
	for i, at := range alerts {
		end := len(rules)
		if i+1 < len(alerts) {
			end = alerts[i+1][0]
		}
		name, rule := rules[at[2]:at[3]], rules[at[1]:end]
		names = append(names, name)
		for _, part := range []string{"**Look at**", "**Do**"} {
			flat := strings.Join(strings.Fields(sections[name]), " ")
			if !strings.Contains(flat, part) {
				t.Errorf("docs/runbook.md: the section %q has no %s", name, part)
			}
		}
		link := "runbook: docs/runbook.md#" + strings.ToLower(name) + "\n"
		if !strings.Contains(rule, link) {
			t.Errorf("%s has no %q", name, link)
		}
		if !strings.Contains(tests, "alertname: "+name+"\n") {
			t.Errorf("deploy/alerts/penstock_test.yml does not test %s", name)
		}
	}
	for name := range sections {
		if !slices.Contains(names, name) {
			t.Errorf("docs/runbook.md: %s is not an alert", name)
		}
	}
	if len(names) < 10 {
		t.Errorf("%d alerts are found; want all", len(names))
	}
}
