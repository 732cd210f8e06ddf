package main

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var planted = flag.Bool(
	"planted",
	false,
	"also build nodes with faults, and run three processes for half a minute",
)

// plant writes an overlay for go build in which one file of the product has another text.
func plant(t *testing.T, file, old, instead string) (overlay string) {
	t.Helper()
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(top, file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), old); n != 1 {
		t.Fatalf("%s has %q %d times: this planted fault needs another place", file, old, n)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), old, instead, 1)),
		0o644); err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o644); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// Real processes with a fault in them are found out, by the promise that the fault breaks.
func TestPlantedFaultsAreFound(t *testing.T) {
	if !*planted {
		t.Skip("goes by the clock of a calm machine: go test ./history -planted")
	}
	for _, x := range []struct {
		name, file, old, instead string
		faults, rule             string
	}{
		{
			"no copies are sent", "cluster/copy.go", "m.Entries = o.takeEntries(now)",
			"o.takeEntries(now)", "kill", "nothing is lost (kill)",
		},
		{
			"ids are not remembered", "cluster/dedup/dedup.go",
			"if p := s.findLocked(now, id, place, 1); p >= 0 {\n\t\t*out",
			"if p := s.findLocked(now, id, place, 1); p >= 1<<60 {\n\t\t*out", "reload",
			"charged once (calm)",
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			var out strings.Builder
			err := history([]string{
				"-seconds", "6", "-seed", "5", "-nodes", "3", "-rate", "200", "-loopback",
				"-faults", x.faults,
				"-overlay", plant(t, x.file, x.old, x.instead),
			}, &out)
			if !errors.Is(err, errContradicted) ||
				!strings.Contains(out.String(), "CONTRADICTION: "+x.rule) {
				t.Errorf("%v; want %q\n%s", err, x.rule, out.String())
			}
		})
	}
}
