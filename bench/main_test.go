package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/bench/contest"
	"penstock/bench/cores"
)

// TestMain lets the test's program measure, as the real one calls itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == measureVerb || os.Args[1] == coresVerb) {
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

// TestCores: the row has figures at every number of cores, from the machine or from the model, and
// judges them.
func TestCores(t *testing.T) {
	defer func(n int) { coresKeys = n }(coresKeys)
	coresKeys = 1000
	var out bytes.Buffer
	if err := run(
		strings.Fields("-only cores -rounds 1 -time 10ms"), &out, io.Discard,
	); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| | 1 | 2 | 4 | 8 | 16 |", "| table, Zipf | ", "| a table for each caller | ",
		"| table, uniform: 2 cores, of linear | itself | ≥ 0.85", "| ≤ 3 % |", "The model: ",
		"Time that callers wait for a lock",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}

// TestAtEachPoint: what the machine has is what was measured, and the model is asked for more.
func TestAtEachPoint(t *testing.T) {
	all := atEachPoint(contest.Sample{Round: 3, Figures: map[string]float64{contest.Others: 1}},
		[]cores.Point{
			{Cores: 1, Speed: 11},
			{Cores: 2, Speed: 20, Locks: map[string]float64{"a": 2, "b": 4}},
			{Cores: 16},
		})
	got := all[1].Figures
	if got[coresSpeed] != 20 || got[coresLinear] != 20.0/22 || got[coresLock] != 4 ||
		got[contest.Others] != 1 || all[1].Point != "2" || all[1].Round != 3 {
		t.Errorf("two cores: %+v", all[1])
	}
	if _, modelled := got[coresUSL]; modelled {
		t.Error("the model stands beside what was measured")
	}
	got = all[2].Figures
	if x := got[coresLinear]; x <= got[coresUSL] || x >= 20.0/22 ||
		math.Abs(got[coresSpeed]-16*11*x) > 1e-9 {
		t.Errorf("sixteen cores: %v", got)
	}
}

// TestBadInput: what cannot be measured is an error that says so.
func TestBadInput(t *testing.T) {
	for args, want := range map[string]string{
		"servers":                     `"servers" is no verb`,
		"-only nobody":                `"nobody" is no row; there are unary`,
		"-rounds 0":                   "-rounds is 0",
		"-time 1ms":                   "-time 1ms",
		"-join some":                  `-join: "some"`,
		"docs -from nowhere":          "no row was measured",
		"limiters -keys 0":            `-keys: "0"`,
		"limiters -keys many":         `-keys: "many"`,
		"limiters -keys 1e9":          `-keys: "1e9"`,
		"limiters -only nobody":       "nobody",
		"limiters -rounds 0":          "-rounds",
		"measure nobody {}":           `no contestant "nobody"`,
		"measure penstock {}":         "0 keys",
		"measure penstock keys":       "invalid character",
		"measure penstock":            "a contestant and a plan",
		"measure-cores nobody 1ms 10": `no contestant "nobody"`,
		"measure-cores":               "a contestant, a time",
		"limiters -time nothing":      "invalid value",
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
		"a\n<!-- bench: aims -->\n",
		"| fast | itself | ≥ 5  | 7  | 7 – 7 | 0.01 cores | reached |\n",
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
