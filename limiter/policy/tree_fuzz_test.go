package policy

import (
	"slices"
	"strings"
	"testing"

	"penstock/limiter"
)

// Promise: limits of which the parents may be written elsewhere are those of Parse where that
// accepts them, else an error with a place or limits with the parents that they name; and each can
// be put after those above it, unless they are above each other.
func FuzzParseParts(f *testing.F) {
	gcra := ", algorithm: gcra, limit: 10, per: 1m"
	for _, text := range []string{
		"limits: [{name: a" + gcra + "}]\n",
		"limits: [{name: a" + gcra + ", parent: b}]\n",
		"limits: [{name: a" + gcra + ", parent: b}, {name: b" + gcra + "}]\n",
		"limits: [{name: a" + gcra + ", parent: b}, {name: b" + gcra + ", parent: a}]\n",
		"limits: [{name: a" + gcra + ", parent: a}]\n",
		"limits: [{name: a" + gcra + ", parent: }]\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		parted, err := ParseParts("f", text)
		if (parted == nil) == (err == nil) {
			t.Fatalf("set %v, error %v", parted, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "f") {
			t.Fatalf("an error without a place: %v", err)
		}
		if whole, e := Parse("f", text); e == nil {
			if err != nil || len(parted.Limits) != len(whole.Limits) {
				t.Fatalf("%d limits of the file, and %v, %v", len(whole.Limits), parted, err)
			}
			for name, l := range whole.Limits {
				if got := parted.Limits[name]; got == nil || !got.SameAs(l) {
					t.Fatalf("%s is %+v, and %+v in parts", name, l, got)
				}
			}
		}
		if err != nil {
			return
		}
		order := ParentsFirst(parted.Limits)
		if len(order) != len(parted.Limits) {
			t.Fatalf("%d limits in the order %q", len(parted.Limits), order)
		}
		for _, l := range parted.Limits { // a circle, or too many levels: no cluster takes them
			levels := 0
			for at := l; at != nil && levels <= limiter.MaxLevels; at = parted.Limits[at.Parent] {
				levels++
			}
			if levels > limiter.MaxLevels {
				return
			}
		}
		for i, name := range order {
			above := parted.Limits[name].Parent
			if above != "" && slices.Contains(order[i:], above) {
				t.Fatalf("%s comes before its parent %s: %q", name, above, order)
			}
		}
	})
}
