package gossip

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The promise: the library's lines keep their level, and lose what only repeats where they come
// from.
func TestLinesOfTheLibrary(t *testing.T) {
	for _, row := range []struct {
		line  string
		level slog.Level
		text  string
	}{
		{
			"[DEBUG] memberlist: Stream connection from=1.2.3.4:5\n", slog.LevelDebug,
			"Stream connection from=1.2.3.4:5",
		},
		{"[INFO] memberlist: Suspect a has failed", slog.LevelInfo, "Suspect a has failed"},
		{"[WARN] memberlist: Refuting", slog.LevelWarn, "Refuting"},
		{"[ERR] memberlist: Failed", slog.LevelError, "Failed"},
		{"[ERROR] memberlist: Failed", slog.LevelError, "Failed"},
		{"[ERR] Failed to shutdown transport", slog.LevelError, "Failed to shutdown transport"},
		{"Err: Could not set the deadline", slog.LevelWarn, "Err: Could not set the deadline"},
		{"[", slog.LevelWarn, "["},
		{"", slog.LevelWarn, ""},
	} {
		level, text := parseLine(row.line)
		if level != row.level || text != row.text {
			t.Errorf("%q is %v %q, want %v %q", row.line, level, text, row.level, row.text)
		}
	}
}

// The promise: nobody fills the disk by sending rubbish to the gossip port; what is left out is
// counted.
func TestFloodOfLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := &libraryLog{to: slog.New(slog.NewTextHandler(&out, nil))}
		for i := range 1000 {
			fmt.Fprintf(l, "[ERR] memberlist: rubbish %d", i)
			fmt.Fprintf(l, "[DEBUG] memberlist: not even looked at")
		}
		time.Sleep(time.Second)
		fmt.Fprintf(l, "[ERR] memberlist: the next second")
		text := out.String()
		if n := strings.Count(text, "rubbish"); n != linesPerSecond {
			t.Errorf("%d lines", n)
		}
		for _, want := range []string{"dropped=990", "the next second"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	})
}

// Promise: a name that a stranger has made up does not make a line of the log long.
func TestLongLines(t *testing.T) {
	var out strings.Builder
	l := &libraryLog{to: slog.New(slog.NewTextHandler(&out, nil))}
	fmt.Fprintf(l, "[ERR] memberlist: no room for %s", strings.Repeat("é", 50_000))
	if n := len(out.String()); n > 2*longestLine || !strings.Contains(out.String(), "…") {
		t.Errorf("a line of %d bytes", n)
	}
}
