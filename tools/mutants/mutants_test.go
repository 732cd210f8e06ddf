package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The operators must be able to find what a test misses, and must call nothing else a survivor.
func TestSurvivorsOfAPlantedMiss(t *testing.T) {
	r := &room{name: "miss", dir: ".", tests: []step{{pkg: "."}}}
	w, err := newWorkshop("testdata/miss")
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	w.leastTime = 5 * time.Second
	drawn, err := r.mutants("testdata/miss", 1)
	if err != nil {
		t.Fatal(err)
	}
	var lives, same []string
	ends := false
	for _, m := range drawn {
		v, err := w.try(m)
		if err != nil {
			t.Fatal(err)
		}
		switch v.kind {
		case survived:
			lives = append(lives, m.fingerprint())
		case identical:
			same = append(same, m.fingerprint())
		case killed:
			ends = ends || strings.HasSuffix(v.by, "(no end)") && m.function == "Until"
		}
	}
	slices.Sort(lives)
	slices.Sort(same)
	want := []string{
		"miss Admits: < instead of <=: used+cost <= limit", // never asked at the limit
		"miss Tokens.Take: drop the statement: t.left--",   // never asked twice
		"miss Tokens.Take: one more: 0",                    // nor asked for the last
		"miss Tokens.Take: return true at once: bool",      // nor asked of none
	}
	if !slices.Equal(lives, want) {
		t.Errorf("survivors:\n%s\nwant:\n%s", strings.Join(lives, "\n"), strings.Join(want, "\n"))
	}
	if want := []string{"miss Same: - instead of +: 1 + none"}; !slices.Equal(same, want) {
		t.Errorf("compile to the same: %q, want %q", same, want)
	}
	if !ends {
		t.Error("Until without its count is not a kill: a hang must be one")
	}
}

// A sample holds the same mutants after an edit of another function.
func TestOrderFollowsFingerprints(t *testing.T) {
	r := &room{name: "miss", dir: "."}
	source, err := os.ReadFile("testdata/miss/miss.go")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	order := func(text string) (names []string) {
		if err := os.WriteFile(filepath.Join(root, "miss.go"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		list, err := r.mutants(root, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if m.function != "More" {
				names = append(names, m.fingerprint())
			}
		}
		return names
	}
	before := order(string(source))
	const more = "func More(a int) bool { return a < 1 && a > 0 }\n\n// Admits"
	after := order(strings.Replace(string(source), "// Admits", more, 1))
	if !slices.Equal(before, after) {
		t.Errorf("before:\n%s\nafter:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// Each hand-written mutant finds its lines, and each explained survivor is an edit of the tree.
func TestListsAreOfToday(t *testing.T) {
	byHand, err := readPlanted("../..", "planted.txt", rooms)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range byHand {
		if known[m.fingerprint()] {
			t.Errorf("%s is there twice", m.fingerprint())
		}
		known[m.fingerprint()] = true
		if m.stale != nil {
			t.Errorf("planted.txt: %v", m.stale)
		}
	}
	for _, r := range rooms {
		drawn, err := r.mutants("../..", 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(drawn) < r.n {
			t.Errorf("%s has %d mutants, of %d that are asked for", r.name, len(drawn), r.n)
		}
		for _, m := range drawn {
			known[m.fingerprint()] = true
		}
	}
	reasons, err := readExplained("explained.txt")
	if err != nil {
		t.Fatal(err)
	}
	for print := range reasons {
		if !known[print] {
			t.Errorf("explained.txt: there is no mutant %q any more: remove it", print)
		}
	}
}

func TestPlantedIsRefused(t *testing.T) {
	root := t.TempDir()
	source := []byte("package a\n\nvar x = 1\nvar x = 1\nvar y = 2\n")
	if err := os.WriteFile(filepath.Join(root, "a.go"), source, 0o666); err != nil {
		t.Fatal(err)
	}
	list := []*room{{name: "a", dir: "."}}
	for entry, want := range map[string]string{
		"a: n\nbreaks: p\nin a.go\n-var y = 2\n+var y = 3": "",
		"a: n\nbreaks: p\nin a.go\n-var x = 1":             "stand 2 times",
		"a: n\nbreaks: p\nin a.go\n-var z = 1":             "stand 0 times",
		"a: n\nbreaks: p\nin b.go\n-var z = 1":             "no such file",
		"b: n\nbreaks: p\nin a.go\n-var y = 2":             "no room",
		"a: n\nin a.go\n-var y = 2":                        "needs a name",
	} {
		m, err := planted(root, entry, list)
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", entry, err)
			} else if !strings.Contains(string(m.apply()), "var y = 3\n") {
				t.Errorf("%q is not applied: %s", entry, m.apply())
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", entry, err, want)
		}
	}
}

// In these rooms nearly all drawn mutants can sleep in one package, and it compiles with them.
func TestMutantsSleep(t *testing.T) {
	for _, name := range []string{"ring", "frames", "denial"} {
		r := roomOf(rooms, name)
		drawn, err := r.mutants("../..", 1)
		if err != nil {
			t.Fatal(err)
		}
		s, err := putToSleep("../..", t.TempDir(), r, drawn)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d of %d mutants sleep", r.name, len(s.number), len(drawn))
		if len(s.number)*10 < len(drawn)*9 {
			t.Errorf("%s: only %d of %d mutants can sleep", r.name, len(s.number), len(drawn))
		}
	}
}
