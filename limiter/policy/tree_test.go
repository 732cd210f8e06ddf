package policy

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Promise: parents are found in all files of a directory, and what is wrong with one is said where
// it is written.
func TestParentsOfOtherFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.yaml", "limits:\n  - {name: user, algorithm: gcra, limit: 5, per: 1m, parent: team}\n")
	write("b.yaml", "limits:\n  - {name: team, algorithm: gcra, limit: 5, per: 1m}\n")
	set, err := Load(dir)
	if err != nil || set.Limits["user"].Parent != "team" {
		t.Fatalf("%v, %v", set, err)
	}
	write("b.yaml", "limits:\n  - {name: teams, algorithm: gcra, limit: 5, per: 1m}\n")
	_, err = Load(dir)
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Line != 2 ||
		filepath.Base(faults[0].File) != "a.yaml" || faults[0].Field != "parent" {
		t.Errorf("%v, want one fault in a.yaml", err)
	}
	if set, err = LoadParts(dir); err != nil || set.Limits["user"].Parent != "team" {
		t.Errorf("in parts: %v, %v", set, err)
	}
}

// Promise: limits are put after those above them.
func TestParentsFirst(t *testing.T) {
	set, err := ParseParts("f", []byte(`limits:
  - {name: a, algorithm: gcra, limit: 5, per: 1m, parent: z}
  - {name: b, algorithm: gcra, limit: 5, per: 1m}
  - {name: z, algorithm: gcra, limit: 5, per: 1m, parent: y}
  - {name: y, algorithm: gcra, limit: 5, per: 1m, parent: elsewhere}
  - {name: p, algorithm: gcra, limit: 5, per: 1m, parent: q}
  - {name: q, algorithm: gcra, limit: 5, per: 1m, parent: p}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"b", "y", "z", "a", "p", "q"}
	if got := ParentsFirst(set.Limits); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
