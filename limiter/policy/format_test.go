package policy

import (
	"strings"
	"testing"
)

// Promise: what Format writes of a limit, Define reads as the same one, with overrides and
// candidate.
func TestFormatThereAndBack(t *testing.T) {
	set, err := Load("testdata/format.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range set.Limits {
		text := Format(l)
		again, err := Define(text)
		if err != nil || !l.SameAs(again) {
			t.Errorf("%s was written as %s, and read as %+v, %v", name, text, again, err)
			continue
		}
		for _, key := range []string{"a", "*", "plan:pro/x", "10.1.2.3"} {
			if a, b := l.For(key).Spec, again.For(key).Spec; a != b {
				t.Errorf("%s: the key %s had %+v and has %+v", name, key, a, b)
			}
		}
	}
}

func TestDefineRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:   "limit:1:1: the definition of the limit is empty",
		`[]`: "a limit must be a mapping of fields",
		`{"name":"x","algorithm":"gcra","limit":1}`: "per", `{"nam":"x"}`: "nam: is unknown",
	} {
		l, err := Define([]byte(text))
		if l != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", text, l, err)
		}
	}
}
