package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"penstock/limiter/policy"
)

func imported(from, text string) (*draft, error) {
	d := &draft{file: "FILE"}
	return d, importers[from](d, []byte(text))
}

// Promise: a file that nests blocks or lists without end is an error with its line. It neither ends
// the program nor takes hours.
func TestImportOfDeepFiles(t *testing.T) {
	for _, c := range []struct{ from, text string }{
		{"nginx", "\n" + strings.Repeat("a{", 8<<20)},
		{"kong", "a:\n  " + strings.Repeat("[", 1<<20)},
		{"kong", "a:\n" + strings.Repeat("- ", 1<<20)},
	} {
		_, err := imported(c.from, c.text)
		if err == nil || !strings.Contains(err.Error(), "FILE:2: more than 256 ") {
			t.Errorf("%s: %.80q: %.80v", c.from, c.text, err)
		}
	}
}

// Promise: a duration of Gubernator becomes a period that files accept, or an error with its text.
func TestImportOfDurations(t *testing.T) {
	for ms, want := range map[string]string{
		"1": "1ms", "1500": "1500ms", "60500": "60500ms", "90000": "1m30s",
		"18446744073711": "", "-1": "",
	} {
		d, err := imported("gubernator", `{"name":"a","limit":1,"duration":`+ms+`}`)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), ms) {
				t.Errorf("%s ms: %v", ms, err)
			}
			continue
		}
		if err == nil {
			_, err = policy.Parse("out", []byte(d.yaml("gubernator")))
		}
		if err != nil || !strings.Contains(d.yaml(""), " per: "+want+",") {
			t.Errorf("%s ms: %v\n%s", ms, err, d.yaml(""))
		}
	}
}

// Promise: what is not carried over is said once, however many lines it is true of; and of a Redis
// other commands are passed over, also those about a key with the name of this one.
func TestImportOfManyLines(t *testing.T) {
	text := new(strings.Builder)
	for i := range 1000 {
		fmt.Fprintf(text, "CL.THROTTLE k%d 1 2 3\n", i)
	}
	text.WriteString("1339518083.2 [0 [::1]:60866] \"get\" \"cl.throttle:x\"\n")
	text.WriteString("1339518083.2 [0 127.0.0.1:60866] \"Cl.Throttle\" \"a:x\" \"4\" \"5\" \"6\"\n")
	d, err := imported("redis-cell", text.String())
	if err != nil || len(d.limits) != 2 || d.limits[1].name != "a" || len(d.notes) != 1 ||
		!strings.HasPrefix(d.notes[0], "FILE:1: ") {
		t.Errorf("%v, %d limits, %d notes: %.200q", err, len(d.limits), len(d.notes), d.notes)
	}
}

// Promise: each plugin of Kong has limits of its own, for what it is for and for nothing else.
func TestImportOfKongPlaces(t *testing.T) {
	const limit = "{name: rate-limiting, config: {minute: %d, limit_by: ip}%s}"
	five := func(more string) string { return fmt.Sprintf(limit, 5, more) }
	const shop = "services: [{name: shop, routes: [{paths: [/a]}]}]\nplugins: ["
	const user = "consumers: [{username: shop, plugins: [{name: rate-limiting, " +
		"config: {minute: 1}}]}]\n"
	for _, c := range []struct {
		text string
		want []string
	}{
		{"services: [{name: s, routes: [{paths: [/a], plugins: [" + five("") + "]}, " +
			"{paths: [/b], plugins: [" + fmt.Sprintf(limit, 9, "") + "]}]}]", []string{
			`{name: "route-minute", algorithm: fixed_window, limit: 5,`,
			`{name: "route-minute-2", algorithm: fixed_window, limit: 9,`,
			"match: {path: \"/b*\"}\n    apply: [{limit: \"route-minute-2\", key: \"{ip}\"}]",
		}},
		{shop + five(", service: shop, consumer: bob") + "]", []string{
			"match: {path: \"/a*\", user: bob}\n    apply: [{limit: \"shop-bob-minute\"",
		}},
		{shop + five(", service: other") + "]", nil},
		{shop + five(", route: other") + "]", nil},
		{"services: [{name: shop, plugins: [" + five("") + "]}]", []string{"shop-minute"}},
		{
			user + "services: [{name: shop, routes: [{paths: [/a]}], plugins: [" + five("") + "]}]",
			[]string{
				"limit: 5,", "limit: 1,",
				"user: shop}\n    apply: [{limit: \"shop-minute-2\"",
			},
		},
	} {
		d, err := imported("kong", c.text)
		if c.want == nil != (err != nil) {
			t.Errorf("%s: %v", c.text, err)
		}
		if out := d.yaml("kong"); slices.ContainsFunc(c.want, func(want string) bool {
			return !strings.Contains(out, want)
		}) {
			t.Errorf("%s\nis\n%s\nwant %q", c.text, out, c.want)
		}
	}
	d, err := imported("kong", "services: [{name: shop, plugins: ["+five("")+"]}]")
	if err != nil || len(d.notes) != 1 || !strings.Contains(d.notes[0], "no rule applies it") {
		t.Errorf("a service without routes: %v, %q", err, d.notes)
	}
}
