package main

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
)

// A log is text where somebody reads along, also at a terminal that cannot redraw, and JSON
// elsewhere; a word on the command line goes before that.
func TestLogFormat(t *testing.T) {
	t.Setenv("TERM", "dumb")
	terminal, err := os.Open("/dev/ptmx")
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	for _, c := range []struct {
		word         string
		there, piped string
	}{
		{"auto", "text", "json"},
		{"", "text", "json"},
		{"text", "text", "text"},
		{"json", "json", "json"},
	} {
		f := logFormat{LogFormat: c.word}
		if there, piped := f.of(terminal), f.of(new(bytes.Buffer)); there != c.there ||
			piped != c.piped {
			t.Errorf("--log-format %q: %s on a terminal, %s elsewhere; want %s and %s", c.word,
				there, piped, c.there, c.piped)
		}
	}
}

// A duration in a log has its unit in both formats, also in a group: "age":951000000 was read as
// anything.
func TestLogDurations(t *testing.T) {
	for format, want := range map[string]string{
		"text": "g.age=951ms",
		"json": `"g":{"age":"951ms"}`,
	} {
		var out bytes.Buffer
		newLogger(&out, format, slog.LevelInfo).Info("restored",
			slog.Group("g", "age", 951*time.Millisecond))
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: %s; want %s in it", format, &out, want)
		}
	}
}
