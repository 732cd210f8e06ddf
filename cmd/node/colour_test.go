package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Colours do not move a table's columns, and a cell is coloured where it stands and not where its
// text is part of another.
func TestPaintCells(t *testing.T) {
	rows := [][]string{{"NAME", "STATE"}, {"active-1", "active"}, {"b", "failed", "x"}}
	var table strings.Builder
	if err := columns(&table, rows); err != nil {
		t.Fatal(err)
	}
	got := paintCells(table.String(), rows, func(row, column int) string {
		if row == 0 || column != 1 {
			return ""
		}
		return stateColour(rows[row][column])
	})
	want := "NAME      STATE\nactive-1  \x1b[32mactive\x1b[0m\n" +
		"b         \x1b[31mfailed\x1b[0m  x\n"
	if got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	plain := regexp.MustCompile(`\x1b\[[0-9]+m`).ReplaceAllString(got, "")
	if plain != table.String() {
		t.Errorf("without colours: %q; want the table %q", plain, table.String())
	}
}

// On a terminal a verdict has a colour; with NO_COLOR, with TERM=dumb and in a pipe it has none.
func TestNoColour(t *testing.T) {
	if _, err := exec.LookPath("script"); err != nil {
		t.Skip("no program script, which makes a terminal")
	}
	limits := filepath.Join(t.TempDir(), "limits.yaml")
	text := "limits:\n  - {name: a, algorithm: gcra, limit: 1, per: 1s}\n"
	if err := os.WriteFile(limits, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  []string
		tty  bool
		want bool
	}{
		{[]string{"TERM=xterm"}, true, true},
		{[]string{"TERM=xterm", "NO_COLOR=1"}, true, false},
		{[]string{"TERM=dumb"}, true, false},
		{[]string{"TERM=xterm"}, false, false},
	} {
		cmd := exec.Command(built, "policy", "validate", limits)
		if c.tty {
			cmd = exec.Command("script", "-qec", built+" policy validate "+limits, os.DevNull)
		}
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "TERM=") && !strings.HasPrefix(v, "NO_COLOR=") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, c.env...)
		out, err := cmd.CombinedOutput()
		got := strings.Contains(string(out), "\x1b[")
		if err != nil || !strings.Contains(string(out), "ok") || got != c.want {
			t.Errorf("%v, terminal %v: %v, %q; want colours: %v", c.env, c.tty, err, out, c.want)
		}
	}
}
