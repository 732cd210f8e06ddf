package policy

import (
	"strings"
	"testing"
)

// Promise: whatever a file says, and however it is written, a promoted text says the same but for
// the limit, which has its candidate's values and no candidate; or there is an error and no text.
func FuzzPromote(f *testing.F) {
	gcra := "algorithm: gcra, limit: 10, per: 1m"
	lines := strings.NewReplacer("{", "\n    ", ", ", "\n    ", "}", "\n")
	for _, text := range []string{
		lines.Replace("limits:\n  - name: a{" + gcra + ", candidate:\n      limit: 20}"),
		lines.Replace("limits:\n  - name: a{"+gcra+", candidate: }") + "{limit: 5, per: 1h}\n",
		"limits: [{name: a, " + gcra + ", candidate: {limit: 20}}]\n",
		lines.Replace("limits:\n  - candidate:\n      limit: 3{name: a, " + gcra +
			" # y}rules: []\n"),
		lines.Replace(
			"limits:\n  - name: a{limit: 9, per: |\n      1m, candidate:\n      limit: 2}"),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before, err := Parse("the file", text)
		if err != nil {
			return
		}
		for name, l := range before.Limits {
			out, err := Promote("the file", text, name)
			if err != nil {
				if out != nil {
					t.Fatalf("%v, and %q", err, out)
				}
				continue
			}
			want, err := l.Promoted()
			if err != nil || want == nil {
				t.Fatalf("%s has no candidate, and is promoted: %q, %v", name, out, err)
			}
			after, err := Parse("the file", out)
			if err != nil {
				t.Fatalf("%q: %v", out, err)
			}
			for other, l := range before.Limits {
				if other == name {
					l = want
				}
				if got := after.Limits[other]; got == nil || !l.SameAs(got) {
					t.Fatalf("promoting %s changes %s to %+v:\n%s", name, other, got, out)
				}
			}
			if len(after.Limits) != len(before.Limits) {
				t.Fatalf(
					"promoting %s leaves %d of %d limits",
					name,
					len(after.Limits),
					len(before.Limits),
				)
			}
		}
	})
}
