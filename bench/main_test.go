package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if err := run(strings.Fields("limiters -rounds 1 -keys 1e2,1e3 -most 100 -time 1ms -collector 1e9 -o "+dir), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| | 1e2 keys | 1e3 keys |", "| penstock | ", "| x-time-rate-in-a-sync.Map | ", " × ",
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
		"":                       "say what to measure",
		"servers":                "say what to measure",
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
