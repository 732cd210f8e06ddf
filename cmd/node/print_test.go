package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567",
		-1000: "-1,000", -999: "-999",
	} {
		if got := thousands(n); got != want {
			t.Errorf("%d is %s; want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", 500: "500ns", 1500: "1.5µs", 123_456: "123µs", 4_567_000: "4.57ms",
		7_891_000_000: "7.89s", 90 * time.Second: "1m30s",
	} {
		if got := brief(d); got != want {
			t.Errorf("%d ns is %s; want %s", int64(d), got, want)
		}
	}
}

// Lines break between words, and what is behind an address stays with it: it can be clicked.
func TestInLines(t *testing.T) {
	const address = "http://127.0.0.1:7959/ui/#failures"
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"06:33:38  short", 20, "06:33:38  short"},
		{"06:33:38  node-1 is – so", 17, "06:33:38  node-1\n          is – so"},
		{"06:33:38  see " + address, 40, "06:33:38  see\n          " + address},
		{"", 0, ""},
	} {
		if got := inLines(c.text, c.width, 10); got != c.want {
			t.Errorf("%q in %d columns is %q; want %q", c.text, c.width, got, c.want)
		}
	}
}

// A file, a pipe and /dev/null are not redrawn.
func TestNoTerminal(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if isTerminal(null) || isTerminal(new(bytes.Buffer)) {
		t.Error("/dev/null or a buffer is taken for a terminal")
	}
}

// The block stays below what is written: each change erases exactly the lines that were drawn.
func TestScreen(t *testing.T) {
	var out bytes.Buffer
	s := screen{out: &out}
	s.show("a\nb\n")
	s.Write([]byte("log\n"))
	s.show("c\n")
	s.show("")
	want := "a\nb\n" + "\x1b[2A\x1b[J" + "log\n" + "a\nb\n" + "\x1b[2A\x1b[J" + "c\n" +
		"\x1b[1A\x1b[J"
	if out.String() != want {
		t.Errorf("%q\nwant\n%q", out.String(), want)
	}
}

// The live table never wraps in 80 columns: a wrapped line would not be erased.
func TestTableFits(t *testing.T) {
	c := counts{}
	for range demoNodes {
		c.nodes = append(c.nodes, nodeCounts{
			name: "node-1", state: "leaving", allowed: 9_999_999, denied: 9_999_999,
			forwarded: 9_999_999, keys: 9_999_999, perSecond: 99999.9,
		})
	}
	for line := range strings.Lines(c.table()) {
		if n := len(strings.TrimRight(line, "\n")); n > 79 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
