package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/bench/contest"
)

// TestMain lets the test's program measure, as the real one calls itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == measureVerb {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestContestOfLimiters runs a very short one, of processes of their own.
func TestContestOfLimiters(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if err := run(
		strings.Fields("limiters -rounds 1 -keys 1e2,1e3 -most 100 -time 1ms -collector 1e9 -o "+
			dir), &out, io.Discard,
	); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| | 1e2 | 1e3 |", "| penstock | ", "| x-time-rate-in-a-sync.Map | ", " × ",
		"`go run . limiters -rounds 1 -keys 1e2,1e3 ", "Medians of 1 rounds",
	} {
		if !strings.Contains(out.String(), strings.TrimSpace(want)) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
	for _, name := range []string{"limiters.md", "limiters.json"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(b) < 100 {
			t.Errorf("%s: %v, %d bytes", name, err, len(b))
		}
	}
}

// TestBadInput: what cannot be measured is an error that says so.
func TestBadInput(t *testing.T) {
	for args, want := range map[string]string{
		"servers":                `"servers" is no verb`,
		"-only nobody":           `"nobody" is no row; there are unary`,
		"-rounds 0":              "-rounds is 0",
		"-time 1ms":              "-time 1ms",
		"docs -from nowhere":     "no row was measured",
		"limiters -keys 0":       `-keys: "0"`,
		"limiters -keys many":    `-keys: "many"`,
		"limiters -keys 1e9":     `-keys: "1e9"`,
		"limiters -only nobody":  "nobody",
		"limiters -rounds 0":     "-rounds",
		"measure nobody {}":      `no contestant "nobody"`,
		"measure penstock {}":    "0 keys",
		"measure penstock keys":  "invalid character",
		"measure penstock":       "a contestant and a plan",
		"limiters -time nothing": "invalid value",
	} {
		err := run(strings.Fields(args), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestDocs: figures come between their marks, what stands around them stays, and a row that was not
// measured keeps its own.
func TestDocs(t *testing.T) {
	report := &contest.Report{
		Name: "unary", Title: "One check", Command: "go run .", Rounds: 1,
		Tables: []contest.Table{{Title: "Speed", Short: "speed", Figure: "n"}},
		Aims: []contest.Aim{{
			Work: "fast", Job: contest.Job{Contestant: "a", Point: "1"},
			Figure: "n", Better: contest.More, Want: 5,
		}},
		Samples: contest.Results{
			{
				Job:     contest.Job{Contestant: "a", Point: "1"},
				Figures: map[string]float64{"n": 7, contest.Others: 0.01},
			},
		},
	}
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	before := "a\n<!-- bench: aims -->old<!-- bench: end -->\nb\n<!-- bench: unary -->old<!-- " +
		"bench: end -->\nc\n<!-- bench: redis -->kept<!-- bench: end -->\nd\n"
	if err := os.WriteFile(page, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(report, io.Discard, dir); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time nothing changes
		if err := run(
			[]string{"docs", "-from", dir, "-page", page}, io.Discard, io.Discard,
		); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"a\n<!-- bench: aims -->\n", "| fast | itself | ≥ 5  | 7  | 7 – 7 | reached |\n",
		"<!-- bench: end -->\nb\n<!-- bench: unary -->\n`go run .`",
		"| 1 | a | 7 |", "![One check](performance-unary.svg)\n<!-- bench: end -->\nc\n",
		"<!-- bench: redis -->kept<!-- bench: end -->\nd\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old") || strings.Count(string(text), "| fast |") != 1 {
		t.Errorf("it was not replaced:\n%s", text)
	}
	for _, bad := range []string{
		"<!-- bench: unary -->",
		"<!-- bench: nobody --><!-- bench: end -->",
	} {
		if _, _, err := fill(bad, []*contest.Report{report}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
