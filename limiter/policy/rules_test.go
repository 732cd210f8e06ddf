package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/limiter/rules"
)

const twoLimits = `limits:
  - {name: login, algorithm: sliding_window, limit: 10, per: 1m}
  - {name: per-ip, algorithm: gcra, limit: 100, per: 1s}
`

// Promise: rules arrive as they are written down, in the order of files and lines, and are called
// by their places.
func TestRulesArrive(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": twoLimits + `rules:
  - match: {path: "/api/*", method: POST}
    apply: [{limit: login, key: "{user}"}, {limit: per-ip, key: "{ip}"}]
  - {name: health, match: {path: [/healthz, /readyz]}, unlimited: true}
`,
		"b.yaml": "rules: [{apply: [{limit: more, key: all}]}, {apply: [{limit: login, key: " +
			"'{user}'}]}]\n",
		"c.yaml": "rules: []\nlimits: [{name: more, algorithm: gcra, limit: 1, per: 1s}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a.yaml:5: method=POST path=/api/* → login {user}, per-ip {ip}",
		"health: path=/healthz|/readyz → unlimited",
		"b.yaml:1: every request → more all",
		"b.yaml:1:46: every request → login {user}",
	}
	var got []string
	for _, r := range set.Rules.Rules() {
		got = append(got, r.Name+": "+r.String())
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	again, err := Load(dir)
	if err != nil || !set.equal(again) {
		t.Errorf("the same files are not equal: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.yaml"), []byte("rules: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err = Load(dir); err != nil || set.equal(again) {
		t.Errorf("files with other rules are equal, or not read: %v", err)
	}
}

// Promise: what is wrong with a rule is an error with file, line and column.
func TestEveryFaultOfARuleIsSaidWhereItStands(t *testing.T) {
	rule := func(text string) string { return twoLimits + "rules:\n  - " + text + "\n" }
	const apply = "apply: [{limit: login, key: k}]"
	for _, c := range []struct{ text, want string }{
		{twoLimits + "rules: 3\n", "f:4:8: rules: must be a list, not a number"},
		{rule("3"), "f:5:5: a rule must be a mapping of fields, not a number"},
		{
			rule("{mach: {path: /}, " + apply + "}"),
			"f:5:6: mach: is unknown; a rule has: name, match, apply, unlimited",
		},
		{rule("{match: {path: /}}"), "f:5:5: apply: has 0 limits; 1 to 16 are accepted"},
		{
			rule("{match: [path], " + apply + "}"),
			"f:5:13: match: must be a mapping of attributes to patterns, not a list",
		},
		{
			rule("{match: {path: 7}, " + apply + "}"),
			"f:5:20: match.path: must be a text, not a number; put it in quotes",
		},
		{
			rule("{match: {path: [/a, 7]}, " + apply + "}"),
			"f:5:25: match.path: must be a text, not a number",
		},
		{rule("{match: {path: [/a, '']}, " + apply + "}"), "f:5:25: match.path[1]: is empty"},
		{rule("{match: {path: []}, " + apply + "}"), "f:5:20: match.path: has 0 patterns"},
		{
			rule("{match: {pa th: /}, " + apply + "}"),
			"f:5:21: match.pa th: is not an attribute's name",
		},
		{rule("{match: {path: /, path: /a}, " + apply + "}"), "f:5:23: is not YAML: "},
		{
			rule("{match: {ip: 10.0.0.1/8}, " + apply + "}"),
			`f:5:18: match.ip[0]: "10.0.0.1/8" has bits behind`,
		},
		{
			rule("{apply: {limit: login, key: k}}"),
			"f:5:13: apply: must be a list of limits and keys, not a mapping",
		},
		{rule("{apply: [login]}"), "f:5:14: apply[0]: must be a mapping of fields, not a text"},
		{
			rule("{apply: [{limit: login, kei: k}]}"),
			"f:5:29: apply[0].kei: is unknown; an entry of apply has: limit, key",
		},
		{
			rule("{apply: [{limit: logn, key: k}]}"),
			`f:5:22: apply[0].limit: "logn" is the name of no limit here`,
		},
		{rule("{apply: [{limit: login}]}"), "f:5:14: apply[0].key: has 0 bytes"},
		{
			rule("{apply: [{limit: login, key: '{user'}]}"),
			`f:5:34: apply[0].key: "{user" has a { without a }`,
		},
		{
			rule("{apply: [{limit: login, key: 7}]}"),
			"f:5:34: apply[0].key: must be a text, not a number",
		},
		{rule("{unlimited: true, " + apply + "}"), "f:5:17: unlimited: stands beside apply"},
		{rule("{unlimited: false, " + apply + "}"), "f:5:17: unlimited: is false; leave it out"},
		{rule("{name: '', " + apply + "}"), "f:5:12: name: is empty"},
		{
			rule("{name: a, "+apply+"}") + "  - {name: a, " + apply + "}\n",
			`f:6:12: name: "a" is the name of another rule, of f`,
		},
		{
			strings.Replace(rule("{apply: [{limit: jobs, key: k}]}"), "rules:",
				"  - {name: jobs, algorithm: concurrency, limit: 1, per: 1m}\nrules:", 1),
			`f:6:22: apply[0].limit: "jobs" counts permits`,
		},
		// and not that a rule names what is not there
		{strings.Replace(rule("{"+apply+"}"), "limit: 10,", "limit: 0,", 1), "f:2:53: limit: is 0"},
	} {
		_, err := Parse("f", []byte(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) ||
			strings.Contains(c.want, "limit: is 0") && strings.Contains(err.Error(), "rules") {
			t.Errorf("%s\ngot:  %v\nwant: %s", c.text, err, c.want)
		}
	}
}

// Promise: rules are bounded.
func TestOneRuleTooMany(t *testing.T) {
	b := newBook()
	b.rules = make([]draftRule, rules.MaxRules-1)
	const two = twoLimits +
		"rules:\n- {apply: [{limit: login, key: k}]}\n- {apply: [{limit: login, key: k}]}\n"
	b.parse("f", []byte(two), (*page).top)
	if err := b.fault(); len(b.rules) != rules.MaxRules || err == nil ||
		!strings.HasPrefix(err.Error(), "f:6:3: rules: this is one rule too many; 20000 are "+
			"accepted") {
		t.Error(len(b.rules), err)
	}
}
